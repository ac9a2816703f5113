"""What a producer's requests to one topic have in common, so that the next one need not be decoded.

A client sends the same version, client id, acks, timeout and topic again and again; its correlation id, the
partitions and the records are new. `ProduceTemplate` keeps the bytes before the partitions of a request,
and the bytes of its answer around the offsets: a frame that begins with the same bytes is the same request,
because it is learned only from a frame that the generated encoder would write in the same way. One kernel
compares them, finds the partitions and looks at their batches, where the bytes were received. From v13 on the
bytes have the topic's id: once that is not its topic's any more, nothing is like it. All other
requests (several topics, acks=0, tagged fields, old versions) go the usual way. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.receiving import Room
from protocol.framing import RequestHeader, encode_request, encode_response
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.one_look import MAX_PARTITIONS, Seen, desk, is_ready, look_at_request
from protocol.records import as_array
from protocol.schema import ZERO_UUID, schema_of
from protocol.varint import write_unsigned

if TYPE_CHECKING:
    from broker.partition import Partition

Asked = list[tuple[int, memoryview, Seen | None]]
"""of each partition of a request: its number, its records, and what was seen of them if they are usual"""
AnswerForm = tuple[Callable[..., bytes], bytes, bytes, list[bytes]]
"""of answers for some number of partitions: what makes one of its length, its correlation id, the bytes up to
the first partition, and for each of these what became of it and the bytes behind that"""
TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse

MIN_VERSION = 7
"""from here on a request is refused for nothing but its acks, its partition and its records"""
TOPIC_ID_VERSION = 13
FLEXIBLE_VERSION = schema_of(ProduceRequest).flexible_header_from
ACKS = (1, -1)
NO_TAGS = b"\0\0"
"""behind the partitions, of the topic and the request"""
LENGTH_BYTES = 4
INDEX_BYTES = 4
COUNT_BYTES = 4
"""of the number of partitions, before flexible versions"""
LARGEST_LEARNED_BYTES = 64 * 1024
"""to learn costs a copy, and to decode a request of many records is a small part of it"""
_row = Struct(f"{len(Seen._fields)}q").unpack_from
ROW_BYTES = 8 * len(Seen._fields)
_new_tuple = tuple.__new__  # of a named one, without its Python
_integer = Struct(">i")
_index_and_length = Struct(">ii")
_partition = Struct(">ihqqq")  # index, error code, base offset, log append time, log start offset


class ProduceTemplate:
    """The bytes of one connection's Produce requests and answers. Owned by: event loop."""

    __slots__ = (
        "_answers",
        "_desk",
        "_head",
        "_index_at",
        "_is_flexible",
        "_lately",
        "_number",
        "acks",
        "is_learned",
        "topic",
        "topic_id",
        "version",
    )

    def __init__(self) -> None:
        self._lately: tuple[int, str, UUID] | None = None
        self._number: int | None = None
        """that of the topic's id, where requests have it"""
        self._answers: dict[int, AnswerForm] = {}
        self._desk = desk()
        self.is_learned = False
        self.topic = ""
        self.topic_id = ZERO_UUID
        self.version = 0
        self.acks = 0

    def forget(self) -> None:
        """What was learned holds no longer."""
        self.is_learned = False
        self._lately = None

    def match(
        self, room: Room, start: int, end: int, partitions: Mapping[Any, Partition], now_ms: int
    ) -> Asked | None:
        """The partitions of a request that is like the one that was learned, else None. What is usual is
        asked of the first of them, which must be among `partitions`: it holds for the topic.
        """
        index_at = start + self._index_at
        if end - index_at < INDEX_BYTES:
            return None
        view = room.view
        first = partitions.get((self.topic, _integer.unpack_from(view, index_at)[0]))
        if first is None or (self._number is not None and first.topic_id.int != self._number):
            return None
        usual, head, is_flexible = first.log.usual, self._head, self._is_flexible
        own = self._desk
        count = look_at_request(
            room.array, start, end, head, is_flexible, now_ms, *usual, *own.workspace, own.found
        )
        rows = own.rows
        asked: Asked = []
        for number in range(count):
            seen = _new_tuple(Seen, _row(rows, ROW_BYTES * number))
            index, begin, behind, is_usual, _, _, _, _, _ = seen
            asked.append((index, view[begin:behind], seen if is_usual else None))
        return asked or None

    def answer(self, correlation_id: int, asked: Asked, placed: Sequence[Any]) -> bytes:
        """The frame that says where the records of each partition went; `placed` are as `Appended`."""
        count = len(asked)
        form = self._answers.get(count)
        if form is None:
            form = self._answers[count] = self._form_of_answer(count)
        pack, length, between, behind = form
        if count == 1:  # as most have: without a list
            base_offset, _, time_ms, start_offset = placed[0]
            return pack(
                length, correlation_id, between, asked[0][0], 0, base_offset, time_ms, start_offset, *behind
            )
        values = [length, correlation_id, between]
        for (index, _, _), (base_offset, _, time_ms, start_offset), rest in zip(
            asked, placed, behind, strict=True
        ):
            values += (index, 0, base_offset, time_ms, start_offset, rest)
        return pack(*values)

    def request(self, asked: Asked) -> ProduceRequest:
        """What a failure of a request to these partitions is told with."""
        data = [PartitionData(index=index) for index, *_ in asked]
        topic = TopicData(name=self.topic, topic_id=self.topic_id, partition_data=data)
        return ProduceRequest(acks=self.acks, topic_data=[topic])

    def learn(self, header: RequestHeader, request: ProduceRequest, frame: bytes | bytearray) -> None:
        """A request came the usual way, and its topic has a name by now; the second one to the same topic
        becomes the template.
        """
        topics = request.topic_data
        if len(topics) != 1 or len(frame) > LARGEST_LEARNED_BYTES or not is_ready():
            return
        version, name, topic_id = header.api_version, topics[0].name, topics[0].topic_id
        lately, self._lately = self._lately, (version, name, topic_id)
        if lately != self._lately or version < MIN_VERSION or request.acks not in ACKS or not name:
            return
        records = [len(data.records or b"") for data in topics[0].partition_data]
        if not all(records) or not 0 < len(records) <= MAX_PARTITIONS or request.transactional_id is not None:
            return
        parts = encode_request(request, version, header.correlation_id, header.client_id)
        if b"".join(parts)[LENGTH_BYTES:] != frame:
            return
        self._is_flexible = version >= FLEXIBLE_VERSION
        self.topic, self.topic_id, self.version, self.acks = name, topic_id, version, request.acks
        self._number = topic_id.int if version >= TOPIC_ID_VERSION else None
        partitions_at = len(frame) - self._bytes_from_partitions_on(records)
        self._index_at = partitions_at + (1 if self._is_flexible else COUNT_BYTES)
        self._head = as_array(bytes(frame[:partitions_at]))
        self.is_learned = True
        self._answers = {}  # what there is is of the topic before

    def _bytes_from_partitions_on(self, records: list[int]) -> int:
        """Of a request with partitions of so many bytes of records each."""
        if not self._is_flexible:
            return COUNT_BYTES + sum(_index_and_length.size + size for size in records)
        lengths = sum(len(write_unsigned(size + 1)) for size in records)
        tags = len(records) + len(NO_TAGS)
        return 1 + len(records) * INDEX_BYTES + lengths + sum(records) + tags

    def _form_of_answer(self, count: int) -> AnswerForm:
        """Of one for so many partitions."""
        # No topic's name or id has such bytes.
        sought = [(-2 - number, 0, -3, -4, -5) for number in range(count)]
        partitions = [
            PartitionAnswer(
                index=index,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
            )
            for index, _, base_offset, log_append_time_ms, log_start_offset in sought
        ]
        topic = TopicAnswer(name=self.topic, topic_id=self.topic_id, partition_responses=partitions)
        response = ProduceResponse(responses=[topic])
        answer = b"".join(encode_response(response, self.version, 0))
        places = [answer.index(_partition.pack(*one)) for one in sought]
        between = answer[LENGTH_BYTES + _integer.size : places[0]]
        behind = [
            answer[place + _partition.size : next_place]
            for place, next_place in pairwise((*places, len(answer)))
        ]
        pieces = "".join(f"{_partition.format[1:]}{len(rest)}s" for rest in behind)
        pack = Struct(f">{LENGTH_BYTES}si{len(between)}s{pieces}").pack
        return pack, answer[:LENGTH_BYTES], between, behind
