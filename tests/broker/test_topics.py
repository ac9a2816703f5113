"""Goal: topics are made, grown and deleted as clients ask, and are the same after a restart.

Method: a broker in the loop; CreateTopics, DeleteTopics and CreatePartitions are asked over a connection,
the registry and the directories looked at, the broker stopped and started in between.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.topics import MAX_NEW_PARTITIONS
from broker.metadata_log import read_state
from broker.topic import CLUSTER_METADATA_TOPIC, KEEP_EVERYTHING, METADATA_TOPIC
from broker.topics import METADATA_PARTITION, TOPIC
from cleaner.cleaner import CleaningAborted
from cleaner.states import Phase
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchResponse
from protocol.messages.produce import ProduceResponse
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from storage.deleted import DeletedDirectories
from storage.file import Disk
from storage.layout import TopicPartition, is_deleted_directory
from storage.log import Log
from storage.manager import LogManager
from storage.opening import open_log
from tests.broker.client import Client, until
from tests.broker.conftest import World, fetch_request, produce_request
from tests.broker.test_produce import HeldFlushes

MakeWorld = Callable[..., Awaitable[World]]
Creatable = CreateTopicsRequest.CreatableTopic
Setting = Creatable.CreatableTopicConfig
Assignment = Creatable.CreatableReplicaAssignment
Result = CreateTopicsResponse.CreatableTopicResult
Growable = CreatePartitionsRequest.CreatePartitionsTopic


def new(name: str, partitions: int = 1, factor: int = 1, **settings: str | None) -> Creatable:
    configs = [Setting(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return Creatable(name=name, num_partitions=partitions, replication_factor=factor, configs=configs)


def assigned(partitions: int, factor: int, brokers: dict[int, int]) -> Creatable:
    """A topic "t" with a broker chosen for each partition by hand."""
    assignments = [Assignment(partition_index=index, broker_ids=[node]) for index, node in brokers.items()]
    return Creatable(name="t", num_partitions=partitions, replication_factor=factor, assignments=assignments)


async def create(
    client: Client, *topics: Creatable, version: int = 7, validate_only: bool = False
) -> list[Result]:
    answer = await client.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version)
    results: list[Result] = answer.topics
    return results


@pytest.mark.parametrize("version", range(2, 8))
async def test_s17_partitions_are_directories(world: World, version: int) -> None:
    """S17, S25: three partitions are three logs in three directories."""
    client = await world.connect()
    (result,) = await create(client, new("payments", 3), version=version)
    assert (result.error_code, result.error_message) == (0, None)
    assert sorted(path.name for path in world.directory.glob("payments-*")) == [
        "payments-0", "payments-1", "payments-2",
    ]  # fmt: skip
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs is not None
        assert {entry.name: entry.value for entry in result.configs}["cleanup.policy"] == "delete"
    if version >= 7:
        assert world.broker.topics.by_id(result.topic_id) is world.broker.topics.get("payments")


async def test_defaults_are_the_brokers(make_world: MakeWorld) -> None:
    world = await make_world(num_partitions="4")
    client = await world.connect()
    (result,) = await create(client, new("t", -1, -1, cleanup_policy="compact"))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)
    topic = world.broker.topics.get("t")
    assert topic is not None
    assert topic.config.is_compacted


async def test_validate_only_makes_nothing(world: World) -> None:
    client = await world.connect()
    good, bad = await create(client, new("t", 2), new("u", 0), validate_only=True)
    assert (good.error_code, good.num_partitions) == (0, 2)
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert world.broker.topics.get("t") is None
    assert not list(world.directory.glob("t-*"))


REFUSED: list[tuple[Creatable, ErrorCode]] = [
    (new("old"), ErrorCode.TOPIC_ALREADY_EXISTS),
    (new("o.ld_"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new("sp ace"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (new("t", 0), ErrorCode.INVALID_PARTITIONS),
    (new("t", -2), ErrorCode.INVALID_PARTITIONS),
    (new("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (new("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
    (new("t", no_such_key="1"), ErrorCode.INVALID_CONFIG),
    (new("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
    (new("t", segment_bytes="1000"), ErrorCode.INVALID_CONFIG),
    (new("t", min_compaction_lag_ms="2", max_compaction_lag_ms="1"), ErrorCode.INVALID_CONFIG),
    (assigned(1, -1, {0: 1}), ErrorCode.INVALID_REQUEST),
    (assigned(-1, 1, {0: 1}), ErrorCode.INVALID_REQUEST),
    (assigned(-1, -1, {0: 2}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned(-1, -1, {1: 1}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
]  # fmt: skip


@pytest.mark.parametrize(("topic", "code"), REFUSED, ids=[f"{number}" for number in range(len(REFUSED))])
async def test_refused(world: World, topic: Creatable, code: ErrorCode) -> None:
    world.topic("old")
    world.topic("o_ld.")
    client = await world.connect()
    refused, fine = await create(client, topic, new("fine"))
    assert refused.error_code == code
    assert refused.error_message
    assert fine.error_code == 0


WORST: list[tuple[Creatable, str]] = [
    (new("t", 0, 0, no_such_key="1"), "Unknown topic config name: no.such.key"),
    (
        new("t", 0, retention_ms=None, segment_ms=None),
        "Null value not supported for topic configs: retention.ms,segment.ms",
    ),
    (new("t", 0, 0), "Replication factor must be larger than 0"),
    (new("t", 0, 3), "Number of partitions was set to an invalid non-positive value."),
    (assigned(1, 1, {0: 1}), "A manual partition assignment was specified, but replication factor"),
    (
        Creatable(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[Assignment(partition_index=0, broker_ids=[1])] * 2,
        ),
        "Found multiple manual partition assignments for partition 0",
    ),
]


@pytest.mark.parametrize(("topic", "words"), WORST, ids=[f"{number}" for number in range(len(WORST))])
async def test_of_several_mistakes_the_one_is_named_that_kafka_names(
    world: World, topic: Creatable, words: str
) -> None:
    client = await world.connect()
    (refused,) = await create(client, topic)
    assert refused.error_message is not None
    assert refused.error_message.startswith(words)


@pytest.mark.parametrize("last", [new("u", 1), new("u", -1), assigned(-1, -1, {0: 1}), new("..", 1)])
async def test_so_many_partitions_by_one_request(world: World, last: Creatable) -> None:
    """Kafka's limit, which it looks at before anything else; what cannot be a number counts for nothing."""
    client = await world.connect()
    most = [new("a", MAX_NEW_PARTITIONS - 1), new("none", -3), new("least", -(2**31)), last]
    within = await create(client, *most, validate_only=True)
    assert ErrorCode.POLICY_VIOLATION not in {result.error_code for result in within}
    beyond = await create(client, *most, new("b", 1))
    assert [(result.name, result.error_code) for result in beyond] == [
        (topic.name, ErrorCode.POLICY_VIOLATION) for topic in (*most, new("b", 1))
    ]
    assert "Excessively large number of partitions per request" in beyond[0].error_message
    assert world.broker.topics.get("b") is None


