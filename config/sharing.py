"""The keys of share groups (KIP-932): members, deliveries, and what is written down of them."""

from __future__ import annotations

from dataclasses import dataclass

from config.definition import HOUR_MS, MIB, MINUTE_MS, Type, key
from config.security import SecurityConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingConfig(SecurityConfig):
    """The values that hold for share groups. Owned by: any thread (immutable)."""

    group_share_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "How often a member of a share group beats: so late it may learn of a new "
        "assignment (Kafka: 5000)", at_least=1,
    )  # fmt: skip
    group_share_min_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "The shortest share.heartbeat.interval.ms that a group may have of its own "
        "(Kafka: 5000)", at_least=1,
    )  # fmt: skip
    group_share_max_heartbeat_interval_ms: int = key(
        Type.INT, 15_000, "The longest share.heartbeat.interval.ms that a group may have of its own",
        at_least=1,
    )  # fmt: skip
    group_share_session_timeout_ms: int = key(
        Type.INT, 45_000, "How long a member of a share group may be silent", at_least=1
    )
    group_share_min_session_timeout_ms: int = key(
        Type.INT, 45_000, "The shortest share.session.timeout.ms that a group may have of its own", at_least=1
    )
    group_share_max_session_timeout_ms: int = key(
        Type.INT, 60_000, "The longest share.session.timeout.ms that a group may have of its own", at_least=1
    )
    group_share_assignment_interval_ms: int = key(
        Type.INT, 0, "How long the targets of a share group stay before it is divided anew; 0: with the "
        "heartbeat that asks for it (Kafka: 1000)", at_least=0, dynamic=True,
    )  # fmt: skip
    group_share_min_assignment_interval_ms: int = key(
        Type.INT, 0, "The shortest share.assignment.interval.ms that a group may have of its own",
        at_least=0,
    )  # fmt: skip
    group_share_max_assignment_interval_ms: int = key(
        Type.INT, 15_000, "The longest share.assignment.interval.ms that a group may have of its own",
        at_least=0,
    )  # fmt: skip
    group_share_max_size: int = key(
        Type.INT, 200, "How many members a share group may have", at_least=1, at_most=1_000
    )
    group_share_max_share_sessions: int = key(
        Type.INT, 2_000, "How many members of share groups may fetch at a time, all groups together",
        at_least=1,
    )  # fmt: skip
    group_share_record_lock_duration_ms: int = key(
        Type.INT, 30_000,
        "How long a member may take for a record before another one gets it",
        at_least=1_000, at_most=HOUR_MS,
    )  # fmt: skip
    group_share_min_record_lock_duration_ms: int = key(
        Type.INT, 15_000,
        "The shortest share.record.lock.duration.ms that a group may have of its own",
        at_least=1_000, at_most=30_000,
    )  # fmt: skip
    group_share_max_record_lock_duration_ms: int = key(
        Type.INT, 60_000,
        "The longest share.record.lock.duration.ms that a group may have of its own",
        at_least=30_000, at_most=HOUR_MS,
    )  # fmt: skip
    group_share_delivery_count_limit: int = key(
        Type.INT, 5, "How often a record is delivered to a share group before it is given up",
        at_least=2, at_most=10,
    )  # fmt: skip
    group_share_min_delivery_count_limit: int = key(
        Type.INT, 2, "The lowest share.delivery.count.limit that a group may have of its own",
        at_least=2, at_most=5,
    )  # fmt: skip
    group_share_max_delivery_count_limit: int = key(
        Type.INT, 10, "The highest share.delivery.count.limit that a group may have of its own",
        at_least=5, at_most=25,
    )  # fmt: skip
    group_share_partition_max_record_locks: int = key(
        Type.INT, 2_000, "How many records of a partition may be on their way to a share group",
        at_least=100, at_most=10_000,
    )  # fmt: skip
    group_share_min_partition_max_record_locks: int = key(
        Type.INT, 100, "The lowest share.partition.max.record.locks that a group may have of its own",
        at_least=100, at_most=2_000,
    )  # fmt: skip
    group_share_max_partition_max_record_locks: int = key(
        Type.INT, 4_000, "The highest share.partition.max.record.locks that a group may have of its own",
        at_least=2_000, at_most=10_000,
    )  # fmt: skip
    share_coordinator_state_topic_num_partitions: int = key(
        Type.INT, 50, "How many partitions __share_group_state gets", at_least=1
    )
    share_coordinator_state_topic_segment_bytes: int = key(
        Type.INT, 100 * MIB, "The segment size of __share_group_state", at_least=1
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = key(
        Type.INT, 500,
        "After so many changes all that is known of a partition of a share group is written once more",
        at_least=0, at_most=500,
    )  # fmt: skip
    share_coordinator_state_topic_prune_interval_ms: int = key(
        Type.INT, 5 * MINUTE_MS, "How often what newer records of __share_group_state replace is deleted",
        at_least=1,
    )  # fmt: skip
