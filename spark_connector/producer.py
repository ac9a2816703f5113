"""Sends sealed batches to their leaders, several requests on the way, and keeps what is not yet answered.

Idempotent unless switched off: each task borrows a producer id with the sequence of every partition, so that
a batch whose answer was lost is sent again under its own number and written once. When anything goes wrong,
everything on the way is settled first, then what is left is sent again in its order, one request after
another: slow, rare and easy to trust. A producer id goes on to the worker's next task only after a task that
ended well, and only where it came from: a cluster that was set up anew gives the same ids to others, whose
batches and ours it would take for repetitions of each other.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from protocol.batch import MAX_SEQUENCE
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from spark_connector.client import Backoff, Cluster, refusal
from spark_connector.connection import INIT_PRODUCER_ID, PRODUCE, Connection, Unavailable
from spark_connector.encoder import SealedBatch, split
from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.refusals import TOO_LARGE, Answer, refused_rows
from spark_connector.write_options import WriteOptions

Address = tuple[str, int]

TRY_AGAIN = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
FORGOTTEN = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class SendAgain(Unavailable):
    """A batch has to be sent again in another form; nothing has to be waited for."""


@dataclass
class Identity:
    """A producer id and where each partition's sequence goes on. Owned by: the task that borrowed it."""

    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    cluster_id: str | None = None
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    """of the topics in `sequences`, as they were when the id was first used for them"""

    def is_known_to(self, cluster: Cluster) -> bool:
        """Whether `cluster`, as it was last described, is the one that gave the id, with the same topics.

        By topics as well: many set up their clusters with the same id each time.
        """
        return self.cluster_id == cluster.cluster_id and all(
            cluster.topic_id(topic) == topic_id for topic, topic_id in self.topic_ids.items()
        )


@dataclass
class Lane:
    """The way to one leader: what waits to be sent, and what waits for its answer, oldest first."""

    address: Address
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    connection: Connection | None = None
    waiting: dict[TopicPartition, SealedBatch] = field(default_factory=dict)
    waiting_bytes: int = 0
    in_flight: deque[list[SealedBatch]] = field(default_factory=deque)
    is_broken: bool = False

    def receive(self) -> ProduceResponse:
        """The oldest answer; Unavailable, for this and all others, when there will be none."""
        assert self.connection is not None
        try:
            if self.connection.is_idle:
                raise Unavailable("a request could not be sent")
            answer: ProduceResponse = self.connection.receive()
        except Unavailable:
            self.is_broken = True
            raise
        return answer


_idle: defaultdict[tuple[int, WriteOptions], list[Identity]] = defaultdict(list)