@pytest.mark.parametrize(
    ("most", "more"), [(20_000, ErrorCode.POLICY_VIOLATION), (50, ErrorCode.INVALID_PARTITIONS)]
)
async def test_a_topic_may_be_as_large_as_the_setting_says(
    make_world: MakeWorld, most: int, more: ErrorCode
) -> None:
    world = await make_world(max_partitions_per_topic=str(most))
    client = await world.connect()
    assert (await create(client, new("t", most), validate_only=True))[0].error_code == 0
    assert (await create(client, new("t", most + 1), validate_only=True))[0].error_code == more


async def test_others_are_served_while_many_topics_are_made_and_deleted(world: World) -> None:
    names = [f"t{number}" for number in range(100)]
    last = TopicPartition(names[-1], 0)
    making, asking = await world.connect(), await world.connect()
    making.send(CreateTopicsRequest(topics=[new(name) for name in names]), 7)
    await until(lambda: TopicPartition(names[0], 0) in world.broker.partitions)
    assert last not in world.broker.partitions
    await asking.ask(DeleteTopicsRequest(topic_names=[], timeout_ms=1), 5)
    assert last not in world.broker.partitions
    _, answer = await making.receive(CreateTopicsResponse, 7)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(name, 0) for name in names]
    making.send(DeleteTopicsRequest(topic_names=names, timeout_ms=1), 5)
    await until(lambda: TopicPartition(names[0], 0) not in world.broker.partitions)
    assert last in world.broker.partitions
    await making.close()
    await until(lambda: world.broker.topics.get(names[-1]) is None)


