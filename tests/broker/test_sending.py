"""Goal: large answers leave as regions of files, byte for byte and in order, whatever the client does
meanwhile; and where they cannot, they are read.

Method: a whole broker, whose kernel knows all pages or none, and clients that read at once, late or not at
all; each test counts the regions that were sent.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker import sending
from broker.connection import API_VERSIONS, FETCH
from broker.sending import Parts
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.messages.metadata import ApiVersionsRequest
from protocol.records import decode_all
from storage.file import Disk
from storage.layout import TopicPartition
from storage.region import Region
from storage.slice import Slice
from tests.broker.client import LIMIT_SECONDS, Client, until
from tests.broker.conftest import Fetched, World, fetch_request

VALUE = b"v" * 20_000
BATCHES = 40
VERSIONS = (10, 12, 17)
PIECE_BYTES = 256 * 1024


class Sent:
    """Counts what is sent as a region, and what is read of regions after all. A large answer leaves in four
    pieces.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sending, "PIECE_BYTES", PIECE_BYTES)
        self.bytes = 0
        self.bytes_read = 0
        send, read = Region.send, Region.read

        def counted(region: Region, descriptor: int) -> int:
            sent = send(region, descriptor)
            self.bytes += sent
            return sent

        def counted_read(region: Region, start: int = 0) -> bytes:
            data = read(region, start)
            self.bytes_read += len(data)
            return data

        monkeypatch.setattr(Region, "send", counted)
        monkeypatch.setattr(Region, "read", counted_read)
        monkeypatch.setattr(Disk, "is_cached", lambda *_: True)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(monkeypatch)


async def filled(world: World, client: Client) -> Any:
    """A topic with `BATCHES` batches of one record, all different; its id."""
    topic = world.topic()
    for number in range(BATCHES):
        value = b"%05d" % number + VALUE
        assert (await world.produce(client, world.batch((b"k", value)))).error_code == 0
    return topic.topic_id


async def filled_beside(world: World) -> Client:
    """The same, and beside it the topic u with one record."""
    client = await world.connect()
    await filled(world, client)
    world.topic("u")
    await world.produce(client, world.batch((b"k", b"00000" + VALUE)), "u")
    return client


def values_of(answer: Fetched) -> list[int]:
    assert answer.error_code == 0
    found = [record.value or b"" for record in decode_all(answer.records or b"")]
    assert all(value[5:] == VALUE for value in found)
    return [int(value[:5]) for value in found]


async def received(client: Client, version: int) -> list[int]:
    return values_of((await client.receive(FetchResponse, version))[1].responses[0].partitions[0])


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_large_answer_is_not_read(world: World, sent: Sent, version: int) -> None:
    client = await world.connect()
    topic_id = await filled(world, client)
    topic = topic_id if version >= 13 else "t"
    response = await client.ask(fetch_request([(topic, 0, 3)]), version)
    assert values_of(response.responses[0].partitions[0]) == list(range(3, BATCHES))
    assert sent.bytes > len(VALUE) * (BATCHES - 3)
    assert sent.bytes_read == 0


async def test_where_the_kernel_cannot_tell_it_is_read(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Disk, "is_cached", lambda *_: False)
    client = await world.connect()
    await filled(world, client)
    response = await client.ask(fetch_request([("t", 0, 0)]), 12)
    assert values_of(response.responses[0].partitions[0]) == list(range(BATCHES))
    assert sent.bytes == 0


async def test_requests_that_come_together_are_answered_in_order(world: World, sent: Sent) -> None:
    """Small answers before, between and behind large ones; the client reads when all are sent."""
    client = await world.connect()
    await filled(world, client)
    offsets = [39, 0, 38, 5, 10, 37, 1]
    for _ in range(10):
        for offset in offsets:
            client.send(fetch_request([("t", 0, offset)]), 12)
    for _ in range(10):
        for offset in offsets:
            assert await received(client, 12) == list(range(offset, BATCHES))
    assert sent.bytes > 0
    assert world.broker.metrics_state.internal_errors == 0


async def test_behind_an_answer_that_waits_it_is_read(world: World, sent: Sent) -> None:
    client, other = await world.connect(), await world.connect()
    await filled(world, client)
    world.topic("u")
    client.send(fetch_request([("u", 0, 0)], max_wait_ms=60_000), 12)
    client.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: sent.bytes_read > len(VALUE) * BATCHES)
    assert sent.bytes == 0
    await world.produce(other, world.batch((b"k", b"00000" + VALUE)), "u")
    assert await received(client, 12) == [0]
    assert await received(client, 12) == list(range(BATCHES))


