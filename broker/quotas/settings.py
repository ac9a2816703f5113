"""The quotas that clients set, by whom they are for: records of `__kompakt_metadata`.

    {"name": "[[\"client-id\",null],[\"user\",\"alice\"]]", "type": "quota"}
    {"values": {"producer_byte_rate": 1048576.0}}

A name that is null is the default, for each that has no own quota. What Apache Kafka refuses is refused in
its words. Mirrors Kafka's `ClientQuotaControlManager` and `ClientQuotasImage`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping

from broker.metadata_log import MetadataLog, State
from config.definition import INT_MAX, LONG_MAX
from protocol.errors import ErrorCode, KafkaError

QUOTA = "quota"
CLIENT_ID, USER, IP = "client-id", "user", "ip"
KINDS = (CLIENT_ID, USER, IP)
"""in the order in which Apache Kafka says them"""
Entity = tuple[tuple[str, str | None], ...]
"""whom a quota is for: kinds with their names"""

PRODUCED, FETCHED, ASKED, CHANGED, CONNECTED = KEYS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
)  # fmt: skip
MOST: dict[str, tuple[float, str] | None] = {
    PRODUCED: (LONG_MAX, "LONG"),
    FETCHED: (LONG_MAX, "LONG"),
    ASKED: None,
    CHANGED: None,
    CONNECTED: (INT_MAX, "INT"),
}
"""the largest value of a whole number, and what Kafka calls its type; None for those that may be broken"""
LEAST_FRACTION = 1e-6


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Of kinds with their names, in one order; of a kind that is there twice the last."""
    return tuple(sorted(dict(parts).items(), key=lambda part: (part[0] not in KINDS, *_rank(part[0]))))


def _rank(kind: str) -> tuple[int, str]:
    return (KINDS.index(kind) if kind in KINDS else 0), kind


def shown(entity: Entity) -> str:
    """As Kafka's messages have it."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def check_entity(entity: Entity, is_address: Callable[[str], bool]) -> None:
    """KafkaError for one that there can be no quotas of."""
    if not entity:
        raise invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in KINDS:
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid(f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return
    if len(names) > 1:
        raise invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    address = names[IP]
    if address is not None and not is_address(address):
        raise invalid(f"{address} is not a valid IP or resolvable host.")


def check_value(entity: Entity, key: str, value: float) -> None:
    """KafkaError for a quota that the entity cannot have."""
    if key not in KEYS or (key == CONNECTED) != (IP in dict(entity)):
        raise invalid(f"Invalid configuration key {key}")
    if value <= 0:
        raise invalid(f"Quota {key} must be greater than 0")
    bounds = MOST[key]
    if bounds is None:
        return
    most, name = bounds
    if value > float(most):
        article = "an" if name == "INT" else "a"
        raise invalid(f"Proposed value for {key} is too large for {article} {name}.")
    if math.fmod(value, 1) > LEAST_FRACTION:
        raise invalid(f"{key} cannot be a fractional value.")


def invalid(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, words)


class QuotaSettings:
    """Owned by: event loop; `restore` comes before the broker listens."""

    def __init__(self, metadata: MetadataLog, changed: Callable[[Entity, str, float | None], None]) -> None:
        """`changed(entity, key, value)`: there is another quota, or none any more."""
        self._metadata = metadata
        self._changed = changed
        self.values: dict[Entity, Mapping[str, float]] = {}

    def restore(self, state: State) -> None:
        """As `__kompakt_metadata` has them."""
        for (kind, name), value in state.items():
            if kind == QUOTA:
                entity = entity_of((part[0], part[1]) for part in json.loads(name))
                self._keep(entity, value["values"])

    @property
    def hosts(self) -> set[str]:
        """Those that have a quota, as they were named."""
        return {name for entity in self.values for kind, name in entity if kind == IP and name is not None}

    def set(self, entity: Entity, values: Mapping[str, float]) -> None:
        """All quotas of an entity, in place of what it had; durable when `metadata.flushed()` returns.
        KafkaError: they cannot be written.
        """
        name = json.dumps(entity, separators=(",", ":"))
        self._metadata.append(QUOTA, name, {"values": dict(values)} if values else None)
        self._keep(entity, values)

    def _keep(self, entity: Entity, values: Mapping[str, float]) -> None:
        before = self.values.pop(entity, {})
        if values:
            self.values[entity] = dict(values)
        for key in {**before, **values}:
            if before.get(key) != values.get(key):
                self._changed(entity, key, values.get(key))