class Producer:
    """Writes the batches of one task. Owned by: that task, which has had its topics described before."""

    def __init__(
        self, cluster: Cluster, options: WriteOptions, on_too_large: Callable[[str, int], None]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._on_too_large = on_too_large
        self._lanes: dict[Address, Lane] = {}
        # Where each partition's batches go until all are settled: to look up another one's leader may tell of
        # a new leader of this one, and what went there would be written before what waits in the old lane.
        self._addresses: dict[TopicPartition, Address] = {}
        self._again: list[SealedBatch] = []  # sent, not written, found out so far
        self._forgotten: set[TopicPartition] = set()
        self._renewed: set[TopicPartition] = set()
        self._confirmed: set[TopicPartition] = set()
        # A broker takes any sequence from a producer that it does not know, as where a topic was made again
        # since the last task: were the first batch refused and the second written, the first could never be.
        # So a task's first one for each partition travels alone.
        self._unproven: set[TopicPartition] = set()
        self._identity = self._borrow()
        self.offsets: dict[TopicPartition, int] = {}  # the last one of each partition, where acks tell it
        self.written_bytes = 0

    # --- what the task calls

    def send(self, batch: SealedBatch) -> None:
        """Queue a batch; full requests leave at once, and at most `max_in_flight` wait for an answer."""
        place = batch.topic_partition
        limit = self._options.max_request_bytes - batch.size_bytes
        while True:
            lane = self._lane_to(place)
            if place not in lane.waiting and (not lane.waiting or lane.waiting_bytes <= limit):
                break
            self._guarded(lambda lane=lane: self._transmit(lane))  # type: ignore[misc]
        lane.waiting[place] = batch
        lane.waiting_bytes += batch.size_bytes

    def flush(self) -> None:
        """Send what waits and see that all of it is written."""
        while any(lane.waiting or lane.in_flight for lane in self._lanes.values()):
            self._guarded(self._send_and_settle_all)

    def close(self, *, is_clean: bool) -> None:
        """Give connections back, and after a task that ended well the producer id too."""
        for lane in self._lanes.values():
            lane.stack.close()  # a connection that still owes answers is not kept
        self._lanes.clear()
        if is_clean and self._options.is_idempotent:
            _idle[os.getpid(), self._options].append(self._identity)

    # --- producer ids

    def _borrow(self) -> Identity:
        if not self._options.is_idempotent:
            return Identity()
        idle = _idle[os.getpid(), self._options]
        while idle:
            identity = idle.pop()
            if identity.is_known_to(self._cluster):
                return identity
        return self._new_identity()

    def _new_identity(self) -> Identity:
        return self._cluster.retrying("asking for a producer id", self._ask_for_identity)

    def _ask_for_identity(self) -> Identity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        with self._cluster.any_connection() as connection:
            answer = connection.call(request, INIT_PRODUCER_ID, InitProducerIdResponse)
        if answer.error_code:
            raise refusal(answer.error_code, "a producer id")
        return Identity(answer.producer_id, answer.producer_epoch, cluster_id=self._cluster.cluster_id)

    def _number(self, batch: SealedBatch) -> None:
        """Give the batch the next sequences of its partition."""
        identity = self._identity
        sequence = -1
        if self._options.is_idempotent:
            place = batch.topic_partition
            if place not in self._confirmed or place not in identity.sequences:
                self._unproven.add(place)
            identity.topic_ids.setdefault(place.topic, self._cluster.topic_id(place.topic))
            sequence = identity.sequences.get(place, 0)
            identity.sequences[place] = (sequence + batch.record_count) & MAX_SEQUENCE
        batch.number(identity.producer_id, identity.producer_epoch, sequence)

    # --- the fast way

    def _lane_to(self, place: TopicPartition) -> Lane:
        address = self._addresses.get(place)
        if address is None:
            address = self._addresses[place] = self._cluster.retrying(
                f"looking up the leader of {place}", lambda: self._cluster.leader_of(place)
            )
        if address not in self._lanes:
            self._lanes[address] = Lane(address)
        return self._lanes[address]

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Unavailable as problem:
            self._recover(problem)

    def _send_and_settle_all(self) -> None:
        for lane in self._lanes.values():
            if lane.waiting:
                self._transmit(lane)
        for lane in self._lanes.values():
            while lane.in_flight:
                self._settle(lane)

    def _transmit(self, lane: Lane) -> None:
        """Send what waits in `lane` as one request."""
        while len(lane.in_flight) >= self._options.max_in_flight or (
            lane.in_flight and not self._unproven.isdisjoint(lane.waiting)
        ):
            self._settle(lane)
        if lane.connection is None:
            lane.connection = lane.stack.enter_context(self._cluster.connection(lane.address))
        batches = list(lane.waiting.values())
        lane.waiting.clear()
        lane.waiting_bytes = 0
        for batch in batches:
            self._number(batch)
        lane.in_flight.append(batches)
        request = produce_request(batches, self._options)
        if self._options.acks != 0:
            lane.connection.send(request, PRODUCE, ProduceResponse)
            return
        lane.connection.send_unanswered(request, PRODUCE)
        self._count(lane.in_flight.pop())

    def _settle(self, lane: Lane) -> None:
        """Take the oldest answer of `lane`; Unavailable when a batch of it has to be sent again."""
        answer = lane.receive()
        problem = self._judge(lane.in_flight.popleft(), answer)
        if problem is not None:
            raise problem

    # --- answers

    def _judge(self, batches: list[SealedBatch], answer: ProduceResponse) -> Unavailable | None:
        """Sort the batches of a request: written, or to be sent `_again` for the reason returned.

        ConnectorError for what another try would not change.
        """
        answers = {
            TopicPartition(topic.name, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        problem: Unavailable | None = None
        for batch in batches:
            place = batch.topic_partition
            found = answers.get(place)
            if found is None:
                self._again.append(batch)
                problem = Unavailable(f"no answer for {place}")
            elif found.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._count([batch])
                self._confirmed.add(place)
                self._unproven.discard(place)
                if found.error_code == ErrorCode.NONE and found.base_offset >= 0:
                    self.offsets[place] = found.base_offset + batch.record_count - 1
            else:
                again = self._judge_error(batch, found)
                problem = again if problem is None or isinstance(problem, SendAgain) else problem
        return problem

    def _judge_error(self, batch: SealedBatch, answer: Answer) -> Unavailable:
        place, code = batch.topic_partition, answer.error_code
        if code in TOO_LARGE and batch.record_count > 1:
            self._on_too_large(place.topic, batch.size_bytes)
            self._again += split(batch, self._options.compression_level)
            return SendAgain(f"{place}: a batch of {batch.size_bytes} bytes was too large")
        if code in FORGOTTEN and any(other.topic_partition == place for other in self._again):
            self._again.append(batch)  # its predecessor was not written
            return SendAgain(f"{place}: a batch came before its predecessor")
        if code in FORGOTTEN and place not in self._confirmed | self._renewed:
            # What earlier tasks wrote under this id the broker no longer knows; this one wrote nothing yet.
            self._again.append(batch)
            self._forgotten.add(place)
            return SendAgain(f"{place}: the broker has forgotten the producer id")
        if code in TRY_AGAIN:
            problem: Exception = Unavailable(f"{place}: {ErrorCode(code).name}")
        else:
            problem = refusal(code, f"writing to {place}")
        if isinstance(problem, Unavailable):
            self._again.append(batch)
            return problem
        said = f": {answer.error_message}" if answer.error_message else ""
        raise ConnectorError(f"{problem}{said}; {refused_rows(batch, answer)}")

    def _count(self, batches: Iterable[SealedBatch]) -> None:
        self.written_bytes += sum(batch.size_bytes for batch in batches)

    # --- the slow way

    def _recover(self, problem: Unavailable) -> None:
        """Settle everything on the way, then send what is not written, for the second time or the first.

        With what only waited, so that a leader that nobody reaches has the delivery timeout and no more.
        """
        waiting = [batch for lane in self._lanes.values() for batch in lane.waiting.values()]
        left, found = self._give_up_lanes(problem)
        for batch in waiting:
            self._number(batch)
        left += waiting
        reason: Unavailable | None = found
        places: set[TopicPartition] = set()
        backoff = Backoff(
            self._options.client,
            self._options.delivery_timeout_ms,
            "kafka.delivery.timeout.ms",
            is_missing=lambda: self._cluster.is_missing(*places),
        )
        while left:
            if reason is not None and not isinstance(reason, SendAgain):
                places = {batch.topic_partition for batch in left}
                backoff.wait(reason, f"writing to {', '.join(sorted({place.topic for place in places}))}")
                self._cluster.forget_leaders(places)
            self._renew(left)
            before = self.written_bytes
            left, reason = self._round(left)
            if self.written_bytes > before:
                backoff.restart()

    def _give_up_lanes(self, problem: Unavailable) -> tuple[list[SealedBatch], Unavailable]:
        """End all that is in flight, by its answer where one can be had: what is left, and why."""
        left: list[SealedBatch] = []
        for lane in self._lanes.values():
            while lane.in_flight and not lane.is_broken:
                try:
                    answer = lane.receive()
                    found = self._judge(lane.in_flight.popleft(), answer)
                except Unavailable as reason:
                    found = reason
                if found is not None and isinstance(problem, SendAgain):
                    problem = found
            if lane.is_broken:
                broken = Unavailable("broken")
                lane.stack.__exit__(Unavailable, broken, None)
                self._again += [batch for batches in lane.in_flight for batch in batches]
            else:
                lane.stack.close()
        self._lanes.clear()
        self._addresses.clear()
        left, self._again = self._again, left
        return left, problem

    def _renew(self, left: list[SealedBatch]) -> None:
        """A new producer id for partitions of which the broker has forgotten the old one."""
        if not self._forgotten:
            return
        self._identity = self._new_identity()
        for batch in left:
            if batch.topic_partition in self._forgotten:
                self._number(batch)
        self._renewed |= self._forgotten
        self._forgotten.clear()

    def _round(self, left: list[SealedBatch]) -> tuple[list[SealedBatch], Unavailable | None]:
        """Send the first batch of each partition, one request to each leader: what is left, and why."""
        firsts: dict[TopicPartition, SealedBatch] = {}
        for batch in left:
            firsts.setdefault(batch.topic_partition, batch)
        rest = [batch for batch in left if firsts[batch.topic_partition] is not batch]
        reason: Unavailable | None = None
        failed: list[SealedBatch] = []
        for batch in firsts.values():
            try:
                found = self._send_alone(batch)
            except Unavailable as problem:
                self._again = [batch]
                found = problem
            reason = found if reason is None or isinstance(reason, SendAgain) else reason
            failed += self._again
            self._again = []
        return failed + rest, reason

    def _send_alone(self, batch: SealedBatch) -> Unavailable | None:
        """One batch, one request, and its answer."""
        request = produce_request([batch], self._options)
        address = self._cluster.leader_of(batch.topic_partition)
        with self._cluster.connection(address) as connection:
            if self._options.acks == 0:
                connection.send_unanswered(request, PRODUCE)
                self._count([batch])
                return None
            answer = connection.call(request, PRODUCE, ProduceResponse)
        return self._judge([batch], answer)


def produce_request(batches: list[SealedBatch], options: WriteOptions) -> ProduceRequest:
    """One request with at most one batch for each partition."""
    topic_type = ProduceRequest.TopicProduceData
    topics: dict[str, ProduceRequest.TopicProduceData] = {}
    for batch in batches:
        name, index = batch.topic_partition
        topic = topics.setdefault(name, topic_type(name=name, partition_data=[]))
        topic.partition_data.append(topic_type.PartitionProduceData(index=index, records=batch.parts))
    return ProduceRequest(
        acks=options.acks, timeout_ms=options.client.request_timeout_ms, topic_data=list(topics.values())
    )
