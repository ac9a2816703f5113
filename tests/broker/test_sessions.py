"""Goal: incremental fetch sessions (KIP-227) tell what changed, all that changed, and starve nobody.

Method: sessions through the wire: full fetch, increments, forgotten and added partitions, wrong ids and
epochs, a full cache.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.records import decode_all
from tests.broker.client import Client, until
from tests.broker.conftest import World, fetch_request

ONE = (b"k", b"v")


class Session:
    """A client's side of one fetch session."""

    def __init__(self, client: Client, version: int = 12) -> None:
        self.client = client
        self.version = version
        self.id = 0
        self.epoch = 0

    async def fetch(
        self, *wanted: tuple[Any, int, int], forget: tuple[Any, list[int]] | None = None, **fields: Any
    ) -> FetchResponse:
        request = fetch_request(wanted, session_id=self.id, session_epoch=self.epoch, **fields)
        if forget is not None:
            name = {"topic_id" if isinstance(forget[0], UUID) else "topic": forget[0]}
            request.forgotten_topics_data = [FetchRequest.ForgottenTopic(partitions=forget[1], **name)]
        response: FetchResponse = await self.client.ask(request, self.version)
        if not response.error_code:
            self.id = response.session_id
            self.epoch += 1
        return response


def told(response: FetchResponse) -> list[tuple[Any, int, int]]:
    """(topic, partition, records) of what an answer carries."""
    return [
        (topic.topic or topic.topic_id, answer.partition_index, len(list(decode_all(answer.records or b""))))
        for topic in response.responses
        for answer in topic.partitions
    ]


@pytest.mark.parametrize("version", [7, 12, 13, 17])
async def test_an_increment_tells_only_what_changed(world: World, version: int) -> None:
    """G7."""
    topics = [world.topic(name, partitions=2) for name in ("a", "b")]
    a, b = (topic.topic_id if version >= 13 else topic.name for topic in topics)
    client = await world.connect()
    session = Session(client, version)
    first = await session.fetch((a, 0, 0), (a, 1, 0), (b, 0, 0))
    assert session.id > 0
    assert told(first) == [(a, 0, 0), (a, 1, 0), (b, 0, 0)]
    assert told(await session.fetch()) == []
    await world.produce(client, world.batch(ONE), "a", 1)
    assert told(await session.fetch()) == [(a, 1, 1)]
    assert told(await session.fetch()) == [(a, 1, 1)]  # the position has not moved
    assert told(await session.fetch((a, 1, 1))) == []
    await world.produce(client, world.batch(ONE), "b", 1)
    assert told(await session.fetch()) == []
    assert told(await session.fetch((b, 1, 0), forget=(a, [1]))) == [(b, 1, 1)]
    await world.produce(client, world.batch(ONE), "a", 1)
    assert told(await session.fetch((b, 1, 1))) == []


async def test_what_an_increment_asks_for_and_forgets_is_forgotten(world: World) -> None:
    world.topic("a", partitions=2)
    client = await world.connect()
    session = Session(client)
    await session.fetch(("a", 0, 0), ("a", 1, 0))
    await world.produce(client, world.batch(ONE), "a", 0)
    assert told(await session.fetch(("a", 0, 0), forget=("a", [0]))) == []
    assert told(await session.fetch()) == []
    assert told(await session.fetch(("a", 0, 0))) == [("a", 0, 1)]


async def test_an_increment_that_forgets_the_last_partition_answers_what_it_asks_for(world: World) -> None:
    world.topic()
    client = await world.connect()
    session = Session(client)
    await session.fetch(("t", 0, 0))
    await world.produce(client, world.batch(ONE))
    assert told(await session.fetch(("t", 0, 0), forget=("t", [0]))) == [("t", 0, 1)]
    assert world.broker.fetch_sessions.partition_count == len(world.broker.fetch_sessions) == 0


