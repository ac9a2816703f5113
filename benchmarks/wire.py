"""A load generator on bare sockets: round trips one at a time, small requests pipelined on one connection or
kept going on many, whole batches in bulk, fetches at an offset.

Frames are made once and sent again with another correlation id, so that the client costs next to nothing.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence

from protocol.batch import iterate_headers
from protocol.framing import decode_response, encode_request
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import ApiVersionsRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.records import encode_batch

VERSION = 9
FETCH_VERSION = 12
GREETING_VERSION = 2
CORRELATION = slice(8, 12)
TIMEOUT_MS = 30_000
ACKS_ALL = -1


class RefusedError(RuntimeError):
    """A broker answered a produce with an error."""


def one_record_batch(value_bytes: int, now_ms: int) -> bytes:
    return encode_batch([(now_ms, None, b"x" * value_bytes, ())])


def produce_frame(topic: str, batch: bytes, acks: int, correlation_id: int = 0, index: int = 0) -> bytearray:
    """The whole frame of a produce of `batch` to one partition."""
    topic_data = ProduceRequest.TopicProduceData
    partition = topic_data.PartitionProduceData(index=index, records=batch)
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

    def greet(self) -> None:
        """Ask for ApiVersions, as a client does first."""
        parts = encode_request(ApiVersionsRequest(), GREETING_VERSION, 0, "bench")
        self.socket.sendall(b"".join(parts))
        self.receive()

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


def round_trips(
    port: int,
    topic: str,
    acks: int,
    warm: int,
    count: int,
    value_bytes: int,
    goes_on: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Microseconds of one-record produces, one at a time: `count` after `warm` that do not count, and more
    while it `goes_on`.
    """
    frame = produce_frame(topic, one_record_batch(value_bytes, int(time.time() * 1000)), acks)
    connection = Connection(port)
    times: list[float] = []
    number = 0
    try:
        while number < warm + count or goes_on():
            frame[CORRELATION] = number.to_bytes(4, "big")
            began = time.perf_counter_ns()
            connection.socket.sendall(frame)
            answer = connection.receive()
            times.append((time.perf_counter_ns() - began) / 1000)
            if base_offset_of(answer)[0] != number:
                raise RefusedError("answers are out of order")
            number += 1
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


def many_connections(
    port: int, topic: str, acks: int, connections: int, count: int, value_bytes: int
) -> float:
    """Requests a second on many connections, each with one unanswered request.

    The highest base offset of the last answers shows that all were appended.
    """
    frame = produce_frame(topic, one_record_batch(value_bytes, int(time.time() * 1000)), acks)
    opened = [Connection(port) for _ in range(connections)]
    try:
        sizes = set()
        start = 0
        for one in opened:
            one.socket.sendall(frame)
            answer = one.receive()
            sizes.add(4 + len(answer))
            _, start = base_offset_of(answer)
        (answer_bytes,) = sizes
        by_number = {one.socket.fileno(): one.socket for one in opened}
        with select.epoll() as poll:
            for number in by_number:
                poll.register(number, select.EPOLLIN)
            began = time.perf_counter()
            last = _keep_going(poll, by_number, bytes(frame), answer_bytes, count)
            seconds = time.perf_counter() - began
        appended = max(base_offset_of(answer[4:])[1] for answer in last) - start
        if appended != max(count, connections):
            raise RefusedError(f"{appended} of {max(count, connections)} records were appended")
    finally:
        for one in opened:
            one.close()
    return count / seconds


def _keep_going(
    poll: select.epoll, sockets: dict[int, socket.socket], frame: bytes, answer_bytes: int, count: int
) -> Iterable[bytes]:
    """Send `count` requests, the next of a connection when the last is answered; each one's last answer."""
    for one in sockets.values():
        one.sendall(frame)
    sent, answered = len(sockets), 0
    last: dict[int, bytes] = {}
    while answered < sent:
        for number, _ in poll.poll():
            one = sockets[number]
            answer = one.recv(answer_bytes)
            if len(answer) != answer_bytes:
                raise ConnectionError(f"an answer of {len(answer)} bytes in place of {answer_bytes}")
            last[number] = answer
            answered += 1
            if sent < count:
                one.send(frame)
                sent += 1
    return last.values()


def send_batches(
    port: int, topic: str, batches: Iterable[bytes], window: int = 4, indexes: Sequence[int] = (0,)
) -> int:
    """Produce whole batches in order with acks=1, to the partitions in turn; the offset of the last one."""
    connection = Connection(port)
    unanswered = 0
    last = 0
    try:
        for number, batch in enumerate(batches):
            connection.socket.sendall(produce_frame(topic, batch, 1, index=indexes[number % len(indexes)]))
            unanswered += 1
            if unanswered >= window:
                last = base_offset_of(connection.receive())[1]
                unanswered -= 1
        for _ in range(unanswered):
            last = base_offset_of(connection.receive())[1]
    finally:
        connection.close()
    return last


def fetch_frame(topic: str, offset: int, max_bytes: int, wait_ms: int = 0, index: int = 0) -> bytes:
    """The whole frame of a fetch of one partition outside of any session."""
    wanted = FetchRequest.FetchTopic
    partition = wanted.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[wanted(topic=topic, partitions=[partition])],
    )
    return b"".join(encode_request(request, FETCH_VERSION, 0, "bench"))


def fetched(frame: bytes) -> tuple[int, int]:
    """(bytes of records, the offset behind them) of an answer without its length; (0, -1) for none."""
    _, response = decode_response(FetchResponse, FETCH_VERSION, frame)
    answer = response.responses[0].partitions[0]
    if answer.error_code:
        raise RefusedError(f"fetch answered error {answer.error_code}")
    records = answer.records or b""
    next_offset = -1
    for _, header in iterate_headers(records):
        next_offset = header.next_offset
    return len(records), next_offset


def fetch_times(port: int, topic: str, offsets: Iterable[int], max_bytes: int) -> list[float]:
    """Microseconds of a fetch at each of the offsets."""
    connection = Connection(port)
    times = []
    try:
        for offset in offsets:
            frame = fetch_frame(topic, offset, max_bytes)
            began = time.perf_counter_ns()
            connection.socket.sendall(frame)
            answer = connection.receive()
            times.append((time.perf_counter_ns() - began) / 1000)
            if not fetched(answer)[0]:
                raise RefusedError(f"nothing at offset {offset}")
    finally:
        connection.close()
    return times


def serves(port: int, topic: str, index: int) -> bool:
    """Whether a partition can be read: Kafka's metadata name a leader a moment before it leads."""
    connection = Connection(port)
    try:
        connection.socket.sendall(fetch_frame(topic, 0, 1, index=index))
        fetched(connection.receive())
    except RefusedError:
        return False
    finally:
        connection.close()
    return True


def takes_records(port: int, topic: str, index: int = 0) -> bool:
    """Whether one record can be produced now."""
    try:
        connection = Connection(port)
    except OSError:
        return False
    try:
        connection.socket.sendall(
            produce_frame(topic, one_record_batch(10, int(time.time() * 1000)), 1, 0, index)
        )
        base_offset_of(connection.receive())
    except (OSError, RefusedError):
        return False
    finally:
        connection.close()
    return True
