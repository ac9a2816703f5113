"""What a producer's requests to one topic have in common, so that the next one need not be decoded.

A client sends the same version, client id, acks, timeout and topic again and again; its correlation id, the
partitions and the records are new. `ProduceTemplate` keeps the bytes before the partitions of a request,
and the bytes of its answer around the offsets: a frame that begins with the same bytes is the same request,
because it is learned only from a frame that the generated encoder would write in the same way. Decoding such
a request and encoding its answer is half of what one record costs. All others (several topics, acks=0, tagged
fields, old versions) go the usual way. Pure: bytes and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Any

from protocol.errors import MalformedFrame
from protocol.framing import RequestHeader, encode_request, encode_response
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import schema_of
from protocol.varint import read_rest, write_unsigned

Partitions = list[tuple[int, memoryview]]
"""the number and the records of each partition of a request"""
TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse

MIN_VERSION = 7
"""from here on a request is refused for nothing but its acks, its partition and its records"""
FLEXIBLE_VERSION = schema_of(ProduceRequest).flexible_header_from
ACKS = (1, -1)
NO_TAGS = b"\0\0"
"""behind the partitions, of the topic and the request"""
API_AND_VERSION = slice(0, 4)
BEHIND_CORRELATION = 8
LENGTH_BYTES = 4
INDEX_BYTES = 4
COUNT_BYTES = 4
"""of the number of partitions, before flexible versions"""
MAX_PARTITIONS = 126
"""whose number flexible versions write in one byte"""
LARGEST_LEARNED_BYTES = 64 * 1024
"""to learn costs a copy, and to decode a request of many records is a small part of it"""
_integer = Struct(">i")
_index_and_length = Struct(">ii")
_partition = Struct(">ihqqq")  # index, error code, base offset, log append time, log start offset


class ProduceTemplate:
    """The bytes of one connection's Produce requests and answers. Owned by: event loop."""

    __slots__ = (
        "_answer",
        "_answer_count",
        "_answer_place",
        "_is_flexible",
        "_lately",
        "_partition_bytes",
        "_partitions_at",
        "_prefix",
        "_start",
        "acks",
        "topic",
        "version",
    )

    def __init__(self) -> None:
        self._lately: tuple[int, str] | None = None
        self._partitions_at = 0
        self._answer_count = 0
        self.topic = ""
        self.version = 0
        self.acks = 0

    def match(self, frame: bytes | bytearray) -> Partitions | None:
        """The partitions of a request that is like the one that was learned, else None."""
        at = self._partitions_at
        if not at or frame[API_AND_VERSION] != self._start or frame[BEHIND_CORRELATION:at] != self._prefix:
            return None
        try:
            return _flexible(frame, at) if self._is_flexible else _inflexible(frame, at)
        except (IndexError, MalformedFrame, error):  # decoding it says what is wrong
            return None

    def answer(self, correlation_id: int, partitions: Partitions, placed: Sequence[Any]) -> bytearray:
        """The frame that says where the records of each partition went; `placed` are as `Appended`."""
        count = len(partitions)
        if count != self._answer_count:
            self._measure_answer(count)
        answer = bytearray(self._answer)
        _integer.pack_into(answer, LENGTH_BYTES, correlation_id)
        place = self._answer_place
        for (index, _), (base_offset, _, log_append_time_ms, log_start_offset, _) in zip(
            partitions, placed, strict=True
        ):
            _partition.pack_into(answer, place, index, 0, base_offset, log_append_time_ms, log_start_offset)
            place += self._partition_bytes
        return answer

    def request(self, partitions: Partitions) -> ProduceRequest:
        """What a failure of a request to these partitions is told with."""
        data = [PartitionData(index=index) for index, _ in partitions]
        return ProduceRequest(acks=self.acks, topic_data=[TopicData(name=self.topic, partition_data=data)])

    def learn(self, header: RequestHeader, request: ProduceRequest, frame: bytes | bytearray) -> None:
        """A request came the usual way; the second one to the same topic becomes the template."""
        topics = request.topic_data
        if len(topics) != 1 or len(frame) > LARGEST_LEARNED_BYTES:
            return
        version, name = header.api_version, topics[0].name
        lately, self._lately = self._lately, (version, name)
        if lately != self._lately or version < MIN_VERSION or request.acks not in ACKS:
            return
        records = [len(data.records or b"") for data in topics[0].partition_data]
        if not all(records) or not 0 < len(records) <= MAX_PARTITIONS or request.transactional_id is not None:
            return
        parts = encode_request(request, version, header.correlation_id, header.client_id)
        if b"".join(parts)[LENGTH_BYTES:] != frame:
            return
        self._is_flexible = version >= FLEXIBLE_VERSION
        self.topic, self.version, self.acks = name, version, request.acks
        self._start = bytes(frame[API_AND_VERSION])
        self._partitions_at = len(frame) - self._bytes_from_partitions_on(records)
        self._prefix = bytes(frame[BEHIND_CORRELATION : self._partitions_at])
        self._answer_count = 0  # of the topic before

    def _bytes_from_partitions_on(self, records: list[int]) -> int:
        """Of a request with partitions of so many bytes of records each."""
        if not self._is_flexible:
            return COUNT_BYTES + sum(_index_and_length.size + size for size in records)
        lengths = sum(len(write_unsigned(size + 1)) for size in records)
        tags = len(records) + len(NO_TAGS)
        return 1 + len(records) * INDEX_BYTES + lengths + sum(records) + tags

    def _measure_answer(self, count: int) -> None:
        """The bytes of an answer for so many partitions, and where it says what became of each of them."""
        sought = [(-2 - number, 0, -3, -4, -5) for number in range(count)]  # no topic's name has such bytes
        partitions = [
            PartitionAnswer(
                index=index,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
            )
            for index, _, base_offset, log_append_time_ms, log_start_offset in sought
        ]
        response = ProduceResponse(responses=[TopicAnswer(name=self.topic, partition_responses=partitions)])
        self._answer = answer = b"".join(encode_response(response, self.version, 0))
        self._answer_count = count
        self._answer_place = answer.index(_partition.pack(*sought[0]))
        self._partition_bytes = (
            answer.find(_partition.pack(*sought[1])) - self._answer_place if count > 1 else 0
        )