async def test_a_waiting_increment_wakes(world: World) -> None:
    world.topic()
    client, producer = await world.connect(), await world.connect()
    session = Session(client)
    await session.fetch(("t", 0, 0))
    client.send(fetch_request([], session_id=session.id, session_epoch=1, max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await world.produce(producer, world.batch(ONE))
    assert told((await client.receive(FetchResponse, 12))[1]) == [("t", 0, 1)]


async def test_partitions_that_gave_go_to_the_end_of_the_line(world: World) -> None:
    """G8: with room for one batch an answer, every partition has its turn."""
    world.topic(partitions=3)
    client = await world.connect()
    for index in range(3):
        await world.produce(client, world.batch(ONE), "t", index)
    session = Session(client)
    await session.fetch(*(("t", index, 1) for index in range(3)))
    turns = [
        index
        for _ in range(3)
        for _, index, count in told(
            await session.fetch(
                *((("t", index, 0) for index in range(3)) if session.epoch == 1 else ()), max_bytes=1
            )
        )
        if count
    ]
    assert sorted(turns) == [0, 1, 2]


async def test_errors_are_news_and_so_is_their_end(world: World) -> None:
    client = await world.connect()
    session = Session(client)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await session.fetch(("t", 0, 0))).responses[0].partitions[0].error_code == unknown
    assert (await session.fetch()).responses[0].partitions[0].error_code == unknown
    world.topic()
    assert (await session.fetch()).responses[0].partitions[0].error_code == 0
    assert told(await session.fetch()) == []


async def test_wrong_sessions_and_epochs(world: World) -> None:
    """Errors 70, 71 and 106."""
    world.topic()
    client = await world.connect()
    session = Session(client)
    await session.fetch(("t", 0, 0))
    asked = fetch_request([], session_id=session.id + 1, session_epoch=1)
    assert (await client.ask(asked, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    asked = fetch_request([], session_id=session.id, session_epoch=2)
    assert (await client.ask(asked, 12)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    asked = fetch_request([], session_id=session.id, session_epoch=1)
    assert (await client.ask(asked, 13)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert told(await session.fetch()) == []


async def test_a_final_epoch_ends_the_session(world: World) -> None:
    world.topic()
    client = await world.connect()
    session = Session(client)
    await session.fetch(("t", 0, 0))
    response = await client.ask(fetch_request([("t", 0, 0)], session_id=session.id, session_epoch=-1), 12)
    assert response.session_id == 0
    assert told(response) == [("t", 0, 0)]
    assert len(world.broker.fetch_sessions) == 0


async def test_a_full_cache_makes_no_more_sessions_until_the_eldest_is_idle(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    world = await make_world(max_incremental_fetch_session_cache_slots="2")
    world.topic()
    client = await world.connect()
    sessions = [Session(client) for _ in range(4)]
    for session in sessions[:3]:
        assert told(await session.fetch(("t", 0, 0))) == [("t", 0, 0)]
    assert [session.id > 0 for session in sessions[:3]] == [True, True, False]
    world.clock.advance(120_001)
    world.clock.set_by(-3_600_000)  # no matter: nobody has used it for as long
    await sessions[0].fetch()
    await sessions[3].fetch(("t", 0, 0))
    assert sessions[3].id > 0
    assert (await sessions[1].fetch()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (await sessions[0].fetch()).error_code == 0
    assert world.broker.metrics_state.fetch_sessions_evicted == 1


async def test_that_an_error_is_over_is_told(world: World) -> None:
    """Though nothing else has changed meanwhile: else the client would go on as if it were not."""
    world.topic()
    client = await world.connect()
    session = Session(client)
    await session.fetch(("t", 0, 0))
    fenced = await session.fetch(("t", 0, 0), current_leader_epoch=7)
    assert fenced.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert told(await session.fetch(("t", 0, 0), current_leader_epoch=-1)) == [("t", 0, 0)]
    assert told(await session.fetch()) == []


async def test_a_session_in_use_is_not_evicted(make_world: Callable[..., Awaitable[World]]) -> None:
    """However long ago it was made: its consumer would lose it every time that another one comes."""
    world = await make_world(max_incremental_fetch_session_cache_slots="1")
    world.topic()
    client = await world.connect()
    session, other = Session(client), Session(client)
    await session.fetch(("t", 0, 0))
    for _ in range(3):
        world.clock.advance(100_000)
        assert (await session.fetch()).error_code == 0
    await other.fetch(("t", 0, 0))
    assert other.id == 0
    assert (await session.fetch()).error_code == 0


async def test_a_session_grows_no_larger_than_a_request_may_be(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    """Each small request would cost as much as all partitions that were ever named."""
    world = await make_world(max_request_elements="1000")
    world.topic("t")
    client = await world.connect()
    session = Session(client)
    for first in range(0, 900, 300):
        response = await session.fetch(*(("t", index, 0) for index in range(first, first + 300)))
        assert response.error_code == 0
    sessions = world.broker.fetch_sessions
    assert (len(sessions), sessions.partition_count) == (1, 900)
    assert (await session.fetch(*(("t", index, 0) for index in range(1000)[900:]))).error_code == 0
    response = await session.fetch(("t", 1000, 0))
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partition_count) == (0, 0)
    again = Session(client)
    assert told(await again.fetch(("t", 0, 0))) == [("t", 0, 0)]
    assert again.id > 0


async def test_the_partitions_of_all_sessions_are_bounded(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    world = await make_world(max_incremental_fetch_session_partitions="5")
    world.topic("t", 6)
    client = await world.connect()
    one, two, late = (Session(client) for _ in range(3))
    sessions = world.broker.fetch_sessions
    await one.fetch(("t", 0, 0), ("t", 1, 0))
    await two.fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0))
    assert told(await late.fetch(("t", 0, 0))) == [("t", 0, 0)]
    assert (late.id, sessions.partition_count) == (0, 5)
    assert (await two.fetch(forget=("t", [2]))).error_code == 0
    assert (await one.fetch(("t", 3, 0))).error_code == 0
    assert sessions.partition_count == 5
    assert (await one.fetch(("t", 1, 0), ("t", 3, 0))).error_code == 0  # known already
    assert (await one.fetch(("t", 4, 0))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partition_count) == (1, 2)
    world.clock.advance(120_001)
    new = Session(client)
    await new.fetch(*(("t", index, 0) for index in range(5)))  # the other one is idle, and goes
    assert new.id > 0
    assert (len(sessions), sessions.partition_count) == (1, 5)
    await client.ask(fetch_request([], session_id=new.id, session_epoch=-1), 12)
    assert (len(sessions), sessions.partition_count) == (0, 0)


async def test_a_session_knows_the_name_of_a_topic_that_is_gone(world: World) -> None:
    """As in Kafka, where it keeps the name that it found by the id; who begins anew is told of the id."""
    old = world.topic("a").topic_id
    session = Session(await world.connect(), 13)
    await session.fetch((old, 0, 0))
    await world.broker.deletions.delete("a")
    answers = [await session.fetch(), await session.fetch((old, 0, 0), (old, 1, 0))]
    world.topic("a")
    answers += [await session.fetch(), await Session(await world.connect(), 13).fetch((old, 0, 0))]
    unknown, unknown_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
    other_id = ErrorCode.INCONSISTENT_TOPIC_ID
    codes = [[one.error_code for row in answer.responses for one in row.partitions] for answer in answers]
    assert codes == [[unknown], [unknown, unknown_id], [other_id, unknown_id], [unknown_id]]
