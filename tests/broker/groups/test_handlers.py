"""Goal: every version of the group and offset APIs says in its own words what the coordinator decided.
Method: requests are encoded, decoded, handled, and the response encoded and decoded again, each version."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from broker.api import Later, apis
from broker.context import Listener, RequestContext
from broker.groups.state import GroupState
from broker.handlers import group_offsets, groups
from broker.topic import OFFSETS_TOPIC
from protocol.codegen import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.framing import decode_response
from protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from tests.broker.groups.world import RANGE, ROWS_0, ROWS_1, World, settle

LISTENER = Listener("PLAINTEXT", "0.0.0.0", 9092, "kompakt.example", 19092)
HANDLERS = (groups, group_offsets)


def start(world: World, request: Any, version: int) -> Any:
    """Send a request as a client would; the answer may still be to come."""
    (api,) = [api for api in apis.values() if api.request is type(request)]
    assert api.min_version <= version <= api.max_version
    wire = b"".join(encode(request, version))
    context = RequestContext(api.key, version, 1, "client", LISTENER, "10.0.0.9")
    return api.handler(world, context, decode(api.request, version, wire))


def read(answer: Any, version: int) -> Any:
    """What the client gets to read of an answer that is there."""
    if isinstance(answer, Later):
        assert all(wait.done() for wait in answer.waits)
        answer = answer.finish()
    return decode(type(answer), version, b"".join(bytes(part) for part in encode(answer, version)))


def ask(world: World, request: Any, version: int) -> Any:
    return read(start(world, request, version), version)


def join_request(version: int, member_id: str = "", **changes: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in RANGE]
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000 if version >= 1 else -1,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
        **changes,
    )


def joined(world: World, version: int) -> Any:
    """A group of one, formed by JoinGroup in this version."""
    answer = start(world, join_request(version), version)
    if version >= 4:
        assigned = read(answer, version)
        assert assigned.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert assigned.generation_id == -1
        assert assigned.protocol_name == ("" if version < 7 else None)
        answer = start(world, join_request(version, assigned.member_id), version)
    world.clock.advance(100)
    return read(answer, version)


@pytest.mark.parametrize("version", range(10))
async def test_t185_join_in_every_version(version: int) -> None:
    world = World()
    response = joined(world, version)
    assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
    assert response.leader == response.member_id
    assert [(member.member_id, bytes(member.metadata)) for member in response.members] == [
        (response.member_id, RANGE[0][1])
    ]
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    (member,) = world.group().members.values()
    assert member.rebalance_timeout_ms == (20_000 if version else 10_000)
    assert member.client_host == "/10.0.0.9"
    refusal = ask(world, join_request(version, "nobody"), version)
    assert refusal.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal.member_id == "nobody"


@pytest.mark.parametrize("version", range(6))
async def test_sync_in_every_version(version: int) -> None:
    world = World()
    member = joined(world, 9)
    given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"rows 0")
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member.member_id, assignments=[given])
    if version >= 5:
        assert ask(world, request, version).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        request.protocol_type, request.protocol_name = "consumer", "range"
    answer = start(world, request, version)
    await settle()
    response = read(answer, version)
    assert (response.error_code, bytes(response.assignment)) == (0, b"rows 0")
    assert response.protocol_name == ("range" if version >= 5 else None)
    again = ask(world, request, version)
    assert bytes(again.assignment) == b"rows 0"
    request.generation_id = 5
    assert ask(world, request, version).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(5))
async def test_t189_heartbeat_in_every_version(version: int) -> None:
    world = World()
    (leader,) = await world.form(None)

    def beat(**changes: Any) -> int:
        fields = {"group_id": "g", "generation_id": 1, "member_id": leader.member_id, **changes}
        code: int = ask(world, HeartbeatRequest(**fields), version).error_code
        return code

    assert beat() == ErrorCode.NONE
    assert beat(generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert beat(group_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
    world.joining()
    assert beat() == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", range(6))
async def test_leave_in_every_version(version: int) -> None:
    world = World()
    (leader,) = await world.form(None)
    if version < 3:
        assert ask(world, LeaveGroupRequest(group_id="x", member_id="m"), version).error_code == 25
        assert ask(world, LeaveGroupRequest(group_id="g", member_id="m"), version).error_code == 25
        request = LeaveGroupRequest(group_id="g", member_id=leader.member_id)
        assert ask(world, request, version).error_code == 0
    else:
        identity = LeaveGroupRequest.MemberIdentity
        members = [identity(member_id="m"), identity(member_id=leader.member_id)]
        response = ask(world, LeaveGroupRequest(group_id="x", members=members), version)
        assert (response.error_code, [member.error_code for member in response.members]) == (0, [25, 25])
        response = ask(world, LeaveGroupRequest(group_id="g", members=members), version)
        assert [(member.member_id, member.error_code) for member in response.members] == [
            ("m", 25),
            (leader.member_id, 0),
        ]
    assert world.state() is GroupState.EMPTY


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator_in_every_version(version: int) -> None:
    world = World()
    here = (1, "kompakt.example", 19092)
    request = FindCoordinatorRequest()
    request.key, request.coordinator_keys = ("g", []) if version < 4 else ("", ["g", "h"])
    response = ask(world, request, version)
    if version < 4:
        assert (response.node_id, response.host, response.port) == here
    else:
        assert [(c.key, (c.node_id, c.host, c.port)) for c in response.coordinators] == [
            ("g", here),
            ("h", here),
        ]
    if version >= 4:
        share = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"])
        (coordinator,) = ask(world, share, version).coordinators
        assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.INVALID_REQUEST, -1)


async def test_t199_the_first_search_for_a_coordinator_creates_the_offsets_topic() -> None:
    world = World()
    del world.topics.created[OFFSETS_TOPIC]
    answers = [start(world, FindCoordinatorRequest(key="g"), 0) for _ in range(2)]
    for response in await asyncio.gather(*answers):
        assert read(response, 0).error_code == 0
    assert world.topics.created[OFFSETS_TOPIC].partition_count == 3
    assert ask(world, FindCoordinatorRequest(key="g"), 0).error_code == 0


async def test_no_coordinator_while_the_offsets_topic_cannot_be_made() -> None:
    world = World()
    del world.topics.created[OFFSETS_TOPIC]
    world.topics.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "disk full")
    response = read(await start(world, FindCoordinatorRequest(coordinator_keys=["g"]), 4), 4)
    assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(7))
async def test_describe_in_every_version(version: int) -> None:
    world = World()
    (leader,) = await world.form("a")
    group, absent = ask(world, DescribeGroupsRequest(groups=["g", "x"]), version).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id) == (leader.member_id, "client")
    assert bytes(member.member_assignment) == leader.member_id.encode()
    assert bytes(member.member_metadata) == RANGE[0][1]
    assert member.group_instance_id == ("a" if version >= 4 else None)
    assert absent.group_state == "Dead"
    assert absent.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    world.joining()
    (group,) = ask(world, DescribeGroupsRequest(groups=["g"]), version).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert bytes(group.members[0].member_metadata) == b""
    assert bytes(group.members[0].member_assignment) == leader.member_id.encode()


@pytest.mark.parametrize("version", range(3, 7))
async def test_describe_tells_what_may_be_done_if_asked(version: int) -> None:
    world = World()
    await world.form("a")
    for is_asked, found, missing in ((False, -(1 << 31), -(1 << 31)), (True, 3400, 3400)):
        request = DescribeGroupsRequest(groups=["g", "x"], include_authorized_operations=is_asked)
        group, absent = ask(world, request, version).groups
        assert group.authorized_operations == found
        assert absent.authorized_operations == (missing if version < 6 else -(1 << 31))


@pytest.mark.parametrize("version", range(6))
async def test_list_in_every_version(version: int) -> None:
    world = World()
    await world.form(None)
    world.commit({ROWS_0: 1}, group_id="simple")
    request = ListGroupsRequest()
    if version >= 4:
        request.states_filter = ["STABLE"]
    listed = ask(world, request, version).groups
    assert (listed[0].group_id, listed[0].protocol_type) == ("g", "consumer")
    assert len(listed) == (1 if version >= 4 else 2)
    assert listed[0].group_state == ("Stable" if version >= 4 else "")
    if version >= 5:
        assert listed[0].group_type == "classic"
        assert ask(world, ListGroupsRequest(types_filter=["consumer"]), version).groups == []


@pytest.mark.parametrize("version", range(3))
async def test_t197_delete_in_every_version(version: int) -> None:
    world = World()
    await world.form(None)
    world.commit({ROWS_0: 1}, group_id="simple")
    world.hold_flushes()
    answer = start(world, DeleteGroupsRequest(groups_names=["g", "simple", "x"]), version)
    assert isinstance(answer, Later)
    await world.flush()
    results = {result.group_id: result.error_code for result in read(answer, version).results}
    assert results == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "x": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def commit_request(offset: int, **fields: Any) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3, committed_metadata="m"
    )
    topics = [topic(name="rows", partitions=[partition]), topic(name="absent", partitions=[partition])]
    return OffsetCommitRequest(group_id="g", topics=topics, **fields)


def codes(response: Any) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", range(2, 10))
async def test_t191_commit_in_every_version(version: int) -> None:
    world = World()
    response = ask(world, commit_request(5), version)
    assert [topic.name for topic in response.topics] == ["rows", "absent"]
    assert codes(response) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    stored = world.groups.fetch_offsets("g")[ROWS_0]
    assert (stored.offset, stored.metadata) == (5, "m")
    assert stored.leader_epoch == (3 if version >= 6 else -1)
    wrong = commit_request(6, generation_id_or_member_epoch=4, member_id="m")
    expected = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(ask(world, wrong, version)) == expected


async def test_a_group_without_a_name_can_be_looked_at() -> None:
    """Old clients commit without one."""
    world = World()
    (group,) = ask(world, DescribeGroupsRequest(groups=[""]), 5).groups
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Dead")
    request = commit_request(5)
    request.group_id = ""
    assert codes(ask(world, request, 8))[0] == ErrorCode.NONE
    (group,) = ask(world, DescribeGroupsRequest(groups=[""]), 5).groups
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Empty")


async def test_a_commit_is_answered_after_its_flush() -> None:
    world = World()
    world.hold_flushes()
    answer = start(world, commit_request(5), 8)
    assert isinstance(answer, Later)
    await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert codes(read(answer, 8))[0] == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(1, 8))
async def test_t194_fetch_of_one_group_in_every_version(version: int) -> None:
    world = World()
    world.commit({ROWS_0: 5}, metadata="m")
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    asked = [topic(name="rows", partition_indexes=[0, 1]), topic(name="absent", partition_indexes=[7])]
    response = ask(world, OffsetFetchRequest(group_id="g", topics=asked), version)
    found = {
        (topic.name, partition.partition_index): (partition.committed_offset, partition.metadata)
        for topic in response.topics
        for partition in topic.partitions
    }
    assert found == {("rows", 0): (5, "m"), ("rows", 1): (-1, ""), ("absent", 7): (-1, "")}
    if version >= 2:
        everything = ask(world, OffsetFetchRequest(group_id="g", topics=None), version)
        assert [topic.name for topic in everything.topics] == ["rows"]
        assert ask(world, OffsetFetchRequest(group_id="g", topics=[]), version).topics == []
    await world.groups.stop()
    refusal = ask(world, OffsetFetchRequest(group_id="g", topics=asked), version)
    if version >= 2:
        assert refusal.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        assert codes(refusal) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3


@pytest.mark.parametrize("version", [8, 9])
async def test_t194_fetch_of_several_groups(version: int) -> None:
    world = World()
    world.commit({ROWS_0: 5})
    world.commit({ROWS_0: 6}, group_id="other")
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics(name="rows", partition_indexes=[0, 1])
    asked = [
        group(group_id="g", topics=[topic]),
        group(group_id="other", topics=None),
        group(group_id="nobody", topics=[topic]),
    ]
    response = ask(world, OffsetFetchRequest(groups=asked, require_stable=True), version)
    found = {
        group.group_id: [
            partition.committed_offset for topic in group.topics for partition in topic.partitions
        ]
        for group in response.groups
    }
    assert found == {"g": [5, -1], "other": [6], "nobody": [-1, -1]}
    await world.groups.stop()
    response = ask(world, OffsetFetchRequest(groups=asked), version)
    assert {group.error_code for group in response.groups} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_t194_what_many_groups_committed_is_told_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was when it was asked for; the loop goes on meanwhile, and may change all of it."""
    world = World()
    world.commit({ROWS_0: 5}, metadata="m")
    world.commit({ROWS_0: 6}, group_id="other")
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics(name="rows", partition_indexes=[0, 1])
    asked = [group(group_id="g", topics=None), group(group_id="other", topics=[topic]), group(group_id="x")]
    request = OffsetFetchRequest(groups=asked)
    expected = ask(world, request, 8)
    monkeypatch.setattr(group_offsets, "COMMITS_AT_ONCE", 5)
    work: list[Callable[[], bytearray]] = []
    monkeypatch.setattr(world, "run_blocking", lambda *call: work.append(functools.partial(*call)))
    start(world, request, 8)
    world.commit({ROWS_0: 7, ROWS_1: 8})
    world.groups.delete_group("other")
    (encoded,) = [job() for job in work]
    assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4
    assert decode_response(OffsetFetchResponse, 8, bytes(encoded[4:])) == (1, expected)
    assert ask(world, OffsetFetchRequest(groups=asked[:1]), 8) != expected


async def test_t197_offset_delete() -> None:
    world = World()
    world.commit({ROWS_0: 5})
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition(partition_index=0)
    topics = [topic(name="rows", partitions=[partition]), topic(name="absent", partitions=[partition])]
    response = ask(world, OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert codes(response) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.committed() == {}
    response = ask(world, OffsetDeleteRequest(group_id="x", topics=topics), 0)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    response = ask(world, OffsetDeleteRequest(group_id="", topics=topics), 0)
    assert response.error_code == ErrorCode.INVALID_GROUP_ID