async def test_before_an_answer_that_waits_it_is_read(world: World, sent: Sent) -> None:
    """It leaves in a later turn of the loop, with others that are complete then: no region lives so long."""
    client, other = await world.connect(), await world.connect()
    world.topic()
    world.topic("u")
    client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000, min_bytes=len(VALUE) * 10), 12)
    client.send(fetch_request([("u", 0, 0)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 2)
    for number in range(10):
        await world.produce(other, world.batch((b"k", b"%05d" % number + VALUE)))
    assert await received(client, 12) == list(range(10))
    assert sent.bytes == 0
    await world.produce(other, world.batch((b"k", b"00000" + VALUE)), "u")
    assert await received(client, 12) == [0]


async def test_a_long_poll_that_ends_sends_regions(world: World, sent: Sent) -> None:
    client, other = await world.connect(), await world.connect()
    world.topic()
    client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000, min_bytes=len(VALUE) * 10), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    for number in range(10):
        await world.produce(other, world.batch((b"k", b"%05d" % number + VALUE)))
    assert await received(client, 12) == list(range(10))
    assert sent.bytes > len(VALUE) * 10


async def test_a_client_that_does_not_read_gets_all_of_it_later(world: World, sent: Sent) -> None:
    """What the socket does not take waits as bytes; the requests behind it wait for that."""
    client = await world.connect()
    await filled(world, client)
    reader: Any = client.reader
    reader._transport.pause_reading()
    for _ in range(60):
        client.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: sent.bytes_read > 0)
    reader._transport.resume_reading()
    for _ in range(60):
        assert await received(client, 12) == list(range(BATCHES))
    assert sent.bytes > 0


def unread_bytes(world: World) -> int:
    return world.broker.metrics_state.unread_bytes


