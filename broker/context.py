"""What a handler knows about the request it answers: who asks, over which listener, in which version.

Mirrors Kafka's `RequestContext`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from broker.security.principal import ANONYMOUS
from config.listeners import PLAINTEXT
from config.security import ListenerSecurity

if TYPE_CHECKING:
    from broker.quotas.usage import Usage
    from broker.security.session import Session


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the broker listens, and the address it tells the clients that come in there (G33)."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    security: ListenerSecurity = field(default_factory=lambda: ListenerSecurity(PLAINTEXT))


class Client(Protocol):
    """The connection over which a request came, as far as handlers know it."""

    peer: str
    session: Session | None

    def end(self, reason: str, *, is_answered: bool = False) -> None:
        """Hang up, behind the answers that are due; `is_answered`: to the request at hand one will be."""


@dataclass(slots=True)
class RequestContext:
    """One request's circumstances. Owned by: event loop."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: Listener
    client_host: str
    connection: Client | None = None
    principal: str = ANONYMOUS
    usage: Usage | None = None
    """what it takes, where there are quotas"""
