"""Every file and directory name of a data directory, made and parsed here only.

The names are Apache Kafka's, so that its tools read our directories and its directories open here.
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
STATISTICS_SUFFIX = ".stats"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
REPLACED_IN_PLACE = (STATISTICS_SUFFIX, *INDEX_SUFFIXES)
"""written under a temporary name first: one that is found was never finished"""

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
MOVED_HERE = "kompakt-moved-here"
"""our own: the partition comes from another data directory, and may still be there as well"""
COMPACTED_TO = "kompakt-compacted-to"
"""our own: how far cleanings have known the log"""
PARTITION_FILES = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, MOVED_HERE, COMPACTED_TO})
"""in a partition's directory beside its segments"""

META_PROPERTIES = "meta.properties"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
LOG_START_WITNESS = "log-start-offset-witness"
CLEANER_WITNESS = "cleaner-offset-witness"
WITNESS_OF = {LOG_START_CHECKPOINT: LOG_START_WITNESS, CLEANER_CHECKPOINT: CLEANER_WITNESS}
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
"""Kafka's, from the formatting of a directory"""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

DATA_DIRECTORY_FILES = frozenset(
    {
        META_PROPERTIES,
        CLEANER_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_CHECKPOINT,
        *WITNESS_OF.values(),
        REPLICATION_CHECKPOINT,
        CLEAN_SHUTDOWN,
        LOCK,
        BOOTSTRAP_CHECKPOINT,
    }
)

_OFFSET_DIGITS = 20
LARGEST_OFFSET = 2**63 - 1
_SEGMENT_FILE = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot|\.stats)"
    r"(\.cleaned|\.swap|(?:\.[1-9]\d{0,9})?\.deleted|\.tmp)?"
)
_PARTITION_DIRECTORY = re.compile(r"([A-Za-z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_FUTURE_DIRECTORY = re.compile(rf"{_PARTITION_DIRECTORY.pattern}\.[0-9a-f]{{32}}-future")
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
_MAX_DIRECTORY_NAME = 255


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SegmentFile(NamedTuple):
    """A parsed file name: `<20 digits><kind>[state]`; state is "" for a file in use."""

    base_offset: int
    kind: str
    state: str


def segment_file_name(base_offset: int, kind: str, state: str = "") -> str:
    return f"{base_offset:0{_OFFSET_DIGITS}d}{kind}{state}"


def left_state(number: int) -> str:
    """The state of files that have left the log, where `number` older ones of their name wait as well."""
    return f".{number}{DELETED_SUFFIX}" if number else DELETED_SUFFIX


def parse_segment_file(name: str) -> SegmentFile | None:
    """None when the name is not one of ours; nor is one with an offset that no record can have."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > LARGEST_OFFSET:
        return None
    return SegmentFile(int(match[1]), match[2], match[3] or "")


def partition_directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    return _topic_partition(_PARTITION_DIRECTORY.fullmatch(name))


def _topic_partition(match: re.Match[str] | None) -> TopicPartition | None:
    if match is None or match[1] in (".", ".."):
        return None
    return TopicPartition(match[1], int(match[2]))


def future_directory_name(topic_partition: TopicPartition) -> str:
    """A fresh name under which a partition comes into another data directory. ValueError where its topic's
    name is too long for that, as in Kafka.
    """
    name = f"{partition_directory_name(topic_partition)}.{uuid.uuid4().hex}-future"
    if len(name) > _MAX_DIRECTORY_NAME:
        raise ValueError(f"{topic_partition.topic} is too long a name for a directory that is being filled")
    return name


def parse_future_directory(name: str) -> TopicPartition | None:
    return _topic_partition(_FUTURE_DIRECTORY.fullmatch(name))


def deleted_directory_name(topic_partition: TopicPartition) -> str:
    """A fresh name under which the directory of a deleted partition waits for its removal."""
    ending = f"-{topic_partition.partition}.{uuid.uuid4().hex}-delete"
    return topic_partition.topic[: _MAX_DIRECTORY_NAME - len(ending)] + ending


def is_deleted_directory(name: str) -> bool:
    return _DELETED_DIRECTORY.fullmatch(name) is not None


def is_log_file(name: str) -> bool:
    """Whether a log makes files of this name in its directory."""
    plain = name.removesuffix(TEMPORARY_SUFFIX)
    return plain in PARTITION_FILES or parse_segment_file(name) is not None