async def test_twice_in_one_request(world: World) -> None:
    client = await world.connect()
    (result,) = await create(client, new("t"), new("t", 2))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert world.broker.topics.get("t") is None


async def test_two_clients_want_the_same_topic(world: World) -> None:
    """One gets it, the other is told; colliding names likewise; none is left half made."""
    first, second = await world.connect(), await world.connect()
    answers = await asyncio.gather(
        create(first, new("t", 20), new("a.b", 20)), create(second, new("t", 20), new("a_b", 20))
    )
    codes = sorted(ErrorCode(result.error_code) for results in answers for result in results)
    assert codes == sorted([0, 0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION])
    topic = world.broker.topics.get("t")
    assert topic is not None
    assert all(partition in world.broker.partitions for partition in topic.partitions())


async def test_a_client_that_leaves_does_not_stop_the_making(world: World) -> None:
    client = await world.connect()
    client.send(CreateTopicsRequest(topics=[new("t", 50)]), 7)
    await until(lambda: TopicPartition("t", 0) in world.broker.partitions)
    await client.close()
    await until(lambda: world.broker.topics.get("t") is not None)
    assert TopicPartition("t", 49) in world.broker.partitions


async def test_others_are_served_while_a_topic_is_made(world: World) -> None:
    making, asking = await world.connect(), await world.connect()
    making.send(CreateTopicsRequest(topics=[new("t", 200)]), 7)
    await until(lambda: TopicPartition("t", 0) in world.broker.partitions)
    await asking.ask(DeleteTopicsRequest(topic_names=[], timeout_ms=1), 5)
    assert world.broker.topics.get("t") is None
    again = await create(asking, new("t"))
    assert again[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    _, answer = await making.receive(CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0


async def test_manual_assignment_to_this_node(world: World) -> None:
    client = await world.connect()
    (result,) = await create(client, assigned(-1, -1, {1: 1, 0: 1}))
    assert (result.error_code, result.num_partitions) == (0, 2)


async def test_g6_ids_and_settings_survive_a_restart(world: World) -> None:
    """G6: the id is the same after a restart, and another one after delete and create."""
    client = await world.connect()
    await create(client, new("t", 2, retention_ms="5", cleanup_policy="compact"))
    before = world.broker.topics.get("t")
    assert before is not None
    await world.restart()
    after = world.broker.topics.get("t")
    assert after == before
    client = await world.connect()
    await client.ask(delete("t"), 5)
    await create(client, new("t"))
    again = world.broker.topics.get("t")
    assert again is not None
    assert again.topic_id != before.topic_id


def delete(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)


def delete_v6(**fields: Any) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(**fields)], timeout_ms=1000)


async def test_a_deletion_is_answered_before_a_large_topic_has_given_its_room_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, begun = threading.Event(), threading.Event()
    remove = DeletedDirectories.remove

    def wait_and_remove(deleted: DeletedDirectories) -> int:
        begun.set()
        held.wait(60)
        return remove(deleted)

    monkeypatch.setattr(DeletedDirectories, "remove", wait_and_remove)
    world.topic("t")
    client = await world.connect()
    answer = await client.ask(delete("t"), 5)
    assert [result.error_code for result in answer.responses] == [0]
    await until(begun.is_set)
    (left,) = [path.name for path in world.directory.iterdir() if path.name.startswith("t-")]
    assert left.endswith("-delete")
    held.set()
    await until(lambda: not [path for path in world.directory.iterdir() if path.name.startswith("t-")])


@pytest.mark.parametrize("version", range(1, 7))
async def test_deleted_topics_are_gone(world: World, version: int) -> None:
    world.topic("t", 2)
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")))
    request = delete("t") if version < 6 else delete_v6(name="t")
    answer = await client.ask(request, version)
    assert [(result.name, result.error_code) for result in answer.responses] == [("t", 0)]
    assert world.broker.topics.get("t") is None
    assert TopicPartition("t", 0) not in world.broker.partitions
    left = [path.name for path in world.directory.iterdir() if path.name.startswith("t-")]
    assert all(name.endswith("-delete") for name in left)
    await until(lambda: not [path for path in world.directory.iterdir() if path.name.startswith("t-")])
    refused = await world.produce(client, world.batch((b"k", b"v")))
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (TOPIC, "t") not in read_state(world.broker.logs.logs[METADATA_PARTITION])


