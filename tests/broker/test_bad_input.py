"""Goal: whatever a client sends, it gets the protocol's own error or a closed connection with one log line;
nobody else loses a record or waits, and nothing of an announced size is allocated.

Method: one real broker process; every test attacks it on connections of its own while a neighbour produces
and reads back on another. At the end the neighbours' records are compared from the first to the last, the
process is stopped, its log may hold nothing but the lines that the tests asked for, and `storage.verify`
looks at its files.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest

import broker.handlers  # noqa: F401  # every handler is registered
from broker.api import apis
from protocol.codegen import decode, encode
from protocol.errors import ErrorCode, MalformedFrame
from protocol.framing import encode_request
from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from protocol.messages.topics import CreateTopicsRequest
from protocol.records import encode_batch
from protocol.schema import registry, schema_of
from tests.protocol.messages import filled
from tests.siege import (
    MIB,
    PLAIN,
    PRODUCE_VERSION,
    SLACK_BYTES,
    Neighbour,
    Siege,
    fetch_request,
    produce_request,
)

GOOD = encode_batch([(1, b"k", b"v", ())])
LARGE = encode_batch([(1, b"k", bytes(1000 * 1000), ())])
ALL_APIS = [api.name for api in apis.values()]


def frame(request: Any, version: int) -> bytes:
    """A whole frame without its length."""
    return b"".join(encode_request(request, version, 1, "attacker"))[4:]


def with_length(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, *, is_flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 1, 8) + b"attacker" + (b"\0" if is_flexible else b"")


async def is_refused(siege: Siege, data: bytes, *reasons: str) -> None:
    """The broker closes the connection on which `data` comes, and says why in one line."""
    client = await siege.connect()
    client.send_bytes(data)
    assert await client.is_closed_by_peer()
    await siege.explains(client, *reasons)


# Frames


BAD_FRAMES = [
    (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
    (b"\x80\x00\x00\x00", "a frame of -2147483648 bytes"),
    (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
    (b"\0\0\0\0", "a frame of 0 bytes"),
    (b"\0\0\0\x07", "a frame of 7 bytes"),
    (b"\x06\x40\x00\x01\0\0", "a frame of 104857601 bytes"),
    (b"\x06\x40\x00\x00\0\x03", "Metadata: a frame of 104857600 bytes; 8 to 8388608"),
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no API: a frame of 1195725856 bytes"),
    (b"POST /topics HTTP/1.1\r\n\r\n", "It speaks HTTP, and this port Kafka's protocol"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a frame of 369295618 bytes"),
    (b"\x16\x03\x03\x00\x31\x01", "It speaks TLS, this listener does not"),
    (with_length(header(999, 0)), "API 999 v0 is not served"),
    (with_length(header(-1, 0)), "API -1 v0 is not served"),
    (with_length(header(4, 0)), "API 4 v0 is not served"),
    (with_length(struct.pack(">hhih", 3, 9, 1, -2)), "Metadata: v9: a client id of -2 bytes"),
    (with_length(struct.pack(">hhih", 3, 9, 1, 32767)), "Metadata: v9: a request header ends too early"),
    (
        with_length(struct.pack(">hhih", 3, 9, 1, 2) + b"\xff\xfe\0"),
        "Metadata: v9: MetadataRequest v9 ends too early",
    ),
    (with_length(struct.pack(">hhi", 3, 9, 1)), "Metadata: v9: a request header ends too early"),
    (with_length(header(3, 9) + b"\xff\xff\xff\xff\xff\xff"), "Metadata: v9: a varint is longer"),
    (with_length(header(3, 9) + b"\xff\xff\xff\xff\x07"), "Metadata: v9: 2147483647 tagged fields"),
]


@pytest.mark.parametrize(("data", "reason"), BAD_FRAMES, ids=[reason for _, reason in BAD_FRAMES])
async def test_frames_that_are_none(siege: Siege, neighbour: Neighbour, data: bytes, reason: str) -> None:
    """G27."""
    with siege.takes_at_most(SLACK_BYTES):
        await is_refused(siege, data, reason)


@pytest.mark.parametrize("name", ALL_APIS)
async def test_bodies_cut_off_or_filled_with_ones(siege: Siege, neighbour: Neighbour, name: str) -> None:
    api = next(api for api in apis.values() if api.name == name)
    for version in {api.min_version, api.max_version}:
        start = len(frame(api.request(), version)) - len(b"".join(encode(api.request(), version)))
        whole = frame(filled(api.request, version, 1), version)
        for body in (whole[:start] + b"\xff" * 100, whole[:start], whole[: max(start, len(whole) - 1)]):
            with contextlib.suppress(MalformedFrame):
                decode(api.request, version, body, start)
                continue  # a request without a body
            await is_refused(siege, with_length(body), f"(client attacker): {name}: v{version}: ")


@pytest.mark.parametrize("name", [name for name in ALL_APIS if name != "ApiVersions"])
async def test_unknown_versions(siege: Siege, neighbour: Neighbour, name: str) -> None:
    api = next(api for api in apis.values() if api.name == name)
    for version in (-1, api.max_version + 1, 0x7FFF):
        await is_refused(siege, with_length(header(api.key, version)), f"{name}: v{version} is not served")


async def test_g1_an_unknown_version_of_api_versions_is_answered(siege: Siege, neighbour: Neighbour) -> None:
    client = await siege.connect()
    for version in (-1, 5, 0x7FFF):
        client.send_bytes(with_length(header(18, version)))
        correlation_id, answer = await client.receive(apis[18].response, 0)
        assert (correlation_id, answer.error_code) == (1, ErrorCode.UNSUPPORTED_VERSION)
    assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0


ARRAYS = [
    (0, 3, b"\xff\xff\xff\xff\0\0\0\x01", "topic_data"),
    (0, 9, b"\0\xff\xff\0\0\0\x01", "topic_data"),
    (1, 4, b"\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0", "topics"),
    (1, 12, b"\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "topics"),
    (2, 1, b"\xff\xff\xff\xff", "topics"),
    (3, 1, b"", "topics"),
    (3, 9, b"", "topics"),
    (8, 2, b"\0\1g\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "topics"),
    (9, 8, b"", "groups"),
    (11, 5, b"\0\1g\0\0\0\0\0\0\0\0\0\0\xff\xff\0\0", "protocols"),
    (14, 3, b"\0\1g\0\0\0\0\0\0\xff\xff", "assignments"),
    (19, 2, b"", "topics"),
    (20, 1, b"", "topic_names"),
    (32, 1, b"", "resources"),
]


@pytest.mark.parametrize(
    ("key", "version", "before", "field"), ARRAYS, ids=[f"{apis[row[0]].name} v{row[1]}" for row in ARRAYS]
)
async def test_counts_that_the_frame_cannot_hold(
    siege: Siege, neighbour: Neighbour, key: int, version: int, before: bytes, field: str
) -> None:
    api = apis[key]
    is_flexible = version >= api.request.__schema__.flexible_header_from
    for count in (0x7FFFFFFF, 0x7FFFFFFE, 1 << 20):
        wire = varint(count + 1) if is_flexible else struct.pack(">i", count)
        body = header(key, version, is_flexible=is_flexible) + before + wire + b"\0" * 200
        with siege.takes_at_most(SLACK_BYTES):
            await is_refused(siege, with_length(body), f"{api.name}: v{version}: {field} of", "elements in")


def varint(number: int) -> bytes:
    output = bytearray()
    while number > 127:
        output.append(number & 127 | 128)
        number >>= 7
    output.append(number)
    return bytes(output)


async def test_a_million_tiny_topics_are_not_even_looked_at(siege: Siege, neighbour: Neighbour) -> None:
    """Within the frame's limit, and yet a minute's work: the count is enough to refuse it."""
    body = header(3, 9, is_flexible=True) + varint(1_000_001) + b"\2a\0" * 1_000_000 + b"\0\0\0\0"
    with siege.takes_at_most(SLACK_BYTES):
        await is_refused(siege, with_length(body), "Metadata: v9: topics", "100000 are allowed")


async def test_tens_of_thousands_of_partitions_are_welcome(siege: Siege, neighbour: Neighbour) -> None:
    """What the largest honest clients ask passes the limits."""
    client = await siege.connect()
    count = 50_000
    topic = FetchRequest.FetchTopic
    partitions = [topic.FetchPartition(partition=index) for index in range(count)]
    answer = await client.ask(FetchRequest(topics=[topic(topic=PLAIN, partitions=partitions)]), 12)
    assert len(answer.responses[0].partitions) == count
    committed = OffsetCommitRequest.OffsetCommitRequestTopic
    offsets = [committed.OffsetCommitRequestPartition(partition_index=index) for index in range(count)]
    request = OffsetCommitRequest(group_id="large", topics=[committed(name=PLAIN, partitions=offsets)])
    answer = await client.ask(request, 8)
    assert len(answer.topics[0].partitions) == count
    named = [MetadataRequest.MetadataRequestTopic(name=f"absent-{index}") for index in range(count)]
    answer = await client.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False), 9)
    assert {found.error_code for found in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(answer.topics) == count


async def test_client_ids_do_not_write_the_log(siege: Siege, neighbour: Neighbour) -> None:
    """Neither a second line nor an endless one."""
    evil = "x\n2026-01-01 00:00:00,000 ERROR broker: forged 127.0.0.1:1 \x1b[31m" + "y" * 30_000
    client = await siege.connect(evil)
    client.send(MetadataRequest(topics=None), 1)
    await client.receive_frame()
    client.send_bytes(with_length(header(999, 0)))
    assert await client.is_closed_by_peer()
    await siege.explains(client, "API 999 v0", "x\\n2026-01-01")
    assert max(map(len, siege.process.log().splitlines())) < 3000


# Names, groups and metadata


@pytest.mark.parametrize(
    "topic", ["absent", "", ".", "..", "../neighbour", "a/b", "\0", "ü", "x" * 250, "\n"]
)
async def test_names_of_topics_that_cannot_be(siege: Siege, neighbour: Neighbour, topic: str) -> None:
    before = {path.name for path in siege.process.data.iterdir()}
    client = await siege.connect()
    answer = await client.ask(produce_request((topic, 0, GOOD)), PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic != "absent":
        created = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        for version in (2, 7):
            answer = await client.ask(CreateTopicsRequest(topics=[created]), version)
            assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        for version in (4, 9):
            asked = [MetadataRequest.MetadataRequestTopic(name=topic)]
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
            answer = await client.ask(request, version)
            assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert {path.name for path in siege.process.data.iterdir()} == before


@pytest.mark.parametrize("name", ["__consumer_offsets", "__kompakt_metadata"])
async def test_the_brokers_own_topics_are_not_written(siege: Siege, neighbour: Neighbour, name: str) -> None:
    """A forged record there could undo every topic."""
    client = await siege.connect()
    await client.ask(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), 4)
    forged = encode_batch([(1, b'{"name": "neighbour", "type": "topic"}', None, ())], now_ms=1)
    answer = await client.ask(produce_request((name, 0, forged)), PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_garbage_in_groups_is_kept_as_it_is(siege: Siege, neighbour: Neighbour) -> None:
    """Metadata and assignments are the clients' own bytes: nothing in them harms the broker."""
    noise = bytes(range(256)) * 4
    client = await siege.connect()
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    join = JoinGroupRequest(
        group_id="garbage\n\0",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol(name="\n", metadata=noise)],
    )
    answer = await client.ask(join, 9)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    join.member_id = member_id = answer.member_id
    answer = await client.ask(join, 9)
    assert (answer.error_code, answer.members[0].metadata) == (0, noise)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=noise[::-1])
    sync = SyncGroupRequest(
        group_id=join.group_id,
        generation_id=answer.generation_id,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="\n",
        assignments=[assignment],
    )
    assert (await client.ask(sync, 5)).assignment == noise[::-1]
    for version in (0, 5):
        described = await client.ask(DescribeGroupsRequest(groups=[join.group_id]), version)
        member = described.groups[0].members[0]
        assert (member.member_metadata, member.member_assignment) == (noise, noise[::-1])


