"""The keys of a topic, and how its values are found: its own override, else the broker's.

Mirrors Kafka's `LogConfig` and `TopicConfig`. Names and defaults are Kafka's; `flush.messages` is 1 here, so
that acks=all means "on disk".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from config.definition import (
    HOUR_MS,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    ConfigError,
    Row,
    Synonym,
    Type,
    check_client_floor,
    key,
    meant,
    parse,
    rows_of,
)

if TYPE_CHECKING:
    from config.broker import BrokerConfig

COMPACT = "compact"
DELETE = "delete"
OFFSET = "offset"
TIMESTAMP = "timestamp"
HEADER = "header"
PRODUCER = "producer"


def _gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "Value must be between 1 and 9 or equal to -1"


def _must_be_false(value: bool) -> str | None:
    return "There is no remote storage" if value else None


_THROTTLED = re.compile(r"\d+:\d+")


def _throttled_replicas(members: tuple[str, ...]) -> str | None:
    if "".join(members) == "*" or all(not member or _THROTTLED.fullmatch(member) for member in members):
        return None
    return "Must be the literal '*' or a list of replicas like [partitionId]:[brokerId]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The values that hold for one topic. Owned by: any thread (immutable)."""

    cleanup_policy: frozenset[str] = key(
        Type.LIST, frozenset({DELETE}),
        "What becomes of old segments: delete removes them by time and size, compact keeps the last value of "
        "every key; both may be given",
        one_of=(COMPACT, DELETE), dynamic=True, synonyms=("log.cleanup.policy",),
    )  # fmt: skip
    compaction_compression_type: str = key(
        Type.STRING, PRODUCER,
        "The codec that a cleaning stores batches with, at the level that compression.*.level has for it, "
        "where that makes them smaller; producer keeps the one that they have. For tables that are read "
        "rarely and kept long. Experimental (Kafka: producer only)",
        one_of=("zstd", "lz4", "snappy", "gzip", PRODUCER), dynamic=True,
        synonyms=("log.cleaner.compaction.compression.type",),
    )  # fmt: skip
    compaction_expired_tombstones_enable: bool = key(
        Type.BOOLEAN, False,
        "Whether a compacted log is cleaned when its tombstones are past delete.retention.ms, although "
        "nothing else asks for it (Kafka: they wait for the next cleaning)",
        dynamic=True, synonyms=("log.cleaner.expired.tombstones.enable",),
    )  # fmt: skip
    compaction_strategy: str = key(
        Type.STRING, OFFSET,
        "Which record of a key compaction keeps: the last (offset), the one with the highest timestamp, or "
        "the one with the highest version in the header compaction.strategy.header; among equals the last. "
        "Until it has cleaned, who looks for the latest takes the last (readers, kompakt get, view=latest). "
        "Experimental (KIP-280; Kafka: offset only)",
        one_of=(OFFSET, TIMESTAMP, HEADER), dynamic=True, synonyms=("log.cleaner.compaction.strategy",),
    )  # fmt: skip
    compaction_strategy_header: str = key(
        Type.STRING, "",
        "The header with a record's version, a big-endian number of 8 bytes, for compaction.strategy header; "
        "a record without it, or with a negative one, gives way to any that has one. Where none is named, "
        "neither here nor for all topics, a log with that strategy is not cleaned",
        dynamic=True, synonyms=("log.cleaner.compaction.strategy.header",),
    )  # fmt: skip
    compression_type: str = key(
        Type.STRING, PRODUCER,
        "The codec that batches are stored with; producer keeps what the producer chose",
        one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", PRODUCER), dynamic=True,
        synonyms=("compression.type",),
    )  # fmt: skip
    compression_gzip_level: int = key(
        Type.INT, -1, "The level for compression.type gzip, 1 to 9; -1 is the codec's own default",
        dynamic=True, synonyms=("compression.gzip.level",), check=_gzip_level,
    )  # fmt: skip
    compression_lz4_level: int = key(
        Type.INT, 9, "The level for compression.type lz4",
        at_least=1, at_most=17, dynamic=True, synonyms=("compression.lz4.level",),
    )  # fmt: skip
    compression_zstd_level: int = key(
        Type.INT, 3, "The level for compression.type zstd",
        at_least=-131072, at_most=22, dynamic=True, synonyms=("compression.zstd.level",),
    )  # fmt: skip
    delete_retention_ms: int = key(
        Type.LONG, 24 * HOUR_MS,
        "How long a tombstone stays readable, counted from the first cleaning that meets it",
        at_least=0, dynamic=True, synonyms=("log.cleaner.delete.retention.ms",),
    )  # fmt: skip
    file_delete_delay_ms: int = key(
        Type.LONG, MINUTE_MS, "How long the file of a removed segment stays on disk for readers that hold it",
        at_least=0, dynamic=True, synonyms=("log.segment.delete.delay.ms",),
    )  # fmt: skip
    flush_messages: int = key(
        Type.LONG, 1,
        "How many records may be written before the log is flushed. 1: acks=all is answered when the batch "
        "is on disk, and consumers see flushed records only. Above 1: Kafka's "
        "behaviour, the flush runs in the background",
        at_least=1, dynamic=True, synonyms=("log.flush.interval.messages",),
    )  # fmt: skip
    flush_ms: int = key(
        Type.LONG, LONG_MAX, "How long a record may stay unflushed where flush.messages is above 1",
        at_least=0, dynamic=True,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )  # fmt: skip
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        Type.LIST, (), "Replicas whose copying is slowed down on the follower; one node has none",
        is_loose=True, dynamic=True, check=_throttled_replicas,
    )  # fmt: skip
    index_interval_bytes: int = key(
        Type.INT, 4096, "How many bytes of log lie between two entries of the offset index",
        at_least=0, dynamic=True, synonyms=("log.index.interval.bytes",),
    )  # fmt: skip
    internal_segment_bytes: int | None = key(
        Type.INT, None, "As segment.bytes but without its floor of 1 MiB, for tests",
        at_least=1, dynamic=True, internal=True, synonyms=("internal.log.segment.bytes",),
    )  # fmt: skip
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        Type.LIST, (), "Replicas whose copying is slowed down on the leader; one node has none",
        is_loose=True, dynamic=True, check=_throttled_replicas,
    )  # fmt: skip
    local_retention_bytes: int = key(
        Type.LONG, -2, "Part of retention.bytes that stays local where remote storage exists; there is none",
        at_least=-2, dynamic=True,
    )  # fmt: skip
    local_retention_ms: int = key(
        Type.LONG, -2, "Part of retention.ms that stays local where remote storage exists; there is none",
        at_least=-2, dynamic=True,
    )  # fmt: skip
    max_compaction_lag_ms: int = key(
        Type.LONG, LONG_MAX,
        "A record becomes cleanable after this time at the latest, whatever the dirty ratio",
        at_least=1, dynamic=True, synonyms=("log.cleaner.max.compaction.lag.ms",),
    )  # fmt: skip
    max_message_bytes: int = key(
        Type.INT, MIB + 12, "The largest record batch that is taken",
        at_least=0, dynamic=True, synonyms=("message.max.bytes",),
    )  # fmt: skip
    message_timestamp_after_max_ms: int = key(
        Type.LONG, HOUR_MS, "How far a record's timestamp may lie in the future",
        at_least=0, dynamic=True, synonyms=("log.message.timestamp.after.max.ms",),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = key(
        Type.LONG, LONG_MAX, "How far a record's timestamp may lie in the past",
        at_least=0, dynamic=True, synonyms=("log.message.timestamp.before.max.ms",),
    )  # fmt: skip
    message_timestamp_type: str = key(
        Type.STRING, "CreateTime", "Whether a record bears the producer's time or that of the append",
        one_of=("CreateTime", "LogAppendTime"), dynamic=True, synonyms=("log.message.timestamp.type",),
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = key(
        Type.DOUBLE, 0.5, "A log is cleaned when its dirty part exceeds this share of its cleanable bytes",
        at_least=0, at_most=1, dynamic=True, synonyms=("log.cleaner.min.cleanable.ratio",),
    )  # fmt: skip
    min_compaction_lag_ms: int = key(
        Type.LONG, 0, "A record stays at least so long, even if a newer one of its key exists",
        at_least=0, dynamic=True, synonyms=("log.cleaner.min.compaction.lag.ms",),
    )  # fmt: skip
    min_insync_replicas: int = key(
        Type.INT, 1,
        "How many replicas must have a record for acks=all, or all where there are fewer; one node has one",
        at_least=1, dynamic=True, synonyms=("min.insync.replicas",),
    )  # fmt: skip
    preallocate: bool = key(
        Type.BOOLEAN, False, "Whether a new segment's file gets its full size at once",
        dynamic=True, synonyms=("log.preallocate",),
    )  # fmt: skip
    remote_log_copy_disable: bool = key(
        Type.BOOLEAN, False, "Whether no more segments are copied to remote storage; there is none",
        dynamic=True,
    )  # fmt: skip
    remote_log_delete_on_disable: bool = key(
        Type.BOOLEAN, False,
        "Whether what lies in remote storage is deleted with remote.storage.enable=false; there is none",
        dynamic=True,
    )  # fmt: skip
    remote_storage_enable: bool = key(
        Type.BOOLEAN, False, "Whether segments are moved to remote storage; there is none",
        dynamic=True, check=_must_be_false,
    )  # fmt: skip
    retention_bytes: int = key(
        Type.LONG, -1,
        "The size of a partition above which its oldest segments are deleted; any below 0 is no limit",
        dynamic=True, synonyms=("log.retention.bytes",),
    )  # fmt: skip
    retention_ms: int = key(
        Type.LONG, 168 * HOUR_MS, "The age above which a segment is deleted; -1 is no limit",
        at_least=-1, dynamic=True,
        synonyms=(
            "log.retention.ms",
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
    )  # fmt: skip
    segment_bytes: int = key(
        Type.INT, 1 << 30, "The size at which a segment is closed and a new one begun",
        at_least=1, client_at_least=MIB, dynamic=True, synonyms=("log.segment.bytes",),
    )  # fmt: skip
    segment_idle_ms: int = key(
        Type.LONG, -1,
        "An active segment to which nothing was written for so long is closed, so that compaction and "
        "retention reach it; -1 never (Kafka: only an append closes a segment)",
        at_least=-1, dynamic=True, synonyms=("log.roll.idle.ms",),
    )  # fmt: skip
    segment_index_bytes: int = key(
        Type.INT, 10 * MIB, "The largest size of a segment's index files",
        at_least=4, dynamic=True, synonyms=("log.index.size.max.bytes",),
    )  # fmt: skip
    segment_jitter_ms: int = key(
        Type.LONG, 0,
        "Up to so much is taken off segment.ms by chance, so that segments do not all close at once",
        at_least=0, dynamic=True,
        synonyms=("log.roll.jitter.ms", Synonym("log.roll.jitter.hours", HOUR_MS)),
    )  # fmt: skip
    segment_ms: int = key(
        Type.LONG, 168 * HOUR_MS,
        "The age at which a segment is closed by the next append, even if it is not full",
        at_least=1, dynamic=True, synonyms=("log.roll.ms", Synonym("log.roll.hours", HOUR_MS)),
    )  # fmt: skip
    unclean_leader_election_enable: bool = key(
        Type.BOOLEAN, False, "Whether a replica that lags may become leader; one node has none",
        dynamic=True, synonyms=("unclean.leader.election.enable",),
    )  # fmt: skip

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return DELETE in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is closed: max lag caps that of a compacted topic (T21)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def lacks_version(self) -> bool:
        """Whether a header decides which record stays, and none is named: then nothing may be cleaned."""
        return self.compaction_strategy == HEADER and not self.compaction_strategy_header

    @staticmethod
    def resolve(
        overrides: Mapping[str, str],
        broker: BrokerConfig,
        *,
        is_internal: bool = False,
        is_stored: bool = False,
    ) -> TopicConfig:
        """The values of a topic with these overrides; ConfigError when they cannot hold together.

        The broker reads its internal topics by offset, so that nothing else may decide which record stays,
        and at every start, so that nothing shall make that slower.
        Of a topic that is there (`is_stored`) a compaction lag may contradict what was set for all topics
        since: both hold, as in Kafka, and what is younger than the minimum stays. It may also
        lack the header that was named for all (`lacks_version`): any other rule removes what should stay.
        """
        rows = topic_rows()
        strange = sorted(overrides.keys() - rows.keys())
        if strange:
            raise ConfigError(unknown_topic_key(strange[0]), strange[0])
        values: dict[str, Any] = {}
        for name, row in rows.items():
            values[row.attribute] = (
                parse(row, overrides[name]) if name in overrides else from_broker(row, broker)
            )
        if "segment.bytes" not in overrides or "internal.segment.bytes" in overrides:
            values["segment_bytes"] = values["internal_segment_bytes"] or values["segment_bytes"]
        if not is_stored and values["min_compaction_lag_ms"] > values["max_compaction_lag_ms"]:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({values['min_compaction_lag_ms']}) > "
                f"max.compaction.lag.ms ({values['max_compaction_lag_ms']})",
                "max.compaction.lag.ms",
            )
        is_versioned = values["compaction_strategy"] == HEADER and not is_internal
        if is_versioned and not is_stored and not values["compaction_strategy_header"]:
            raise ConfigError.of_value(
                HEADER,
                "compaction.strategy",
                "It needs the name of a header in compaction.strategy.header",
            )
        if is_internal:
            values["compaction_strategy"] = OFFSET
            values["compaction_compression_type"] = PRODUCER
        return TopicConfig(**values)


INFINITE_WHEN_NEGATIVE = "retention.ms"


def from_broker(row: Row, broker: BrokerConfig) -> Any:
    """What a topic key is when the topic does not set it."""
    for synonym in row.synonyms:
        value = getattr(broker, synonym.name.replace(".", "_"))
        if value is None:
            continue
        if row.name == INFINITE_WHEN_NEGATIVE and value < 0:
            return -1
        return value if synonym.factor == 1 else min(value * synonym.factor, LONG_MAX)
    return row.default


@cache
def topic_rows() -> dict[str, Row]:
    """Every topic key, by name, in alphabetical order."""
    return rows_of(TopicConfig)


def unknown_topic_key(name: str, shown_letters: int | None = None) -> str:
    """The line for a key that no topic has, in Kafka's words; behind them what may have been meant, the
    broker's name of a topic's key first. Of a long name the first letters are shown.
    """
    by_synonym = {synonym.name: row.name for row in topic_rows().values() for synonym in row.synonyms}
    hint = f": did you mean {by_synonym[name]}?" if name in by_synonym else meant(name, topic_rows())
    return f"Unknown topic config name: {name[:shown_letters]}{hint}"


def check_client_overrides(
    overrides: Mapping[str, str], broker: BrokerConfig, current: Mapping[str, str] | None = None
) -> TopicConfig:
    """What a client may set on a topic: all that `resolve` asks for, and Kafka's floors (KIP-1030) for what
    it does not set already.
    """
    resolved = TopicConfig.resolve(overrides, broker)
    for name, row in topic_rows().items():
        if name in overrides and overrides[name] != (current or {}).get(name):
            check_client_floor(row, parse(row, overrides[name]))
    return resolved


MAX_TOPIC_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic name, or None. Mirrors Kafka's `Topic.validate`."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{MAX_TOPIC_NAME}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def collision_form(name: str) -> str:
    """Two topics of the same form collide in metric names: '.' and '_' count as one."""
    return name.replace(".", "_")
