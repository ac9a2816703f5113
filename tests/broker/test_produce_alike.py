"""Goal: a request that is like the last one, and so is not decoded, is answered as if it were.

Method: the same random requests, good and bad, to two brokers, one of which recognises nothing: the same
bytes come back, and are on disk. Then what the template must and must not take, and the ways in
which a recognised request can fail.
"""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from broker import connection, produce_template
from broker.context import RequestContext
from broker.handlers.produce import produce, produce_alike
from broker.produce_template import LARGEST_LEARNED_BYTES, Asked, ProduceTemplate
from broker.receiving import Room
from protocol.batch import CRC_POSITION, HEADER_BYTES, checksum, parse_header
from protocol.codegen import decode
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.framing import decode_request_header, decode_response, encode_request
from protocol.kernel import load_numba
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.one_look import MAX_PARTITIONS, Seen, Usual
from protocol.records import encode_batch
from storage.types import Appended
from tests.broker.client import Client, until
from tests.broker.conftest import World, produce_request
from tests.broker.test_produce import HeldFlushes, partition_of
from tests.thoroughness import some_or_all

VERSIONS = (3, 4, 5, 6, *[7, 8, 9, 10, 11, 12, 13, 13] * 3)
CLIENTS = ("test", "", None, "an umlaut: \u00e4")
NOW_MS = 1_700_000_000_000
IDS = {"t": UUID(int=1 << 90 | 5), "u": UUID(int=1 << 90 | 6)}
"""of the topics, in every broker; other ones have none"""


@pytest.fixture(autouse=True)
def with_kernels() -> None:
    """Nothing is recognised without them."""
    load_numba()


def batch(value: bytes, key: bytes | None = b"k", **fields: Any) -> bytes:
    return encode_batch([(NOW_MS, key, value, ())], now_ms=NOW_MS, **fields)


def a_batch(dice: random.Random) -> bytes | None:
    """Mostly good ones, of lengths that are written in one, two and three bytes."""
    good = batch(b"v" * dice.choice((1, 3, 40, 55, 56, 57, 58, 59, 60, 300, 16_300, 16_400, 20_000)))
    kind = dice.randrange(12)
    if kind == 0:
        return dice.choice((None, b"", b"x", good[:-1], good + good, b"\0" * 80))
    if kind == 1:
        place = dice.randrange(len(good))
        return good[:place] + bytes((good[place] ^ 1 << dice.randrange(8),)) + good[place + 1 :]
    return good


def one_topic(
    topic: str, asked: Sequence[tuple[int, bytes | None]], acks: int, **fields: Any
) -> ProduceRequest:
    """As clients send it: a topic once, with its partitions."""
    request = produce_request([(topic, 0, None)], acks, **fields)
    data = ProduceRequest.TopicProduceData.PartitionProduceData
    request.topic_data[0].topic_id = IDS.get(topic, UUID(int=7))
    request.topic_data[0].partition_data = [data(index=index, records=records) for index, records in asked]
    return request


def frames(seed: int) -> Iterator[bytes]:
    """The requests of a connection: runs of ones that are alike, others between."""
    dice = random.Random(seed)
    for number in range(120):
        if number == 0 or not dice.randrange(8):
            version, acks = dice.choice(VERSIONS), dice.choice((1, 1, 1, -1, -1, -1, 2))
            client, topic = dice.choice(CLIENTS), dice.choice(("t", "t", "u", "gone", "__consumer_offsets"))
            fields: dict[str, Any] = {} if dice.randrange(12) else {"transactional_id": "x"}
        partitions = [dice.choice((0, 0, 1, 2, -1)) for _ in range(dice.choice((1, 1, 1, 1, 2, 3, 5)))]
        asked = [(index, a_batch(dice)) for index in partitions]
        if dice.randrange(12):
            request = one_topic(topic, asked, acks, **fields)
        else:
            request = produce_request([(topic, index, records) for index, records in asked], acks, **fields)
            for data in request.topic_data:
                data.topic_id = IDS.get(topic, UUID(int=7))
        frame = b"".join(encode_request(request, version, dice.randrange(-(1 << 31), 1 << 31), client))
        if version >= 9 and not dice.randrange(10):  # a tag nobody knows behind the request
            frame = len(frame).to_bytes(4, "big") + frame[4:-1] + b"\x01\x63\x02ab"
        yield frame