async def test_names_need_not_be_text(siege: Siege, neighbour: Neighbour) -> None:
    """Programs call groups in Latin-1 and the like, and with Kafka it works; a topic that cannot have such a
    name is refused, and the others of the request are served.
    """
    client = await siege.connect()
    replaced = "caf\N{REPLACEMENT CHARACTER}"

    async def ask(request: Any, version: int) -> Any:
        client.send_bytes(with_length(frame(request, version).replace(b"caf?", b"caf\xe9")))
        return (await client.receive(registry[schema_of(request).key].response, version))[1]

    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="caf?"
    )
    request = OffsetCommitRequest(group_id="caf?", topics=[topic(name=PLAIN, partitions=[partition])])
    answer = await ask(request, 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    answer = await ask(OffsetFetchRequest(group_id="caf?", topics=None), 7)
    (found,) = answer.topics[0].partitions
    assert (found.committed_offset, found.metadata) == (1, replaced)
    created = CreateTopicsRequest.CreatableTopic(name="caf?", num_partitions=1, replication_factor=1)
    (refused,) = (await ask(CreateTopicsRequest(topics=[created]), 7)).topics
    assert (refused.name, refused.error_code) == (replaced, ErrorCode.INVALID_TOPIC_EXCEPTION)
    answer = await ask(produce_request(("caf?", 0, GOOD), (PLAIN, 0, GOOD)), PRODUCE_VERSION)
    codes = {one.name: one.partition_responses[0].error_code for one in answer.responses}
    assert codes == {replaced: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, PLAIN: ErrorCode.NONE}


async def test_long_names_that_are_no_text(siege: Siege, neighbour: Neighbour) -> None:
    """What stands for a byte that cannot be read takes three: the answer must have room for the name."""
    client = await siege.connect()
    name = "q" * 32_000
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name)
    metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
    for request, version in (
        (metadata, 4),
        (CreateTopicsRequest(topics=[topic]), 4),
        (DescribeConfigsRequest(resources=[resource]), 1),
        (DescribeGroupsRequest(groups=[name]), 0),
        (produce_request((name, 0, GOOD)), 7),
    ):
        sent = frame(request, version)
        client.send_bytes(with_length(sent.replace(name.encode(), b"\xe9" * len(name))))
        answered = await client.receive_frame()
        assert b"?" * len(name) in answered


