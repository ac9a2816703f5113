"""Goal: who reads old records in order finds the next ones in the page cache, nobody else costs a read, and
nothing is served that was not checked.

Method: a whole broker over a page cache of the test's, which holds what was brought there and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from broker import read_ahead
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.records import decode_all
from storage import slice as slice_room
from storage.file import Disk
from storage.layout import TopicPartition
from storage.page_cache import CAN_TELL_CACHED
from storage.slice import Slice
from storage.stored_batches import StoredBatches
from tests.broker.client import LIMIT_SECONDS, Client, until
from tests.broker.conftest import Fetched, World, fetch_request

BATCHES, LIMIT_BYTES = 21, 220_000
TWO = 2
"""as many batches are in each fetch"""

pytestmark = pytest.mark.skipif(not CAN_TELL_CACHED, reason="Linux tells what is cached since 6.5")


class Pages:
    """The page cache of the only file that is read from, in pieces of 1 KB; and who brought what there."""

    def __init__(self) -> None:
        self.cached: set[int] = set()
        self.warmed: list[int] = []
        self.brought: list[int] = []
        self.may_bring = threading.Event()
        self.may_bring.set()

    @staticmethod
    def pieces(position: int, end: int) -> range:
        return range(position // 1000, (end - 1) // 1000 + 1)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    made = Pages()
    check, warm, warm_following = StoredBatches.check_again, Slice.warm, Slice.warm_following

    def is_cached(disk: Disk, descriptor: int, size: int, position: int) -> bool:
        return made.cached.issuperset(made.pieces(position, position + size))

    def checked(self: StoredBatches, position: int, end: int) -> bool:
        made.cached.update(made.pieces(position, end))
        return check(self, position, end)

    def warmed(self: Slice) -> None:
        made.warmed.append(self.position)
        warm(self)

    def brought(self: Slice) -> None:
        made.brought.append(self.following()[0])
        assert made.may_bring.wait(LIMIT_SECONDS)
        warm_following(self)

    monkeypatch.setattr(slice_room, "blocks_read", lambda: 0)
    for owner, name, function in (
        (Disk, "tells_cached", lambda *_: True),
        (Disk, "is_cached", is_cached),
        (StoredBatches, "check_again", checked),
        (Slice, "warm", warmed),
        (Slice, "warm_following", brought),
    ):
        monkeypatch.setattr(owner, name, function)
    yield made
    made.may_bring.set()


async def filled(world: World, topic: str = "t") -> Client:
    world.topic(topic)
    client = await world.connect()
    for number in range(BATCHES):
        batch = world.batch((b"k", b"%d" % (number % 10) * 100_000))
        assert (await world.produce(client, batch, topic)).error_code == 0
    segment(world, topic).file.stop_readahead()
    return client


def segment(world: World, topic: str = "t") -> StoredBatches:
    return world.broker.partitions[TopicPartition(topic, 0)].log.segments[0]


def is_settled(world: World) -> bool:
    readers = world.broker.read_ahead._readers.values()
    return all(reader.coming is None or reader.coming.done() for reader in readers)


def wanted(offset: int) -> FetchRequest:
    return fetch_request([("t", 0, offset)], partition_max_bytes=LIMIT_BYTES)


async def ask(client: Client, offset: int, version: int = 12) -> Fetched:
    answer: Fetched = (await client.ask(wanted(offset), version)).responses[0].partitions[0]
    return answer


def offsets(answer: Fetched) -> list[int]:
    return [record.offset for record in decode_all(answer.records or b"")]


async def read(world: World, client: Client, offset: int, version: int = 12) -> list[int]:
    """The offsets that a fetch brings; nothing is on its way then."""
    answer = await ask(client, offset, version)
    assert answer.error_code == 0
    await until(lambda: is_settled(world))
    return offsets(answer)


@pytest.mark.parametrize("version", [4, 12])
async def test_a_reader_in_order_waits_for_the_disk_twice(world: World, pages: Pages, version: int) -> None:
    client = await filled(world)
    got: list[int] = []
    while len(got) < BATCHES:
        got += await read(world, client, len(got), version)
    assert got == list(range(BATCHES))
    size = segment(world).size_bytes // BATCHES
    assert pages.warmed == [0, TWO * size]
    assert pages.brought == [first * size for first in range(2 * TWO, BATCHES, TWO)]


async def test_what_is_on_its_way_is_waited_for_and_not_read_again(world: World, pages: Pages) -> None:
    client, other = await filled(world), await world.connect()
    await read(world, client, 0)
    pages.may_bring.clear()
    await ask(client, TWO)
    client.send(wanted(2 * TWO), 12)
    await until(lambda: world.broker.metrics_state.unread_bytes)  # it waits
    assert (await world.produce(other, world.batch((b"k", b"v")))).error_code == 0  # and nobody else
    await until(lambda: pages.brought)  # by a thread that may be late to begin
    assert len(pages.brought) == 1
    pages.may_bring.set()
    answer = (await client.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert offsets(answer) == [2 * TWO, 2 * TWO + 1]
    assert len(pages.warmed) == 2


async def test_a_client_that_goes_while_it_waits(world: World, pages: Pages) -> None:
    client = await filled(world)
    await read(world, client, 0)
    pages.may_bring.clear()
    await ask(client, TWO)
    client.send(wanted(2 * TWO), 12)
    await until(lambda: world.broker.metrics_state.unread_bytes)
    await client.close()
    await until(lambda: not world.broker.metrics_state.unread_bytes)
    pages.may_bring.set()


async def test_one_thread_reads_ahead_for_all_partitions_of_a_fetch(
    world: World, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Pages` does not tell the two files apart, and need not: nothing of either stays."""
    client = await filled(world)
    await filled(world, "other")
    jobs: list[int] = []
    bring = read_ahead._warm_following

    def counted(slices: list[Slice]) -> None:
        jobs.append(len(slices))
        bring(slices)

    monkeypatch.setattr(read_ahead, "_warm_following", counted)
    for offset in (0, TWO, 2 * TWO):
        both = [("t", 0, offset), ("other", 0, offset)]
        answer = await client.ask(fetch_request(both, partition_max_bytes=LIMIT_BYTES), 12)
        for topic in answer.responses:
            assert offsets(topic.partitions[0]) == [offset, offset + 1]
        await until(lambda: is_settled(world))
        pages.cached.clear()
    assert jobs == [2, 2]


