"""A broker that takes produce requests, for the tests of writers: `FakeBroker` with logs that grow.

It keeps the sequences of idempotent producers as Kafka does (the last five batches of each, duplicates are
answered and not written) and fails as a test tells it: with an error code before writing, by closing the
connection before or after it, with silence about a partition.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Any, ClassVar

from protocol.batch import MAX_SEQUENCE, BatchHeader, parse_header
from protocol.errors import ErrorCode
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from protocol.records import Record, decode_batch
from spark_connector.offsets import TopicPartition
from tests.spark.fake_broker import CLOSE, NODE, REQUESTS, FakeBroker, FakeLog

WRITES: dict[int, type[Any]] = {
    **REQUESTS,
    0: ProduceRequest,
    8: OffsetCommitRequest,
    10: FindCoordinatorRequest,
    22: InitProducerIdRequest,
}
CLOSE_BEFORE = "close before writing"
CLOSE_AFTER = "close after writing"
REMEMBERED = 5
PartitionAnswer = ProduceResponse.TopicProduceResponse.PartitionProduceResponse


class FakeLeader(FakeBroker):
    """Owned by: the test; handler threads change the logs one at a time."""

    apis: ClassVar[dict[int, type[Any]]] = WRITES

    def __init__(self, topic: str = "t", partitions: int = 2) -> None:
        self.faults: deque[int | str | None] = deque()  # for the next produce requests, one each
        self.largest_batch: int | None = None
        self.refused_records: list[tuple[int, str]] = []
        self.producer_ids = 0
        self.produced = 0
        self.committed: list[tuple[str, dict[TopicPartition, int]]] = []
        self.commit_errors: deque[ErrorCode] = deque()
        self._lock = threading.Lock()
        self._last: defaultdict[tuple[TopicPartition, int], deque[tuple[BatchHeader, int]]] = defaultdict(
            lambda: deque(maxlen=REMEMBERED)
        )
        super().__init__({TopicPartition(topic, number): FakeLog() for number in range(partitions)})

    def records(self, partition: int, topic: str = "t") -> list[Record]:
        """What is written, in order."""
        batches = self.logs[TopicPartition(topic, partition)].batches
        return [record for batch in batches for record in decode_batch(batch)]

    def forget_producers(self) -> None:
        """As a broker whose producer state is gone, with a log that expects another sequence."""
        for remembered in self._last.values():
            header, offset = remembered[-1]
            remembered.clear()
            remembered.append((header._replace(base_sequence=1000, last_offset_delta=0), offset))

    def recreate_topic(self) -> None:
        """As one that was deleted and made again under its name: no records, and no producer is known."""
        self._last.clear()
        for log in self.logs.values():
            log.batches.clear()

    def wipe(self) -> None:
        """As a broker that was set up anew at its old address: it gives the same producer ids again."""
        self.recreate_topic()
        self.producer_ids = 0

    def answer(self, request: Any) -> Any:
        with self._lock:
            match request:
                case ProduceRequest():
                    return self._produce(request)
                case InitProducerIdRequest():
                    self.producer_ids += 1
                    return InitProducerIdResponse(producer_id=100 + self.producer_ids, producer_epoch=0)
                case FindCoordinatorRequest():
                    return FindCoordinatorResponse(node_id=NODE, host="127.0.0.1", port=self.port)
                case OffsetCommitRequest():
                    return self._commit(request)
        return super().answer(request)

    def _produce(self, request: ProduceRequest) -> Any:
        self.produced += 1
        fault = self.faults.popleft() if self.faults else None
        if fault == CLOSE_BEFORE:
            return CLOSE
        answer = ProduceResponse(responses=[])
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                place = TopicPartition(topic.name, data.index)
                if isinstance(fault, int):
                    rows.append(PartitionAnswer(index=data.index, error_code=fault, base_offset=-1))
                else:
                    rows.append(self._append(place, bytes(data.records)))
            answer.responses.append(
                ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=rows)
            )
        if fault == CLOSE_AFTER:
            return CLOSE
        return answer if request.acks else None

    def _append(self, place: TopicPartition, batch: bytes) -> PartitionAnswer:
        header = parse_header(batch)
        assert header.size_bytes == len(batch)
        refused = PartitionAnswer(index=place.partition, base_offset=-1)
        if self.refused_records:
            refused.error_code = ErrorCode.INVALID_RECORD
            refused.record_errors = [
                PartitionAnswer.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in self.refused_records
            ]
            return refused
        if self.largest_batch is not None and len(batch) > self.largest_batch:
            refused.error_code = ErrorCode.MESSAGE_TOO_LARGE
            return refused
        remembered = self._last[place, header.producer_id]
        if header.producer_id >= 0 and remembered:
            for known, offset in remembered:
                if (known.base_sequence, known.last_sequence) == (header.base_sequence, header.last_sequence):
                    return PartitionAnswer(index=place.partition, base_offset=offset)
            expected = (remembered[-1][0].last_sequence + 1) & MAX_SEQUENCE
            if header.base_sequence != expected:
                refused.error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                return refused
        log = self.logs[place]
        offset = log.end
        log.batches.append(offset.to_bytes(8, "big") + batch[8:])
        remembered.append((header, offset))
        return PartitionAnswer(index=place.partition, base_offset=offset)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        error = self.commit_errors.popleft() if self.commit_errors else ErrorCode.NONE
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
        offsets = {
            TopicPartition(topic.name, partition.partition_index): partition.committed_offset
            for topic in request.topics
            for partition in topic.partitions
        }
        if not error:
            self.committed.append((request.group_id, offsets))
        topic_type = OffsetCommitResponse.OffsetCommitResponseTopic
        return OffsetCommitResponse(
            topics=[
                topic_type(
                    name=topic.name,
                    partitions=[
                        topic_type.OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=error
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
