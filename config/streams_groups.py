"""The keys of streams groups (KIP-1071): members of Kafka Streams applications, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

from config.definition import INT_MAX, Type, key
from config.sharing import SharingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupsConfig(SharingConfig):
    """The values that hold for streams groups. Owned by: any thread (immutable)."""

    group_streams_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "How often a member of a streams group beats: so late it may learn of a new "
        "assignment (Kafka: 5000)", at_least=1,
    )  # fmt: skip
    group_streams_min_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "The shortest streams.heartbeat.interval.ms that a group may have of its own "
        "(Kafka: 5000)", at_least=1,
    )  # fmt: skip
    group_streams_max_heartbeat_interval_ms: int = key(
        Type.INT, 15_000, "The longest streams.heartbeat.interval.ms that a group may have of its own",
        at_least=1,
    )  # fmt: skip
    group_streams_session_timeout_ms: int = key(
        Type.INT, 45_000, "How long a member of a streams group may be silent", at_least=1
    )
    group_streams_min_session_timeout_ms: int = key(
        Type.INT, 45_000, "The shortest streams.session.timeout.ms that a group may have of its own",
        at_least=1,
    )  # fmt: skip
    group_streams_max_session_timeout_ms: int = key(
        Type.INT, 60_000, "The longest streams.session.timeout.ms that a group may have of its own",
        at_least=1,
    )  # fmt: skip
    group_streams_assignment_interval_ms: int = key(
        Type.INT, 0, "How long the targets of a streams group stay before it is divided anew; 0: with the "
        "heartbeat that asks for it (Kafka: 1000)", at_least=0, dynamic=True,
    )  # fmt: skip
    group_streams_min_assignment_interval_ms: int = key(
        Type.INT, 0, "The shortest streams.assignment.interval.ms that a group may have of its own",
        at_least=0,
    )  # fmt: skip
    group_streams_max_assignment_interval_ms: int = key(
        Type.INT, 15_000, "The longest streams.assignment.interval.ms that a group may have of its own",
        at_least=0,
    )  # fmt: skip
    group_streams_max_size: int = key(
        Type.INT, INT_MAX, "How many members a streams group may have", at_least=1
    )
    group_streams_num_standby_replicas: int = key(
        Type.INT, 0, "How many copies of a task's state are kept at other instances", at_least=0
    )
    group_streams_max_standby_replicas: int = key(
        Type.INT, 2, "The most streams.num.standby.replicas that a group may have of its own", at_least=0
    )
    group_streams_initial_rebalance_delay_ms: int = key(
        Type.INT, 100, "How long a new streams group waits for more members (Kafka: 3000)", at_least=0
    )
