"""A producer on a bare socket: round trips one at a time, and many small requests pipelined on one
connection.

Frames are made once and sent again with another correlation id, so that the client costs next to nothing.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable

from protocol.framing import decode_response, encode_request
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.records import encode_batch

VERSION = 9
CORRELATION = slice(8, 12)
TIMEOUT_MS = 30_000
ACKS_ALL = -1


class RefusedError(RuntimeError):
    """A broker answered a produce with an error."""


def one_record_batch(value_bytes: int, now_ms: int) -> bytes:
    return encode_batch([(now_ms, None, b"x" * value_bytes, ())])


def produce_frame(topic: str, batch: bytes, acks: int, correlation_id: int = 0) -> bytearray:
    """The whole frame of a produce of `batch` to partition 0."""
    topic_data = ProduceRequest.TopicProduceData
    partition = topic_data.PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[topic_data(name=topic, partition_data=[partition])]
    )
    return bytearray(b"".join(encode_request(request, VERSION, correlation_id, "bench")))


def base_offset_of(frame: bytes) -> tuple[int, int]:
    """(correlation id, base offset) of an answer without its length; RefusedError for an error in it."""
    correlation_id, response = decode_response(ProduceResponse, VERSION, frame)
    answer = response.responses[0].partition_responses[0]
    if answer.error_code:
        raise RefusedError(f"produce answered error {answer.error_code}")
    return correlation_id, answer.base_offset


class Connection:
    """One blocking connection. Owned by: the thread that uses it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending = b""

    def close(self) -> None:
        self.socket.close()

    def receive(self) -> bytes:
        """The next frame, without its length."""
        while len(self.pending) < 4 or len(self.pending) < 4 + struct.unpack_from(">i", self.pending)[0]:
            part = self.socket.recv(1 << 18)
            if not part:
                raise ConnectionError("the broker closed the connection")
            self.pending += part
        end = 4 + struct.unpack_from(">i", self.pending)[0]
        frame, self.pending = self.pending[4:end], self.pending[end:]
        return frame

    def receive_bytes(self, count: int) -> bytes:
        """Exactly `count` raw bytes."""
        while len(self.pending) < count:
            part = self.socket.recv(1 << 18)
            if not part:
                raise ConnectionError("the broker closed the connection")
            self.pending += part
        data, self.pending = self.pending[:count], self.pending[count:]
        return data


def round_trips(port: int, topic: str, acks: int, warm: int, count: int, value_bytes: int) -> list[float]:
    """Microseconds of `count` one-record produces, one at a time, after `warm` that do not count."""
    frame = produce_frame(topic, one_record_batch(value_bytes, int(time.time() * 1000)), acks)
    connection = Connection(port)
    times = []
    try:
        for number in range(warm + count):
            frame[CORRELATION] = number.to_bytes(4, "big")
            began = time.perf_counter_ns()
            connection.socket.sendall(frame)
            answer = connection.receive()
            times.append((time.perf_counter_ns() - began) / 1000)
            if base_offset_of(answer)[0] != number:
                raise RefusedError("answers are out of order")
    finally:
        connection.close()
    return times[warm:]


def pipelined(
    port: int, topic: str, acks: int, count: int, value_bytes: int, group: int, groups: int
) -> float:
    """Requests a second on one connection with at most `group * groups` unanswered.

    Every answer has the length of the first; the base offset of the last one shows that all were appended.
    """
    frame = produce_frame(topic, one_record_batch(value_bytes, int(time.time() * 1000)), acks)
    connection = Connection(port)
    try:
        connection.socket.sendall(frame)
        first = connection.receive()
        _, start = base_offset_of(first)
        answer_bytes = 4 + len(first)
        block = bytes(frame) * group
        rounds = count // group
        began = time.perf_counter()
        data = b""
        for number in range(rounds + groups):
            if number < rounds:
                connection.socket.sendall(block)
            if number >= groups:
                data = connection.receive_bytes(answer_bytes * group)
        seconds = time.perf_counter() - began
        _, last = base_offset_of(data[-answer_bytes + 4 :])
        if last != start + rounds * group:
            raise RefusedError(
                f"the last of {rounds * group} records is at {last}, not {start + rounds * group}"
            )
    finally:
        connection.close()
    return rounds * group / seconds


def send_batches(port: int, topic: str, batches: Iterable[bytes], window: int = 4) -> int:
    """Produce whole batches in order with acks=1; the offset behind the last record."""
    connection = Connection(port)
    unanswered = 0
    last = 0
    try:
        for batch in batches:
            connection.socket.sendall(produce_frame(topic, batch, 1))
            unanswered += 1
            if unanswered >= window:
                last = base_offset_of(connection.receive())[1]
                unanswered -= 1
        for _ in range(unanswered):
            last = base_offset_of(connection.receive())[1]
    finally:
        connection.close()
    return last
