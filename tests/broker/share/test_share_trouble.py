"""Goal: what goes wrong between two steps of a share group costs nobody a record, and nobody waits for ever.

Method: as in `test_share_groups.py`, with an event put where it hurts most.
"""

from __future__ import annotations


import pytest

from broker.share.partition import ShareKey
from protocol.errors import ErrorCode
from tests.broker.client import Client
from tests.broker.conftest import World
from tests.broker.share.test_share_groups import (
    Member,
    client,
    produce,
)

__all__ = ["client"]


@pytest.mark.parametrize("trouble", ["loading", "unreadable", "closed", "offline"])
async def test_a_member_is_told_of_nothing_that_ends_it(world: World, client: Client, trouble: str) -> None:
    """KafkaShareConsumer throws IllegalStateException where it finds an error that it does not expect."""
    await produce(world, client, b"a")
    m = await Member.join(world)
    topic = world.broker.shares._topic
    place = topic.place_of(ShareKey("g", m.topic_id, 0).state_id)
    if trouble == "closed":
        topic.close()
    elif trouble == "offline":
        world.broker.partitions[place].log.offline_reason = "the disk is gone"
    else:
        (topic._loading if trouble == "loading" else topic._unreadable).add(place.partition)
    with pytest.raises(AssertionError, match=f"error_code={ErrorCode.NOT_LEADER_OR_FOLLOWER:d},"):
        await m.fetch()
    topic._is_closed = False
    topic._loading.clear()
    topic._unreadable.clear()
    world.broker.partitions[place].log.offline_reason = None
    assert (await m.fetch())[1] == [b"a"]
