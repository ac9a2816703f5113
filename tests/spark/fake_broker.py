"""A Kafka broker for the connector's tests: a thread, real sockets, logs that are lists of batches.

It serves exactly the four APIs that a reader speaks, says whatever a test makes it say, and can be told
to fail: error codes, closed connections, silence below the end, batches cut off.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from protocol.batch import parse_header
from protocol.codegen import decode
from protocol.errors import ErrorCode
from protocol.framing import decode_request_header, encode_response
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from spark_connector.offsets import EARLIEST, LATEST, TopicPartition

NODE = 7
CLOSE = object()  # in place of an answer
REQUESTS = {1: FetchRequest, 2: ListOffsetsRequest, 3: MetadataRequest, 18: ApiVersionsRequest}
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


@dataclass
class FakeLog:
    """One partition: batches as bytes, in order; the ends follow them unless a test sets them."""

    batches: list[bytes] = field(default_factory=list)
    log_start_offset: int = 0
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    aborted: list[tuple[int, int]] = field(default_factory=list)  # producer id, first offset
    times: dict[int, int] = field(default_factory=dict)  # answers to ListOffsets by time
    error: ErrorCode = ErrorCode.NONE

    @property
    def end(self) -> int:
        if self.high_watermark is not None:
            return self.high_watermark
        return parse_header(self.batches[-1]).next_offset if self.batches else self.log_start_offset

    @property
    def stable_end(self) -> int:
        return self.end if self.last_stable_offset is None else self.last_stable_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = [batch for batch in self.batches if parse_header(batch).next_offset > offset]
        taken = found[:1]
        size = len(b"".join(taken))
        for batch in found[1:]:
            size += len(batch)
            if size > max_bytes:
                break
            taken.append(batch)
        return b"".join(taken)


class FakeBroker:
    """Owned by: the test; its handler threads only read what the test wrote."""

    apis: ClassVar[dict[int, type[Any]]] = REQUESTS

    def __init__(self, logs: dict[TopicPartition, FakeLog]) -> None:
        self.logs = logs
        self.internal: set[str] = set()
        self.topic_errors: dict[str, ErrorCode] = {}
        self.cluster_id = "first"
        self.topic_ids: dict[str, UUID] = {}  # none, as from brokers before 2.8, unless a test gives them
        self.fetched: list[int] = []
        self.fetched_bytes: list[int] = []  # what each of these fetches allowed
        self.requests: list[Any] = []
        self.connections = 0
        self.closes = 0  # how many of the next requests are answered by closing the connection
        self.fetch_errors: deque[ErrorCode] = deque()
        self.throttles: deque[int] = deque()  # ms; the next fetches give these and, as in Kafka, no records
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.broker = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.close_connections()

    def answer(self, request: Any) -> Any:
        self.requests.append(request)
        match request:
            case ApiVersionsRequest():
                return ApiVersionsResponse(
                    api_keys=[
                        ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=99)
                        for key in self.apis
                    ]
                )
            case MetadataRequest():
                return self._metadata(request)
            case ListOffsetsRequest():
                return self._list_offsets(request)
            case FetchRequest():
                return self._fetch(request)
        raise AssertionError(request)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        known = sorted({partition.topic for partition in self.logs})
        names = known if request.topics is None else [topic.name for topic in request.topics]
        topic_type = MetadataResponse.MetadataResponseTopic
        return MetadataResponse(
            cluster_id=self.cluster_id,
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self.port)],
            topics=[
                topic_type(
                    error_code=self.topic_errors.get(name, ErrorCode.NONE)
                    if name in known
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    name=name,
                    topic_id=self.topic_ids.get(name, UUID(int=0)),
                    is_internal=name in self.internal,
                    partitions=[
                        topic_type.MetadataResponsePartition(
                            partition_index=partition.partition, leader_id=NODE
                        )
                        for partition in self.logs
                        if partition.topic == name
                    ],
                )
                for name in names
            ],
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topic_type = ListOffsetsResponse.ListOffsetsTopicResponse
        answer = ListOffsetsResponse(topics=[])
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                log = self.logs[TopicPartition(topic.name, asked.partition_index)]
                end = log.stable_end if request.isolation_level else log.end
                words = {EARLIEST: log.log_start_offset, LATEST: end}
                offset = words.get(asked.timestamp, log.times.get(asked.timestamp, -1))
                row = topic_type.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=log.error, offset=offset
                )
                rows.append(row)
            answer.topics.append(topic_type(name=topic.name, partitions=rows))
        return answer

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        topic = request.topics[0]
        asked = topic.partitions[0]
        log = self.logs[TopicPartition(topic.topic, asked.partition)]
        self.fetched.append(asked.fetch_offset)
        self.fetched_bytes.append(asked.partition_max_bytes)
        data = PartitionData(
            partition_index=asked.partition,
            high_watermark=log.end,
            last_stable_offset=log.stable_end,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[
                PartitionData.AbortedTransaction(producer_id=producer_id, first_offset=offset)
                for producer_id, offset in log.aborted
            ]
            if request.isolation_level
            else None,
            records=b"",
        )
        throttle_ms = 0
        if self.throttles:
            throttle_ms = self.throttles.popleft()
        elif self.fetch_errors:
            data.error_code = self.fetch_errors.popleft()
        elif not log.log_start_offset <= asked.fetch_offset <= log.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            data.records = log.read(asked.fetch_offset, asked.partition_max_bytes)
        if throttle_ms:  # not even the partition is told of then
            return FetchResponse(throttle_time_ms=throttle_ms)
        answered = FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=[data])
        return FetchResponse(responses=[answered])


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    broker: FakeBroker

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.open: set[socket.socket] = set()

    def close_connections(self) -> None:
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        broker = self.server.broker
        broker.connections += 1
        self.server.open.add(self.request)
        try:
            with contextlib.suppress(OSError):
                while (frame := self._frame()) is not None:
                    header, position = decode_request_header(frame)
                    request = decode(broker.apis[header.api_key], header.api_version, frame, position)
                    if broker.closes > 0 and not isinstance(request, ApiVersionsRequest):
                        broker.closes -= 1
                        return
                    answer = broker.answer(request)
                    if answer is None:
                        continue
                    if answer is CLOSE:
                        return
                    parts = encode_response(answer, header.api_version, header.correlation_id)
                    self.request.sendall(b"".join(parts))
        finally:
            self.server.open.discard(self.request)

    def _frame(self) -> bytes | None:
        prefix = self._exactly(4)
        return None if prefix is None else self._exactly(struct.unpack(">i", prefix)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            part = self.request.recv(size - len(data))
            if not part:
                return None
            data += part
        return data


def logs_of(*batch_lists: Sequence[bytes], topic: str = "t") -> dict[TopicPartition, FakeLog]:
    """One log for each list of batches."""
    return {
        TopicPartition(topic, number): FakeLog(list(batches)) for number, batches in enumerate(batch_lists)
    }
