"""The keys of a group of the consumer protocol: what it sets itself, within the bounds that the broker gives,
else the broker's. Mirrors Kafka's `GroupConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from config.definition import ConfigError, Row, Type, key, parse, rows_of

if TYPE_CHECKING:
    from config.broker import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The values that hold for one group. Owned by: any thread (immutable)."""

    consumer_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "How often a member beats: so late it may learn of a new assignment",
        at_least=1, dynamic=True, synonyms=("group.consumer.heartbeat.interval.ms",),
    )  # fmt: skip
    consumer_session_timeout_ms: int = key(
        Type.INT, 45_000, "How long a member may be silent",
        at_least=1, dynamic=True, synonyms=("group.consumer.session.timeout.ms",),
    )  # fmt: skip

    @staticmethod
    def resolve(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
        """The values of a group with these overrides. What it set before the broker's bounds were others is
        brought within them, as in Kafka.
        """
        values = {}
        for name, row in group_rows().items():
            value = getattr(broker, row.synonyms[0].name.replace(".", "_"))
            if name in overrides:
                _, least = _bound(broker, "min", row)
                _, most = _bound(broker, "max", row)
                value = max(least, min(most, parse(row, overrides[name])))
            values[row.attribute] = value
        return GroupConfig(**values)


@cache
def group_rows() -> dict[str, Row]:
    """Every key of a group, by name, in alphabetical order."""
    return rows_of(GroupConfig)


def _bound(broker: BrokerConfig, which: str, row: Row) -> tuple[str, int]:
    """The name and the value of a bound: group.consumer.min.session.timeout.ms."""
    name = f"group.consumer.{which}.{row.name.removeprefix('consumer.')}"
    return name, getattr(broker, name.replace(".", "_"))


def check_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Whether a client may set them; ConfigError in Kafka's words."""
    for name, text in overrides.items():
        row = group_rows()[name]
        value = parse(row, text)
        bound, least = _bound(broker, "min", row)
        if value < least:
            raise ConfigError(f"{name} must be greater than or equal to {bound}", name)
        bound, most = _bound(broker, "max", row)
        if value > most:
            raise ConfigError(f"{name} must be less than or equal to {bound}", name)
