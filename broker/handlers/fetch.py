"""Fetch (key 1), v4-v18.

Reads whole batches from each partition up to the high watermark (read_committed: the last stable offset,
with the list of aborted transactions, G9), at least one batch for the answer whatever the limits say
(KIP-74, G8). Too little to read: the fetch waits in the purgatory until `min_bytes` are there or
`max_wait_ms` is over. A large slice that is in the page cache goes out as a region of its file, a small one
is read at once, a cold one is first brought there by a reader thread; bytes go out by reference. v7 brings
sessions (KIP-227), v9 and v12 leader epochs (KIP-320, KIP-595), v13 topic ids (G6). Batches of zstd go to
every version (T151b), though KIP-110 keeps them for v10 and above: so it is with Apache Kafka from 4.0 on,
and there are clients that know zstd and ask with v4 (rskafka). Not implemented: followers (`replica_state`,
`replica_directory_id`, v18's `high_watermark`: one node), rack-aware replicas, v16's leader hints (G11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from broker.api import Later, handles
from broker.context import RequestContext
from broker.fetch_session import FetchContext, FetchedPartition
from broker.partition import Partition
from broker.security.authorizer import topics_to_read
from protocol.batch import iterate_headers
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest, FetchResponse
from storage.file import Buffer
from storage.region import Region

if TYPE_CHECKING:
    from broker.broker import Broker
    from storage.log import Log
    from storage.slice import Slice
    from storage.types import AbortedTransaction

logger = logging.getLogger(__name__)

TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = FetchResponse.FetchableTopicResponse.PartitionData
Aborted = PartitionAnswer.AbortedTransaction
READ_COMMITTED = 1
NO_EPOCH = -1
NO_OFFSET = -1
NO_TOPIC: tuple[UUID | None, str] = (None, "")
ANSWER_BYTES, PARTITION_BYTES, ABORTED_BYTES = 24, 44, 16
"""of what an answer has besides its records, about"""
LEAST_BYTES = 1 << 20
"""a fetch may answer so much whatever others have not read"""
Read = tuple[PartitionAnswer, "Slice"]
Records = Buffer | Region


@handles(FetchRequest)
def fetch(
    broker: Broker, context: RequestContext, request: FetchRequest
) -> FetchResponse | Later | Awaitable[FetchResponse]:
    try:
        fetched = broker.fetch_sessions.open(request, context.api_version, broker.clock.passed_ms())
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return Fetch(broker, context, request, fetched).start()


class Fetch:
    """One fetch on its way, possibly through the purgatory. Owned by: event loop."""

    __slots__ = (
        "_aborted",
        "_broker",
        "_context",
        "_fetched",
        "_has_errors",
        "_is_committed_only",
        "_last_topic",
        "_max_bytes",
        "_max_wait_ms",
        "_may_read",
        "_min_bytes",
        "_partitions",
        "_sizes_bytes",
        "_version",
        "_waiting_bytes",
    )

    def __init__(
        self, broker: Broker, context: RequestContext, request: FetchRequest, fetched: FetchContext
    ) -> None:
        self._broker = broker
        self._context = context
        self._fetched = fetched
        self._version = context.api_version
        self._is_committed_only = request.isolation_level == READ_COMMITTED
        self._max_bytes = max(0, min(request.max_bytes, broker.config.fetch_max_bytes))
        if context.usage is not None:
            self._max_bytes = min(self._max_bytes, broker.quotas.most_fetched(context))
        self._leave_room()
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._max_wait_ms = request.max_wait_ms
        self._may_read = topics_to_read(broker.authorizer, context)
        self._has_errors = False
        self._partitions: list[Partition | None] = []
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        self._last_topic = NO_TOPIC

    def start(self) -> FetchResponse | Later | Awaitable[FetchResponse]:
        answers, reads, counted = self._locate()
        if counted >= self._min_bytes or self._has_errors or self._max_wait_ms <= 0 or not answers:
            if not reads:
                self._flush_for_poll()
            return self._read(answers, reads)
        waiting_for = dict(zip(filter(None, self._partitions), self._fetched.partitions, strict=True))
        if self._min_bytes > 1:
            self._remember(answers, reads)
        delayed = self._broker.purgatory.delay(
            tuple(waiting_for), lambda moved: self._is_satisfied(moved, waiting_for[moved]), self._max_wait_ms
        )
        # Who is gone waits no longer: every append would look at this fetch until its time is up.
        return Later((delayed.done,), self._resume, delayed.complete)

    def _leave_room(self) -> None:
        """Answer less where others' answers that are not read yet take much memory already."""
        left = self._broker.config.fetch_max_unread_bytes - self._broker.metrics_state.unread_bytes
        if left < self._max_bytes:
            self._max_bytes = min(self._max_bytes, max(left, LEAST_BYTES))

    def _flush_for_poll(self) -> None:
        """A reader that polls without waiting waits all the same: what it came for shall not linger."""
        for partition in self._partitions:
            if partition is not None:
                partition.flush_for_reader()

    def _resume(self) -> FetchResponse | Later | Awaitable[FetchResponse]:
        self._leave_room()
        answers, reads, _ = self._locate()
        return self._read(answers, reads)

    def _is_satisfied(self, moved: Partition, wanted: FetchedPartition) -> bool:
        """Whether the fetch need not wait any longer, now that `moved` did."""
        log = moved.log
        if moved.is_forgotten or log.offline_reason is not None or wanted.fetch_offset < log.log_start_offset:
            return True
        if self._min_bytes <= 1:
            return self._upper_offset(log) > wanted.fetch_offset
        return self._has_enough(moved, wanted)

    def _remember(self, answers: list[PartitionAnswer], reads: list[Read]) -> None:
        """What each partition has when the wait begins: a move of one shall not cost a look at them all."""
        found = {id(answer): slice_.counted_bytes for answer, slice_ in reads}
        self._sizes_bytes: dict[Partition, int] = {
            partition: found.get(id(answer), 0)
            for partition, answer in zip(self._partitions, answers, strict=True)
            if partition is not None
        }
        self._waiting_bytes = sum(self._sizes_bytes.values())

    def _has_enough(self, moved: Partition, wanted: FetchedPartition) -> bool:
        """Whether `min_bytes` are there now, by what was found before and what `moved` has."""
        others = self._waiting_bytes - self._sizes_bytes[moved]
        answer = PartitionAnswer(partition_index=wanted.partition)
        try:
            found = self._locate_one(moved.log, wanted, answer, self._max_bytes, at_least_one=not others)
        except (KafkaError, OSError):
            return True  # the answer says it
        self._sizes_bytes[moved] = size = found.counted_bytes if found is not None else 0
        self._waiting_bytes = others + size
        return self._waiting_bytes >= self._min_bytes or self._has_errors

    def _upper_offset(self, log: Log) -> int:
        return log.last_stable_offset if self._is_committed_only else log.high_watermark

    # -- what is there

    def _locate(self) -> tuple[list[PartitionAnswer], list[Read], int]:
        """An answer for each partition, the slices to read for them, and what counts of them in all."""
        answers: list[PartitionAnswer] = []
        reads: list[Read] = []
        left = self._max_bytes
        counted = 0
        self._has_errors = False
        self._last_topic = NO_TOPIC
        self._partitions = []
        self._aborted = {}
        for wanted in self._fetched.partitions:
            partition = wanted.served
            answer = PartitionAnswer(partition_index=wanted.partition, high_watermark=-1, records=b"")
            answers.append(answer)
            try:
                if partition is None or partition.is_forgotten or partition.log.offline_reason is not None:
                    partition = wanted.served = None  # unless it is found
                    partition = wanted.served = self._resolve(wanted)
                elif self._may_read is not None:
                    self._check(partition.topic_partition.topic)
                found = self._locate_one(partition.log, wanted, answer, left, at_least_one=not reads)
            except (KafkaError, OSError) as error:
                _refuse(answer, error)
                self._has_errors = True
                found = None
            self._partitions.append(partition)
            if found is not None and found.size_bytes:
                counted += found.counted_bytes
                left = max(0, left - found.size_bytes)
                reads.append((answer, found))
        return answers, reads, counted

    def _resolve(self, wanted: FetchedPartition) -> Partition:
        topic = wanted.topic
        if isinstance(topic, UUID):
            if topic is not self._last_topic[0]:  # partitions of a topic follow each other
                known = self._broker.topics.by_id(topic)
                self._last_topic = topic, known.name if known is not None else ""
            topic = wanted.name = self._last_topic[1] or wanted.name
            if not topic:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        self._check(topic)
        partition = self._broker.partition(topic, wanted.partition)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(wanted.topic, UUID) and partition.topic_id != wanted.topic:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def _check(self, topic: str) -> None:
        """Before anything is said of it."""
        if self._may_read is not None and not self._may_read(topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _locate_one(
        self, log: Log, wanted: FetchedPartition, answer: PartitionAnswer, left: int, *, at_least_one: bool
    ) -> Slice | None:
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        answer.aborted_transactions = [] if self._is_committed_only else None
        if log.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.offline_reason)
        check_leader_epoch(wanted.current_leader_epoch, log.leader_epoch)
        offset = wanted.fetch_offset
        if wanted.last_fetched_epoch != NO_EPOCH and self._diverges(log, wanted, answer):
            return None
        upper_offset = self._upper_offset(log)
        if upper_offset <= offset <= log.log_end_offset and offset >= log.log_start_offset:
            log.active_segment.expect(offset)
            return None
        max_bytes = max(0, min(wanted.max_bytes, left))
        if at_least_one:
            max_bytes = max(1, max_bytes)
        return log.read(offset, max_bytes, upper_offset=upper_offset, at_least_one=at_least_one)

    def _diverges(self, log: Log, wanted: FetchedPartition, answer: PartitionAnswer) -> bool:
        """The client read records of an epoch that this log does not have there: tell it where to go back
        to.
        """
        epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch == NO_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            answer.diverging_epoch = PartitionAnswer.EpochEndOffset(epoch=epoch, end_offset=end_offset)
            self._has_errors = True
            return True
        return False

    # -- reading it

    def _read(
        self, answers: list[PartitionAnswer], reads: list[Read]
    ) -> FetchResponse | Later | Awaitable[FetchResponse]:
        """What is in the page cache at once; for the rest a thread sees to it that it is, first."""
        cold, soon, waits = self._read_cached(reads)
        if not cold and not soon:
            return self._respond(answers)
        _leave_no_regions(answers)
        if self._is_committed_only:
            self._note_aborted(answers, [*cold, *soon])
        # What is warm has left the cache again, or nobody can tell what is there.
        if any(found.is_warm or not found.file.tells_cached() for _, found in cold):
            return self._read_cold(answers, [*cold, *soon])
        counters = self._broker.metrics_state
        coming_bytes = sum(found.size_bytes for _, found in (*cold, *soon))
        counters.unread_bytes += coming_bytes
        warming = self._broker.run_blocking(_warm_slices, cold) if cold else None
        if warming is not None:
            waits.append(warming)

        def forget() -> None:
            counters.unread_bytes -= coming_bytes

        def read_warm() -> FetchResponse | Later | Awaitable[FetchResponse]:
            forget()
            warm = warming.result() if warming is not None else []
            return self._read(answers, [*warm, *soon])

        return Later(waits, read_warm, forget)

    def _read_cached(self, reads: list[Read]) -> tuple[list[Read], list[Read], list[asyncio.Future[Any]]]:
        """Answer what is in the page cache. Returns what is not, what threads are bringing there already, and
        the futures of these.
        """
        ahead = self._broker.read_ahead
        cold: list[Read] = []
        soon: list[Read] = []
        waits: list[asyncio.Future[Any]] = []
        leaving: list[Slice] = []
        for answer, found in reads:
            try:
                coming = ahead.coming(found)
                if coming is not None:
                    soon.append((answer, found))
                    waits.append(coming)
                    continue
                records = found.send_now()
            except (KafkaError, OSError) as error:
                _refuse(answer, error)
                continue
            if records is None:
                cold.append((answer, found))
                continue
            if isinstance(records, Region):
                leaving.append(found)
            answer.records = cast(Buffer, records)  # the encoder only asks for its length
        if leaving:
            ahead.leave(leaving)
        return cold, soon, waits

    async def _read_cold(self, answers: list[PartitionAnswer], cold: list[Read]) -> FetchResponse:
        counters = self._broker.metrics_state
        coming_bytes = sum(found.size_bytes for _, found in cold)
        counters.unread_bytes += coming_bytes
        try:
            await self._broker.run_blocking(_read_slices, cold)
        finally:
            counters.unread_bytes -= coming_bytes
        return self._respond(answers)

    def _respond(self, answers: list[PartitionAnswer]) -> FetchResponse:
        if self._is_committed_only:
            self._list_aborted(answers)
        if self._context.usage is not None:
            wait_ms = self._broker.quotas.hold_back(self._context, self._size_bytes(answers))
            if wait_ms:
                return self._nothing(wait_ms)
        topics: list[TopicAnswer] = []
        topic: str | UUID | None = None
        for wanted, answer in self._fetched.select(answers):
            if topic != wanted.topic:
                topic = wanted.topic
                if isinstance(topic, UUID):
                    topics.append(TopicAnswer(topic_id=topic))
                else:
                    topics.append(TopicAnswer(topic=topic))
            topics[-1].partitions.append(answer)
        self._count(answers)
        return FetchResponse(session_id=self._fetched.session_id, responses=topics)

    def _size_bytes(self, answers: list[PartitionAnswer]) -> int:
        """Of the whole answer, as quotas count it."""
        told = answers
        if self._fetched.is_incremental:
            told = [answer for answer in answers if answer.records or answer.error_code]
        aborted = sum(len(answer.aborted_transactions or ()) for answer in told)
        records_bytes = sum(len(answer.records or b"") for answer in told)
        return ANSWER_BYTES + PARTITION_BYTES * len(told) + ABORTED_BYTES * aborted + records_bytes

    def _nothing(self, wait_ms: int) -> FetchResponse:
        """The client is beyond its quota: it asks for the same once more. A session that this would have
        begun has not, as Kafka's clients know.
        """
        fetched = self._fetched
        if fetched.is_incremental:
            return FetchResponse(throttle_time_ms=wait_ms, session_id=fetched.session_id)
        self._broker.fetch_sessions.drop(fetched.session_id)
        return FetchResponse(throttle_time_ms=wait_ms)

    def _note_aborted(self, answers: list[PartitionAnswer], coming: list[Read]) -> None:
        """What `_list_aborted` will need, before anything is waited for: until then retention or a cleaning
        may take a segment out of the log, and its transaction index with it.
        """
        are_coming = {id(answer) for answer, _ in coming}
        for index, (partition, wanted, answer) in enumerate(
            zip(self._partitions, self._fetched.partitions, answers, strict=True)
        ):
            has_records = answer.records or id(answer) in are_coming
            if partition is not None and has_records and index not in self._aborted:
                upper_offset = answer.last_stable_offset
                self._aborted[index] = partition.log.aborted_transactions(wanted.fetch_offset, upper_offset)

    def _list_aborted(self, answers: list[PartitionAnswer]) -> None:
        """Which transactions among the records were aborted: the reader skips those (G9)."""
        for index, (partition, wanted, answer) in enumerate(
            zip(self._partitions, self._fetched.partitions, answers, strict=True)
        ):
            if partition is None or not answer.records:
                continue
            aborted = self._aborted.get(index)
            if aborted is None:
                aborted = partition.log.aborted_transactions(wanted.fetch_offset, answer.last_stable_offset)
            if aborted:
                _leave_no_regions([answer])
                end = max((header.next_offset for _, header in iterate_headers(answer.records)), default=0)
                answer.aborted_transactions = [
                    Aborted(producer_id=one.producer_id, first_offset=one.first_offset)
                    for one in aborted
                    if one.first_offset < end
                ]

    def _count(self, answers: list[PartitionAnswer]) -> None:
        for partition, answer in zip(self._partitions, answers, strict=True):
            if partition is None:
                continue
            counters = partition.counters
            counters.fetch_requests += 1
            if answer.error_code:
                counters.failed_fetch_requests += 1
            elif answer.records:
                counters.bytes_out += len(answer.records)