@pytest.mark.parametrize("order", [[0, 6, 2, 10, 14, 4], [10, 8, 6, 4, 2, 0]])
async def test_who_jumps_is_not_read_ahead_of(world: World, pages: Pages, order: list[int]) -> None:
    client = await filled(world)
    for offset in order:
        assert await read(world, client, offset) == [offset, offset + 1]
    assert not pages.brought
    assert len(pages.warmed) == len(order)


async def test_what_is_cached_is_left_alone(world: World, pages: Pages) -> None:
    client = await filled(world)
    pages.cached.update(range(10_000))
    for offset in range(0, BATCHES, TWO):
        await read(world, client, offset)
    assert not pages.warmed
    assert not pages.brought


async def test_damage_ahead_is_told_to_who_comes_there(world: World, pages: Pages) -> None:
    client = await filled(world)
    file = segment(world).file
    size = segment(world).size_bytes // BATCHES
    with file.descriptor() as descriptor:
        file.disk.pwritev(descriptor, [b"?"], 5 * size + 5000)
    got: list[int] = []
    for offset in (0, 2, 4):
        got += await read(world, client, offset)
    assert pages.brought
    assert got == [0, 1, 2, 3, 4]
    answer = await ask(client, 5)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert await read(world, client, 6) == [6, 7]
    with file.descriptor() as descriptor:  # for the look that everybody takes at the end
        file.disk.pwritev(descriptor, [b"5"], 5 * size + 5000)
