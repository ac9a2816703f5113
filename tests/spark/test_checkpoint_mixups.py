"""Goal: an archive or a restore whose checkpoint is not the one of last time says so, where Spark would leave
out records and end well; one that was killed between two notes goes on.

Method: the pipelines run in the tests' Spark session with checkpoints that are exchanged, lost, or cut back
to what a kill leaves; what the files hold is compared with what was produced.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_options
from spark_connector.pipelines import archive_topic, restore_topic
from spark_connector.pipelines.checkpoints import Target
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog
from tests.spark.test_spark import create_topic, place_of, produce, reader, received

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def servers(kompakt_broker: Any) -> str:
    bootstrap: str = kompakt_broker.bootstrap
    return bootstrap


class Archive:
    """One directory, and topics that are appended to it."""

    def __init__(self, spark: Any, servers: str, directory: Path) -> None:
        self.spark, self.servers, self.path = spark, servers, directory

    def append(self, topic: str, checkpoint: Path | None = None, **options: str) -> int:
        source = {"kafka.bootstrap.servers": self.servers, "subscribe": topic, **options}
        place = None if checkpoint is None else str(checkpoint)
        return archive_topic(self.spark, source, str(self.path), checkpoint=place)

    def restore(self, topic: str, checkpoint: Path, **how: Any) -> int:
        sink = {"kafka.bootstrap.servers": self.servers, "topic": topic}
        return restore_topic(self.spark, str(self.path), sink, checkpoint=str(checkpoint), **how)

    def rows(self) -> Any:
        return received(self.spark.read.parquet(str(self.path)))


@pytest.fixture
def archive(spark: Any, servers: str, tmp_path: Path) -> Archive:
    return Archive(spark, servers, tmp_path / "archive")


def test_two_topics_with_a_checkpoint_each(archive: Archive, servers: str, tmp_path: Path) -> None:
    """Into one directory: the second one's first micro-batch has a number that is there already."""
    first, second = create_topic(servers), create_topic(servers)
    sent = produce(servers, first, 20)
    produce(servers, second, 30)
    assert archive.append(first, tmp_path / "of first") == 20
    said = r"another checkpoint than .*/of second: the directory has .* up to number 0, the checkpoint"
    with pytest.raises(ConnectorError, match=rf"{said} no micro-batch\..* or archive into a new directory"):
        archive.append(second, tmp_path / "of second")
    assert not (tmp_path / "of second").exists()
    assert archive.rows() == sorted(sent, key=place_of)


@pytest.mark.parametrize("left", [".0.3e356f5f.tmp", "..0.3e356f5f.tmp.crc", ".0.crc"])
def test_one_that_was_killed_at_its_first_note_goes_on(
    archive: Archive, servers: str, tmp_path: Path, left: str
) -> None:
    """Spark writes it under another name first, and since 4.1 refuses a checkpoint that has only that."""
    topic, other = create_topic(servers), create_topic(servers)
    sent = produce(servers, topic, 20)
    checkpoints = archive.path / "_checkpoint", tmp_path / "restored"
    for checkpoint in checkpoints:
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "offsets" / left).touch()
    assert archive.append(topic) == 20
    assert archive.rows() == sorted(sent, key=place_of)
    assert archive.restore(other, checkpoints[1]) == 20
    assert archive.append(topic) == 0


def test_a_checkpoint_that_was_lost(archive: Archive, servers: str, tmp_path: Path) -> None:
    """Or is another one now; with the old one it goes on. Spark makes one list of each ten micro-batches."""
    topic = create_topic(servers)
    sent = produce(servers, topic, 36)
    assert archive.append(topic, maxOffsetsPerTrigger="3") == 36
    lost = tmp_path / "lost"
    shutil.move(archive.path / "_checkpoint", lost)
    for checkpoint in (None, tmp_path / "new"):
        with pytest.raises(ConnectorError, match="up to number 11, the checkpoint no micro-batch"):
            archive.append(topic, checkpoint)
    sent += produce(servers, topic, 5, first=36)
    assert archive.append(topic, lost) == 5
    assert archive.rows() == sorted(sent, key=place_of)