def check_leader_epoch(claimed: int, leader_epoch: int) -> None:
    """KIP-320: whether the client's idea of the leader epoch is older or newer than ours."""
    if claimed >= 0:  # Kafka takes any negative one for none
        if claimed < leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if claimed > leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)


def _leave_no_regions(answers: list[PartitionAnswer]) -> None:
    """Somebody looks into the records, or they cannot leave in this turn of the loop: read them."""
    for answer in answers:
        records = cast(Records, answer.records)
        if isinstance(records, Region):
            try:
                answer.records = records.read()
            except OSError as error:
                answer.records = b""
                _refuse(answer, error)


def _warm_slices(cold: list[Read]) -> list[Read]:
    """On a reader thread: bring into the page cache what is not there; those that could be."""
    warm: list[Read] = []
    for answer, found in cold:
        try:
            found.warm()
            warm.append((answer, found))
        except (OSError, KafkaError) as error:
            _refuse(answer, error)
    return warm


def _read_slices(cold: list[Read]) -> None:
    """On a reader thread: what does not stay in the page cache."""
    for answer, found in cold:
        try:
            answer.records = found.read()
        except (OSError, KafkaError) as error:
            _refuse(answer, error)


def _refuse(answer: PartitionAnswer, error: KafkaError | OSError) -> None:
    """One partition cannot be read; the others can. As in Kafka nothing else is said of it then."""
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = NO_OFFSET
    if isinstance(error, KafkaError):
        answer.error_code = error.code
    else:
        logger.error("a read failed: %s", error)
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
