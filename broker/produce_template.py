"""What a producer's requests to one topic have in common, so that the next one need not be decoded.

A client sends the same version, client id, acks, timeout and topic again and again; its correlation id, the
partition and the records are new. `ProduceTemplate` keeps the bytes around those of a request for one
partition, and the bytes of its answer around the offsets: a frame with the same bytes in the same places is
the same request, because it is learned only from a frame that the generated encoder would write in the same
way. Decoding such a request and encoding its answer is half of what one record costs. All others (several
partitions, acks=0, tagged fields, old versions) go the usual way. Pure: bytes and numbers.
"""

from __future__ import annotations

from struct import Struct

from protocol.framing import RequestHeader, encode_request, encode_response
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import schema_of
from protocol.varint import write_unsigned

TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse

MIN_VERSION = 7
"""from here on a request is refused for nothing but its acks, its partition and its records"""
FLEXIBLE_VERSION = schema_of(ProduceRequest).flexible_header_from
ACKS = (1, -1)
NO_TAGS = b"\0\0\0"
"""behind the records, of the partition, the topic and the request"""
LENGTH_BYTES = 4
API_AND_VERSION = slice(0, 4)
BEHIND_CORRELATION = 8
INDEX_BYTES = 4
LARGEST_LEARNED_BYTES = 64 * 1024
"""to learn costs a copy, and to decode a request of many records is a small part of it"""
_integer = Struct(">i")
_partition = Struct(">ihqqq")  # index, error code, base offset, log append time, log start offset
_SOUGHT = (-2, 0, -3, -4, -5)  # numbers whose bytes no topic's name has


class ProduceTemplate:
    """The bytes of one connection's Produce requests and answers. Owned by: event loop."""

    __slots__ = (
        "_answer",
        "_answer_place",
        "_frame_bytes",
        "_index_at",
        "_lately",
        "_length",
        "_prefix",
        "_records_at",
        "_start",
        "_suffix",
        "acks",
        "topic",
        "version",
    )

    def __init__(self) -> None:
        self._lately: tuple[int, str] | None = None
        self._frame_bytes = 0
        self._index_at = 0
        self.topic = ""
        self.version = 0
        self.acks = 0

    def match(self, frame: bytes | bytearray) -> tuple[int, memoryview] | None:
        """The partition and the records of a request that is like the one that was learned, else None."""
        index_at = self._index_at
        if not index_at or frame[API_AND_VERSION] != self._start:
            return None
        if len(frame) != self._frame_bytes and not self._measure(len(frame)):
            return None
        records_at, suffix = self._records_at, self._suffix
        end = len(frame) - len(suffix)
        if (
            frame[BEHIND_CORRELATION:index_at] != self._prefix
            or frame[index_at + INDEX_BYTES : records_at] != self._length
            or frame[end:] != suffix
        ):
            return None
        return _integer.unpack_from(frame, index_at)[0], memoryview(frame)[records_at:end]

    def answer(
        self,
        correlation_id: int,
        index: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
    ) -> bytearray:
        """The frame that says where the records went."""
        answer = bytearray(self._answer)
        _integer.pack_into(answer, LENGTH_BYTES, correlation_id)
        _partition.pack_into(
            answer, self._answer_place, index, 0, base_offset, log_append_time_ms, log_start_offset
        )
        return answer

    def request(self, index: int) -> ProduceRequest:
        """What a failure of a request to this partition is told with."""
        partition = PartitionData(index=index)
        return ProduceRequest(
            acks=self.acks, topic_data=[TopicData(name=self.topic, partition_data=[partition])]
        )

    def learn(self, header: RequestHeader, request: ProduceRequest, frame: bytes | bytearray) -> None:
        """A request came the usual way; the second one to the same topic becomes the template."""
        topics = request.topic_data
        if len(topics) != 1 or len(topics[0].partition_data) != 1 or len(frame) > LARGEST_LEARNED_BYTES:
            return
        version, name = header.api_version, topics[0].name
        lately, self._lately = self._lately, (version, name)
        if lately != self._lately or version < MIN_VERSION or request.acks not in ACKS:
            return
        records = topics[0].partition_data[0].records
        if not records or request.transactional_id is not None:
            return
        parts = encode_request(request, version, header.correlation_id, header.client_id)
        if b"".join(parts)[LENGTH_BYTES:] != frame:
            return
        self._suffix = NO_TAGS if version >= FLEXIBLE_VERSION else b""
        self.topic, self.version, self.acks = name, version, request.acks
        self._start = bytes(frame[API_AND_VERSION])
        self._frame_bytes = len(frame)
        self._records_at = len(frame) - len(self._suffix) - len(records)
        self._length = self._written_length(len(records))
        self._index_at = self._records_at - len(self._length) - INDEX_BYTES
        self._prefix = bytes(frame[BEHIND_CORRELATION : self._index_at])
        self._learn_answer()

    def _learn_answer(self) -> None:
        index, _, base_offset, log_append_time_ms, log_start_offset = _SOUGHT
        partition = PartitionAnswer(
            index=index,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
        response = ProduceResponse(responses=[TopicAnswer(name=self.topic, partition_responses=[partition])])
        self._answer = b"".join(encode_response(response, self.version, 0))
        self._answer_place = self._answer.index(_partition.pack(*_SOUGHT))

    def _measure(self, frame_bytes: int) -> bool:
        """Where the records of a frame of this length begin; False where there is no room for any."""
        room = frame_bytes - len(self._suffix) - self._index_at - INDEX_BYTES
        for width in range(1, 6):
            if room > width and len(length := self._written_length(room - width)) == width:
                self._frame_bytes = frame_bytes
                self._length = length
                self._records_at = self._index_at + INDEX_BYTES + width
                return True
        return False

    def _written_length(self, size: int) -> bytes:
        """The length of the records as it stands before them."""
        return write_unsigned(size + 1) if self._suffix else _integer.pack(size)
