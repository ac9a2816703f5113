"""Goal: frames become requests in order and answers leave in order, whatever the client sends and however
slowly.

Method: a server with handlers of the test's own behind a real socket; frames cut at every place, pipelined,
too large, broken; answers that wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from broker import connection
from broker.api import Later
from broker.clock import ManualClock
from broker.context import RequestContext
from broker.receiving import RECEIVE_BYTES
from protocol.errors import ErrorCode, KafkaError
from protocol.framing import decode_response, encode_request
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.groups import HeartbeatRequest, HeartbeatResponse, ListGroupsRequest
from protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeTopicPartitionsRequest,
)
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import registry
from tests.broker.client import LIMIT_SECONDS, until
from tests.broker.handlers_world import (
    ELEMENTS,
    FRAME_BYTES,
    IN_FLIGHT,
    OTHER_FRAME_BYTES,
    World,
    beat,
    frame,
    serving,
)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with serving(monkeypatch) as made:
        yield made


@pytest.mark.parametrize("chunk", [1, 3, 7, 64])
async def test_frames_cut_anywhere(world: World, chunk: int) -> None:
    client = await world.connect()
    data = b"".join(frame(beat(number), 4, number) for number in range(3))
    for start in range(0, len(data), chunk):
        client.send_bytes(data[start : start + chunk])
        await client.writer.drain()
        await asyncio.sleep(0)
    for number in range(3):
        assert (await client.receive(HeartbeatResponse, 4))[1].throttle_time_ms == number


async def test_large_frames_arrive_whole_between_small_ones(world: World) -> None:
    seen: list[tuple[int, bytes]] = []

    def produce(broker: Any, context: RequestContext, request: ProduceRequest) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        seen.append((request.timeout_ms, bytes(records)))
        return ProduceResponse(throttle_time_ms=request.timeout_ms)

    world.handle(ProduceRequest, produce)
    client = await world.connect()
    topic = ProduceRequest.TopicProduceData
    sizes = [10, 200_000, 5, 131_072, 1_500_000, 131_071, 262_144, 1]
    for number, size in enumerate(sizes):
        data = topic.PartitionProduceData(index=0, records=bytes([number]) * size)
        client.send(
            ProduceRequest(acks=1, timeout_ms=number, topic_data=[topic(name="t", partition_data=[data])]), 9
        )
    for number in range(len(sizes)):
        assert (await client.receive(ProduceResponse, 9))[1].throttle_time_ms == number
    assert seen == [(number, bytes([number]) * size) for number, size in enumerate(sizes)]


async def test_answers_leave_in_request_order_and_waits_overlap(world: World) -> None:
    """G25: the first answer is ready last, and yet is sent first."""
    waits: dict[int, asyncio.Future[None]] = {}

    def handler(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Any:
        number = request.generation_id
        if number == 3:
            return HeartbeatResponse(throttle_time_ms=3)
        wait = waits[number] = asyncio.get_running_loop().create_future()
        if number == 1:
            return Later([wait], lambda: HeartbeatResponse(throttle_time_ms=1))

        async def answer() -> HeartbeatResponse:
            await wait
            return HeartbeatResponse(throttle_time_ms=2)

        return answer()

    world.handle(HeartbeatRequest, handler)
    client = await world.connect()
    for number in (1, 2, 3):
        client.send(beat(number), 4)
    await until(lambda: len(waits) == 2)
    waits[2].set_result(None)
    await asyncio.sleep(0)
    waits[1].set_result(None)
    received = [(await client.receive(HeartbeatResponse, 4))[1].throttle_time_ms for _ in range(3)]
    assert received == [1, 2, 3]


async def test_a_full_queue_pauses_the_reading_and_nothing_is_lost(world: World) -> None:
    waits: list[asyncio.Future[None]] = []

    def handler(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Later:
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waits.append(wait)
        return Later([wait], lambda: HeartbeatResponse(throttle_time_ms=request.generation_id))

    world.handle(HeartbeatRequest, handler)
    client = await world.connect()
    for number in range(50):
        client.send(beat(number), 4)
    await client.writer.drain()
    for number in range(50):
        await until(lambda: len(waits) > number)  # noqa: B023
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(waits) <= number + IN_FLIGHT
        waits[number].set_result(None)
        assert (await client.receive(HeartbeatResponse, 4))[1].throttle_time_ms == number


async def test_a_client_that_does_not_read_is_not_read_from(world: World) -> None:
    handled = 0

    def list_groups(broker: Any, context: RequestContext, request: Any) -> Any:
        nonlocal handled
        handled += 1
        response = registry[16].response()
        response.groups = [type(response).ListedGroup(group_id="x" * 30_000) for _ in range(10)]
        return response

    world.handle(ListGroupsRequest, list_groups)
    client = await world.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(200):
        client.send(ListGroupsRequest(), 4)
    await client.writer.drain()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert handled < 100
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(200):
        await client.receive_frame()
    assert handled == 200


@pytest.fixture
def slow_beats(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the heartbeats that were handled; each takes 0.3 ms of a clock of the test's own."""
    now_ns = 0
    handled: list[int] = []

    def handler(broker: Any, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal now_ns
        now_ns += 300_000
        handled.append(request.generation_id)
        return HeartbeatResponse(throttle_time_ms=request.generation_id)

    monkeypatch.setattr(connection, "perf_counter_ns", lambda: now_ns)
    world.handle(HeartbeatRequest, handler)
    return handled


async def test_requests_that_came_together_are_handled_a_little_at_a_time(
    world: World, slow_beats: list[int]
) -> None:
    """Else a client that sends thousands at once keeps all others waiting for seconds."""
    world.handle(ApiVersionsRequest, lambda broker, context, request: ApiVersionsResponse())
    client, other = await world.connect(), await world.connect()
    await other.ask(beat(0), 4)
    slow_beats.clear()
    count = 1000
    client.send_bytes(b"".join(frame(beat(number), 4, number) for number in range(count)))
    await until(lambda: slow_beats)
    a_turn = connection.TURN_NS // 300_000 + 1
    assert len(slow_beats) <= a_turn
    asked = 0
    while len(slow_beats) < count:
        before = len(slow_beats)
        await other.ask(ApiVersionsRequest(), 3)
        asked += 1
        assert len(slow_beats) - before <= 20 * a_turn
    assert asked >= count / (20 * a_turn)
    for number in range(count):
        assert (await client.receive(HeartbeatResponse, 4))[1].throttle_time_ms == number
    assert slow_beats == list(range(count))


async def test_what_ends_meanwhile_brings_no_turn_forward(world: World, slow_beats: list[int]) -> None:
    """Who has just read, or got an answer that it waited for, is no sooner at the next turn than others."""
    client = await world.connect()
    await client.ask(beat(0), 4)
    (served,) = world.server.connections
    slow_beats.clear()
    at_others_turn: list[int] = []

    def begin(broker: Any, context: RequestContext, request: Any) -> ApiVersionsResponse:
        for _ in range(5):
            asyncio.get_running_loop().call_soon(served.resume_writing)
        asyncio.get_running_loop().call_soon(lambda: at_others_turn.append(len(slow_beats)))
        return ApiVersionsResponse()

    world.handle(ApiVersionsRequest, begin)
    beats = b"".join(frame(beat(number), 4, number) for number in range(100))
    client.send_bytes(frame(ApiVersionsRequest(), 3) + beats)
    await until(lambda: len(slow_beats) == 100)
    assert at_others_turn == [connection.TURN_NS // 300_000 + 1]


async def test_a_connection_may_end_between_two_turns(world: World, slow_beats: list[int]) -> None:
    client = await world.connect()
    client.send_bytes(b"".join(frame(beat(number), 4, number) for number in range(1000)))
    await until(lambda: slow_beats)
    (served,) = world.server.connections
    served.expire()
    await until(lambda: not world.server.connections)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(slow_beats) < 1000


async def test_a_drain_ends_the_turns(world: World, slow_beats: list[int]) -> None:
    client = await world.connect()
    client.send_bytes(b"".join(frame(beat(number), 4, number) for number in range(1000)))
    await until(lambda: slow_beats)
    world.server.stop_listening()
    taken = len(slow_beats)
    await world.server.drain()
    assert len(slow_beats) == taken
    for number in range(taken):
        assert (await client.receive(HeartbeatResponse, 4))[1].throttle_time_ms == number


async def test_answers_of_one_turn_do_not_pile_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small answers are as large as one large: the next is made only if the client reads."""
    monkeypatch.setattr(connection, "TURN_NS", 1 << 60)
    handled = 0

    def list_groups(broker: Any, context: RequestContext, request: Any) -> Any:
        nonlocal handled
        handled += 1
        response = registry[16].response()
        response.groups = [type(response).ListedGroup(group_id="x" * 10_000)]
        return response

    world.handle(ListGroupsRequest, list_groups)
    client = await world.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    count = 3000
    client.send_bytes(frame(ListGroupsRequest(), 4) * count)
    await until(lambda: handled)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert handled < count
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(count):
        await client.receive_frame()
    assert handled == count


async def test_an_answer_of_very_many_small_parts(world: World) -> None:
    """A cluster may have a hundred thousand partitions, and an answer a million parts."""
    count = 500_000

    def list_groups(broker: Any, context: RequestContext, request: Any) -> Any:
        response = registry[16].response()
        group = type(response).ListedGroup(group_id="g", protocol_type="p", group_state="s")
        response.groups = [group] * count
        response.groups[count // 2] = type(response).ListedGroup(group_id="x" * 20_000)
        return response

    world.handle(ListGroupsRequest, list_groups)
    client = await world.connect()
    client.send(ListGroupsRequest(), 4)
    _, answer = await client.receive(registry[16].response, 4)
    assert [len(answer.groups[index].group_id) for index in (0, count // 2, -1)] == [1, 20_000, 1]
    assert len(answer.groups) == count


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\0\0\0\x02\0\0", "a frame of 2 bytes"),
        (b"\0\0\0\x0a\x03\xe7\0\0\0\0\0\1\xff\xff", "API 999 v0 is not served"),
        (b"\0\0\0\x0a\0\x0c\0\x63\0\0\0\1\xff\xff", "v99 is not served"),
        (b"\0\0\0\x0a\0\x0c\0\0\0\0\0\1\xff\xff", "v0: "),
        (b"\0\0\0\x0a\0\x0c\0\0\0\0\0\1\x7f\xff", "v0: "),
    ],
)
async def test_broken_frames_close_the_connection_with_one_line(
    world: World, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    """G27: a length is checked before anything is allocated, and nobody else is disturbed."""
    other = await world.connect()
    client = await world.connect()
    with caplog.at_level(logging.WARNING, connection.__name__):
        client.send_bytes(data)
        assert await client.is_closed_by_peer()
    assert len(caplog.records) == 1
    assert reason in caplog.text
    assert world.counters.malformed_requests == 1
    assert (await other.ask(beat(7), 4)).throttle_time_ms == 7


async def test_what_came_behind_the_end_is_not_done(world: World) -> None:
    """A refused acks=0 produce, say, closes the connection so that the client looks again: were the next one
    taken that came in the same read, there would be a gap between the two that nobody was told of.
    """
    taken: list[int] = []

    def handler(broker: Any, context: RequestContext, request: HeartbeatRequest) -> None:
        taken.append(request.generation_id)
        if request.generation_id == 2 and context.connection is not None:
            context.connection.end("no more")

    world.handle(HeartbeatRequest, handler)
    client = await world.connect()
    client.send_bytes(b"".join(frame(beat(number), 4, number) for number in range(5)))
    assert await client.is_closed_by_peer()
    assert taken == [0, 1, 2]


@pytest.mark.parametrize("is_sent_apart", [False, True])
@pytest.mark.parametrize(
    "ending", [frame(beat(3), 4, 3), b"\0\0\0\x0a\0\x0c\0\x63\0\0\0\1\xff\xff", b"\0\0\0\2ab"]
)
async def test_what_was_asked_before_the_end_is_answered(
    world: World, caplog: pytest.LogCaptureFixture, ending: bytes, is_sent_apart: bool
) -> None:
    """Else an acknowledgement whose flush is on its way is lost, and its records are sent a second time."""
    waits: list[asyncio.Future[None]] = []

    def handler(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Any:
        if request.generation_id == 3 and context.connection is not None:
            return context.connection.end("no more")
        waits.append(asyncio.get_running_loop().create_future())
        return Later([waits[-1]], lambda: HeartbeatResponse(throttle_time_ms=request.generation_id))

    world.handle(HeartbeatRequest, handler)
    client = await world.connect()
    with caplog.at_level(logging.WARNING, connection.__name__):
        before = frame(beat(1), 4, 1) + frame(beat(2), 4, 2)
        if is_sent_apart:
            client.send_bytes(before)
            await until(lambda: len(waits) == 2)
            client.send_bytes(ending)
            await until(lambda: caplog.records)
            client.send_bytes(frame(beat(4), 4, 4))
        else:
            client.send_bytes(before + ending + frame(beat(4), 4, 4))
            await until(lambda: caplog.records)
        for wait in reversed(waits):
            wait.set_result(None)
        received = [(await client.receive(HeartbeatResponse, 4))[1].throttle_time_ms for _ in range(2)]
        assert received == [1, 2]
        assert await client.is_closed_by_peer()
    assert len(waits) == 2
    assert len(caplog.records) == 1


@pytest.mark.parametrize("chunk", [1, 4, 5, 6, 1000])
async def test_only_a_produce_may_be_long(world: World, caplog: pytest.LogCaptureFixture, chunk: int) -> None:
    """The limit of all other APIs counts before anything of the body has come, wherever the frame is cut."""
    client = await world.connect()
    head = (OTHER_FRAME_BYTES + 1).to_bytes(4, "big") + b"\0\x0c\0\4\0\0\0\1\0\1x"
    for start in range(0, len(head), chunk):
        if client.writer.is_closing():  # the broker needs no more of it
            break
        client.send_bytes(head[start : start + chunk])
        await asyncio.sleep(0)
    assert await client.is_closed_by_peer()
    assert "Heartbeat: a frame of 500001 bytes; 8 to 500000 are allowed" in caplog.text
    assert sum(record.name == connection.__name__ for record in caplog.records) == 1


async def test_a_frame_at_its_apis_limit_is_taken(world: World) -> None:
    client = await world.connect()
    empty = len(frame(HeartbeatRequest(group_id="", member_id="m" * 200), 4))
    longest = HeartbeatRequest(
        group_id="g" * (OTHER_FRAME_BYTES + 4 - empty - 2), generation_id=8, member_id="m" * 200
    )
    assert len(frame(longest, 4)) == OTHER_FRAME_BYTES + 4
    assert (await client.ask(longest, 4)).throttle_time_ms == 8


async def test_elements_are_counted_over_all_arrays(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Arrays within arrays and tagged fields count too: none of them can make the frame expensive."""
    seen = []

    def metadata(broker: Any, context: RequestContext, request: FetchRequest) -> FetchResponse:
        seen.append(sum(len(topic.partitions) for topic in request.topics))
        return FetchResponse()

    world.handle(FetchRequest, metadata)
    topic = FetchRequest.FetchTopic
    half = topic(topic="a", partitions=[topic.FetchPartition()] * (ELEMENTS // 2 - 1))
    client = await world.connect()
    await client.ask(FetchRequest(topics=[half, half]), 12)
    assert seen == [ELEMENTS - 2]
    client.send(FetchRequest(topics=[half, half, topic()]), 12)
    assert await client.is_closed_by_peer()
    assert "Fetch: v12: partitions of FetchRequest v12: 499 elements in" in caplog.text
    client = await world.connect()
    body = b"".join(encode_request(beat(1), 4, 1, "test"))[4:-1] + b"\xe9\x07" + b"\x63\0" * (ELEMENTS + 1)
    client.send_bytes(len(body).to_bytes(4, "big") + body)
    assert await client.is_closed_by_peer()
    assert "1001 tagged fields" in caplog.text


async def test_an_announced_size_is_not_allocated(world: World) -> None:
    """G27."""
    client = await world.connect()
    client.send_bytes((FRAME_BYTES).to_bytes(4, "big") + b"\0\0\0\x09\0\0\0\1\xff\xff")
    await until(lambda: world.counters.bytes_received)
    (served,) = world.server.connections
    assert served._large is None or len(served._large.data) <= RECEIVE_BYTES


async def test_api_versions_answers_an_unknown_version_in_version_0(world: World) -> None:
    """G1."""
    world.handle(ApiVersionsRequest, lambda broker, context, request: ApiVersionsResponse())
    client = await world.connect()
    client.send_bytes(b"\0\0\0\x0e\0\x12\0\x7f\0\0\0\x05\0\4test")
    correlation_id, answer = await client.receive(ApiVersionsResponse, 0)
    assert correlation_id == 5
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert any(row.api_key == 18 and row.max_version == 4 for row in answer.api_keys)
    assert (await client.ask(beat(1), 4)).throttle_time_ms == 1


async def test_our_own_bug_is_an_answer_and_a_traceback(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Any:
        match request.generation_id:
            case 1:
                raise RuntimeError("bug")
            case 2:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            case 3:
                return HeartbeatResponse(throttle_time_ms="no number")  # type: ignore[arg-type]

        async def fails() -> HeartbeatResponse:
            await asyncio.sleep(0)
            raise RuntimeError("late bug")

        return fails()

    world.handle(HeartbeatRequest, handler)
    client = await world.connect()
    codes = [(await client.ask(beat(number), 4)).error_code for number in (1, 2, 3, 4)]
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes == [unknown, ErrorCode.UNKNOWN_MEMBER_ID, unknown, unknown]
    assert world.counters.internal_errors == 3
    assert "Traceback" in caplog.text


async def test_an_error_that_no_answer_can_tell_closes_the_connection_with_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(broker: Any, context: RequestContext, request: DescribeTopicPartitionsRequest) -> Any:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the reason")

    world.handle(DescribeTopicPartitionsRequest, handler)
    client = await world.connect()
    client.send(DescribeTopicPartitionsRequest(), 0)
    assert await client.is_closed_by_peer()
    (line,) = [record.getMessage() for record in caplog.records if record.name == connection.__name__]
    assert "DescribeTopicPartitions: v0: " in line
    assert "the reason" in line


async def test_too_many_connections_are_refused(world: World) -> None:
    clients = [await world.connect() for _ in range(3)]
    for client in clients:
        assert (await client.ask(beat(1), 4)).throttle_time_ms == 1
    assert await (await world.connect()).is_closed_by_peer()
    assert world.counters.connections_refused == 1
    await clients[0].close()
    await until(lambda: world.counters.connections_open == 2)
    assert (await (await world.connect()).ask(beat(2), 4)).throttle_time_ms == 2


async def test_how_many_connections_may_be_open_is_changed_while_they_are(world: World) -> None:
    broker = world.server.broker
    clients = [await world.connect() for _ in range(3)]
    for client in clients:
        await client.ask(beat(1), 4)
    broker.config = replace(broker.config, max_connections=4)
    assert (await (await world.connect()).ask(beat(1), 4)).throttle_time_ms == 1
    broker.config = replace(broker.config, max_connections=100, max_connections_per_ip=2)
    assert await (await world.connect()).is_closed_by_peer()
    assert (await clients[0].ask(beat(2), 4)).throttle_time_ms == 2, "who is in stays"


async def test_idle_connections_are_closed(world: World) -> None:
    idle, busy = await world.connect(), await world.connect()
    for client in (idle, busy):
        await client.ask(beat(1), 4)
    clock = world.server.broker.clock
    assert isinstance(clock, ManualClock)
    for _ in range(30):
        clock.advance(1_000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await busy.ask(beat(1), 4)
    assert await idle.is_closed_by_peer()
    await busy.ask(beat(1), 4)


async def test_draining_answers_what_was_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends with the last answer, not with the time that it may take."""
    monkeypatch.setattr("broker.server.DRAIN_MS", 3_600_000)
    wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    world.handle(
        HeartbeatRequest,
        lambda broker, context, request: Later([wait], lambda: HeartbeatResponse(throttle_time_ms=9)),
    )
    client = await world.connect()
    client.send(beat(1), 4)
    await until(lambda: any(served.has_answers_to_come for served in world.server.connections))
    world.server.stop_listening()
    drained = asyncio.ensure_future(world.server.drain())
    await asyncio.sleep(0)
    assert not drained.done()
    wait.set_result(None)
    await until(drained.done)
    assert (await client.receive(HeartbeatResponse, 4))[1].throttle_time_ms == 9


def ask_and_end(port: int, data: bytes) -> bytes:
    """Send a request and the end of all requests; what comes then."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(data))
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        answer = b""
        while received := one.recv(1 << 16):
            answer += received
    return answer


@pytest.mark.parametrize("size_bytes", [100, RECEIVE_BYTES // 2, RECEIVE_BYTES - 100, 3 * RECEIVE_BYTES])
def test_who_asks_no_more_is_answered_what_was_asked(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    """Where a frame fills its buffer, uvloop tells of its end and of the client's in one turn."""
    topic = ProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData(index=0, records=b"x" * size_bytes)
    request = ProduceRequest(acks=1, topic_data=[topic(name="t", partition_data=[partition])])
    data = b"".join(encode_request(request, 9, 3, "test"))

    async def ask() -> list[bytes]:
        async with serving(monkeypatch) as world:
            world.handle(ProduceRequest, lambda broker, context, request: ProduceResponse(throttle_time_ms=7))
            port = world.server.listener.port
            return [await asyncio.to_thread(ask_and_end, port, data) for _ in range(10)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers = runner.run(ask())
    for answer in answers:
        correlation_id, response = decode_response(ProduceResponse, 9, answer[4:])
        assert (correlation_id, response.throttle_time_ms) == (3, 7)