async def test_deletion_wakes_who_waits(world: World) -> None:
    """A long poll on a topic that is deleted is answered, with an error."""
    world.topic("t")
    waiting, deleting = await world.connect(), await world.connect()
    sent = waiting.send(fetch_request([("t", 0, 0)], max_wait_ms=1_000_000, min_bytes=1), 12)
    partition = world.broker.partitions[TopicPartition("t", 0)]
    await until(lambda: partition.high_watermark_waiters)
    await deleting.ask(delete("t"), 5)
    correlation_id, answer = await waiting.receive(FetchResponse, 12)
    assert correlation_id == sent
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_flush_that_a_deletion_overtakes_is_no_failure(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files were renamed: who waits for the flush learns so, and no operator is told of a broken disk."""
    world.topic("t")
    flushes, log = HeldFlushes(world, monkeypatch), world.broker.partitions[TopicPartition("t", 0)].log
    producing, deleting = await world.connect(), await world.connect()
    producing.send(produce_request([("t", 0, world.batch((b"k", b"v")))]), 9)
    await until(lambda: flushes.held)
    asked = asyncio.create_task(deleting.ask(delete("t"), 5))
    await until(lambda: log.offline_reason == "the partition was deleted")
    flushes.end(FileNotFoundError(errno.ENOENT, "as a test says"))
    answer = (await producing.receive(ProduceResponse, 9))[1].responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await asked).responses[0].error_code == 0
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_t122_deletion_stops_a_cleaning(make_world: MakeWorld) -> None:
    """T122: the cleaning is aborted, not waited for, and neither waits for the other for ever."""
    world = await make_world(log_cleaner_io_max_bytes_per_second="1")
    world.topic("t", cleanup_policy="compact")
    client = await world.connect()
    for _ in range(10):
        await world.produce(client, world.batch((b"k", b"v" * 1000)))
    topic_partition = TopicPartition("t", 0)
    world.broker.partitions[topic_partition].log.roll(world.clock.now_ms())
    cleaner = world.broker.cleaner
    cleaning = asyncio.ensure_future(world.broker.run_blocking(cleaner.clean_now, topic_partition))
    await until(lambda: cleaner.state_of(topic_partition).phase is Phase.IN_PROGRESS)
    answer = await client.ask(delete("t"), 5)
    assert answer.responses[0].error_code == 0
    with pytest.raises(CleaningAborted):
        await cleaning
    assert cleaner.state_of(topic_partition).phase is Phase.IDLE
    world.topic("t", cleanup_policy="compact")


async def test_deletion_by_id(world: World) -> None:
    topic = world.topic("t")
    client = await world.connect()
    answer = await client.ask(delete_v6(name=None, topic_id=topic.topic_id), 6)
    assert [(result.name, result.error_code) for result in answer.responses] == [("t", 0)]
    again = await client.ask(delete_v6(name=None, topic_id=topic.topic_id), 6)
    assert again.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    both = await client.ask(delete_v6(name="t", topic_id=topic.topic_id), 6)
    assert both.responses[0].error_code == ErrorCode.INVALID_REQUEST
    neither = await client.ask(delete_v6(name=None), 6)
    assert neither.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_what_cannot_be_deleted(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    answer = await client.ask(delete("none", METADATA_TOPIC, "t", "t"), 5)
    assert {result.name: result.error_code for result in answer.responses} == {
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        METADATA_TOPIC: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "t": ErrorCode.INVALID_REQUEST,
    }
    assert {result.name: result.error_message for result in answer.responses} == {
        "none": "This server does not host this topic-partition.",
        METADATA_TOPIC: f"Topic '{METADATA_TOPIC}' is internal and cannot be deleted.",
        "t": "Duplicate topic name.",
    }


async def test_deletion_may_be_disabled(make_world: MakeWorld) -> None:
    world = await make_world(delete_topic_enable="false")
    world.topic("t")
    client = await world.connect()
    for version, code in ((2, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)):
        answer = await client.ask(delete("t"), version)
        assert answer.responses[0].error_code == code


async def test_an_interrupted_deletion_is_finished(world: World) -> None:
    """A crash after the deletion was decided: the next start removes the directories."""
    topic = world.topic("t", 2)
    value = {"id": str(topic.topic_id), "partitions": 2, "configs": {}, "deleting": True}
    world.broker.metadata.append(TOPIC, "t", value)
    await world.restart()
    assert world.broker.topics.get("t") is None
    names = [path.name for path in world.directory.iterdir()]
    assert not [name for name in names if name.startswith("t-") and not is_deleted_directory(name)]
    world.topic("t")
    assert world.broker.partitions[TopicPartition("t", 0)].log.log_end_offset == 0


async def test_directories_nobody_knows_are_adopted_and_kept(world: World) -> None:
    """A Kafka data directory opens: its topics appear, and nothing of them is deleted by age or size."""
    topic = world.topic("kafkas", 2)
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")), topic="kafkas", partition=1)
    world.broker.metadata.append(TOPIC, "kafkas", None)
    await world.restart()
    adopted = world.broker.topics.get("kafkas")
    assert adopted is not None
    assert (adopted.partition_count, adopted.topic_id) == (2, topic.topic_id)
    assert adopted.overrides == KEEP_EVERYTHING
    client = await world.connect()
    assert await world.values(client, "kafkas", 1) == [b"v"]


async def test_no_topic_takes_the_name_of_kafkas_quorum_log(world: World) -> None:
    client = await world.connect()
    for validate_only in (True, False):
        (result,) = await create(client, new(CLUSTER_METADATA_TOPIC), validate_only=validate_only)
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert result.error_message == "Creation of internal topic __cluster_metadata is prohibited."
    assert not list(world.directory.glob("__cluster_metadata-*"))


@pytest.mark.parametrize("partitions", [1, 2])
async def test_a_topic_of_that_name_from_before_does_not_stop_the_start(
    world: World, caplog: pytest.LogCaptureFixture, partitions: int
) -> None:
    """Its records stay where they are, and are a topic again once the directories have another name."""
    world.topic("before", partitions)
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")), topic="before")
    state = read_state(world.broker.logs.logs[METADATA_PARTITION])[TOPIC, "before"]
    world.broker.metadata.append(TOPIC, CLUSTER_METADATA_TOPIC, state)
    world.broker.metadata.append(TOPIC, "before", None)
    await world.stop()

    def rename(old: str, new: str) -> None:
        for index in range(partitions):
            (world.directory / f"{old}-{index}").rename(world.directory / f"{new}-{index}")

    rename("before", CLUSTER_METADATA_TOPIC)
    await world.start()
    assert world.broker.topics.get(CLUSTER_METADATA_TOPIC) is None
    assert "there can be no topic __cluster_metadata" in caplog.text
    caplog.clear()
    await world.restart()
    assert "there can be no topic" not in caplog.text
    await world.stop()
    rename(CLUSTER_METADATA_TOPIC, "after")
    await world.start()
    assert await world.values(await world.connect(), "after") == [b"v"]


async def test_a_full_disk_leaves_no_half_topic(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = world.broker.logs.create

    def create_or_fail(topic_partition: TopicPartition, *arguments: Any) -> Any:
        if topic_partition.partition == 1:
            raise OSError(28, "No space left on device")
        return real(topic_partition, *arguments)

    monkeypatch.setattr(world.broker.logs, "create", create_or_fail)
    with pytest.raises(KafkaError) as caught:
        world.broker.topics.create("t", 3)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    client = await world.connect()
    (result,) = await create(client, new("t", 3))
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.broker.topics.get("t") is None
    assert TopicPartition("t", 0) not in world.broker.partitions
    assert "t" not in world.broker.metrics_state.topics  # it stayed in /metrics
    monkeypatch.undo()
    await world.restart()
    assert world.broker.topics.get("t") is None
    world.topic("t", 3)


def refuse_to_rename(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = Disk.rename

    def rename(disk: Disk, source: Path, target: Path) -> None:
        if source.name == name:
            raise OSError(5, "Input/output error")
        real(disk, source, target)

    monkeypatch.setattr(Disk, "rename", rename)


async def test_a_topic_that_can_neither_be_made_nor_taken_back_is_ended_by_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that refuses everything: all topics of the request were answered with a bug of ours."""
    real = world.broker.logs.create

    def create_or_fail(topic_partition: TopicPartition, *arguments: Any) -> Any:
        if topic_partition == TopicPartition("bad", 1):
            raise OSError(5, "Input/output error")
        return real(topic_partition, *arguments)

    monkeypatch.setattr(world.broker.logs, "create", create_or_fail)
    refuse_to_rename(monkeypatch, "bad-0")
    client = await world.connect()
    bad, good = await create(client, new("bad", 2), new("good"))
    assert (bad.error_code, good.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE)
    assert world.broker.metrics_state.internal_errors == 0
    monkeypatch.undo()
    (again,) = await create(client, new("bad", 2))
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    await world.restart()
    assert world.broker.topics.get("bad") is None
    assert [path.name for path in world.directory.glob("bad-?")] == []
    world.topic("bad", 2)


async def test_a_deletion_that_a_disk_refuses_is_an_error_of_its_topic_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All topics of the request were answered with a bug of ours; the next start ends it."""
    world.topic("bad", 2)
    world.topic("good")
    refuse_to_rename(monkeypatch, "bad-0")
    client = await world.connect()
    answer = await client.ask(delete("bad", "good"), 5)
    codes = {row.name: row.error_code for row in answer.responses}
    assert codes == {"bad": ErrorCode.KAFKA_STORAGE_ERROR, "good": ErrorCode.NONE}
    assert world.broker.metrics_state.internal_errors == 0
    monkeypatch.undo()
    await world.restart()
    assert world.broker.topics.get("bad") is None
    assert [path.name for path in world.directory.glob("bad-?")] == []


async def test_settings_that_are_not_understood_do_not_stop_the_start(world: World) -> None:
    topic = world.topic("t")
    value = {
        "id": str(topic.topic_id),
        "partitions": 1,
        "configs": {"of.the.future": "1", "retention.ms": "9"},
    }
    world.broker.metadata.append(TOPIC, "t", value)
    await world.restart()
    again = world.broker.topics.get("t")
    assert again is not None
    assert again.config.retention_ms == 9


async def test_a_partition_that_cannot_be_opened_is_offline_and_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other partitions serve, and no empty log takes the place of the one that could not be opened."""
    world.topic("t", 2)
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")))

    def open_or_fail(directory: Path, *arguments: Any, **fields: Any) -> Log:
        if directory.name == "t-0":
            raise OSError(5, "Input/output error")
        return open_log(directory, *arguments, **fields)

    monkeypatch.setattr("storage.manager.open_log", open_or_fail)
    await world.restart()
    client = await world.connect()
    lost = await world.produce(client, world.batch((b"k", b"w")))
    assert lost.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await world.produce(client, world.batch((b"k", b"w")), partition=1)).error_code == 0
    monkeypatch.undo()
    await world.restart()
    client = await world.connect()
    assert await world.values(client) == [b"v"]


