"""Goal: partitions whose directories are there are served, whatever of them is not known: none is hidden, and
none is removed for being in the way; copies of directories do not pass for what they are copies of.

Method: `__kompakt_metadata` of a stopped broker is put back to an earlier state, or taken away, and
directories are copied or renamed.
"""

from __future__ import annotations

import shutil
from uuid import UUID

from broker.topic import KEEP_EVERYTHING, METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records import decode_all
from tests.broker.client import Client
from tests.broker.conftest import World, fetch_request

METADATA = f"{METADATA_TOPIC}-0"


async def delete(client: Client, name: str) -> int:
    topic = DeleteTopicsRequest.DeleteTopicState(name=name)
    answer = await client.ask(DeleteTopicsRequest(topics=[topic]), 6)
    code: int = answer.responses[0].error_code
    return code


async def fetch_by_id(client: Client, topic_id: UUID) -> list[bytes | None]:
    answer = await client.ask(fetch_request([(topic_id, 0, 0)]), 13)
    found = answer.responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return [record.value for record in decode_all(found.records or b"")]


async def test_a_copy_under_another_name_has_an_id_of_its_own(world: World) -> None:
    """Who asked by id was given the records of whichever was adopted last, and a deletion ended in a bug."""
    world.topic("orders")
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"old")), "orders")
    await world.stop()
    shutil.copytree(world.directory / "orders-0", world.directory / "orders-bak-0")
    shutil.rmtree(world.directory / METADATA)
    await world.start()
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"new")), "orders")
    await world.restart()
    client = await world.connect()
    topics = {topic.name: topic for topic in world.broker.topics.all()}
    assert dict(topics["orders-bak"].overrides) == KEEP_EVERYTHING
    assert await fetch_by_id(client, topics["orders"].topic_id) == [b"old", b"new"]
    assert await fetch_by_id(client, topics["orders-bak"].topic_id) == [b"old"]
    assert [await delete(client, name) for name in ("orders-bak", "orders")] == [ErrorCode.NONE] * 2


async def test_topics_that_could_not_have_been_made_beside_each_other_can_be_deleted(world: World) -> None:
    """The second of the two was deleted by half, with a bug for an answer."""
    world.topic("a.b")
    world.topic("other")
    await world.stop()
    (world.directory / "other-0").rename(world.directory / "a_b-0")
    shutil.rmtree(world.directory / METADATA)
    await world.start()
    client = await world.connect()
    assert [await delete(client, name) for name in ("a.b", "a_b")] == [ErrorCode.NONE] * 2
    assert world.broker.metrics_state.internal_errors == 0
    assert not [path for path in world.directory.iterdir() if path.name in ("a.b-0", "a_b-0")]
