"""A topic in which a coordinator keeps what it must remember, compacted unless it says otherwise: which
partition the records of an id go to, when they are durable, what they say at start.

What is known of an id (a group, a transactional id) lies whole in one partition, so that its records keep
their order and one flush covers them. Mirrors what `GroupMetadataManager` and `TransactionStateManager`
share.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from broker.node import Node
from broker.topics import TopicRegistry
from protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode, KafkaError
from protocol.records import encode_batch
from storage.layout import TopicPartition
from storage.types import Origin

if TYPE_CHECKING:
    from storage.log import Log

T = TypeVar("T")
logger = logging.getLogger(__name__)

# `None` is a tombstone.
KeyValue = tuple[bytes, bytes | None]
Done = Callable[[KafkaError | None], None]


PAUSE_MS = 1_000
"""behind a topic that could not be made: each time some of its partitions are made and taken away"""
BATCH_BYTES = 512 * 1024
"""records of one change go into the log in batches of about this size"""
LONGEST_STRING_BYTES = 32_767
"""what a string of the records' schemas holds; the flexible versions of requests know no such limit"""


def fits(text: str) -> bool:
    """Whether `text` can be stored."""
    return 4 * len(text) <= LONGEST_STRING_BYTES or len(text.encode()) <= LONGEST_STRING_BYTES


def java_hash(text: str) -> int:
    """java.lang.String.hashCode: over UTF-16 units, wrapping at 32 bits."""
    value = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@functools.lru_cache(maxsize=4096)
def partition_for(state_id: str, partition_count: int) -> int:
    """Kafka's partition of a group or transactional id; the hash without an absolute value counts as 0."""
    value = java_hash(state_id)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


class Producer(NamedTuple):
    """Who writes: an id and the epoch of its holder."""

    producer_id: int
    epoch: int


class Written(NamedTuple):
    """Where records went; `flushed` is None when they are durable already."""

    base_offset: int
    flushed: asyncio.Future[None] | None


