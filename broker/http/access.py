"""Who asks over HTTP, and what that user may do there.

The rules are those that hold for Kafka's clients (`authorizer.class.name`); without any, all may do all. Who
gives a name and a password (Basic, RFC 7617) is the user that the mechanisms PLAIN and SCRAM know, who gives
a token (Bearer, RFC 6750) whom OAUTHBEARER knows by it; who gives none is ANONYMOUS. What ANONYMOUS may not
do is asked again with a 401, which browsers turn into a question. Where `super.users` has ANONYMOUS, that is
meant for this machine, and holds for nobody from elsewhere: rules alone do. Nor is everyone of
`allow.everyone.if.no.acl.found` whoever reaches HTTP, which lets in whom no listener of Kafka's may.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from aiohttp import web

from broker.quotas.addresses import address_of
from broker.security.acls import CLUSTER_NAME, Asker, Operation, Resource
from broker.security.bearer import InvalidToken
from broker.security.principal import ANONYMOUS, USER, name_of, rules_of
from broker.security.subject import subject_of
from broker.security.users import plain_users
from config.security import PLAIN
from protocol.scram import HASHES, Credential, credential, salt_password

if TYPE_CHECKING:
    from broker.broker import Broker

logger = logging.getLogger(__name__)

CHALLENGE = {"WWW-Authenticate": 'Basic realm="kompakt", charset="UTF-8"'}
FORWARDED = ("Forwarded", "X-Forwarded-For")
"""what a proxy says of whom it asks for"""
MOST_PROVEN = 256
"""headers that are remembered: to prove one anew takes milliseconds"""
TOLD_EVERY_MS = 10_000
"""no more than one line of the log tells of refusals within so long: who guesses does not fill it"""
LATE_MS = web.RequestKey("late_ms", int)
"""the answer has to wait for so long, with a connection that gives way to others (`server.py`)"""
ASKER: web.RequestKey[Asker | None] = web.RequestKey("asker")


class Right(NamedTuple):
    """What a request needs; `of` is the part of its path, or else the parameter, that has the name.
    None: it is the cluster's.
    """

    operation: Operation
    resource: Resource = Resource.CLUSTER
    of: str | None = None


SEE_BROKER = Right(Operation.DESCRIBE)
ALTER_BROKER = Right(Operation.ALTER)
SEE_QUOTAS = Right(Operation.DESCRIBE_CONFIGS)
ALTER_QUOTAS = Right(Operation.ALTER_CONFIGS)
SEE_TOPIC = Right(Operation.DESCRIBE, Resource.TOPIC, "topic")
READ_TOPIC = Right(Operation.READ, Resource.TOPIC, "topic")
ALTER_TOPIC = Right(Operation.ALTER, Resource.TOPIC, "topic")
DELETE_TOPIC = Right(Operation.DELETE, Resource.TOPIC, "topic")
SEE_GROUP = Right(Operation.DESCRIBE, Resource.GROUP, "group")
READ_GROUP = Right(Operation.READ, Resource.GROUP, "group")


class NotAllowed(Exception):
    """Told with this status; 401 asks who it is."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def headers(self) -> Mapping[str, str]:
        return {401: CHALLENGE, 429: {"Retry-After": "1"}}.get(self.status, {})


class _Known(NamedTuple):
    """All that could prove a user now; another one when a password was changed."""

    plain: tuple[str, ...]
    credentials: tuple[tuple[str, Credential], ...]