LONG = "l" * 40_000
"""more than a string of the versions and records without varints can be"""


async def test_names_too_long_for_old_strings(siege: Siege, neighbour: Neighbour) -> None:
    """Flexible versions take strings of any length; what is stored or said elsewhere does not."""
    client = await siege.connect()
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=b"")
    fields: dict[str, Any] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    fields |= {"protocol_type": "consumer", "protocols": [protocol]}
    answer = await client.ask(JoinGroupRequest(group_id=LONG, **fields), 9)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    answer = await client.ask(JoinGroupRequest(group_id="long", group_instance_id=LONG, **fields), 9)
    assert answer.error_code != ErrorCode.NONE
    fields["protocol_type"] = LONG
    answer = await client.ask(JoinGroupRequest(group_id="long", **fields), 9)
    assert answer.error_code != ErrorCode.NONE
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(group_id=LONG, topics=[topic(name=PLAIN, partitions=[partition])])
    answer = await client.ask(request, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID
    request = OffsetCommitRequest(group_id="long", topics=[topic(name=LONG, partitions=[partition])])
    answer = await client.ask(request, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition.committed_metadata = LONG
    request = OffsetCommitRequest(group_id="long", topics=[topic(name=PLAIN, partitions=[partition])])
    answer = await client.ask(request, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE


async def test_messages_too_long_for_old_strings(siege: Siege, neighbour: Neighbour) -> None:
    """An error text that quotes a long name fits the answer all the same."""
    longest = "n" * 32_767
    client = await siege.connect()
    topic = CreateTopicsRequest.CreatableTopic
    created = topic(name=longest, num_partitions=1, replication_factor=1)
    answer = await client.ask(CreateTopicsRequest(topics=[created]), 4)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    config = topic.CreatableTopicConfig(name=longest, value=longest)
    created = topic(name="unmade", num_partitions=1, replication_factor=1, configs=[config])
    answer = await client.ask(CreateTopicsRequest(topics=[created]), 4)
    assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [
        resource(resource_type=kind, resource_name=longest, configuration_keys=None) for kind in (2, 4, 8, 99)
    ]
    answer = await client.ask(DescribeConfigsRequest(resources=asked), 1)
    assert all(result.error_code for result in answer.results)


async def test_a_small_question_has_no_giant_answer(siege: Siege, neighbour: Neighbour) -> None:
    """The same thing asked for a hundred thousand times is described once."""
    client = await siege.connect()
    resource = DescribeConfigsRequest.DescribeConfigsResource
    described = resource(resource_type=2, resource_name=PLAIN, configuration_keys=None)
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    questions = [
        (DescribeConfigsRequest(resources=[described] * 100_000), 4),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=PLAIN)] * 100_000), 9),
        (DescribeGroupsRequest(groups=["g"] * 100_000), 5),
        (OffsetFetchRequest(groups=[group] * 100_000), 8),
    ]
    with siege.takes_at_most(2 * SLACK_BYTES):
        for request, version in questions:
            client.send(request, version)
            assert len(await client.receive_frame()) < 2 * MIB, request.__class__


