"""What a connection asks of the listener by which it came in, and what it may take there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.context import Listener
    from broker.receiving import Room
    from broker.security.principal import Rule
    from broker.security.session import Session
    from config.broker import BrokerConfig

C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one listener and one connection may take."""

    frame_bytes: int
    frame_bytes_without_records: int
    elements: int
    in_flight_requests: int
    queued_bytes: int
    unread_bytes: int
    fetch_bytes: int
    idle_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        return cls(
            frame_bytes=config.socket_request_max_bytes,
            frame_bytes_without_records=min(
                config.max_request_bytes_without_records, config.socket_request_max_bytes
            ),
            elements=config.max_request_elements,
            in_flight_requests=config.connection_max_in_flight_requests,
            queued_bytes=config.connection_max_queued_bytes,
            unread_bytes=config.connection_max_unread_bytes,
            fetch_bytes=config.fetch_max_bytes,
            idle_ms=config.connections_max_idle_ms,
        )


class Door(Protocol[C_contra]):
    """A listener, as those who came in know it; `C_contra` is what they are. Owned by: event loop."""

    broker: Broker
    listener: Listener
    limits: Limits
    limits_of_strangers: Limits
    """of clients that have not said who they are"""
    principal_rules: list[Rule]
    receive_room: Room
    sweep: int
    """how often it was looked for idle connections"""
    is_draining: bool

    def new_session(self, connection: C_contra) -> Session | None:
        """Where clients have to say who they are."""

    def wait_ms(self, host: str) -> int:
        """How long somebody who was let in is held up, because there were too many of the address."""

    def admit(self, connection: C_contra) -> bool:
        """Whether a new connection may stay; it is counted either way until `forget`."""

    def forget(self, connection: C_contra) -> None:
        """The connection is closed."""

    def drained(self) -> None:
        """Called when a connection answered its last request, or went away."""