@pytest.mark.parametrize("is_new", [True, False])
async def test_the_brokers_settings_change_while_a_topic_grows(world: World, is_new: bool) -> None:
    """The new partitions, and the topic, follow what holds at the end, not what held at the beginning."""
    topics = world.broker.topics
    if not is_new:
        world.topic("t", 1)
    growing = asyncio.ensure_future(
        topics.create_durably("t", 20, {}) if is_new else topics.add_partitions("t", 20)
    )
    await until(lambda: TopicPartition("t", 3) in world.broker.partitions)
    assert TopicPartition("t", 19) not in world.broker.partitions
    world.broker.settings.set(False, {"log.segment.bytes": "2000000"})
    await growing
    topic = topics.get("t")
    assert topic is not None
    configs = [topic.config, *(world.broker.partitions[one].log.config for one in topic.partitions())]
    assert {config.segment_bytes for config in configs} == {2_000_000}


@pytest.mark.parametrize("is_new", [True, False])
async def test_the_record_of_a_topic_is_on_disk_before_its_directories(
    world: World, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut leaves of a creation has its settings, or is not there."""
    topics, metadata = world.broker.topics, world.broker.partitions[METADATA_PARTITION].log
    if not is_new:
        world.topic("t", 1)
    ends: list[tuple[int, int]] = []
    make = LogManager.create

    def create(manager: LogManager, *arguments: Any) -> Log:
        ends.append((metadata.recovery_point, metadata.log_end_offset))
        return make(manager, *arguments)

    monkeypatch.setattr(LogManager, "create", create)
    await (topics.create_durably("t", 3, {}) if is_new else topics.add_partitions("t", 3))
    assert len(ends) == 3 - (not is_new)
    assert all(durable == end for durable, end in ends)