# Connections


async def test_connections_that_end_within_a_frame(siege: Siege, neighbour: Neighbour) -> None:
    wire = b"".join(
        encode_request(
            produce_request((PLAIN, 0, encode_batch([(1, b"k", bytes(200_000), ())]))), 9, 1, "attacker"
        )
    )
    assert len(wire) > 150_000
    for size in (1, 4, 6, 1000, len(wire) - 1):
        client = await siege.connect()
        client.send_bytes(wire[:size])
        client.writer.write_eof()
        assert await client.is_closed_by_peer()
        name = "Produce" if size >= 6 else "no API"
        await siege.explains(client, f"{name}: the client ended within a frame")


async def test_half_a_frame_and_silence(siege: Siege, neighbour: Neighbour) -> None:
    """Half-open connections hold what they sent and no more, however much they announce."""
    clients = []
    with siege.takes_at_most(SLACK_BYTES):
        for _ in range(100):
            client = await siege.connect()
            client.send_bytes(struct.pack(">ihhi", 100 * MIB, 0, 9, 1) + bytes(1000))
            clients.append(client)
        await neighbour.goes_on()
    for client in clients:
        client.writer.close()
    for client in clients:
        await siege.explains(client, "Produce: the client ended within a frame")


async def test_a_client_that_never_reads(siege: Siege, neighbour: Neighbour) -> None:
    """It is read from no more when its answers pile up: 200 fetches of 4 MiB do not take 800."""
    client = await siege.connect()
    for _ in range(4):
        answer = await client.ask(produce_request((PLAIN, 0, LARGE)), PRODUCE_VERSION)
        first = answer.responses[0].partition_responses[0].base_offset
    with siege.takes_at_most(3 * SLACK_BYTES):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            client.send(fetch_request(PLAIN, first - 3), 12)
        await neighbour.goes_on()
    client.writer.transport.abort()


async def test_many_waiting_fetches_on_one_connection(siege: Siege, neighbour: Neighbour) -> None:
    """All of them are satisfied by one produce: they do not all answer a megabyte at once."""
    waiting, client = await siege.connect(), await siege.connect()
    answer = await client.ask(produce_request((PLAIN, 0, GOOD)), PRODUCE_VERSION)
    end = answer.responses[0].partition_responses[0].base_offset + 1
    request = fetch_request(PLAIN, end, 50 * MIB)
    request.max_wait_ms = 30_000
    with siege.takes_at_most(3 * SLACK_BYTES):
        for _ in range(500):
            waiting.send(request, 12)
        await waiting.writer.drain()
        await neighbour.goes_on()
        await client.ask(produce_request((PLAIN, 0, LARGE)), PRODUCE_VERSION)
        for _ in range(500):
            assert len(await waiting.receive_frame()) > MIB / 2
