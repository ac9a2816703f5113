"""Right and wrong requests, each with a name: what is asked of two brokers to compare their answers.

`plain` (3 partitions, a few records in partition 0), `marked` (2), `compacted`, `stamped` (LogAppendTime),
`asks-for-two` (min.insync.replicas), `no-policy`, `both-policies`, `zipped` (zstd), `apart` exist; to
`apart` goes what only one of the two takes. Null in place of records is not asked: Kafka never answers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import crc32c
import lz4.frame

from protocol.batch import HEADER_BYTES, parse_header, seal_header
from protocol.compression import Codec
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.admin import AlterPartitionReassignmentsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from protocol.messages.metadata import DescribeTopicPartitionsRequest
from protocol.messages.offsets import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from protocol.messages.produce import ProduceRequest
from protocol.messages.quotas import DescribeClientQuotasRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from protocol.messages.transactions import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from protocol.messages.users import DescribeUserScramCredentialsRequest
from protocol.records import encode_batch
from tests.kafka.setting_questions import CONFIGS, TOPIC, Question, configs

NOW_MS = 1_700_000_000_000


def questions() -> Iterator[Question]:
    """All of them, in an order that must be kept: some change what the next find."""
    yield from list_offsets()
    yield from create_topics()
    yield from create_partitions()
    yield from configs()
    yield from described_topics()
    yield from produces()
    yield from zstd()
    yield from delete_records()
    yield from groups()
    yield from offsets_of_groups()
    yield from acls()
    yield from transactions()
    yield from users()
    yield from reassignments()


def reassignments() -> Iterator[Question]:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    for version, may_change in ((0, True), (1, True), (1, False)):
        for name, partition, replicas in (
            ("plain", 0, None), ("plain", 0, [1]), ("plain", 0, []), ("plain", 0, [1, 1]), ("plain", 0, [2]),
            ("plain", 0, [-1]), ("plain", 0, [1, 2]), ("plain", 9, [1]), ("plain", -1, None),
            ("none", 0, [1]), ("none", 0, None), ("", 0, [1]),
        ):  # fmt: skip
            part = topic.ReassignablePartition(partition_index=partition, replicas=replicas)
            request = AlterPartitionReassignmentsRequest(
                topics=[topic(name=name, partitions=[part])], allow_replication_factor_change=may_change
            )
            how = f"of {name}-{partition} to {replicas}, {may_change}"
            yield f"AlterPartitionReassignments {version} {how}", request, version


def list_offsets() -> Iterator[Question]:
    topic = ListOffsetsRequest.ListOffsetsTopic
    for name, partition, timestamp, epoch in (
        ("plain", 0, -1, -1), ("plain", 0, -2, -1), ("plain", 0, -3, -1), ("plain", 0, NOW_MS, -1),
        ("plain", 1, -1, -1), ("plain", 1, -3, -1), ("plain", 1, NOW_MS, -1), ("plain", 3, -1, -1),
        ("plain", -1, -1, -1), ("none", 0, -1, -1), ("plain", 0, -1, 0), ("plain", 0, -1, 7),
        ("plain", 0, -9, -1),        ("plain", 0, -4, -1), ("plain", 0, -5, -1), ("plain", 0, -6, -1),
    ):  # fmt: skip
        part = topic.ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[topic(name=name, partitions=[part])])
        for version in (1, 4, 7, 9, 11):
            if version >= 9 or timestamp > -4:
                yield (
                    f"ListOffsets {version} {name}-{partition} at {timestamp} epoch {epoch}",
                    request,
                    version,
                )
    part = topic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    twice = ListOffsetsRequest(replica_id=-1, topics=[topic(name="plain", partitions=[part, part])])
    yield "ListOffsets of one partition twice", twice, 7
    epoch_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    for asked, current, partition in ((0, -1, 0), (5, -1, 0), (-1, -1, 0), (0, 9, 0), (0, -1, 9)):
        one = epoch_topic.OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=asked
        )
        request = OffsetForLeaderEpochRequest(topics=[epoch_topic(topic="plain", partitions=[one])])
        yield f"OffsetForLeaderEpoch {asked} current {current} of {partition}", request, 4


def create_topics() -> Iterator[Question]:
    topic = CreateTopicsRequest.CreatableTopic
    assignment = topic.CreatableReplicaAssignment

    def asked(*topics: Any, validate_only: bool = False) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)

    def named(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> Any:
        given = [
            topic.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        return topic(name=name, num_partitions=partitions, replication_factor=replicas, configs=given)

    for name in (
        "",
        ".",
        "..",
        "a b",
        "a/b",
        "ä",
        "a" * 249,
        "a" * 250,
        "plain",
        "__consumer_offsets",
        "p_q",
    ):
        yield f"CreateTopics {name[:20]!r} of {len(name)}", asked(named(name)), 7
    yield "CreateTopics that collides", asked(named("p.q")), 7
    for partitions, replicas in ((0, 1), (-1, -1), (-2, 1), (1, 0), (1, 2), (1, -2)):
        request = asked(named(f"n{partitions}.{replicas}", partitions, replicas), validate_only=True)
        yield f"CreateTopics {partitions} partitions, {replicas} replicas", request, 7
    for key, value in CONFIGS:
        request = asked(named("configured", **{key: value}), validate_only=True)
        yield f"CreateTopics with {key}={value}", request, 7
    yield "CreateTopics twice in one", asked(named("twice"), named("twice")), 7
    yield "CreateTopics only validated, existing", asked(named("plain"), validate_only=True), 7
    for label, partitions, replicas, rows in (
        ("good", -1, -1, [(0, [1]), (1, [1])]), ("with a count", 2, -1, [(0, [1]), (1, [1])]),
        ("of another broker", -1, -1, [(0, [9])]), ("not from 0", -1, -1, [(1, [1])]),
        ("without replicas", -1, -1, [(0, [])]), ("of a broker twice", -1, -1, [(0, [1, 1])]),
    ):  # fmt: skip
        rows_given = [assignment(partition_index=index, broker_ids=list(ids)) for index, ids in rows]
        one = topic(
            name=f"assigned {label}".replace(" ", "-"),
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=rows_given,
        )
        yield f"CreateTopics assigned {label}", asked(one), 7
    deleted = DeleteTopicsRequest.DeleteTopicState
    for name in ("none", "", "twice"):
        yield f"DeleteTopics {name!r}", DeleteTopicsRequest(topics=[deleted(name=name)], timeout_ms=10_000), 6
    both = DeleteTopicsRequest(topics=[deleted(name="p_q"), deleted(name="p_q")], timeout_ms=10_000)
    yield "DeleteTopics twice in one", both, 6


def create_partitions() -> Iterator[Question]:
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    row = topic.CreatePartitionsAssignment
    for label, name, count, rows, validate_only in (
        ("of none", "none", 4, None, False), ("to as many", "plain", 3, None, False),
        ("to fewer", "plain", 2, None, False), ("to 0", "plain", 0, None, False),
        ("to -1", "plain", -1, None, False), ("to 5, only validated", "plain", 5, None, True),
        ("assigned", "plain", 4, [[1]], True), ("assigned too few", "plain", 5, [[1]], True),
        ("assigned to nobody", "plain", 4, [[9]], True), ("assigned with 2", "plain", 4, [[1, 2]], True),
    ):  # fmt: skip
        given = None if rows is None else [row(broker_ids=list(ids)) for ids in rows]
        one = topic(name=name, count=count, assignments=given)
        request = CreatePartitionsRequest(topics=[one], timeout_ms=10_000, validate_only=validate_only)
        yield f"CreatePartitions {label}", request, 3
    one = topic(name="plain", count=6)
    yield (
        "CreatePartitions twice in one",
        CreatePartitionsRequest(topics=[one, one], timeout_ms=10_000, validate_only=True),
        3,
    )


def sealed(batch: bytes, **changes: tuple[int, str, int]) -> bytes:
    """`batch` with other numbers at (position, format), its checksum right again."""
    changed = bytearray(batch)
    for position, layout, value in changes.values():
        struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c.crc32c(bytes(changed[21:])))
    return bytes(changed)


LARGE = [(NOW_MS, b"k", bytes(range(250)) * 800, ())]
LARGE_LZ4 = encode_batch(LARGE, codec=Codec.LZ4)


def lz4_sections() -> Iterator[tuple[str, bytes]]:
    """The records of LARGE as frames of other forms than Java writes."""
    plain = encode_batch(LARGE)[HEADER_BYTES:]
    whole = lz4.frame.compress(plain, block_linked=False)
    yield "of independent blocks", whole
    yield (
        "with all checksums",
        lz4.frame.compress(plain, block_linked=False, content_checksum=True, block_checksum=True),
    )
    yield "of one linked block", lz4.frame.compress(plain, block_size=7, block_linked=True)
    yield "of linked blocks", lz4.frame.compress(plain, block_linked=True)
    halves = plain[: len(plain) // 2], plain[len(plain) // 2 :]
    yield "in two frames", b"".join(lz4.frame.compress(half, block_linked=False) for half in halves)
    yield "behind an empty frame", lz4.frame.compress(b"") + whole
    yield "behind what readers skip", b"\x50\x2a\x4d\x18\x01\0\0\0x" + whole


def bad_batches() -> Iterator[tuple[str, str, bytes]]:
    """(label, topic, bytes): T144-T161."""
    items = [(NOW_MS, b"k", b"v", ()), (NOW_MS + 1, b"k2", b"v2", ())]
    good = encode_batch(items)
    keyless = encode_batch([items[0], (NOW_MS, None, b"v", ())])

    def of(
        sequence: int, epoch: int = 0, producer_id: int = 77, topic: str = "plain"
    ) -> tuple[str, str, bytes]:
        batch = encode_batch(items, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return f"producer {producer_id} epoch {epoch} sequence {sequence}", topic, batch

    yield "good", "plain", good
    yield "without a key", "compacted", keyless
    yield "without a key, compressed", "compacted", encode_batch([(NOW_MS, None, b"v", ())], codec=4)
    yield "wrong checksum", "plain", good[:-1] + b"\x7f"
    yield "cut", "plain", good[:-3]
    yield "only a head", "plain", good[:HEADER_BYTES]
    yield "a few bytes", "plain", good[:10]
    yield "nothing", "plain", b""
    yield "two batches", "plain", good + good
    yield "magic 1", "plain", good[:16] + b"\x01" + good[17:]
    yield "magic 3", "plain", good[:16] + b"\x03" + good[17:]
    yield "base offset 5", "plain", struct.pack(">q", 5) + good[8:]
    yield "record count 1", "plain", sealed(good, count=(57, ">i", 1))
    yield "record count 3", "plain", sealed(good, count=(57, ">i", 3))
    yield "record count 0", "plain", sealed(good, count=(57, ">i", 0))
    yield "record count -1", "plain", sealed(good, count=(57, ">i", -1))
    yield "last offset delta 0", "plain", sealed(good, delta=(23, ">i", 0))
    yield "last offset delta 5", "plain", sealed(good, delta=(23, ">i", 5))
    yield "last offset delta -1", "plain", sealed(good, delta=(23, ">i", -1))
    yield "codec 5", "plain", sealed(good, attributes=(21, ">h", 5))
    yield "codec 7", "plain", sealed(good, attributes=(21, ">h", 7))
    yield "said to be gzip", "plain", sealed(good, attributes=(21, ">h", 1))
    for label, section in lz4_sections():
        yield f"lz4 {label}", "apart", seal_header(parse_header(LARGE_LZ4), section) + section
    yield "LogAppendTime from a client", "apart", sealed(good, attributes=(21, ">h", 8))
    yield "control", "plain", encode_batch(items, is_control=True)
    yield "transactional without a producer", "plain", encode_batch(items, is_transactional=True)
    yield "horizon", "apart", sealed(good, attributes=(21, ">h", 64))
    yield "a wrong largest timestamp", "plain", sealed(good, largest=(35, ">q", 5))
    yield "a timestamp of tomorrow", "plain", encode_batch([(NOW_MS * 3, b"k", b"v", ())])
    yield "timestamp -1", "plain", encode_batch([(-1, b"k", b"v", ())])
    yield "timestamp -2", "plain", encode_batch([(-2, b"k", b"v", ())])
    yield "timestamp of tomorrow, stamped", "stamped", encode_batch([(NOW_MS * 3, b"k", b"v", ())])
    yield "with too few replicas", "asks-for-two", good
    yield "too large", "plain", encode_batch([(NOW_MS, b"k", b"v" * 1_100_000, ())])
    for sequence, epoch in (
        (0, 0),
        (0, 0),
        (2, 0),
        (0, 0),
        (5, 0),
        (3, 0),
        (1, 0),
        (0, 2),
        (2, 1),
        (5, 3),
        (0, 3),
    ):
        yield of(sequence, epoch)
    yield of(7, producer_id=78)
    yield "no sequence but a producer", "plain", encode_batch(items, producer_id=79, producer_epoch=0)
    yield of(0, epoch=-1, producer_id=80)
    yield "two batches of a producer", "plain", of(0, producer_id=81)[2] + of(2, producer_id=81)[2]
    yield "no such topic", "none", good


def produces() -> Iterator[Question]:
    data = ProduceRequest.TopicProduceData
    for label, topic, batch in bad_batches():
        part = data.PartitionProduceData(index=0, records=memoryview(batch))
        one = data(name=topic, partition_data=[part])
        yield f"Produce {label}", ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[one]), 9
    good = memoryview(encode_batch([(NOW_MS, b"k", b"v", ())]))
    for index, acks in ((9, -1), (-1, -1), (0, 2), (0, -2)):
        one = data(name="plain", partition_data=[data.PartitionProduceData(index=index, records=good)])
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[one])
        yield f"Produce to {index} with acks {acks}", request, 9


def zstd() -> Iterator[Question]:
    """Who may write and read it: clients that are older than it may not, and may (KIP-110)."""
    data = ProduceRequest.TopicProduceData
    batch = memoryview(encode_batch([(NOW_MS, b"k", b"v" * 100, ())], codec=Codec.ZSTD))
    topic = FetchRequest.FetchTopic
    wanted = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    for name in ("plain", "zipped"):
        one = data(name=name, partition_data=[data.PartitionProduceData(index=0, records=batch)])
        for version in (3, 6, 7, 9):
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[one])
            yield f"Produce zstd to {name} with v{version}", request, version
        asked = topic(topic=name, partitions=[wanted])
        for version in (4, 9, 10, 12):
            yield f"Fetch zstd of {name} with v{version}", FetchRequest(min_bytes=0, topics=[asked]), version


def described_topics() -> Iterator[Question]:
    named = DescribeTopicPartitionsRequest.TopicRequest
    for name in ("plain", "none", "no good", ""):
        yield (
            f"DescribeTopicPartitions {name!r}",
            DescribeTopicPartitionsRequest(topics=[named(name=name)]),
            0,
        )


def delete_records() -> Iterator[Question]:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    for name, partition, offset in (
        ("plain", 0, 1), ("plain", 0, 0), ("plain", 0, 10_000), ("plain", 0, -2), ("plain", 9, 0),
        ("none", 0, 0), ("compacted", 0, 0), ("plain", 1, -1), ("plain", 0, -1),
        ("no-policy", 0, 0), ("no-policy", 0, 1), ("both-policies", 0, 0),
    ):  # fmt: skip
        part = topic.DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[topic(name=name, partitions=[part])], timeout_ms=10_000)
        yield f"DeleteRecords {name}-{partition} before {offset}", request, 2


def groups() -> Iterator[Question]:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    for label, group, session, member, kind, protocols, version in (
        ("with an empty group", "", 10_000, "", "consumer", [protocol], 9),
        ("too short a session", "g", 1, "", "consumer", [protocol], 9),
        ("too long a session", "g", 100_000_000, "", "consumer", [protocol], 9),
        ("an unknown member", "g", 10_000, "nobody", "consumer", [protocol], 9),
        ("no protocols", "g", 10_000, "", "consumer", [], 9),
        ("no protocol type", "g", 10_000, "", "", [protocol], 9),
        ("a member id first", "g", 10_000, "", "consumer", [protocol], 4),
    ):
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type=kind,
            protocols=protocols,
        )
        yield f"JoinGroup {label}", request, version
    for group, member in (("g", "nobody"), ("none", "nobody"), ("", "nobody"), ("g", "")):
        heartbeat = HeartbeatRequest(group_id=group, generation_id=1, member_id=member)
        yield f"Heartbeat {group!r} {member!r}", heartbeat, 4
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
        )
        yield f"SyncGroup {group!r} {member!r}", sync, 5
        leaving = LeaveGroupRequest.MemberIdentity(member_id=member)
        yield f"LeaveGroup {group!r} {member!r}", LeaveGroupRequest(group_id=group, members=[leaving]), 5


def acls() -> Iterator[Question]:
    """Of brokers that both have no authorizer."""
    anything: dict[str, int] = {"operation": 1, "permission_type": 1, "resource_type_filter": 1}
    rule: dict[str, int] = {"operation": 3, "permission_type": 3, "resource_type": TOPIC}
    creation = CreateAclsRequest.AclCreation(
        resource_name="plain", principal="User:somebody", host="*", **rule
    )
    for version in (1, 3):
        described = DescribeAclsRequest(resource_name_filter=None, **anything)
        yield f"DescribeAcls v{version}", described, version
        yield f"CreateAcls v{version}", CreateAclsRequest(creations=[creation, creation]), version
        removed = DeleteAclsRequest.DeleteAclsFilter(resource_name_filter="plain", **anything)
        yield f"DeleteAcls v{version}", DeleteAclsRequest(filters=[removed, removed]), version


def transactions() -> Iterator[Question]:
    """Of partitions without any: who writes, and markers that end nothing."""
    topic = DescribeProducersRequest.TopicRequest

    def producers(name: str, *indexes: int) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=[topic(name=name, partition_indexes=list(indexes))])

    yield "DescribeProducers", producers("marked", 0, 1, 9), 0
    yield "DescribeProducers of no topic", producers("none", 0), 0
    for label, producer_id, epoch, coordinator_epoch, is_commit, name, index in (
        ("of nobody", 77, 3, 5, False, "marked", 0), ("of nobody, commit", 78, 0, 0, True, "marked", 1),
        ("of an older epoch", 77, 2, 5, False, "marked", 0), ("of a newer one", 77, 4, 5, False, "marked", 0),
        ("of a zombie", 77, 4, 4, False, "marked", 0), ("as tools do", 77, 4, -1, False, "marked", 0),
        ("on no topic", 77, 4, 5, False, "none", 0), ("on no partition", 77, 4, 5, False, "marked", 9),
    ):  # fmt: skip
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        wanted = marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=is_commit,
            coordinator_epoch=coordinator_epoch,
            topics=[marker.WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
        )
        yield f"WriteTxnMarkers {label}", WriteTxnMarkersRequest(markers=[wanted]), 1
        yield f"DescribeProducers after that {label}", producers("marked", 0, 1), 0
    for states in ([], ["Ongoing"], ["ongoing", "Nonsense", "Nonsense"]):
        yield f"ListTransactions {states}", ListTransactionsRequest(state_filters=states), 1
    for pattern in (None, "", ".*", "(", r"a(?=b)"):
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        yield f"ListTransactions like {pattern}", request, 2


def users() -> Iterator[Question]:
    """Nobody was ever set up."""
    name = DescribeUserScramCredentialsRequest.UserName
    for names in (None, [], ["alice"], ["alice", "alice"], [""]):
        wanted = None if names is None else [name(name=one) for one in names]
        yield (
            f"DescribeUserScramCredentials {names}",
            DescribeUserScramCredentialsRequest(users=wanted),
            0,
        )
    component = DescribeClientQuotasRequest.ComponentData
    for kinds in ((), ("user",), ("client-id", "user"), ("ip",), ("user", "user"), ("nonsense",), ("",)):
        for match_type, match in ((0, "alice"), (1, None), (2, None), (0, None), (2, "alice"), (7, None)):
            components = [component(entity_type=kind, match_type=match_type, match=match) for kind in kinds]
            request = DescribeClientQuotasRequest(components=components)
            yield f"DescribeClientQuotas {kinds} {match_type} {match}", request, 1


def offsets_of_groups() -> Iterator[Question]:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    for label, group, generation, member, name, partition, metadata in (
        ("without a member", "simple", -1, "", "plain", 0, ""),
        ("of an unknown member", "simple", 1, "nobody", "plain", 0, ""),
        ("of an unknown member, no topic", "simple", 1, "nobody", "none", 0, ""),
        ("of an unknown member, no partition", "simple", 1, "nobody", "plain", 9, ""),
        ("of a generation without a member", "simple", 1, "", "plain", 0, ""),
        ("of no topic", "simple", -1, "", "none", 0, ""),
        ("of no partition", "simple", -1, "", "plain", 9, ""),
        ("with much metadata", "simple", -1, "", "plain", 0, "x" * 5_000),
        ("with null metadata", "simple", -1, "", "plain", 0, None),
        ("of an empty group", "", -1, "", "plain", 0, ""),
    ):
        part = topic.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=3, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[topic(name=name, partitions=[part])],
        )
        yield f"OffsetCommit {label}", request, 8
    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    for label, group, topics in (
        ("of a group", "simple", [("plain", [0, 1, 9])]), ("of no group", "nobody", [("plain", [0])]),
        ("of no topic", "simple", [("none", [0])]), ("of all", "simple", None),
        ("of an empty group", "", None),
    ):  # fmt: skip
        given = (
            None
            if topics is None
            else [asked.OffsetFetchRequestTopics(name=name, partition_indexes=list(p)) for name, p in topics]
        )
        yield f"OffsetFetch {label}", OffsetFetchRequest(groups=[asked(group_id=group, topics=given)]), 8