class Access:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._proven: dict[bytes, _Known] = {}
        """by the hash of a header, what has proved it"""
        self._told_ms: int | None = None
        self._untold = 0
        """refusals since then, of which the log does not know"""
        self._at_proof = 0
        self._proving = asyncio.Lock()  # who guesses takes no more than one of the I/O threads

    async def check(self, request: web.Request, right: Right | None) -> None:
        """Find out who asks, and whether that user has the right; None: the handler looks at each row.
        NotAllowed.
        """
        if self._broker.authorizer is None:
            request[ASKER] = None
            return
        request[ASKER] = Asker(await self._principal(request), request.remote or "")
        if right is not None:
            name = CLUSTER_NAME if right.of is None else name_in(request, right.of)
            self.demand(request, right.operation, right.resource, name)

    def may(self, request: web.Request, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether who asks may do it."""
        authorizer, asker = self._broker.authorizer, request[ASKER]
        if authorizer is None or asker is None:
            return True
        by_rules = _is_nobody(asker, request) and not _is_of_this_machine(request)
        return authorizer.allows(asker, operation, resource, name, by_rules_alone=by_rules)

    def demand(self, request: web.Request, operation: Operation, resource: Resource, name: str) -> None:
        """NotAllowed, unless who asks may do it."""
        if self.may(request, operation, resource, name):
            return
        asker = request[ASKER]
        assert asker is not None
        status = 401 if _is_nobody(asker, request) else 403
        what = "the cluster" if resource is Resource.CLUSTER else f"{resource.name.lower()} {name}"
        raise NotAllowed(status, f"{asker.principal} has no right to {operation.name} {what}")

    def user(self, request: web.Request) -> str:
        """Who asks, as quotas know it: without rules nobody is asked who it is."""
        asker = request[ASKER]
        return (ANONYMOUS if asker is None else asker.principal).removeprefix(USER)

    def ask_who(self, request: web.Request) -> None:
        """NotAllowed with a question, where nobody has said who it is: a list that is empty for ANONYMOUS may
        have rows for somebody.
        """
        asker = request[ASKER]
        if asker is not None and _is_nobody(asker, request):
            raise NotAllowed(401, f"{ANONYMOUS} has no right to DESCRIBE any of them")

    # Who asks

    async def _principal(self, request: web.Request) -> str:
        header = request.headers.get("Authorization")
        if header is None:
            return self._by_certificate(request)
        if header.lower().startswith("bearer "):
            return self._bearer(request, header.split()[-1])
        user, password = _user_and_password(header)
        known, digest = self._known(user), hashlib.sha256(header.encode(errors="surrogateescape")).digest()
        if self._proven.get(digest) != known:
            self._proven.pop(digest, None)
            if not await self._proves(known, password):
                self._refuse(request)
            while len(self._proven) >= MOST_PROVEN:
                del self._proven[next(iter(self._proven))]
            self._proven[digest] = known
            self._broker.metrics_state.authentications += 1
        return f"User:{user}"

    async def _proves(self, known: _Known, password: str) -> bool:
        """Whether the password is one of the user's. NotAllowed, where too many wait to be told: half of the
        connections stay for others.
        """
        if self._at_proof >= max(1, self._broker.config.http_max_connections // 2):
            raise NotAllowed(429, "too many prove who they are just now")
        self._at_proof += 1
        try:
            async with self._proving:
                return await self._broker.run_blocking(_is_proof, known, self._stand_ins(known), password)
        finally:
            self._at_proof -= 1

    def _stand_ins(self, known: _Known) -> list[tuple[str, int]]:
        """Mechanisms that do not know the user, and how slow others' passwords are by them: to guess takes as
        long for who is not there.
        """
        own = {mechanism for mechanism, _ in known.credentials}
        others = ((one, self._broker.users.most_iterations(one)) for one in HASHES if one not in own)
        return [(mechanism, iterations) for mechanism, iterations in others if iterations]

    def _by_certificate(self, request: web.Request) -> str:
        """As a listener that speaks SSL would know the client; who shows none is nobody."""
        tls = request.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if not certificate:
            return ANONYMOUS
        rules = rules_of(self._broker.config.http_security)
        try:
            return f"{USER}{name_of(subject_of(certificate), rules)}"
        except ValueError as problem:
            return self._refuse(request, str(problem))

    def _bearer(self, request: web.Request, text: str) -> str:
        """Whose token it is, as a client of one of the listeners that take tokens would be known. Tokens that
        nobody signed are not believed where any listener wants them signed.
        """
        signed = [one for one in self._broker.tokens if one.keys is not None]
        for tokens in signed or self._broker.tokens:
            with contextlib.suppress(InvalidToken):
                return f"{USER}{tokens.validate(text).user}"
        return self._refuse(request, "no listener takes this token")

    def _known(self, user: str) -> _Known:
        tables = (
            plain_users(one.name, one.security)
            for one in self._broker.listeners
            if one.security.uses_sasl and PLAIN in one.security.keys.sasl_enabled_mechanisms
        )
        plain = tuple(sorted({table[user] for table in tables if user in table}))
        return _Known(plain, tuple(sorted(self._broker.users.credentials_of(user).items())))

    def _refuse(
        self, request: web.Request, problem: str = "there is no such user, or this is not the password"
    ) -> NoReturn:
        """To be told as late as a client of Kafka's is (`LATE_MS`); the log has a line, now and then."""
        self._broker.metrics_state.failed_authentications += 1
        request[LATE_MS] = self._broker.config.connection_failed_authentication_delay_ms
        now_ms = self._broker.clock.passed_ms()
        if self._told_ms is None or now_ms - self._told_ms >= TOLD_EVERY_MS:
            more = f" ({self._untold} more were refused meanwhile)" if self._untold else ""
            logger.warning("refused %s over HTTP: %s%s", request.remote, problem, more)
            self._told_ms, self._untold = now_ms, 0
        else:
            self._untold += 1
        raise NotAllowed(401, problem)


def name_in(request: web.Request, of: str) -> str:
    """What is asked about; empty where nothing says it."""
    return request.match_info[of] if of in request.match_info else request.query.get(of, "")


def _is_nobody(asker: Asker, request: web.Request) -> bool:
    """Whether nobody has said who it is; a user may be called ANONYMOUS."""
    return asker.principal == ANONYMOUS and "Authorization" not in request.headers


def _is_of_this_machine(request: web.Request) -> bool:
    """Whether nobody from elsewhere can have sent it; a proxy on this machine hands on what others ask."""
    if any(name in request.headers for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address(address_of(request.remote or "")).is_loopback
    except ValueError:
        return False


def _user_and_password(header: str) -> tuple[str, str]:
    kind, _, token = header.partition(" ")
    try:
        user, colon, password = base64.b64decode(token.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        user = colon = password = ""
    if kind.lower() != "basic" or not user or not colon:
        raise NotAllowed(401, "who asks says so by Basic, a name and a password, or by Bearer, a token")
    return user, password


def _is_proof(known: _Known, stand_ins: Sequence[tuple[str, int]], password: str) -> bool:
    """On an I/O thread: it is slow on purpose. Whoever it is, all is compared."""
    data = password.encode()
    for mechanism, iterations in stand_ins:
        salt_password(mechanism, password, b"", iterations)
    found = [hmac.compare_digest(one.encode(), data) for one in known.plain]
    for mechanism, kept in known.credentials:
        salted = salt_password(mechanism, password, kept.salt, kept.iterations)
        made = credential(mechanism, salted, kept.salt, kept.iterations)
        found.append(hmac.compare_digest(made.stored_key, kept.stored_key))
    return bool(password) and any(found)
