"""`__consumer_offsets`: where a group's records go, when they are durable, what they say at start.

Mirrors the storage half of Kafka's GroupMetadataManager. One compacted topic; a group lives whole in the
partition that its id hashes to, so its records keep their order and one flush covers them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.groups.contents import Contents, read_contents
from broker.topic import OFFSETS_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.records import encode_batch
from storage.layout import TopicPartition
from storage.types import Origin

if TYPE_CHECKING:
    from broker.broker import Broker

logger = logging.getLogger(__name__)

# `None` is a tombstone.
KeyValue = tuple[bytes, bytes | None]
Done = Callable[[KafkaError | None], None]


def java_hash(text: str) -> int:
    """java.lang.String.hashCode: over UTF-16 units, wrapping at 32 bits."""
    value = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@functools.lru_cache(maxsize=4096)
def partition_for(group_id: str, partition_count: int) -> int:
    """Kafka's partition of a group; the one hash without an absolute value counts as 0."""
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


class Written(NamedTuple):
    """Where records went; `flushed` is None when they are durable already."""

    base_offset: int
    flushed: asyncio.Future[None] | None


class OffsetsStore:
    """Owned by: event loop; `read_contents` runs on a thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loading: set[int] = set()
        # What their groups committed is not known: to answer "nothing" would make consumers start over.
        self._unreadable: set[int] = set()
        self._is_closed = False
        self._creation: asyncio.Lock = asyncio.Lock()

    @property
    def partition_count(self) -> int:
        topic = self._broker.topics.get(OFFSETS_TOPIC)
        return topic.partition_count if topic else self._broker.config.offsets_topic_num_partitions

    def check_available(self, group_id: str) -> None:
        """Raise while the group's partition is being read, if it could not be, or after the end."""
        if self._is_closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        if self._loading or self._unreadable:
            index = partition_for(group_id, self.partition_count)
            if index in self._loading:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{group_id} is being loaded")
            if index in self._unreadable:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group_id} could not be loaded")

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
                count = config.offsets_topic_num_partitions
                await self._broker.topics.create_durably(OFFSETS_TOPIC, count, overrides)

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
            try:
                await self._load_one(index, apply)
            except (OSError, KafkaError) as error:
                logger.error("the groups of %s-%d cannot be served: %s", OFFSETS_TOPIC, index, error)
                self._unreadable.add(index)
            self._loading.discard(index)

    async def load_again(self, index: int, apply: Callable[[Contents], None]) -> None:
        """As `load`, of one partition that could not be read."""
        if index not in self._unreadable:
            return
        self._loading.add(index)
        try:
            await self._load_one(index, apply)
            self._unreadable.discard(index)
        except (OSError, KafkaError) as error:
            logger.error("the groups of %s-%d still cannot be served: %s", OFFSETS_TOPIC, index, error)
        finally:
            self._loading.discard(index)

    async def _load_one(self, index: int, apply: Callable[[Contents], None]) -> None:
        partition = self._broker.partitions.get(TopicPartition(OFFSETS_TOPIC, index))
        if partition is None:
            return
        log = partition.log
        if log.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.offline_reason)
        if log.log_end_offset > log.log_start_offset:
            apply(await self._broker.run_blocking(read_contents, log))


def _error_of(flushed: asyncio.Future[None]) -> KafkaError | None:
    error = flushed.exception()
    if error is None or isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
