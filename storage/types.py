"""The values that cross the door of storage/: what an append, a read, a flush, a snapshot gives back.

Plain data with at most the one method that a thread runs; the decisions live in log.py and beside it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from storage.file import POOL
from storage.key_hashes import KeyHashes, LogKeyHashes
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from config.topic import TopicConfig
    from storage.log import Log
    from storage.segment import Segment


NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Origin(Enum):
    """Who appends: a client is not trusted with control batches and has its sequences checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class Appended(NamedTuple):
    """Where a batch went; `log_append_time_ms` is -1 unless the topic stamps LogAppendTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class TimestampOffset(NamedTuple):
    """The answer of a search by time."""

    timestamp: int
    offset: int
    leader_epoch: int


class AbortedTransaction(NamedTuple):
    """One entry of a transaction index (KIP-98): the offsets of an aborted transaction and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LastRecord(NamedTuple):
    """What the cleaner must keep of a living producer; `last_data_offset` is None when only a marker is
    left.
    """

    last_data_offset: int | None
    producer_epoch: int


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


class FlushJob:
    """What one flush has to make durable. `run` may be called on any thread, once; it raises OSError.

    `only_file` is the file whose data are all that it is about; None when there is more.
    """

    __slots__ = ("_flushes", "end_offset", "end_position", "end_segment", "only_file", "rolled")

    def __init__(
        self,
        rolled: Sequence[Segment],
        active: Segment,
        unsynced: Sequence[Callable[[], None]],
        end_offset: int,
    ) -> None:
        """Segments that were `rolled` since the last one, then what `active` holds up to `end_offset`, and
        whatever else is `unsynced`, each once.
        """
        self.rolled = rolled
        self.end_offset, self.end_segment, self.end_position = end_offset, active, active.size_bytes
        self._flushes: list[Callable[[], None]] = [segment.flush_closed for segment in rolled]
        if active.size_bytes:
            self._flushes.append(active.flush_data)
        self._flushes += dict.fromkeys(unsynced)
        self.only_file = active.file if active.size_bytes and len(self._flushes) == 1 else None

    def run(self) -> None:
        for flush in self._flushes:
            try:
                flush()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                POOL.shed()  # nothing was asked of the disk yet, so that nothing can be lost
                flush()


class SwapJob:
    """The part of a swap or of a removal that waits for the disk; `run` on any thread, once."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def run(self) -> None:
        self._work()


class Expired(SwapJob):
    """Segments that retention took out of the log; their files are gone for good some time after `run`."""

    __slots__ = ("removed_bytes", "removed_segments")

    def __init__(self, removed_segments: int, removed_bytes: int, work: Callable[[], None]) -> None:
        super().__init__(work)
        self.removed_segments = removed_segments
        self.removed_bytes = removed_bytes


class LogLimits(NamedTuple):
    """What no client can make a log exceed, and what all logs of a broker share."""

    producer_expiration_ms: int = 86_400_000
    max_producers: int = 100_000
    max_decompressed_bytes: int = 512 * 1024 * 1024
    key_hashes: KeyHashes = KeyHashes(0)  # remembers nothing
