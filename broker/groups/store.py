"""`__consumer_offsets`: where a group's records go, when they are durable, what they say at start.

Mirrors the storage half of Kafka's GroupMetadataManager. One compacted topic; a group lives whole in the
partition that its id hashes to, so its records keep their order and one flush covers them.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from broker.groups.records import GroupKey, OffsetKey, read_key
from protocol.errors import ErrorCode, KafkaError, MalformedFrame
from protocol.records import Record, decode_batch, encode_batch
from storage.layout import TopicPartition
from storage.types import Origin

if TYPE_CHECKING:
    from broker.broker import Broker
    from storage.log import Log

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"

Key = OffsetKey | GroupKey
# `None` is a tombstone.
KeyValue = tuple[bytes, bytes | None]
Done = Callable[[KafkaError | None], None]


def java_hash(text: str) -> int:
    """java.lang.String.hashCode: over UTF-16 units, wrapping at 32 bits."""
    value = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """Kafka's partition of a group; the one hash without an absolute value counts as 0."""
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


class Written(NamedTuple):
    """Where records went; `flushed` is None when they are durable already."""

    base_offset: int
    flushed: asyncio.Future[None] | None


@dataclass(slots=True)
class Contents:
    """The last word of one partition about every key, with the place of its record."""

    latest: dict[Key, tuple[int, bytes]] = field(default_factory=dict)
    records: int = 0


class OffsetsStore:
    """Owned by: event loop; `read_contents` runs on a thread and touches only the log it was given."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loading: set[int] = set()
        self._is_closed = False
        self._creation: asyncio.Lock = asyncio.Lock()

    @property
    def partition_count(self) -> int:
        topic = self._broker.topics.get(OFFSETS_TOPIC)
        return topic.partition_count if topic else self._broker.config.offsets_topic_num_partitions

    def check_available(self, group_id: str) -> None:
        """Raise while the group's partition is being read, or after the end."""
        if self._is_closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        if self._loading and partition_for(group_id, self.partition_count) in self._loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{group_id} is being loaded")

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def close(self) -> None:
        self._is_closed = True

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` on first use (T199)."""
        if self._broker.topics.get(OFFSETS_TOPIC) is not None:
            return
        config = self._broker.config
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        async with self._creation:
            if self._broker.topics.get(OFFSETS_TOPIC) is None:
                self._broker.topics.create(OFFSETS_TOPIC, config.offsets_topic_num_partitions, overrides)
            await self._broker.topics.flushed()

    def append(self, group_id: str, records: Sequence[KeyValue]) -> Written:
        """Append to the group's partition. Raises when nothing was appended."""
        topic_partition = TopicPartition(OFFSETS_TOPIC, partition_for(group_id, self.partition_count))
        partition = self._broker.partitions.get(topic_partition)
        if partition is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        now_ms = self._broker.clock.now_ms()
        batch = encode_batch([(now_ms, key, value, ()) for key, value in records], now_ms=now_ms)
        appended = partition.append(batch, now_ms, origin=Origin.COORDINATOR)
        return Written(appended.base_offset, partition.when_flushed(appended.last_offset + 1))

    def when_durable(self, written: Written, done: Done) -> None:
        """Call `done` once the records are durable, at once if they are, or with the error that prevents it.

        It is called whether or not the client still waits: state follows the log, not the connection."""
        if written.flushed is None:
            done(None)
        else:
            written.flushed.add_done_callback(lambda flushed: done(_error_of(flushed)))

    async def load(self, apply: Callable[[Contents], None]) -> None:
        """Read every partition on threads, hand each one's contents to `apply` on the loop (T200)."""
        if self._broker.topics.get(OFFSETS_TOPIC) is None:
            return
        self._loading = set(range(self.partition_count))
        for index in range(self.partition_count):
            partition = self._broker.partitions.get(TopicPartition(OFFSETS_TOPIC, index))
            if partition is not None and partition.log.log_end_offset > partition.log.log_start_offset:
                apply(await self._broker.run_blocking(read_contents, partition.log))
            self._loading.discard(index)


def _error_of(flushed: asyncio.Future[None]) -> KafkaError | None:
    error = flushed.exception()
    if error is None or isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))


def read_contents(log: Log) -> Contents:
    """The last value of every key of one partition; a transaction counts from its commit marker on."""
    contents = Contents()
    open_transactions: dict[int, list[tuple[Key, int, bytes | None]]] = {}
    for header, data in log.scan(log.log_start_offset):
        try:
            batch = decode_batch(data)
        except KafkaError as error:
            # The other groups of the partition can still be served.
            logger.error("%s at offset %d: %s, batch skipped", OFFSETS_TOPIC, header.base_offset, error)
            continue
        if header.is_control:
            pending = open_transactions.pop(header.producer_id, [])
            if _is_commit_marker(batch):
                _apply(contents, pending)
            continue
        entries = list(_entries(batch))
        contents.records += len(entries)
        if header.is_transactional:
            open_transactions.setdefault(header.producer_id, []).extend(entries)
        else:
            _apply(contents, entries)
    return contents


def _entries(batch: Iterable[Record]) -> Iterable[tuple[Key, int, bytes | None]]:
    for record in batch:
        if record.key is None:
            continue
        try:
            key = read_key(record.key)
        except (MalformedFrame, struct.error):
            logger.warning("unreadable key in %s at offset %d, skipped", OFFSETS_TOPIC, record.offset)
            continue
        if key is not None:
            yield key, record.offset, None if record.value is None else bytes(record.value)


def _apply(contents: Contents, entries: Iterable[tuple[Key, int, bytes | None]]) -> None:
    for key, offset, value in entries:
        if value is None:
            contents.latest.pop(key, None)
        else:
            contents.latest[key] = (offset, value)


def _is_commit_marker(batch: Iterable[Record]) -> bool:
    """A control record's key: version int16, type int16; type 1 commits."""
    return any(record.key is not None and bytes(record.key)[2:4] == b"\x00\x01" for record in batch)