class StateTopic(Generic[T]):
    """`read` makes of a log what it says, on a thread. Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        topics: TopicRegistry,
        name: str,
        new_partition_count: int,
        segment_bytes: int,
        read: Callable[[Log], T],
        overrides: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._node = node
        self._topics = topics
        self._new_partition_count = new_partition_count
        self._overrides: Mapping[str, str] = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
            **overrides,
        }
        self._read = read
        self._loading: set[int] = set()
        # What was said there is not known: to answer "nothing" would make clients start over.
        self._unreadable: set[int] = set()
        self._behind: dict[int, list[Callable[[], None]]] = {}  # what waits for a reading, in order
        self._is_closed = False
        self._creation = asyncio.Lock()
        self._is_failure_told = False
        self._may_be_made_ms = 0

    @property
    def exists(self) -> bool:
        return self._topics.get(self.name) is not None

    @property
    def partition_count(self) -> int:
        topic = self._topics.get(self.name)
        return topic.partition_count if topic else self._new_partition_count

    def place_of(self, state_id: str) -> TopicPartition:
        """Where the records of an id go."""
        return TopicPartition(self.name, partition_for(state_id, self.partition_count))

    def check_available(self, state_id: str) -> None:
        """Raise while the id's partition is being read, if it could not be, or after the end."""
        if self._is_closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        if self._loading or self._unreadable:
            index = partition_for(state_id, self.partition_count)
            if index in self._loading:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{state_id} is being loaded")
            if index in self._unreadable:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{state_id} could not be loaded")

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def is_known(self, index: int) -> bool:
        """Whether what this partition says has been read."""
        return index not in self._loading and index not in self._unreadable

    def when_read(self, index: int, act: Callable[[], None]) -> None:
        """Do now what changes what is known of a partition, or behind its reading: that finds the partition
        as it was at some moment, and is laid over whatever happened since.
        """
        if index in self._loading:
            self._behind.setdefault(index, []).append(act)
        else:
            act()

    def close(self) -> None:
        self._is_closed = True

    async def ensure(self) -> None:
        """Create the topic on first use (T199)."""
        if self.exists:
            return
        async with self._creation:
            if not self.exists:
                await self._make()

    async def _make(self) -> None:
        """Unless that has just failed: clients ask again and again, and show nobody why."""
        clock = self._node.clock
        if 0 < self._may_be_made_ms - clock.now_ms() <= PAUSE_MS:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} could not be made")
        try:
            await self._topics.create_durably(self.name, self._new_partition_count, self._overrides)
        except KafkaError as error:
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._may_be_made_ms = clock.now_ms() + PAUSE_MS
                if not self._is_failure_told:
                    logger.error("%s could not be made: %s", self.name, error.message)
                    self._is_failure_told = True
            raise

    def append(self, state_id: str, records: Sequence[KeyValue], producer: Producer | None = None) -> Written:
        """Append to the id's partition, as a part of the producer's transaction if one is given. Raises when
        nothing was appended.
        """
        partition = self._node.partitions.get(self.place_of(state_id))
        if partition is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} does not exist yet")
        now_ms = self._node.clock.now_ms()
        producer_id, epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = encode_batch(
            [(now_ms, key, value, ()) for key, value in records],
            now_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=producer is not None,
        )
        appended = partition.append(batch, now_ms, origin=Origin.COORDINATOR)
        return Written(appended.base_offset, partition.when_flushed(appended.last_offset + 1))

    def append_all(self, state_id: str, records: Sequence[KeyValue]) -> asyncio.Future[None] | None:
        """As `append`, of records that may be too many for one batch; the future of the last one's flush."""
        flushed: asyncio.Future[None] | None = None
        batch: list[KeyValue] = []
        batch_bytes = 0
        for key, value in records:
            batch.append((key, value))
            batch_bytes += len(key) + len(value or b"")
            if batch_bytes >= BATCH_BYTES:
                flushed = self.append(state_id, batch).flushed
                batch, batch_bytes = [], 0
        if batch:
            flushed = self.append(state_id, batch).flushed
        return flushed

    async def flushed(self) -> None:
        """Return when all that was appended so far is durable, or cannot be, as the log has said then."""
        places = (TopicPartition(self.name, index) for index in range(self.partition_count))
        partitions = [self._node.partitions[place] for place in places if place in self._node.partitions]
        waits = [one.when_flushed(one.log.log_end_offset) for one in partitions]
        if flushes := [waited for waited in waits if waited is not None]:
            await asyncio.wait(flushes)

    async def load(self, apply: Callable[[T], None]) -> None:
        """Read every partition on threads, hand each one's contents to `apply` on the loop (T200)."""
        if not self.exists:
            return
        self._loading = set(range(self.partition_count))
        for index in range(self.partition_count):
            try:
                await self._load_one(index, apply)
            except (OSError, KafkaError) as error:
                logger.error("what %s-%d says cannot be served: %s", self.name, index, error)
                self._unreadable.add(index)
            self._end_loading(index)

    async def load_again(self, index: int, apply: Callable[[T], None]) -> None:
        """As `load`, of one partition that could not be read."""
        if index not in self._unreadable:
            return
        self._loading.add(index)
        try:
            await self._load_one(index, apply)
            self._unreadable.discard(index)
        except (OSError, KafkaError) as error:
            logger.error("what %s-%d says still cannot be served: %s", self.name, index, error)
        finally:
            self._end_loading(index)

    def _end_loading(self, index: int) -> None:
        self._loading.discard(index)
        for act in self._behind.pop(index, ()):
            act()

    async def _load_one(self, index: int, apply: Callable[[T], None]) -> None:
        partition = self._node.partitions.get(TopicPartition(self.name, index))
        if partition is None:
            return
        log = partition.log
        if log.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.offline_reason)
        if log.log_end_offset > log.log_start_offset:
            apply(await self._node.run_blocking(self._read, log))


def when_durable(written: Written, done: Done) -> None:
    """Call `done` once the records are durable, at once if they are, or with the error that prevents it.

    It is called whether or not the client still waits: state follows the log, not the connection.
    """
    call_when_flushed(written.flushed, done)


def call_when_flushed(flushed: asyncio.Future[None] | None, done: Done) -> None:
    """As `when_durable`, of the flush itself; None: it is over."""
    if flushed is None:
        done(None)
    else:
        flushed.add_done_callback(lambda over: done(_error_of(over)))


def _error_of(flushed: asyncio.Future[None]) -> KafkaError | None:
    error = flushed.exception()
    if error is None or isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
