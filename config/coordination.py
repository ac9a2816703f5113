"""The keys of groups, their offsets, and transactions; those of share groups are in `sharing.py`, the other
keys of the broker in `connections.py` and `broker.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.definition import HOUR_MS, MIB, MINUTE_MS, Type, key
from config.streams_groups import StreamsGroupsConfig

ASSIGNORS = ("uniform", "range")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationConfig(StreamsGroupsConfig):
    """The values that hold for coordinators. Owned by: any thread (immutable)."""

    # Groups and their offsets
    group_initial_rebalance_delay_ms: int = key(
        Type.INT, 100, "How long a new group waits for more members (Kafka: 3000)", at_least=0
    )
    group_min_session_timeout_ms: int = key(
        Type.INT, 6_000, "The shortest session timeout a member may ask for", at_least=0
    )
    group_max_session_timeout_ms: int = key(
        Type.INT, 30 * MINUTE_MS, "The longest session timeout a member may ask for", at_least=0
    )
    group_max_size: int = key(
        Type.INT, 10_000, "How many members a group may have (Kafka: no limit)", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "How often a member of the consumer protocol beats: so late it may learn of "
        "a new assignment (Kafka: 5000)", at_least=1,
    )  # fmt: skip
    group_consumer_session_timeout_ms: int = key(
        Type.INT, 45_000, "How long a member of the consumer protocol may be silent", at_least=1
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        Type.INT, 1_000, "The shortest consumer.heartbeat.interval.ms that a group may have of its own "
        "(Kafka: 5000)", at_least=1,
    )  # fmt: skip
    group_consumer_max_heartbeat_interval_ms: int = key(
        Type.INT,
        15_000,
        "The longest consumer.heartbeat.interval.ms that a group may have of its own",
        at_least=1,
    )
    group_consumer_min_session_timeout_ms: int = key(
        Type.INT,
        45_000,
        "The shortest consumer.session.timeout.ms that a group may have of its own",
        at_least=1,
    )
    group_consumer_max_session_timeout_ms: int = key(
        Type.INT,
        60_000,
        "The longest consumer.session.timeout.ms that a group may have of its own",
        at_least=1,
    )
    group_consumer_assignment_interval_ms: int = key(
        Type.INT, 0, "How long the targets of a consumer group stay before it is divided anew; 0: with the "
        "heartbeat that asks for it (Kafka: 1000)", at_least=0, dynamic=True,
    )  # fmt: skip
    group_consumer_min_assignment_interval_ms: int = key(
        Type.INT, 0, "The shortest consumer.assignment.interval.ms that a group may have of its own",
        at_least=0,
    )  # fmt: skip
    group_consumer_max_assignment_interval_ms: int = key(
        Type.INT, 15_000, "The longest consumer.assignment.interval.ms that a group may have of its own",
        at_least=0,
    )  # fmt: skip
    group_consumer_max_size: int = key(
        Type.INT, 10_000, "How many members a group of the consumer protocol may have (Kafka: no limit)",
        at_least=1,
    )  # fmt: skip
    group_consumer_assignors: tuple[str, ...] = key(
        Type.LIST, ASSIGNORS,
        "What members of the consumer protocol may ask for to divide partitions; the first for who does not",
        one_of=ASSIGNORS, allows_empty=False,
    )  # fmt: skip
    group_consumer_migration_policy: str = key(
        Type.STRING, "bidirectional",
        "Which way a group with members may change its protocol: upgrade is from classic to consumer",
        one_of=("bidirectional", "upgrade", "downgrade", "disabled"),
    )  # fmt: skip
    offset_metadata_max_bytes: int = key(
        Type.INT, 4096, "The longest text that a commit may carry", at_least=0
    )
    offsets_retention_minutes: int = key(
        Type.INT, 7 * 24 * 60, "How long the offsets of a group without members are kept", at_least=1
    )
    offsets_retention_check_interval_ms: int = key(
        Type.LONG, 10 * MINUTE_MS, "How often expired offsets are looked for", at_least=1
    )
    offsets_topic_num_partitions: int = key(
        Type.INT, 50, "How many partitions __consumer_offsets gets", at_least=1
    )
    offsets_topic_segment_bytes: int = key(
        Type.INT, 100 * MIB, "The segment size of __consumer_offsets", at_least=1
    )

    # Transactions
    transaction_max_timeout_ms: int = key(
        Type.INT, 15 * MINUTE_MS, "The longest transaction.timeout.ms that a producer may ask for", at_least=1
    )
    max_transactional_ids: int = key(
        Type.INT, 100_000,
        "How many transactional ids are remembered; one more, and a tenth of them is forgotten before its "
        "time: those that nobody has used for the longest (Kafka: no limit)",
        at_least=1,
    )  # fmt: skip
    transactional_id_expiration_ms: int = key(
        Type.INT, 7 * 24 * HOUR_MS,
        "For so long a transactional id that nobody uses is remembered, and its producer fenced by its next "
        "one",
        at_least=1,
    )  # fmt: skip
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        Type.INT, 10_000,
        "How often transactions whose timeout is over are looked for, and those whose end is decided and "
        "could not be written",
        at_least=1,
    )  # fmt: skip
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        Type.INT, HOUR_MS, "How often expired transactional ids are looked for", at_least=1
    )
    transaction_state_log_num_partitions: int = key(
        Type.INT, 50, "How many partitions __transaction_state gets", at_least=1
    )
    transaction_state_log_segment_bytes: int = key(
        Type.INT, 100 * MIB, "The segment size of __transaction_state", at_least=1
    )