def test_a_directory_that_was_emptied(archive: Archive, servers: str, tmp_path: Path) -> None:
    """Its checkpoint goes on behind what is gone, and Spark could read nothing of what came then."""
    topic, checkpoint = create_topic(servers), tmp_path / "noted"
    produce(servers, topic, 10)
    assert archive.append(topic, checkpoint) == 10
    shutil.rmtree(archive.path)
    produce(servers, topic, 10, first=10)
    with pytest.raises(
        ConnectorError, match=r"up to number 0, the directory no micro-batch\. .*new checkpoint"
    ):
        archive.append(topic, checkpoint)


@pytest.mark.parametrize("killed_after", ["planning", "the sink's note"])
def test_a_run_that_was_killed_goes_on(archive: Archive, servers: str, killed_after: str) -> None:
    """What it had planned is there once, whether or not its files are listed already."""
    topic = create_topic(servers)
    sent = produce(servers, topic, 40)
    archive.append(topic, maxOffsetsPerTrigger="20")
    logs = [archive.path / "_checkpoint" / "commits"]
    logs += [archive.path / "_spark_metadata"] if killed_after == "planning" else []
    for log in logs:
        last = max(int(path.name) for path in log.glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (log / name).unlink()
    sent += produce(servers, topic, 10, first=40)
    archive.append(topic)
    assert archive.rows() == sorted(sent, key=place_of)


def test_an_empty_topic_is_archived_again_and_again(archive: Archive, servers: str) -> None:
    topic = create_topic(servers)
    assert [archive.append(topic) for _ in range(2)] == [0, 0]
    sent = produce(servers, topic, 6)
    assert archive.append(topic) == 6
    assert archive.rows() == sorted(sent, key=place_of)


def test_a_restore_with_the_checkpoint_of_another(archive: Archive, servers: str, tmp_path: Path) -> None:
    """It would write nothing and end well."""
    topic, copy, other = (create_topic(servers) for _ in range(3))
    produce(servers, topic, 20)
    archive.append(topic)
    checkpoint = tmp_path / "with a blank"
    assert archive.restore(copy, checkpoint) == 20
    assert archive.restore(copy, checkpoint) == 0
    with pytest.raises(ConnectorError, match=rf"of a restore into topic {copy}: .* Name another"):
        archive.restore(other, checkpoint)
    assert archive.restore(other, tmp_path / "new") == 20


def test_a_target_is_its_ids(start_broker: Callable[..., FakeBroker]) -> None:
    """Which brokers may not tell; the name alone is then what counts."""
    broker = start_broker({TopicPartition("t", 0): FakeLog()})
    settings = parse_options(options_for(broker)).client

    def target(topic_id: int, cluster_id: str) -> Target:
        broker.topic_ids["t"], broker.cluster_id = UUID(int=topic_id), cluster_id
        return Target.look_up(settings, "t")

    noted = target(5, "first")
    assert noted == Target("t", str(UUID(int=5)), "first")
    assert "another cluster (first)" in target(5, "second").why_another(noted)
    assert "which was deleted since" in target(6, "first").why_another(noted)
    assert target(0, "").why_another(noted) == noted.why_another(target(0, "")) == ""


def test_an_archive_of_several_topics_is_restored_one_at_a_time(
    archive: Archive, servers: str, tmp_path: Path
) -> None:
    """They would be one topic with the records of all, out of which nobody could take them again."""
    first, second, copy = (create_topic(servers) for _ in range(3))
    sent = produce(servers, first, 20)
    produce(servers, second, 30)
    assert archive.append(f"{first},{second}") == 50
    checkpoint = tmp_path / "restored"
    names = ", ".join(sorted((first, second)))
    with pytest.raises(
        ConnectorError, match=rf"records of several topics.* --from-topic .*, one of {names}$"
    ):
        archive.restore(copy, checkpoint)
    with pytest.raises(ConnectorError, match=rf"holds no records of {copy}, only of {names}$"):
        archive.restore(copy, checkpoint, from_topic=copy)
    assert not checkpoint.exists()
    assert archive.restore(copy, checkpoint, from_topic=first) == 20
    with pytest.raises(ConnectorError, match=rf"is that of a restore of topic {first}: "):
        archive.restore(copy, checkpoint, from_topic=second)
    restored = received(reader(archive.spark, servers, copy, includeHeaders="true").load())
    assert restored == [record._replace(topic=copy) for record in sorted(sent, key=place_of)]
