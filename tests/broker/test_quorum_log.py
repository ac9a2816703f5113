"""Goal: topics that are found in a directory of Apache Kafka's have the settings that Kafka gave them.

Method: quorum logs and snapshots are made of the records that Kafka writes, beside directories of topics;
a broker starts on them. One that a real Kafka wrote is in tests/kafka/test_directories.py.
"""

from __future__ import annotations

import logging
import shutil
import struct
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.broker_server import BrokerServer
from broker.quorum_log import KafkasTopic, read_topics
from broker.topic import KEEP_EVERYTHING
from broker.topics import TopicRegistry
from protocol.codegen import encode
from protocol.errors import KafkaError
from protocol.messages.quorum import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from protocol.records import encode_batch
from protocol.varint import write_unsigned
from storage.checkpoint import write_topic_id
from storage.file import SYSTEM_DISK
from storage.layout import RECOVERY_POINT_CHECKPOINT
from tests.broker.conftest import World

A, B = uuid.uuid4(), uuid.uuid4()
KEYS = {
    TopicRecord: 2,
    ConfigRecord: 4,
    RemoveTopicRecord: 9,
    UserScramCredentialRecord: 11,
    ClientQuotaRecord: 14,
    ProducerIdsRecord: 15,
    AccessControlEntryRecord: 18,
    RemoveAccessControlEntryRecord: 19,
    RemoveUserScramCredentialRecord: 22,
}
BEGIN, END, ABORT, NO_OPERATION = 23, 24, 25, 20
OWN = "__kompakt_metadata-0"
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
async def world(make_world: Callable[..., Awaitable[World]]) -> AsyncIterator[World]:
    """Whose directory is verified at last without the quorum log, of which the tests make a part only."""
    made = await make_world()
    yield made
    shutil.rmtree(made.directory / "__cluster_metadata-0")


def topic(name: str, topic_id: uuid.UUID) -> TopicRecord:
    return TopicRecord(name=name, topic_id=topic_id)


def setting(name: str, key: str, value: str | None, resource_type: int = 2) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


def partition(topic_id: uuid.UUID, number: int, version: int = 1) -> bytes:
    """Its head, and something of what follows."""
    return b"\x01\x03" + write_unsigned(version) + struct.pack(">i16s", number, topic_id.bytes) + b"\x02"


def framed(record: Any, version: int = 0) -> bytes:
    """As Kafka writes it: the frame's version, the record's key and version; a number is a key alone."""
    if isinstance(record, int):
        return b"\x01" + write_unsigned(record) + b"\x00\x00"
    body = b"".join(map(bytes, encode(record, version)))
    return b"\x01" + write_unsigned(KEYS[type(record)]) + write_unsigned(version) + body


def put(directory: Path, name: str, records: Sequence[Any], base_offset: int = 0) -> Path:
    """A file of the quorum log, a batch for each record."""
    place = directory / "__cluster_metadata-0"
    place.mkdir(exist_ok=True)
    control = encode_batch([(0, b"\x00\x00\x00\x03", b"", ())], base_offset=base_offset, is_control=True)
    batches = [
        encode_batch([(0, None, one if isinstance(one, bytes) else framed(one), ())], base_offset=offset)
        for offset, one in enumerate(records, base_offset + 1)
    ]
    (place / name).write_bytes(control + b"".join(batches))
    return place / name


def log(directory: Path, *records: Any, base_offset: int = 0) -> Path:
    return put(directory, f"{base_offset:020}.log", records, base_offset)


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read_topics(tmp_path) == {}
    (tmp_path / "__cluster_metadata-0").mkdir()
    assert read_topics(tmp_path) == {}


def test_the_last_word_on_a_setting_counts(tmp_path: Path) -> None:
    log(
        tmp_path,
        topic("a", A), topic("b", B), NO_OPERATION,
        setting("a", "cleanup.policy", "delete"), setting("a", "retention.ms", "1000"),
        setting("a", "cleanup.policy", "compact"), setting("a", "retention.ms", None),
        setting("a", "segment.ms", "1", resource_type=4), setting("b", "segment.ms", "7"),
        setting("b", "never.there", None),
    )  # fmt: skip
    assert read_topics(tmp_path) == {
        "a": KafkasTopic(A, 0, COMPACT),
        "b": KafkasTopic(B, 0, {"segment.ms": "7"}),
    }