async def answers(world: World, seed: int) -> list[bytes]:
    """What one connection is answered, the first half with each request by itself, then pipelined."""
    client = await world.connect()
    sent = list(frames(seed))
    received = []
    for frame in sent[:60]:
        client.send_bytes(frame)
        received.append(await client.receive_frame())
    client.send_bytes(b"".join(sent[60:]))
    return received + [await client.receive_frame() for _ in sent[60:]]


def stored(world: World) -> dict[str, bytes]:
    return {
        str(path.relative_to(world.directory)): path.read_bytes()
        for path in sorted(world.directory.glob("[tu]-*/*.log"))
    }


def counted(world: World) -> list[Any]:
    state = world.broker.metrics_state
    topics = [partition_of(world, topic).counters for topic in ("t", "u")]
    return [list(state.requests.items()), state.malformed_requests, state.internal_errors] + [
        {name: getattr(one, name) for name in one.__slots__ if isinstance(getattr(one, name), int)}
        for one in topics
    ]


@pytest.fixture
async def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[World, World]]:
    made = World(tmp_path / "one", {}), World(tmp_path / "other", {})
    for world in made:
        await world.start()
        with monkeypatch.context() as patched:
            patched.setattr("broker.topics.uuid.uuid4", iter(IDS.values()).__next__)
            world.topic("t", 3)
            world.topic("u", 2, cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    yield made
    for world in made:
        await world.stop()


@pytest.mark.parametrize("seed", range(8))
async def test_recognised_and_decoded_requests_are_answered_alike(
    worlds: tuple[World, World], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    recognised = 0
    match = ProduceTemplate.match

    def counting(template: ProduceTemplate, *arguments: Any) -> Any:
        nonlocal recognised
        found = match(template, *arguments)
        recognised += found is not None
        return found

    monkeypatch.setattr(ProduceTemplate, "match", counting)
    first = await answers(worlds[0], seed)
    assert recognised >= 10
    monkeypatch.setattr(ProduceTemplate, "match", lambda template, *arguments: None)
    assert await answers(worlds[1], seed) == first
    assert stored(worlds[1]) == stored(worlds[0])
    assert counted(worlds[1]) == counted(worlds[0])


async def test_from_the_third_request_on_nothing_is_decoded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic(partitions=2)
    client = await world.connect()
    decoded: list[int] = []

    def counting(request: Any, *arguments: Any) -> Any:
        decoded.append(len(decoded))
        return decode(request, *arguments)

    monkeypatch.setattr(connection, "decode", counting)
    for number in range(10):
        answer = await world.produce(client, batch(b"%d" % number), partition=number % 2)
        assert (answer.error_code, answer.index, answer.base_offset) == (0, number % 2, number // 2)
    assert len(decoded) == 2


def match(template: ProduceTemplate, frame: bytes | bytearray) -> Asked | None:
    """What is found in a frame between other bytes, of a topic with all partitions there are."""
    log = SimpleNamespace(usual=Usual.of(1 << 20, [Codec.NONE, Codec.LZ4], 0))
    partition = SimpleNamespace(log=log, topic_id=IDS["t"])
    every = SimpleNamespace(get=lambda key: partition if key[0] == "t" else None)
    room = Room(b"before" + frame + b"behind")
    return template.match(room, 6, 6 + len(frame), cast(Any, every), NOW_MS) if template.is_learned else None


def learned(version: int, records: bytes = b"r" * 100, count: int = 1) -> tuple[ProduceTemplate, bytes]:
    asked = one_topic("t", [(3, records)] * count, 1)
    frame = b"".join(encode_request(asked, version, 7, "c"))[4:]
    header, position = decode_request_header(frame)
    request = decode(ProduceRequest, version, frame, position, 100)
    request.topic_data[0].name = "t"  # the handler gives it one, where there is an id
    template = ProduceTemplate()
    template.learn(header, request, frame)
    assert match(template, frame) is None  # one is no habit
    template.learn(header, request, frame)
    return template, frame


def matched(
    template: ProduceTemplate, request: ProduceRequest, version: int
) -> list[tuple[int, bytes]] | None:
    frame = b"".join(encode_request(request, version, 9, "c"))[4:]
    found = match(template, frame)
    return None if found is None else [(index, bytes(records)) for index, records, _ in found]


@pytest.mark.parametrize("version", range(7, 14))
def test_only_correlation_id_partition_and_records_may_differ(version: int) -> None:
    template, frame = learned(version)
    records_at = frame.index(b"r" * 100)
    index_at = frame.index(b"\0\0\0\3", records_at - 10)
    free = [*range(4, 8), *range(index_at, index_at + 4), *range(records_at, records_at + 100)]
    for place in range(len(frame)):
        other = bytearray(frame)
        other[place] ^= 1
        assert (match(template, other) is not None) == (place in free), place
    for length in range(len(frame)):
        assert match(template, frame[:length]) is None
    assert match(template, frame + b"\0") is None


@pytest.mark.parametrize("version", [7, 8, 9, 11, 13])
def test_records_of_any_length_are_found(version: int) -> None:
    template, _ = learned(version)
    for size in (
        1,
        2,
        125,
        126,
        127,
        128,
        129,
        16_381,
        16_382,
        16_383,
        16_384,
        16_385,
        2_097_150,
        2_097_151,
        2_097_152,
    ):
        records = bytes([size % 251]) * size
        assert matched(template, one_topic("t", [(-5, records)], 1), version) == [(-5, records)]
    for nothing in (None, b""):
        assert matched(template, one_topic("t", [(3, nothing)], 1), version) is None


@pytest.mark.parametrize("version", range(7, 14))
def test_the_answer_is_the_one_that_would_be_encoded(version: int) -> None:
    template, _ = learned(version)
    for count in (1, 2, MAX_PARTITIONS, 1):
        asked: Asked = [(4 + number, memoryview(b"r"), None) for number in range(count)]
        placed = [Appended((1 << 40) + number, 0, NOW_MS - number, 17) for number in range(count)]
        frame = bytes(template.answer(-8, asked, placed))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, response = decode_response(ProduceResponse, version, frame[4:])
        (topic,) = response.responses
        assert (correlation_id, len(topic.partition_responses)) == (-8, count)
        assert (topic.name, topic.topic_id) == (("t", UUID(int=0)), ("", IDS["t"]))[version >= 13]
        for number, answer in enumerate(topic.partition_responses):
            assert (answer.index, answer.error_code, answer.log_start_offset) == (4 + number, 0, 17)
            assert (answer.base_offset, answer.log_append_time_ms) == ((1 << 40) + number, NOW_MS - number)


@some_or_all("frames", 600, 3000)
@pytest.mark.parametrize("version", [7, 9, 13])
def test_what_is_recognised_is_what_would_be_decoded(version: int, frames: int) -> None:
    """Of frames that are whole, cut off, lengthened, damaged in places that tell lengths and numbers."""
    template, _ = learned(version)
    dice = random.Random(version)
    recognised = 0
    for _ in range(frames):
        sizes = [
            dice.choice((1, 2, 60, 126, 127, 128, 300, 16_383)) for _ in range(dice.choice((1, 2, 3, 9)))
        ]
        asked = [
            (dice.randrange(4), batch(bytes(size)) if dice.randrange(2) else bytes(size)) for size in sizes
        ]
        frame = bytearray(b"".join(encode_request(one_topic("t", asked, 1), version, 9, "c"))[4:])
        ends = [position for position in range(30, len(frame)) if position < 60 or not dice.randrange(40)]
        for _ in range(dice.choice((0, 0, 1, 2))):
            frame[dice.choice(ends)] = dice.choice((0, 1, 2, 127, 128, 129, 255, dice.randrange(256)))
        length = len(frame) + dice.choice((0, 0, 0, -1, -dice.randrange(len(frame)), 1))
        frame = (frame + b"\0")[:length]
        found = match(template, frame)
        if found is None:
            continue
        recognised += 1
        _, position = decode_request_header(bytes(frame))
        request = decode(ProduceRequest, version, bytes(frame), position, 1000)
        (topic,) = request.topic_data
        assert (topic.name or topic.topic_id) == (IDS["t"] if version >= 13 else "t")
        assert (request.acks, request.transactional_id) == (1, None)
        decoded = [(data.index, bytes(data.records or b"")) for data in topic.partition_data]
        assert [(index, bytes(records)) for index, records, _ in found] == decoded
        for _, records, seen in found:
            if seen is not None:
                header = parse_header(records)
                assert seen[4:] == tuple(getattr(header, name) for name in Seen._fields[4:])
    assert recognised > frames // 3


@pytest.mark.parametrize("version", [7, 8, 9, 11, 13])
def test_any_number_of_partitions_is_found_up_to_the_largest(version: int) -> None:
    for learned_from in (1, 2, 5):
        template, _ = learned(version, count=learned_from)
        for count in (1, 2, 3, MAX_PARTITIONS, MAX_PARTITIONS + 1):
            sent = [(number, bytes([number]) * (1 + 70 * number)) for number in range(count)]
            assert matched(template, one_topic("t", sent, 1), version) == (sent, None)[count > MAX_PARTITIONS]
            sent[count // 2] = (0, b"")
            assert matched(template, one_topic("t", sent, 1), version) is None


@pytest.mark.parametrize("is_recognised", [False, True])
async def test_what_is_sent_to_a_deleted_topic_is_not_written_to_its_successor(
    world: World, is_recognised: bool
) -> None:
    """G6: a producer that sends ids has not heard of it yet (KIP-516); by its name it would go there."""
    before = world.topic()
    client = await world.connect()

    async def sent(topic_id: UUID) -> tuple[int, int]:
        request = produce_request([("", 0, batch(b"v"))])
        request.topic_data[0].topic_id = topic_id
        (topic,) = (await client.ask(request, 13)).responses
        assert topic.topic_id == topic_id
        return topic.partition_responses[0].error_code, topic.partition_responses[0].base_offset

    count = 4 if is_recognised else 1
    assert [await sent(before.topic_id) for _ in range(count)] == [(0, offset) for offset in range(count)]
    await world.broker.deletions.delete("t")
    assert await sent(before.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    after = world.topic()
    assert await sent(before.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert partition_of(world).log.log_end_offset == 0
    assert [await sent(after.topic_id) for _ in range(4)] == [(0, offset) for offset in range(4)]


def test_what_is_not_learned() -> None:
    template, frame = learned(9, b"r" * LARGEST_LEARNED_BYTES)
    assert match(template, frame) is None
    template, frame = learned(6)
    assert match(template, frame) is None


def test_a_topic_that_has_no_name_is_not_learned() -> None:
    """Its id is unknown."""
    template, frame = learned(13)
    header, position = decode_request_header(frame)
    request = decode(ProduceRequest, 13, frame, position, 100)
    template = ProduceTemplate()
    for _ in range(3):
        template.learn(header, request, frame)
    assert not template.is_learned


def test_brokers_of_one_process_see_only_their_own_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loops, as of two `broker.testing.Kompakt`: the kernels let go of the interpreter, and when they
    come back the other loop may have looked at something else.
    """
    template, _ = learned(9)
    mine, others = (one_topic("t", [(index, batch(b"v" * size))], 1) for index, size in ((1, 10), (2, 900)))
    look = produce_template.look_at_request
    seen_by_other = []

    def looks_slowly(*arguments: Any) -> int:
        count = look(*arguments)
        if threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=lambda: seen_by_other.append(matched(learned(9)[0], others, 9)))
            other.start()
            other.join()
        return count

    monkeypatch.setattr(produce_template, "look_at_request", looks_slowly)
    assert matched(template, mine, 9) == [(1, batch(b"v" * 10))]
    assert seen_by_other == [[(2, batch(b"v" * 900))]]


class Records(bytearray):
    """Records of which a weak reference tells when they are gone."""


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("is_recognised", [False, True])
async def test_refused_records_are_let_go_with_the_answer(
    world: World, codec: Codec, is_recognised: bool
) -> None:
    """An error that is kept keeps the frames that it was raised in, and so a request of 100 MB, until the
    collector runs.
    """
    world.topic()
    template, _ = learned(9)
    broken = Records(batch(b"v", codec=codec))
    broken[HEADER_BYTES + 3] ^= 0xFF
    broken[CRC_POSITION : CRC_POSITION + 4] = checksum(broken, 0, len(broken)).to_bytes(4, "big")
    gone = weakref.ref(broken)
    records = memoryview(broken)
    del broken
    gc.disable()
    try:
        if is_recognised:
            answer = produce_alike(world.broker, template, 1, [(0, records, None)], NOW_MS)
        else:
            request = produce_request([("t", 0, cast(bytes, records))])
            context = RequestContext(0, 9, 1, "c", world.broker.listeners[0], "", None)
            answer = produce(world.broker, context, request)
            del request
        assert isinstance(answer, ProduceResponse)
        del records
        assert answer.responses[0].partition_responses[0].error_code != ErrorCode.NONE
        assert gone() is None
    finally:
        gc.enable()


async def flush_held(world: World, monkeypatch: pytest.MonkeyPatch, client: Client) -> HeldFlushes:
    """A producer that is known, and whose flushes end when the test says so."""
    world.topic()
    for _ in range(3):
        await world.produce(client, batch(b"v"))
    return HeldFlushes(world, monkeypatch)


async def test_acks_all_waits_for_its_flush_and_keeps_the_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.connect()
    flushes = await flush_held(world, monkeypatch, client)
    sent = [client.send(produce_request([("t", 0, batch(b"v"))], acks), 9) for acks in (-1, 1, -1)]
    partition = partition_of(world)
    await until(lambda: partition.log.log_end_offset == 6)
    assert partition.log.high_watermark == 3
    flushes.end()
    flushes.end()
    for number, correlation_id in enumerate(sent):
        answered, response = await client.receive(ProduceResponse, 9)
        assert answered == correlation_id
        assert response.responses[0].partition_responses[0].base_offset == 3 + number


async def test_a_flush_that_failed_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await world.connect()
    flushes = await flush_held(world, monkeypatch, client)
    client.send(produce_request([("t", 0, batch(b"v"))]), 9)
    await until(lambda: flushes.held)
    flushes.end(OSError(5, "the disk is gone"))
    answer = (await client.receive(ProduceResponse, 9))[1].responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert "the disk is gone" in (answer.error_message or "")


async def test_a_flush_that_failed_is_told_of_its_own_topic(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection's requests went on to another topic meanwhile."""
    client = await world.connect()
    flushes = await flush_held(world, monkeypatch, client)
    world.topic("other")
    client.send(produce_request([("t", 0, batch(b"v"))]), 9)
    await until(lambda: flushes.held)
    for _ in range(3):
        client.send(produce_request([("other", 0, batch(b"v"))], 1), 9)
    other = partition_of(world, "other")
    await until(lambda: other.log.log_end_offset == 3)
    flushes.end(OSError(5, "the disk is gone"))
    (topic,) = (await client.receive(ProduceResponse, 9))[1].responses
    (answer,) = topic.partition_responses
    assert (topic.name, answer.error_code) == ("t", ErrorCode.KAFKA_STORAGE_ERROR)


async def test_a_topic_that_is_deleted_and_made_again_is_looked_up_anew(world: World) -> None:
    world.topic()
    client = await world.connect()
    for _ in range(3):
        await world.produce(client, batch(b"v"))
    await world.broker.deletions.delete("t")
    assert (await world.produce(client, batch(b"v"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.topic()
    answer = await world.produce(client, batch(b"v"))
    assert (answer.error_code, answer.base_offset) == (0, 0)


async def test_an_unexpected_failure_is_answered_for_its_partition(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic(partitions=2)
    client = await world.connect()
    for _ in range(3):
        await world.produce(client, batch(b"v"))

    def broken(*arguments: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(connection, "produce_alike", broken)
    answer = await world.produce(client, batch(b"v"), partition=1)
    assert (answer.index, answer.error_code) == (1, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "a defect" in caplog.text
    assert world.broker.metrics_state.internal_errors == 1