async def test_what_some_leave_unread_limits_what_others_are_answered_with(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of many slow consumers, 55 MiB each, took all the memory there is."""
    monkeypatch.setattr("broker.handlers.fetch.LEAST_BYTES", 5 * len(VALUE))
    world.broker.config = dataclasses.replace(world.broker.config, fetch_max_unread_bytes=1 << 20)
    slow, other = await world.connect(), await world.connect()
    await filled(world, slow)
    reader: Any = slow.reader
    reader._transport.pause_reading()
    for _ in range(60):
        slow.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: unread_bytes(world) >= 1 << 20)
    wanted = fetch_request([("t", 0, 0)], min_bytes=len(VALUE) * 10, max_wait_ms=60_000)
    assert values_of((await other.ask(wanted, 12)).responses[0].partitions[0]) == [0, 1, 2, 3]
    reader._transport.resume_reading()
    for _ in range(60):
        await received(slow, 12)
    await until(lambda: not unread_bytes(world))
    assert values_of((await other.ask(wanted, 12)).responses[0].partitions[0]) == list(range(BATCHES))


async def test_aborted_transactions_are_listed_as_ever(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """read_committed: the answer is looked into only where something was aborted."""
    client = await world.connect()
    await filled(world, client)
    wanted = fetch_request([("t", 0, 0)], isolation_level=1)
    assert values_of((await client.ask(wanted, 12)).responses[0].partitions[0]) == list(range(BATCHES))
    assert sent.bytes_read == 0
    assert sent.bytes > 0
    log = world.broker.partitions[TopicPartition("t", 0)].log
    aborted = type("Aborted", (), {"producer_id": 7, "first_offset": 3})()
    monkeypatch.setattr(log, "aborted_transactions", lambda *_: (aborted,))
    answer = (await client.ask(wanted, 12)).responses[0].partitions[0]
    assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(7, 3)]
    assert values_of(answer) == list(range(BATCHES))
    assert sent.bytes_read > 0
    with monkeypatch.context() as patched:
        patched.setattr(Region, "read", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        answer = (await client.ask(wanted, 12)).responses[0].partitions[0]
    assert (answer.error_code, answer.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")


@pytest.mark.parametrize("good_pieces", [0, 1, 3])
async def test_a_file_that_cannot_be_sent_closes_the_connection(
    world: World,
    sent: Sent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    good_pieces: int,
) -> None:
    """The length is on its way already: nothing else may follow it. Others are served on."""
    client, other = await world.connect(), await world.connect()
    await filled(world, client)
    sendfile, pieces = Disk.sendfile, iter(range(99))

    def fail(disk: Disk, *arguments: int) -> int:
        return sendfile(disk, *arguments) if next(pieces) < good_pieces else 0

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "sendfile", fail)
        client.send(fetch_request([("t", 0, 0)]), 12)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.receive_frame()
    assert "an answer cannot be sent" in caplog.text
    response = await other.ask(fetch_request([("t", 0, 0)]), 12)
    assert values_of(response.responses[0].partitions[0]) == list(range(BATCHES))


def at_first_piece(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> list[int]:
    """Something happens while the first piece of an answer leaves; the sizes of the pieces."""
    send, pieces = Region.send, list[int]()

    def noted(region: Region, descriptor: int) -> int:
        pieces.append(len(region))
        if len(pieces) == 1:
            happens()
        return send(region, descriptor)

    monkeypatch.setattr(Region, "send", noted)
    return pieces


async def test_others_are_answered_while_a_large_answer_leaves(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the reader asks next waits, and is answered behind it."""
    client, other = await world.connect(), await world.connect()
    await filled(world, client)
    others = world.broker.metrics_state.requests
    answered: list[int] = []
    fetches: list[int] = []
    cut = sending.cut

    def noted(parts: Parts) -> tuple[Parts, Parts]:
        answered.append(others[API_VERSIONS])
        fetches.append(others[FETCH])
        return cut(parts)

    def ask() -> None:
        other.send(ApiVersionsRequest(), 0)
        client.send(fetch_request([("t", 0, 39)]), 12)

    monkeypatch.setattr(sending, "cut", noted)
    pieces = at_first_piece(monkeypatch, ask)
    client.send(fetch_request([("t", 0, 0)]), 12)
    assert await received(client, 12) == list(range(BATCHES))
    assert await received(client, 12) == [39]
    assert max(pieces) == PIECE_BYTES
    assert sum(pieces) > len(VALUE) * BATCHES > 3 * PIECE_BYTES
    assert answered[0] < answered[-1]
    assert fetches[:-1] == [1] * (len(pieces) - 1)  # the second one was not even looked at


async def test_a_connection_that_is_closed_meanwhile_sends_all_of_it(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.connect()
    await filled(world, client)
    (connection,) = world.broker.servers[0].connections

    def close() -> None:
        asyncio.get_running_loop().call_soon(connection.close)

    pieces = at_first_piece(monkeypatch, close)
    client.send(fetch_request([("t", 0, 0)]), 12)
    assert await received(client, 12) == list(range(BATCHES))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.receive_frame()
    assert len(pieces) == 1
    assert sent.bytes_read > 2 * PIECE_BYTES
    await until(lambda: not unread_bytes(world))


async def test_a_client_that_asks_no_more_gets_all_of_it(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read on while its answer leaves, so that its end is seen before that."""
    client = await world.connect()
    await filled(world, client)
    at_first_piece(monkeypatch, client.writer.write_eof)
    client.send(fetch_request([("t", 0, 0)]), 12)
    assert await received(client, 12) == list(range(BATCHES))
    with pytest.raises(asyncio.IncompleteReadError):
        await client.receive_frame()
    await until(lambda: not world.broker.servers[0].connections)
    assert unread_bytes(world) == 0


@pytest.mark.parametrize("way", ["close", "abort"])
async def test_a_client_that_goes_meanwhile_is_forgotten(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    client, other = await world.connect(), await world.connect()
    await filled(world, client)
    at_first_piece(monkeypatch, getattr(client.writer.transport, way))
    client.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: len(world.broker.servers[0].connections) == 1)
    assert caplog.text == ""
    assert unread_bytes(world) == 0
    response = await other.ask(fetch_request([("t", 0, 0)]), 12)
    assert values_of(response.responses[0].partitions[0]) == list(range(BATCHES))


async def test_beside_a_partition_that_is_cold_it_is_read(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer waits for the other's disk, and no region lives so long."""
    client = await filled_beside(world)
    cold = world.broker.partitions[TopicPartition("u", 0)].log.active_segment.file
    real = Slice.send_now
    monkeypatch.setattr(Slice, "send_now", lambda found: None if found.file is cold else real(found))
    response = await client.ask(fetch_request([("t", 0, 0), ("u", 0, 0)]), 12)
    found = {topic.topic: values_of(topic.partitions[0]) for topic in response.responses}
    assert found == {"t": list(range(BATCHES)), "u": [0]}
    assert sent.bytes == 0
    assert sent.bytes_read > len(VALUE) * BATCHES


class Cold:
    """What the loop finds too cold, once or always, until a thread has warmed it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, stays_cold: bool = False) -> None:
        self.warmed: list[int] = []
        self.read: list[int] = []
        send_now, warm, read = Slice.send_now, Slice.warm, Slice.read

        def sent(found: Slice) -> Any:
            return send_now(found) if found.is_warm and not stays_cold else None

        def noted(found: Slice) -> None:
            self.warmed.append(threading.get_ident())
            warm(found)

        def noted_read(found: Slice) -> Any:
            self.read.append(threading.get_ident())
            return read(found)

        monkeypatch.setattr(Slice, "send_now", sent)
        monkeypatch.setattr(Slice, "read_now", sent)
        monkeypatch.setattr(Slice, "warm", noted)
        monkeypatch.setattr(Slice, "read", noted_read)
        monkeypatch.setattr(Disk, "tells_cached", lambda *_: True)


@pytest.mark.parametrize("version", [4, 9, 12])
async def test_what_is_cold_is_warmed_by_a_thread_and_sent_as_a_region(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    client = await world.connect()
    await filled(world, client)
    cold = Cold(monkeypatch)
    response = await client.ask(fetch_request([("t", 0, 0)]), version)
    assert values_of(response.responses[0].partitions[0]) == list(range(BATCHES))
    assert len(cold.warmed) == 1 and threading.get_ident() not in cold.warmed
    assert cold.read == []
    assert (sent.bytes > len(VALUE) * BATCHES, sent.bytes_read) == (True, 0)


@pytest.mark.parametrize("reads", ["warm", "read"])
async def test_what_a_thread_brings_counts_as_unread_until_its_client_goes(
    world: World, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    client, other = await world.connect(), await world.connect()
    await filled(world, client)
    Cold(monkeypatch)
    monkeypatch.setattr(Disk, "tells_cached", lambda *_: reads == "warm")
    goes_on = threading.Event()
    real = getattr(Slice, reads)

    def held(found: Slice) -> Any:
        assert goes_on.wait(LIMIT_SECONDS)
        return real(found)

    monkeypatch.setattr(Slice, reads, held)
    client.send(fetch_request([("t", 0, 0)]), 12)
    other.send(fetch_request([("t", 0, 0)]), 12)
    await until(lambda: unread_bytes(world) > 2 * BATCHES * len(VALUE))
    client.writer.transport.abort()
    await until(lambda: BATCHES * len(VALUE) < unread_bytes(world) < 2 * BATCHES * len(VALUE))
    goes_on.set()
    assert await received(other, 12) == list(range(BATCHES))
    await until(lambda: not unread_bytes(world))


@pytest.mark.parametrize(
    ("can_tell", "stays_cold"),
    [(True, True), (False, False)],
    ids=["it leaves the cache again", "a kernel that cannot tell"],
)
async def test_what_cannot_be_sent_warm_is_read_by_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch, can_tell: bool, stays_cold: bool
) -> None:
    client = await world.connect()
    await filled(world, client)
    cold = Cold(monkeypatch, stays_cold=stays_cold)
    monkeypatch.setattr(Disk, "tells_cached", lambda *_: can_tell)
    response = await client.ask(fetch_request([("t", 0, 0)]), 12)
    assert values_of(response.responses[0].partitions[0]) == list(range(BATCHES))
    assert len(cold.read) == 1 and threading.get_ident() not in cold.read


async def test_what_cannot_be_warmed_is_the_error_of_its_partition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await filled_beside(world)
    bad = world.broker.partitions[TopicPartition("t", 0)].log.active_segment.file
    Cold(monkeypatch)
    warm = Slice.warm

    def fail(found: Slice) -> None:
        if found.file is bad:
            raise OSError(5, "Input/output error")
        warm(found)

    monkeypatch.setattr(Slice, "warm", fail)
    response = await client.ask(fetch_request([("t", 0, 0), ("u", 0, 0)]), 12)
    refused, given = (topic.partitions[0] for topic in response.responses)
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values_of(given) == [0]


async def test_a_segment_that_is_gone_is_the_error_of_its_partition(
    world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(found: Slice) -> Region:
        raise OSError(5, "Input/output error", "gone")

    client = await world.connect()
    await filled(world, client)
    monkeypatch.setattr(Slice, "send_now", fail)
    response = await client.ask(fetch_request([("t", 0, 0)]), 12)
    assert response.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
