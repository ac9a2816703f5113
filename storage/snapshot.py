"""A log at one moment, for who reads it on a thread while its owner goes on: a cleaner, a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.search import aborted_transactions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from uuid import UUID

    from config.topic import TopicConfig
    from protocol.batch import BatchHeader
    from storage.key_hashes import LogKeyHashes
    from storage.layout import TopicPartition
    from storage.log import Log
    from storage.segment import Segment
    from storage.segments import SegmentTuple
    from storage.types import LastRecord


class LogSnapshot(NamedTuple):
    """A log at one moment, for the cleaner: immutable, so that any thread may read it."""

    topic_partition: TopicPartition
    topic_id: UUID
    directory: Path
    config: TopicConfig
    segments: tuple[Segment, ...]
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    active_producers: Mapping[int, LastRecord]
    key_hashes: LogKeyHashes

    @classmethod
    def of(cls, log: Log) -> LogSnapshot:
        """For the log's owner to take."""
        return cls(
            topic_partition=log.topic_partition,
            topic_id=log.topic_id,
            directory=log.directory,
            config=log.config,
            segments=log.segments,
            log_start_offset=log.log_start_offset,
            last_stable_offset=log.last_stable_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            active_producers=log.producers.active_producers(),
            key_hashes=log.key_hashes,
        )


def is_aborted(log: Log, segments: SegmentTuple, header: BatchHeader) -> bool:
    """Whether the transaction of a batch that was found in `segments` was aborted. They are asked as well as
    the log: retention or a cleaning may have taken them out since, and what they know with them.
    """
    start, upper = header.base_offset, header.last_offset + 1
    aborted = log.aborted_transactions(start, upper)
    if segments is not log.segments:
        aborted += aborted_transactions(segments, start, upper)
    return any(
        one.producer_id == header.producer_id and one.first_offset <= start <= one.last_offset
        for one in aborted
    )
