"""The keys of a group: what it sets itself, within the bounds that the broker gives, else the broker's. Those
of the consumer protocol begin with `consumer.`, those of share groups with `share.`, those of streams groups
with `streams.`. Mirrors Kafka's `GroupConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from config.definition import ConfigError, Row, Type, key, parse, rows_of

if TYPE_CHECKING:
    from config.broker import BrokerConfig


EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
_DURATION = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{0,9})?)S)?)?", re.IGNORECASE
)
_UNITS_MS = (24 * 3_600_000, 3_600_000, 60_000, 1_000)


def reset_age_ms(reset: str) -> int | None:
    """How old the first record is that a share group without a position reads, in ms; None for what is no
    `by_duration:PnDTnHnMn.nS`.
    """
    matched = _DURATION.fullmatch(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None
    if matched is None:
        return None
    parts = zip(matched.groups(), _UNITS_MS, strict=True)
    return int(sum(float(part) * unit_ms for part, unit_ms in parts if part))


def _problem_of_reset(reset: str) -> str | None:
    if reset in (EARLIEST, LATEST) or reset_age_ms(reset) is not None:
        return None
    return (
        f"Invalid value `{reset}` for configuration share.auto.offset.reset. The value must be either "
        "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The values that hold for one group. Owned by: any thread (immutable)."""

    consumer_assignment_interval_ms: int = key(
        Type.INT, 0, "How long its targets stay before the group is divided anew; 0: with the heartbeat that "
        "asks for it", at_least=0, dynamic=True, synonyms=("group.consumer.assignment.interval.ms",),
    )  # fmt: skip
    consumer_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "How often a member beats: so late it may learn of a new assignment",
        at_least=1, dynamic=True, synonyms=("group.consumer.heartbeat.interval.ms",),
    )  # fmt: skip
    consumer_session_timeout_ms: int = key(
        Type.INT, 45_000, "How long a member may be silent",
        at_least=1, dynamic=True, synonyms=("group.consumer.session.timeout.ms",),
    )  # fmt: skip
    share_assignment_interval_ms: int = key(
        Type.INT, 0, "How long its targets stay before the group is divided anew; 0: with the heartbeat that "
        "asks for it", at_least=0, dynamic=True, synonyms=("group.share.assignment.interval.ms",),
    )  # fmt: skip
    share_auto_offset_reset: str = key(
        Type.STRING, LATEST,
        "Where a share group begins in a partition: earliest, latest, or by_duration:PnDTnHnMn.nS, so long "
        "ago",
        dynamic=True, check=_problem_of_reset,
    )  # fmt: skip
    share_delivery_count_limit: int = key(
        Type.INT, 5, "How often a record is delivered before it is given up",
        at_least=2, dynamic=True, synonyms=("group.share.delivery.count.limit",),
    )  # fmt: skip
    share_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "How often a member beats: so late it may learn of a new assignment",
        at_least=1, dynamic=True, synonyms=("group.share.heartbeat.interval.ms",),
    )  # fmt: skip
    share_isolation_level: str = key(
        Type.STRING, READ_UNCOMMITTED, "Whether records of aborted transactions are delivered",
        one_of=(READ_COMMITTED, READ_UNCOMMITTED), dynamic=True,
    )  # fmt: skip
    share_partition_max_record_locks: int = key(
        Type.INT, 2_000, "How many records of a partition may be on their way",
        at_least=100, dynamic=True, synonyms=("group.share.partition.max.record.locks",),
    )  # fmt: skip
    share_record_lock_duration_ms: int = key(
        Type.INT, 30_000, "How long a member may take for a record before another one gets it",
        at_least=1_000, dynamic=True, synonyms=("group.share.record.lock.duration.ms",),
    )  # fmt: skip
    share_renew_acknowledge_enable: bool = key(
        Type.BOOLEAN, True, "Whether a member may ask for more time for a record", dynamic=True
    )
    share_session_timeout_ms: int = key(
        Type.INT, 45_000, "How long a member of a share group may be silent",
        at_least=1, dynamic=True, synonyms=("group.share.session.timeout.ms",),
    )  # fmt: skip

    streams_assignment_interval_ms: int = key(
        Type.INT, 0, "How long its targets stay before the group is divided anew; 0: with the heartbeat that "
        "asks for it", at_least=0, dynamic=True, synonyms=("group.streams.assignment.interval.ms",),
    )  # fmt: skip
    streams_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "How often a member beats: so late it may learn of a new assignment",
        at_least=1, dynamic=True, synonyms=("group.streams.heartbeat.interval.ms",),
    )  # fmt: skip
    streams_initial_rebalance_delay_ms: int = key(
        Type.INT, 100, "How long a new streams group waits for more members",
        at_least=0, dynamic=True, synonyms=("group.streams.initial.rebalance.delay.ms",),
    )  # fmt: skip
    streams_num_standby_replicas: int = key(
        Type.INT, 0, "How many copies of a task's state are kept at other instances",
        at_least=0, dynamic=True, synonyms=("group.streams.num.standby.replicas",),
    )  # fmt: skip
    streams_session_timeout_ms: int = key(
        Type.INT, 45_000, "How long a member of a streams group may be silent",
        at_least=1, dynamic=True, synonyms=("group.streams.session.timeout.ms",),
    )  # fmt: skip

    @staticmethod
    def resolve(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
        """The values of a group with these overrides. What it set before the broker's bounds were others is
        brought within them, as in Kafka.
        """
        values = {}
        for name, row in group_rows().items():
            value = row.default
            if row.synonyms:
                value = getattr(broker, row.synonyms[0].name.replace(".", "_"))
            if name in overrides:
                value = parse(row, overrides[name])
                for _, least, most in _bounds(broker, row):
                    value = max(least, min(most, value))
            values[row.attribute] = value
        return GroupConfig(**values)


@cache
def group_rows() -> dict[str, Row]:
    """Every key of a group, by name, in alphabetical order."""
    return rows_of(GroupConfig)


def _bounds(broker: BrokerConfig, row: Row) -> list[tuple[str, int, int]]:
    """Within what the broker lets a group set a key: the name of the bounds with `{}` for min or max, the
    least, the most; nothing where any value will do.
    """
    if not row.synonyms or row.attribute == "streams_initial_rebalance_delay_ms":
        return []
    if row.attribute == "streams_num_standby_replicas":
        return [("group.streams.{}.standby.replicas", 0, broker.group_streams_max_standby_replicas)]
    protocol, _, rest = row.name.partition(".")
    name = f"group.{protocol}.{{}}.{rest}"
    least, most = (getattr(broker, name.format(which).replace(".", "_")) for which in ("min", "max"))
    return [(name, least, most)]


def check_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Whether a client may set them; ConfigError in Kafka's words."""
    for name, text in overrides.items():
        row = group_rows()[name]
        value = parse(row, text)
        for bound, least, most in _bounds(broker, row):
            if value < least:
                raise ConfigError(f"{name} must be greater than or equal to {bound.format('min')}", name)
            if value > most:
                raise ConfigError(f"{name} must be less than or equal to {bound.format('max')}", name)
