"""The keys of the broker: where it listens, where its data lies, what topics inherit, and every limit.

Mirrors Kafka's `KafkaConfig` in names and meaning. Defaults that differ from Kafka's say so in their words.
Keys of Kafka that have no meaning on one node are in `harmless.py`: they are taken and do nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from config.connections import ConnectionsConfig, listener_row
from config.definition import (
    HOUR_MS,
    INT_MAX,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    ConfigError,
    Row,
    Type,
    by_any_name,
    key,
    like,
    parse,
    rows_of,
)
from config.harmless import is_harmless, unknown, why_harmless
from config.listeners import PLAINTEXT, Endpoint, endpoints
from config.security import HTTP, LISTENER_PREFIX, ListenerSecurity, security_of, security_rows
from config.together import problems_together
from config.topic import topic_rows

_topic = topic_rows()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ConnectionsConfig):
    """The values that hold for the broker. Owned by: any thread (immutable)."""

    # Who and where
    node_id: int = key(
        Type.INT, 1, "The number by which clients know this broker", at_least=0, aliases=("broker.id",)
    )
    listeners: tuple[str, ...] = key(
        Type.LIST, ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen, as NAME://HOST:PORT; an empty host is every address, port 0 any free one. "
        "(Kafka: every address)",
        allows_empty=False,
    )  # fmt: skip
    advertised_listeners: tuple[str, ...] | None = key(
        Type.LIST, None, "The address that clients of each listener are told, where it differs from listeners"
    )
    controller_listener_names: tuple[str, ...] = key(
        Type.LIST, (), "Listeners of this name are Kafka's own quorum traffic: they are not opened here"
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        Type.LIST, (),
        "What each listener speaks, as NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. Names are "
        "free; one that is not mapped has to be a protocol's own, which it speaks then (Kafka: a map that is "
        "set needs those too)",
    )  # fmt: skip
    http_host: str = key(
        Type.STRING, "127.0.0.1",
        "The address that /metrics, /healthz and /api listen on; an empty one is every address",
    )  # fmt: skip
    http_port: int = key(
        Type.INT,
        9644,
        "The port of /metrics, /healthz and /api; 0 any free one, -1 none",
        at_least=-1,
        at_most=65535,
    )
    http_security_protocol: str = key(
        Type.STRING, PLAINTEXT,
        "What that port speaks: PLAINTEXT, or SSL, which is HTTPS with the certificate of ssl.* or of "
        "listener.name.http.ssl.*", one_of=(PLAINTEXT, "SSL"),
    )  # fmt: skip
    http_max_connections: int = key(
        Type.INT, 100,
        "How many connections to that port may be open; one more takes the place of one that asks nothing, "
        "else it is refused",
        at_least=1,
    )  # fmt: skip
    log_dirs: tuple[str, ...] = key(
        Type.LIST, ("data",),
        "The directories that partitions are spread over (Kafka: /tmp/kafka-logs). More may be added; where "
        "one is empty, or left out, and partitions are missing, a start is refused: it would begin them anew",
        allows_empty=False, aliases=("log.dir",),
    )  # fmt: skip
    metadata_log_dir: str | None = key(
        Type.STRING, None,
        "Where an Apache Kafka kept its quorum log, if not in log.dirs: users, rules, quotas and settings of "
        "topics are read from there when its directories are taken over; nothing is written there",
    )  # fmt: skip

    # Limits: nothing a peer sends makes the broker take more than this
    socket_request_max_bytes: int = key(
        Type.INT, 100 * MIB, "The largest request; a larger one closes its connection", at_least=1
    )
    queued_max_request_bytes: int = key(
        Type.LONG, 256 * MIB, "How many bytes of requests above 128 KiB all clients together may have sent "
        "and not ended before no more is read but of the first of them; -1 is no limit (Kafka: none)",
        at_least=-1,
    )  # fmt: skip
    max_request_bytes_without_records: int = key(
        Type.INT, 8 * MIB,
        "The largest request that is no Produce; a larger one closes its connection (Kafka: no other limit)",
        at_least=1024,
    )  # fmt: skip
    max_request_elements: int = key(
        Type.INT, 100_000,
        "How many elements all arrays of a request may have together; more close its connection "
        "(Kafka: no limit)",
        at_least=1000,
    )  # fmt: skip
    connection_max_in_flight_requests: int = key(
        Type.INT, 1000,
        "How many requests of one connection may wait for their answer before no more is read from it",
        at_least=1,
    )  # fmt: skip
    connection_max_queued_bytes: int = key(
        Type.LONG, 64 * MIB,
        "How many bytes the fetches of one connection that wait may be answered with before no more is read "
        "from it",
        at_least=1,
    )  # fmt: skip
    connection_max_unread_bytes: int = key(
        Type.LONG, MIB,
        "How many bytes of answers one connection may leave unread, or have ready behind an earlier one, "
        "before no more is read from it; the last answer may be longer (Kafka: one answer)",
        at_least=1,
    )  # fmt: skip
    quota_window_num: int = key(
        Type.INT, 11, "Over how many windows of time the rate of a client is looked at that has a quota",
        at_least=1,
    )  # fmt: skip
    quota_window_size_seconds: int = key(
        Type.INT, 1, "How long such a window is; so long one is throttled at most for request_percentage",
        at_least=1,
    )  # fmt: skip
    controller_quota_window_num: int = key(
        Type.INT, 11, "How many windows of controller_mutation_rate a client may use up at once", at_least=1
    )
    controller_quota_window_size_seconds: int = key(Type.INT, 1, "How long such a window is", at_least=1)
    busy_poll_us: int = key(
        Type.INT, 100,
        "For so long the broker stays awake for the next small request, microseconds, while they follow each "
        "other within that time; 0 lets it sleep at once",
        at_least=0, at_most=10_000,
    )  # fmt: skip
    flush_io_uring_enable: bool = key(
        Type.BOOLEAN, True,
        "Whether flushes go by io_uring where the kernel allows it (x86-64, Linux 5.5), else by threads",
    )  # fmt: skip
    max_decompressed_batch_bytes: int = key(
        Type.LONG, 128 * MIB,
        "The largest record batch once it is decompressed, or max.message.bytes where that is more; a larger "
        "one is refused with MESSAGE_TOO_LARGE, upon which Java's producers divide it",
        at_least=1024, at_most=INT_MAX,
    )  # fmt: skip
    max_request_partition_size_limit: int = key(
        Type.INT, 2000, "How many partitions one DescribeTopicPartitions answer lists", at_least=1
    )
    max_partitions_per_topic: int = key(
        Type.INT, 10_000, "How many partitions a topic may get by a request (Kafka: no limit)", at_least=1
    )
    max_producers_per_partition: int = key(
        Type.INT, 100_000, "How many producer ids a partition remembers; the longest silent one goes first",
        at_least=1,
    )  # fmt: skip
    max_open_files: int = key(
        Type.INT, 0, "How many segment files may be open; 0 is most of what the system allows", at_least=0
    )
    max_incremental_fetch_session_cache_slots: int = key(
        Type.INT, 1000, "How many fetch sessions are remembered", at_least=0
    )
    max_incremental_fetch_session_partitions: int = key(
        Type.INT, 500_000,
        "How many partitions all fetch sessions remember together, 0.3 KiB each; one session at most "
        "max.request.elements (Kafka: no limit)",
        at_least=0,
    )  # fmt: skip
    fetch_max_bytes: int = key(
        Type.INT, 55 * MIB, "The most that one fetch answers, whatever it asks for", at_least=1024
    )
    fetch_max_unread_bytes: int = key(
        Type.LONG, 256 * MIB, "How many bytes of answers all clients together may leave unread until fetches "
        "are answered with 1 MiB at most (Kafka: no limit, they wait in the page cache)", at_least=1
    )  # fmt: skip
    background_threads: int = key(
        Type.INT, 10, "How many threads do cold reads, lookups by time and deletions", at_least=1
    )

    # Topics
    num_partitions: int = key(
        Type.INT,
        1,
        "How many partitions a topic gets when its creator does not say",
        at_least=1,
        dynamic=True,
    )
    default_replication_factor: int = key(
        Type.INT, 1, "How many copies a topic gets when its creator does not say; one node holds one",
        at_least=1, at_most=1,
    )  # fmt: skip
    auto_create_topics_enable: bool = key(
        Type.BOOLEAN, True, "Whether a topic is made when a client asks for one that does not exist"
    )
    delete_topic_enable: bool = key(Type.BOOLEAN, True, "Whether topics may be deleted")

    # Defaults of topics
    log_cleanup_policy: frozenset[str] = like(_topic["cleanup.policy"])
    log_cleaner_compaction_compression_type: str = like(_topic["compaction.compression.type"])
    log_cleaner_expired_tombstones_enable: bool = like(_topic["compaction.expired.tombstones.enable"])
    log_cleaner_compaction_strategy: str = like(_topic["compaction.strategy"])
    log_cleaner_compaction_strategy_header: str = like(_topic["compaction.strategy.header"])
    compression_type: str = like(_topic["compression.type"])
    compression_gzip_level: int = like(_topic["compression.gzip.level"])
    compression_lz4_level: int = like(_topic["compression.lz4.level"])
    compression_zstd_level: int = like(_topic["compression.zstd.level"])
    log_cleaner_delete_retention_ms: int = like(_topic["delete.retention.ms"])
    log_segment_delete_delay_ms: int = like(_topic["file.delete.delay.ms"])
    log_flush_interval_messages: int = like(_topic["flush.messages"])
    log_flush_interval_ms: int | None = key(
        Type.LONG, None, "How long a record may stay unflushed where flush.messages is above 1",
        at_least=0, dynamic=True,
    )  # fmt: skip
    log_flush_scheduler_interval_ms: int = key(
        Type.LONG, LONG_MAX, "As log.flush.interval.ms, which comes first", at_least=1
    )
    log_index_interval_bytes: int = like(_topic["index.interval.bytes"])
    internal_log_segment_bytes: int | None = key(
        Type.INT, None, "As log.segment.bytes, for tests", at_least=1, internal=True
    )
    log_cleaner_max_compaction_lag_ms: int = like(_topic["max.compaction.lag.ms"])
    message_max_bytes: int = like(_topic["max.message.bytes"])
    log_message_timestamp_after_max_ms: int = like(_topic["message.timestamp.after.max.ms"])
    log_message_timestamp_before_max_ms: int = like(_topic["message.timestamp.before.max.ms"])
    log_message_timestamp_type: str = like(_topic["message.timestamp.type"])
    log_cleaner_min_cleanable_ratio: float = like(_topic["min.cleanable.dirty.ratio"])
    log_cleaner_min_compaction_lag_ms: int = like(_topic["min.compaction.lag.ms"])
    min_insync_replicas: int = like(_topic["min.insync.replicas"])
    log_preallocate: bool = like(_topic["preallocate"])
    log_retention_bytes: int = like(_topic["retention.bytes"])
    log_retention_ms: int | None = key(
        Type.LONG, None, "The age above which a segment is deleted; -1 is no limit (default of topics)",
        at_least=-1, dynamic=True,
    )  # fmt: skip
    log_retention_minutes: int | None = key(
        Type.INT, None, "As log.retention.ms, which comes first", at_least=-1
    )
    log_retention_hours: int = key(Type.INT, 168, "As log.retention.minutes, which comes first", at_least=-1)
    log_segment_bytes: int = like(_topic["segment.bytes"])
    log_index_size_max_bytes: int = like(_topic["segment.index.bytes"])
    log_roll_idle_ms: int = like(_topic["segment.idle.ms"])
    log_roll_jitter_ms: int | None = key(
        Type.LONG, None, "Up to so much is taken off log.roll.ms by chance (default of topics)",
        at_least=0, dynamic=True,
    )  # fmt: skip
    log_roll_jitter_hours: int = key(Type.INT, 0, "As log.roll.jitter.ms, which comes first", at_least=0)
    log_roll_ms: int | None = key(
        Type.LONG, None, "The age at which a segment is closed by the next append (default of topics)",
        at_least=1, dynamic=True, aliases=("log.segment.ms",),
    )  # fmt: skip
    log_roll_hours: int = key(Type.INT, 168, "As log.roll.ms, which comes first", at_least=1)
    unclean_leader_election_enable: bool = like(_topic["unclean.leader.election.enable"])

    # Storage
    log_retention_check_interval_ms: int = key(
        Type.LONG, 5 * MINUTE_MS, "How often retention looks for segments to delete", at_least=1
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        Type.INT, MINUTE_MS,
        "How often the recovery points are written; the log start offsets go with them, so that the shorter "
        "of the two intervals holds for both",
        at_least=0,
    )  # fmt: skip
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        Type.INT, MINUTE_MS,
        "How often the log start offsets are written: see log.flush.offset.checkpoint.interval.ms",
        at_least=0,
    )  # fmt: skip
    log_initial_task_delay_ms: int = key(
        Type.LONG, 30_000, "How long after the start the periodic tasks of storage begin", at_least=0
    )
    num_recovery_threads_per_data_dir: int = key(
        Type.INT,
        2,
        "How many threads open the logs of a directory at a start after a crash (one after a clean stop)",
        at_least=1,
    )
    producer_id_expiration_ms: int = key(
        Type.INT, 24 * HOUR_MS, "A producer that is silent for so long is forgotten", at_least=1, dynamic=True
    )
    producer_id_expiration_check_interval_ms: int = key(
        Type.INT, 10 * MINUTE_MS, "How often silent producers are looked for", at_least=1, internal=True
    )

    # Cleaner
    log_cleaner_enable: bool = key(Type.BOOLEAN, True, "Whether compacted topics are compacted")
    log_cleaner_threads: int = key(
        Type.INT,
        1,
        "How many threads clean; may be halved or doubled while running. With 0 nothing is cleaned",
        at_least=0,
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = key(
        Type.LONG, 128 * MIB, "The memory of the offset maps of all cleaner threads", at_least=1, dynamic=True
    )
    log_cleaner_key_hashes_bytes: int = key(
        Type.LONG, 32 * MIB,
        "How much memory all compacted logs may use to remember the keys of compressed batches, 16 bytes a "
        "record, so that a cleaning need not unpack them to map them; 0 remembers none",
        at_least=0,
    )  # fmt: skip
    log_cleaner_io_buffer_size: int = key(
        Type.INT,
        512 * 1024,
        "Half of it, times sixteen, is what each cleaner thread reads at once, at most 4 MiB",
        at_least=0,
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = key(
        Type.DOUBLE, 0.9, "How full an offset map may get", at_least=0, at_most=1, dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = key(
        Type.DOUBLE, 1.7976931348623157e308,
        "The most that the cleaner reads and writes a second; 0 is no limit",
        at_least=0, dynamic=True,
    )  # fmt: skip
    replica_alter_log_dirs_io_max_bytes_per_second: int = key(
        Type.LONG, 9_223_372_036_854_775_807,
        "The most that partitions copy a second on their way to another of `log.dirs`; 0 is no limit",
        at_least=0, dynamic=True,
    )  # fmt: skip
    log_cleaner_backoff_ms: int = key(
        Type.LONG, 15_000, "How long a cleaner thread sleeps when there is nothing to clean; at least 10 ms",
        at_least=0, dynamic=True,
    )  # fmt: skip

    of_listeners: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """what file, environment and flags set for single listeners, by key with its prefix"""
    static: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """what file, environment and flags set, by key"""
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """what clients set for all brokers"""
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """what clients set for this broker; comes first"""

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where to listen, and what to advertise there."""
        return endpoints(
            self.listeners,
            self.advertised_listeners,
            self.controller_listener_names,
            self.listener_security_protocol_map,
        )

    def security_of(self, endpoint: Endpoint) -> ListenerSecurity:
        """What holds for the clients of a listener. ConfigError."""
        return security_of(endpoint.name, endpoint.protocol, self, self.of_listeners)

    @property
    def http_security(self) -> ListenerSecurity:
        """What holds for who asks over HTTP. ConfigError."""
        return security_of(HTTP, self.http_security_protocol, self, self.of_listeners, says_who=True)

    @staticmethod
    def parse(
        static: Mapping[str, str],
        dynamic_defaults: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """The values that these texts give; ConfigError with one line for every key that is wrong."""
        rows = by_any_name(broker_rows())
        values: dict[str, Any] = {}
        problems: list[ConfigError] = []
        chosen: dict[str, str] = {}
        of_listeners: dict[str, str] = {}
        limits_of_listeners: dict[str, int] = {}
        for source in (static, dynamic_defaults or {}, dynamic or {}):
            for name, text in canonical_last(source, rows):
                row = rows.get(name) or listener_row(name)
                if row is None and is_harmless(name, text):
                    continue
                if name.startswith(LISTENER_PREFIX) and source is static:
                    of_listeners[name] = text
                    if row is None:
                        continue
                if row is None:
                    problems.append(ConfigError(unknown(name, _also_known_as(rows)), name))
                    continue
                try:
                    value = parse(row, text, name=name)
                except ConfigError as error:
                    problems.append(error)
                    continue
                if row.name not in rows:
                    limits_of_listeners[row.name] = value
                    continue
                values[row.attribute] = value
                if source is static:
                    chosen[row.name] = text
        config = BrokerConfig(
            **values,
            of_listeners=of_listeners,
            limits_of_listeners=limits_of_listeners,
            static=chosen,
            dynamic_defaults=dynamic_defaults or {},
            dynamic=dynamic or {},
        )
        problems += problems_together(config)
        if problems:
            raise ConfigError.together(problems)
        return config

    def with_dynamic(self, defaults: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """These values with what clients set while the broker runs."""
        changed = BrokerConfig.parse({**self.static, **self.of_listeners}, defaults, own)
        rows = broker_rows().values()
        touched = {*defaults, *own, *self.dynamic, *self.dynamic_defaults}
        return dataclasses.replace(
            self,
            dynamic_defaults=dict(defaults),
            dynamic=dict(own),
            limits_of_listeners=changed.limits_of_listeners,
            **{row.attribute: getattr(changed, row.attribute) for row in rows if row.name in touched},
        )


def _also_known_as(rows: Mapping[str, Row]) -> dict[str, str]:
    """Every broker key by its own name, and by the topic key that it is the default of."""
    names = {name: name for name in rows}
    for topic_key, row in topic_rows().items():
        for synonym in row.synonyms:
            if synonym.name in rows:
                names.setdefault(topic_key, synonym.name)
                break
    return names


def why_no_key(name: str) -> str:
    """What a client is told that sets a key which the broker does not have."""
    if is_harmless(name):  # a file may bring it along, but here it is somebody's wish
        return f"Configuration {name} does nothing in kompakt: {why_harmless(name)}"
    return unknown(name, _also_known_as(by_any_name(broker_rows())))


def canonical_last(source: Mapping[str, str], rows: Mapping[str, Row]) -> list[tuple[str, str]]:
    """A key's own name comes after its aliases, so that it wins where both are set."""
    return sorted(source.items(), key=lambda item: item[0] in rows and rows[item[0]].name == item[0])


@cache
def broker_rows() -> dict[str, Row]:
    """Every broker key, by name, in declared order; those of security at the end."""
    security = security_rows()
    return {name: row for name, row in rows_of(BrokerConfig).items() if name not in security} | security