def test_partitions_are_counted_by_their_numbers(tmp_path: Path) -> None:
    numbers = [partition(A, 1), partition(A, 4, version=9), partition(A, 0), partition(B, 0)]
    log(tmp_path, topic("a", A), *numbers, topic("b", B), RemoveTopicRecord(topic_id=B), topic("b", B))
    assert read_topics(tmp_path) == {"a": KafkasTopic(A, 5, {}), "b": KafkasTopic(B, 0, {})}


def test_a_topic_that_was_deleted_takes_its_settings_along(tmp_path: Path) -> None:
    log(
        tmp_path,
        topic("a", A), setting("a", "segment.ms", "1"), RemoveTopicRecord(topic_id=A),
        RemoveTopicRecord(topic_id=uuid.uuid4()), topic("a", B),
    )  # fmt: skip
    assert read_topics(tmp_path) == {"a": KafkasTopic(B, 0, {})}


def test_the_newest_snapshot_and_what_follows_it(tmp_path: Path) -> None:
    log(tmp_path, topic("old", B), topic("a", A), setting("a", "segment.ms", "1"))
    log(tmp_path, setting("a", "segment.ms", "3"), setting("a", "retention.ms", "9"), base_offset=4)
    put(tmp_path, f"{3:020}-0000000001.checkpoint", [topic("wrong", B)])
    put(tmp_path, f"{6:020}-0000000002.checkpoint", [topic("a", A), setting("a", "segment.ms", "2")])
    put(tmp_path, f"{9:020}-0000000002.checkpoint.part", [topic("wrong", B)])
    assert read_topics(tmp_path) == {"a": KafkasTopic(A, 0, {"segment.ms": "2", "retention.ms": "9"})}


@pytest.mark.parametrize(("end", "is_there"), [(END, True), (ABORT, False), (None, False)])
def test_metadata_transactions(tmp_path: Path, end: int | None, is_there: bool) -> None:
    changes = [BEGIN, setting("a", "segment.ms", "1"), topic("b", B), *([] if end is None else [end])]
    log(tmp_path, topic("a", A), *changes, *([] if end is None else [setting("a", "retention.ms", "9")]))
    found = read_topics(tmp_path)
    assert ("b" in found) == is_there
    assert ("segment.ms" in found["a"].settings) == is_there
    assert ("retention.ms" in found["a"].settings) == (end is not None)


def test_a_tail_that_is_cut_off_was_never_in_force(tmp_path: Path) -> None:
    path = log(tmp_path, topic("a", A), setting("a", "segment.ms", "1"))
    path.write_bytes(path.read_bytes()[:-3])
    assert read_topics(tmp_path) == {"a": KafkasTopic(A, 0, {})}


@pytest.mark.parametrize(
    "wrong",
    [b"", b"\x02\x02\x00", b"\x01", b"\x01\x02\x07", framed(topic("a", A))[:-4], partition(A, 1)[:-4]],
    ids=["nothing", "frame", "short", "version", "cut", "cut partition"],
)
def test_a_record_that_cannot_be_read_is_said_so(tmp_path: Path, wrong: bytes) -> None:
    log(tmp_path, topic("a", A), wrong)
    with pytest.raises(KafkaError, match="metadata record at offset 2"):
        read_topics(tmp_path)


async def brought(world: World) -> uuid.UUID:
    """A topic `kafkas` that nobody knows, whose directories are there as from a Kafka; its id."""
    made = world.topic("kafkas", 2)
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")), topic="kafkas")
    await world.stop()
    shutil.rmtree(world.directory / OWN)
    (world.directory / RECOVERY_POINT_CHECKPOINT).write_text("0\n0\n")
    return made.topic_id


def overrides(world: World, name: str = "kafkas") -> dict[str, str]:
    found = world.broker.topics.get(name)
    assert found is not None
    return dict(found.overrides)


