"""Goal: what a streams group (KIP-1071) needs of the rest of a broker goes well or is told in its own place.

Method: a broker in the loop, members on a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.groups.streams.topology import StatusCode
from protocol.errors import ErrorCode
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
)
from tests.broker.client import Client
from tests.broker.conftest import World

Topology = StreamsGroupHeartbeatRequest.Topology


async def member(world: World) -> Client:
    """A client that knows where its group is."""
    client = await world.connect()
    request = FindCoordinatorRequest(key="g", key_type=0)
    while (await client.ask(request, 2)).error_code != ErrorCode.NONE:
        pass
    return client


def joining(*changelogs: TopicInfo, **changes: Any) -> StreamsGroupHeartbeatRequest:
    nothing: dict[str, Sequence[Any]] = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), ())
    topology = Topology(
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=list(changelogs))
        ]
    )
    given = {"rebalance_timeout_ms": 1000, "process_id": "p", "topology": topology, **nothing, **changes}
    return StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, **given)


async def test_topics_that_are_too_many_to_be_made_together_are_told_with_what_is_missing(
    world: World,
) -> None:
    """The member is one, as in Kafka: a client takes another error for its end."""
    world.topic("t", 100)
    client = await member(world)
    answer = await client.ask(joining(*(TopicInfo(name=f"log{number}") for number in range(101))), 0)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 1)
    told = {status.status_code: status.status_detail for status in answer.status}
    assert told[StatusCode.MISSING_INTERNAL_TOPICS] == (
        "Internal topics are missing: log0, log1, log2 and 98 additional topics; Creation failed: "
        + ", ".join(
            f"log{number} (Excessively large number of partitions per request. 10000 in all are allowed.)"
            for number in range(3)
        )
        + " and 98 more."
    )
    assert world.broker.topics.get("log0") is None
