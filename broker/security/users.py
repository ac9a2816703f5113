"""What is known of users' passwords: those of PLAIN, which a listener's settings have, and SCRAM credentials,
which clients set, as records of `__kompakt_metadata`:

    {"name": "SCRAM-SHA-256 alice", "type": "scram"}
    {"iterations": 4096, "salt": "…", "server_key": "…", "stored_key": "…"}

Bytes are in base64; there is no password in it, nor what could be used instead of one (RFC 5802). Mirrors
Kafka's `ScramControlManager`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from broker.metadata_log import MetadataLog, State
from config.definition import ConfigError
from config.security import JAAS, LISTENER_PREFIX, PLAIN_USERS
from protocol.jaas import PLAIN_MODULE, parse_jaas
from protocol.scram import Credential

if TYPE_CHECKING:
    from config.security import ListenerSecurity

SCRAM = "scram"
ADOPTED = "kafkas-security"
USER_PREFIX = "user_"


def plain_users(listener: str, security: ListenerSecurity) -> dict[str, str]:
    """Passwords by user, for the mechanism PLAIN: what the listener's JAAS text has as `user_<name>="..."`,
    as for Kafka's `PlainLoginModule`. ConfigError.
    """
    if not security.plain_jaas:
        return {}
    name = f"{LISTENER_PREFIX}{listener.lower()}.plain.{JAAS}"
    try:
        login = parse_jaas(security.plain_jaas)
        if login.module != PLAIN_MODULE:
            raise ValueError(f"its login module must be {PLAIN_MODULE}")
    except ValueError as problem:
        raise ConfigError(
            f"Invalid value for configuration {name}: {problem}. Its form: {PLAIN_USERS}", name
        ) from None
    return {
        user.removeprefix(USER_PREFIX): password
        for user, password in login.settings.items()
        if user.startswith(USER_PREFIX)
    }


class Users:
    """Owned by: event loop; `restore` comes before the broker listens."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._credentials: dict[tuple[str, str], Credential] = {}
        self.has_adopted = False
        """whether those of an Apache Kafka were looked for (`adoption.py`)"""

    def restore(self, state: State) -> None:
        """As `__kompakt_metadata` has them."""
        self.has_adopted = (ADOPTED, "") in state
        for (kind, name), value in state.items():
            if kind == SCRAM:
                mechanism, _, user = name.partition(" ")
                self._credentials[mechanism, user] = Credential(
                    salt=base64.b64decode(value["salt"]),
                    stored_key=base64.b64decode(value["stored_key"]),
                    server_key=base64.b64decode(value["server_key"]),
                    iterations=value["iterations"],
                )

    def credential(self, mechanism: str, user: str) -> Credential | None:
        return self._credentials.get((mechanism, user))

    def most_iterations(self, mechanism: str) -> int:
        """Of all passwords that the mechanism knows; 0 where it knows none."""
        kept = self._credentials.items()
        return max((one.iterations for (name, _), one in kept if name == mechanism), default=0)

    def names(self) -> list[str]:
        """Of all who have a credential."""
        return sorted({user for _, user in self._credentials})

    def credentials_of(self, user: str) -> dict[str, Credential]:
        """By mechanism."""
        return {mechanism: one for (mechanism, name), one in self._credentials.items() if name == user}

    def set(self, mechanism: str, user: str, credential: Credential | None) -> None:
        """Another credential, or none; durable when `metadata.flushed()` returns. KafkaError: it is not."""
        value = None
        if credential is not None:
            value = {
                "iterations": credential.iterations,
                "salt": base64.b64encode(credential.salt).decode(),
                "server_key": base64.b64encode(credential.server_key).decode(),
                "stored_key": base64.b64encode(credential.stored_key).decode(),
            }
        self._metadata.append(SCRAM, f"{mechanism} {user}", value)
        if credential is None:
            self._credentials.pop((mechanism, user), None)
        else:
            self._credentials[mechanism, user] = credential