async def test_an_adopted_topic_has_kafkas_settings(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """By those that it lacks nothing is deleted; what means nothing here is told."""
    topic_id = await brought(world)
    records = [
        topic("kafkas", topic_id), setting("kafkas", "cleanup.policy", "compact"),
        setting("kafkas", "made.up.setting", "false"), setting("kafkas", "segment.ms", "100"),
        topic("elsewhere", B), setting("elsewhere", "segment.ms", "1"),
    ]  # fmt: skip
    log(world.directory, *records)
    with caplog.at_level(logging.INFO, "broker"):
        await world.start()
    assert overrides(world) == {**KEEP_EVERYTHING, **COMPACT, "segment.ms": "100"}
    assert world.broker.partitions["kafkas", 0].log.config.segment_ms == 100  # type: ignore[index]
    assert world.broker.topics.get("elsewhere") is None
    assert "settings of topic kafkas mean nothing here: made.up.setting" in caplog.text
    assert "its settings are those of its Apache Kafka" in caplog.text
    log(world.directory, *records, setting("kafkas", "segment.ms", "999"))
    await world.restart()
    assert overrides(world)["segment.ms"] == "100", "taken over once"


async def test_an_adopted_topic_has_as_many_partitions_as_in_its_cluster(world: World) -> None:
    """The directory of one of several brokers need not have the last ones; keys go by the number."""
    topic_id = await brought(world)
    log(world.directory, topic("kafkas", topic_id), *(partition(topic_id, number) for number in range(6)))
    await world.start()
    found = world.broker.topics.get("kafkas")
    assert found is not None
    assert found.partition_count == 6
    assert {key.partition for key in world.broker.partitions if key.topic == "kafkas"} == set(range(6))
    assert await world.values(await world.connect(), "kafkas") == [b"v"]


async def test_a_copy_of_one_of_its_directories_is_no_topic(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = await brought(world)
    shutil.copytree(world.directory / "kafkas-0", world.directory / "copy-0")
    log(world.directory, topic("kafkas", topic_id))
    for _ in range(2):
        await world.start()
        assert "is left alone: partition.metadata says that it is a copy of one of kafkas" in caplog.text
        assert world.broker.topics.get("copy") is None
        assert world.broker.topics.id_of("kafkas") == topic_id
        await world.stop()
    shutil.rmtree(world.directory / "copy-0")
    await world.start()


async def test_what_an_earlier_topic_of_its_name_left_is_no_partition(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic was made again with fewer partitions, and Kafka was killed before the old ones were gone."""
    topic_id = await brought(world)
    left = [world.directory / f"kafkas-{number}" for number in range(2, 20)]
    for directory in left:
        shutil.copytree(world.directory / "kafkas-0", directory)
        write_topic_id(SYSTEM_DISK, directory, B)
    of_kafka = [topic("kafkas", topic_id), *(partition(topic_id, number) for number in range(2))]
    log(world.directory, *of_kafka, setting("kafkas", "segment.ms", "1"))
    for _ in range(2):
        await world.start()
        assert {key.partition for key in world.broker.partitions if key.topic == "kafkas"} == {0, 1}
        assert overrides(world)["segment.ms"] == "1"
        await world.stop()
    assert "kafkas-7 is left alone: Apache Kafka's topic has 2 partitions, and another id" in caplog.text
    for directory in left:
        shutil.rmtree(directory)
    await world.start()


async def test_settings_of_another_topic_of_that_name_are_not_taken(world: World) -> None:
    await brought(world)
    log(world.directory, topic("kafkas", B), setting("kafkas", "segment.ms", "1"))
    await world.start()
    assert overrides(world) == KEEP_EVERYTHING


async def test_a_log_that_cannot_be_read_is_told_and_nothing_is_deleted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = await brought(world)
    log(world.directory, topic("kafkas", topic_id), setting("kafkas", "retention.ms", "1"), b"\x07")
    await world.start()
    assert overrides(world) == KEEP_EVERYTHING
    assert "the settings that Apache Kafka gave to its topics are not read: " in caplog.text
    assert "__cluster_metadata-0: the metadata record at offset 3" in caplog.text


async def test_where_kompakt_was_before_kafkas_word_is_out_of_date(world: World) -> None:
    """As after a loss of `__kompakt_metadata`: what was set since is not known."""
    topic_id = await brought(world)
    log(world.directory, topic("kafkas", topic_id), setting("kafkas", "retention.ms", "77"))
    await world.start()
    assert overrides(world)["retention.ms"] == "77"
    await world.stop()
    shutil.rmtree(world.directory / OWN)
    await world.start()
    assert overrides(world) == KEEP_EVERYTHING


@pytest.mark.parametrize("method", [(BrokerServer, "_open_logs"), (TopicRegistry, "reconcile")])
async def test_a_first_start_that_fails_leaves_it_to_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, method: tuple[type, str]
) -> None:
    def fails(self: object) -> None:
        raise OSError(5, "as a test says")

    topic_id = await brought(world)
    log(world.directory, topic("kafkas", topic_id), setting("kafkas", "segment.ms", "77"))
    with monkeypatch.context() as patch:
        patch.setattr(*method, fails)
        with pytest.raises(OSError, match="as a test says"):
            await world.start()
        await world.broker.stop()
    await world.start()
    assert overrides(world)["segment.ms"] == "77"