def _flexible(frame: bytes | bytearray, at: int) -> Partitions | None:
    """The partitions of a frame of flexible versions, whose number stands at `at`; None of an unusual one."""
    end = len(frame) - len(NO_TAGS)
    count, position = frame[at] - 1, at + 1
    view = memoryview(frame)
    partitions: Partitions = []
    while position < end:
        (index,) = _integer.unpack_from(frame, position)
        size, start = frame[position + INDEX_BYTES], position + INDEX_BYTES + 1
        if size > 127:
            size, start = read_rest(frame, start, size)
        position = start + size
        if size < 2 or position > end or frame[position - 1]:  # no records (1 is none of them), cut off, tags
            return None
        partitions.append((index, view[start : position - 1]))
    is_whole = position == end and partitions and len(partitions) == count <= MAX_PARTITIONS
    return partitions if is_whole and frame[end:] == NO_TAGS else None


def _inflexible(frame: bytes | bytearray, at: int) -> Partitions | None:
    """The same of older versions."""
    end = len(frame)
    (count,), position = _integer.unpack_from(frame, at), at + COUNT_BYTES
    view = memoryview(frame)
    partitions: Partitions = []
    while position < end:
        index, size = _index_and_length.unpack_from(frame, position)
        start = position + _index_and_length.size
        position = start + size
        if size < 1 or position > end:
            return None
        partitions.append((index, view[start:position]))
    return partitions if partitions and len(partitions) == count <= MAX_PARTITIONS else None
