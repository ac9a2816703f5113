"""What a connection of a SASL listener may ask so far: who it is has to be said before anything else.

    ApiVersions* -> SaslHandshake -> SaslAuthenticate ... -> everything, until the session is over

After `connections.max.reauth.ms`, and when the token that it has brought is over, only the same user may go
on, by the same way (KIP-368). A handshake of v0 is followed by bare tokens, frames without a header. Mirrors
Kafka's `SaslServerAuthenticator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING

from broker.security.bearer import Bearer, Token
from broker.security.principal import USER
from broker.security.sasl import Conversation, Plain, Refused, Scram
from config.security import OAUTHBEARER, PLAIN
from protocol.errors import ErrorCode, KafkaError
from protocol.scram import Credential

if TYPE_CHECKING:
    from broker.counters import Counters
    from broker.security.users import Users
    from config.security import ListenerSecurity

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
OVER = "SaslAuthenticate request received after successful authentication"
MOST_OFTEN_MS = 1000
"""Kafka's MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS: who proves itself again does so once in this time"""
_ASKED_BEFORE = "before the client has said who it is (SASL)"


class State(Enum):
    """How far a client has come."""

    HANDSHAKE = auto()
    TOKENS = auto()
    BARE_TOKENS = auto()
    OPEN = auto()
    REFUSED = auto()


class Session:
    """Owned by: event loop."""

    def __init__(
        self,
        security: ListenerSecurity,
        users: Users,
        plain_users: Mapping[str, str],
        validate: Callable[[str], Token] | None,
        counters: Counters,
        opened: Callable[[str], None],
    ) -> None:
        """`validate` is asked what a token says, where clients may bring one (InvalidToken);
        `opened(principal)`: the client has said who it is.
        """
        self._security = security
        self._users = users
        self._plain_users = plain_users
        self._validate = validate
        self._counters = counters
        self._opened = opened
        self._state = State.HANDSHAKE
        self._conversation: Conversation | None = None
        self._mechanism = ""
        self._principal: str | None = None
        self._ends_ms: int | None = None
        self._begun_again_ms: int | None = None

    def is_open(self, now_ms: int) -> bool:
        """Whether everything may be asked."""
        return self._state is State.OPEN and (self._ends_ms is None or now_ms < self._ends_ms)

    @property
    def takes_bare_tokens(self) -> bool:
        return self._state is State.BARE_TOKENS

    def why_not(self, key: int) -> str | None:
        """Why a request must not be answered while the session is not open; None when it may be."""
        match self._state:
            case State.HANDSHAKE if key in (API_VERSIONS, SASL_HANDSHAKE):
                return None
            case State.TOKENS if key == SASL_AUTHENTICATE:
                return None
            case State.OPEN if key == SASL_HANDSHAKE:
                return None
            case State.OPEN:
                return "the session is over, and the client has not proved again who it is"
            case State.REFUSED:
                return "the client was refused"
        return f"asked {_ASKED_BEFORE}"

    @property
    def mechanisms(self) -> list[str]:
        """What is offered."""
        return list(self._security.keys.sasl_enabled_mechanisms)

    def begin(self, mechanism: str, now_ms: int, *, sends_bare_tokens: bool) -> None:
        """A mechanism was chosen. KafkaError."""
        is_again = self._state is State.OPEN
        if self._state is not State.HANDSHAKE and not (is_again and self._may_begin_again(now_ms)):
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
        if mechanism not in self.mechanisms or (is_again and mechanism != self._mechanism):
            self._refuse()
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self._mechanism = mechanism
        self._conversation = self._conversation_by(mechanism)
        self._state = State.BARE_TOKENS if sends_bare_tokens else State.TOKENS
        self._begun_again_ms = now_ms if is_again else None

    def _may_begin_again(self, now_ms: int) -> bool:
        """Where sessions end, the first time at once, then not twice in a second: Kafka's `KafkaChannel`."""
        if self._ends_ms is None:
            return False
        # A clock that was set back shuts nobody out.
        return self._begun_again_ms is None or not 0 <= now_ms - self._begun_again_ms < MOST_OFTEN_MS

    def _conversation_by(self, mechanism: str) -> Conversation:
        if mechanism == PLAIN:
            return Plain(self._plain_users)
        if mechanism == OAUTHBEARER:
            assert self._validate is not None
            return Bearer(self._validate)
        return Scram(mechanism, self._credential_of)

    def _credential_of(self, user: str) -> Credential | None:
        return self._users.credential(self._mechanism, user)

    def answer(self, token: bytes, now_ms: int) -> bytes:
        """The next token. Refused: the client is not let in, and asks nothing any more. KafkaError."""
        if self._conversation is None or self._state not in (State.TOKENS, State.BARE_TOKENS):
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, OVER)
        try:
            answer = self._conversation.answer(token)
            if self._conversation.user is not None:
                self._open(f"{USER}{self._conversation.user}", self._conversation.expires_ms, now_ms)
        except Refused:
            self._refuse()
            raise
        return answer

    def _refuse(self) -> None:
        self._state = State.REFUSED
        self._counters.failed_authentications += 1

    def _open(self, principal: str, expires_ms: int | None, now_ms: int) -> None:
        if self._principal is not None and principal != self._principal:
            old, new = (one.replace(":", ".", 1) for one in (self._principal, principal))  # Kafka's spelling
            raise Refused(f"Cannot change principals during re-authentication from {old}: {new}")
        self._principal = principal
        self._conversation = None
        self._state = State.OPEN
        session_ms = self._security.session_ms(self._mechanism)
        ends = [now_ms + session_ms] if session_ms else []
        ends += [] if expires_ms is None else [max(now_ms, expires_ms)]
        self._ends_ms = min(ends, default=None)
        self._counters.authentications += 1
        self._opened(principal)

    def lifetime_ms(self, now_ms: int) -> int:
        """How long the session lasts from now on; 0 is for ever, or that there is none yet."""
        return 0 if self._ends_ms is None or self._state is not State.OPEN else self._ends_ms - now_ms
