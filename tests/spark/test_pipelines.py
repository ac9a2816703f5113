"""Goal: the pipelines move topics into Parquet and back, exactly once into the files, whenever killed.

Method: confluent-kafka writes, the pipelines run in the tests' Spark session and as the command `kompakt
spark` that is killed with SIGKILL in the middle; what the files hold is compared with what was produced.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from spark_connector.errors import ConnectorError
from spark_connector.pipelines import (
    KeyedTable,
    apply_changes,
    archive_topic,
    refresh_snapshot,
    restore_topic,
)
from tests.spark.test_spark import create_topic, place_of, produce, reader, received
from tests.spark.timeless import produce_without_times
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
KOMPAKT = str(Path(sys.executable).with_name("kompakt"))


@pytest.fixture
def servers(kompakt_broker: Any) -> str:
    bootstrap: str = kompakt_broker.bootstrap
    return bootstrap


def source(servers: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers}


@pytest.fixture
def start_command(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `kompakt spark ...` in a process group of its own, which ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "command.log").open("ab") as log:
            command = [KOMPAKT, "spark", *arguments, "--master", "local[2]"]
            started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def kill(process: subprocess.Popen[bytes]) -> None:
    assert process.poll() is None, "it ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def test_a_topic_goes_to_parquet_and_back(spark: Any, servers: str, tmp_path: Path) -> None:
    topic, copy = create_topic(servers), create_topic(servers)
    archive = str(tmp_path / "archive")
    sent = produce(servers, topic, 500)
    assert archive_topic(spark, {**source(servers), "subscribe": topic}, archive) == 500
    sent += produce(servers, topic, 97, first=500)
    sent += produce_without_times(servers, topic)
    reports: list[dict[str, Any]] = []
    options = {**source(servers), "subscribe": topic}
    assert archive_topic(spark, options, archive, report=reports.append) == 100
    assert sum(report["numInputRows"] for report in reports) == 100
    assert received(spark.read.parquet(archive)) == sorted(sent, key=place_of)

    sink = {**source(servers), "topic": copy}
    checkpoint = str(tmp_path / "restored")
    assert restore_topic(spark, archive, sink, checkpoint=checkpoint) == 600
    assert restore_topic(spark, archive, sink, checkpoint=checkpoint) == 0
    restored = received(reader(spark, servers, copy, includeHeaders="true").load())
    assert restored == [record._replace(topic=copy) for record in sorted(sent, key=place_of)]


def test_an_archive_that_was_moved_is_refused(spark: Any, servers: str, tmp_path: Path) -> None:
    """Spark's list of its files names the old place: all that was archived before would read as nothing."""
    topic = create_topic(servers)
    produce(servers, topic, 10)
    old, new = tmp_path / "an archive", tmp_path / "moved"
    options = {**source(servers), "subscribe": topic}
    assert archive_topic(spark, options, f"file://{old}") == 10
    assert archive_topic(spark, options, f"{old}/") == 0
    old.rename(new)
    produce(servers, topic, 5, first=10)
    with pytest.raises(ConnectorError, match=r"under .*/an archive, and Spark reads none"):
        archive_topic(spark, options, str(new))
    with pytest.raises(ConnectorError, match=r"under .*/an archive, and Spark reads none"):
        restore_topic(
            spark, str(new), {**source(servers), "topic": topic}, checkpoint=str(tmp_path / "restored")
        )
    old.symlink_to(new)
    assert archive_topic(spark, options, str(old)) == 5
    assert spark.read.parquet(str(old)).count() == 15


@pytest.mark.parametrize("name", ["t[1]", "t{a,b}", "t*", "t?", "t\\d"])
def test_a_directory_that_spark_takes_for_a_pattern_is_refused(
    spark: Any, servers: str, tmp_path: Path, name: str
) -> None:
    """What was written there would be read as nothing, or as others that fit, and no word said."""
    path, topic = str(tmp_path / name), create_topic(servers)
    options, sink = {**source(servers), "subscribe": topic}, {**source(servers), "topic": topic}
    for run in (
        lambda: archive_topic(spark, options, path),
        lambda: restore_topic(spark, path, sink, checkpoint=str(tmp_path / "restored")),
        lambda: refresh_snapshot(spark, topic, source(servers), path),
        lambda: apply_changes(spark, topic, source(servers), path, "id long"),
        lambda: KeyedTable(path).read(spark),
    ):
        with pytest.raises(ConnectorError, match="Spark reads such a path as a pattern"):
            run()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["minPartitions", "maxrecordsperpartition"])
def test_an_archive_cuts_no_partition(spark: Any, servers: str, tmp_path: Path, name: str) -> None:
    """Its pieces would be restored in the order in which their tasks ended."""
    options = {**source(servers), "subscribe": create_topic(servers), name: "10"}
    with pytest.raises(ConnectorError, match=f"(?i){name} would cut a partition"):
        archive_topic(spark, options, str(tmp_path / "archive"))
    assert not (tmp_path / "archive").exists()


def test_parquet_that_is_no_archive_is_refused(spark: Any, servers: str, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(ConnectorError, match="no archive of a topic: it has no column headers, key"):
        restore_topic(
            spark, str(tmp_path / "other"), {**source(servers), "topic": "t"}, checkpoint=str(tmp_path / "c")
        )


def test_an_archive_that_is_killed_goes_on(
    spark: Any, servers: str, tmp_path: Path, start_command: Callable[..., subprocess.Popen[bytes]]
) -> None:
    topic = create_topic(servers)
    sent = produce(servers, topic, 3000)
    archive = tmp_path / "archive"
    limit = "maxOffsetsPerTrigger=60"
    process = start_command("archive", topic, str(archive), "--bootstrap-server", servers, "--option", limit)
    done = archive / "_spark_metadata"
    wait_for(lambda: done.is_dir() and any(done.glob("[2-9]")), "a third micro-batch", 300)
    kill(process)
    before = spark.read.parquet(str(archive)).count()
    assert 0 < before < 3000
    rows = archive_topic(spark, {**source(servers), "subscribe": topic}, str(archive))
    assert rows < 3000
    assert received(spark.read.parquet(str(archive))) == sorted(sent, key=place_of)


class Model:
    """A topic of keys and what its table must be."""

    def __init__(self, servers: str, config: dict[str, str] | None = None) -> None:
        self.topic = create_topic(servers, {"cleanup.policy": "compact", **(config or {})})
        self.rows: dict[bytes, bytes] = {}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._random = random.Random(7)

    def change(self, keys: int, count: int) -> set[bytes]:
        """Set or delete random ones of `keys` keys; those that were touched."""
        touched = set()
        for _ in range(count):
            number = self._random.randrange(keys)
            key, value = b"key %d" % number, b"%d" % self._random.randrange(10**9)
            touched.add(key)
            is_deleted = self._random.random() < 0.2
            self._producer.produce(self.topic, None if is_deleted else value, key, partition=number % 3)
            if is_deleted:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        assert self._producer.flush(60) == 0
        return touched


def table_of(spark: Any, path: Path) -> dict[bytes, bytes]:
    rows = KeyedTable(path).read(spark).select("key", "value").collect()
    table = {bytes(row.key): bytes(row.value) for row in rows}
    assert len(table) == len(rows), "a key has two rows"
    return table


def test_a_snapshot_follows_its_topic(spark: Any, servers: str, tmp_path: Path) -> None:
    model, path = Model(servers), tmp_path / "table"

    def refresh() -> Any:
        return refresh_snapshot(spark, model.topic, source(servers), path, buckets=8)

    model.change(300, 2000)
    done = refresh()
    assert (done.version, done.was_full, done.offsets_read) == (1, True, 2000)
    assert table_of(spark, path) == model.rows
    touched = model.change(300, 3)
    done = refresh()
    assert (done.was_full, done.offsets_read, done.keys_changed) == (False, 3, len(touched))
    assert done.buckets_written <= len(touched)
    assert done.rows == len(model.rows)
    assert table_of(spark, path) == model.rows
    done = refresh()
    assert (done.offsets_read, done.buckets_written, done.rows) == (0, 0, len(model.rows))
    model.change(400, 800)
    refresh()
    assert table_of(spark, path) == model.rows


def test_a_table_lies_where_its_path_says(
    spark: Any, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the working directory of Spark's JVM, which is not this one, and whatever its file system."""
    monkeypatch.chdir(tmp_path)
    model = Model(servers)
    model.change(30, 60)
    for path in ("a table", f"file://{tmp_path}/b", f"file:{tmp_path}/c"):
        assert refresh_snapshot(spark, model.topic, source(servers), path).rows == len(model.rows)
        assert {row.key: row.value for row in KeyedTable(path).read(spark).collect()} == model.rows
    assert sorted(place.name for place in tmp_path.iterdir()) == ["a table", "b", "c"]
    with pytest.raises(ConnectorError, match=r"s3a:/+lake/t is an address"):
        refresh_snapshot(spark, model.topic, source(servers), "s3a://lake/t")


def test_a_snapshot_older_than_the_tombstones_begins_anew(spark: Any, servers: str, tmp_path: Path) -> None:
    """With delete.retention.ms=0 a tombstone may be gone at once, and its key would stay for ever."""
    model = Model(servers, {"delete.retention.ms": "0"})
    model.change(20, 100)
    refresh_snapshot(spark, model.topic, source(servers), tmp_path)
    model.change(20, 100)
    done = refresh_snapshot(spark, model.topic, source(servers), tmp_path)
    assert done.was_full
    assert "tombstones may go" in done.reason
    assert table_of(spark, tmp_path) == model.rows


def test_a_snapshot_leaves_out_what_left_the_log_at_its_start(
    spark: Any, servers: str, tmp_path: Path
) -> None:
    """Retention of compact,delete takes keys without a tombstone: their rows stayed for ever."""
    model = Model(servers, {"cleanup.policy": "compact,delete"})
    model.change(20, 100)
    refresh_snapshot(spark, model.topic, source(servers), tmp_path)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
    end = confluent_kafka.OFFSET_END
    ends = [confluent_kafka.TopicPartition(model.topic, number, end) for number in range(3)]
    for done in admin.delete_records(ends).values():
        done.result(60)
    refreshed = refresh_snapshot(spark, model.topic, source(servers), tmp_path)
    assert "records before that were deleted" in refreshed.reason
    assert table_of(spark, tmp_path) == {}


@pytest.mark.parametrize("strategy", ["timestamp", "header"])
def test_a_snapshot_holds_what_compaction_would_keep(
    spark: Any, servers: str, tmp_path: Path, strategy: str
) -> None:
    """By its versions: the table took the last records, and kept them when compaction had kept others."""
    config = {"cleanup.policy": "compact", "compaction.strategy": strategy}
    topic = create_topic(servers, {**config, "compaction.strategy.header": "v"})
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})

    def send(key: bytes, value: bytes | None, version: int) -> None:
        header = version.to_bytes(8, "big", signed=True)
        headers = [("v", b"not the last"), ("other", b""), ("v", header)]
        producer.produce(topic, value, key, partition=0, timestamp=max(version, 0) + 1000, headers=headers)

    def refreshed() -> dict[bytes, bytes]:
        assert producer.flush(60) == 0
        assert refresh_snapshot(spark, topic, source(servers), tmp_path / "table").was_full
        return table_of(spark, tmp_path / "table")

    for key, value, version in [
        (b"older", b"wins", 300),
        (b"older", b"came later", 20),
        (b"equal", b"first", 5),
        (b"equal", b"last", 5),
        (b"deleted", b"was", 7),
        (b"deleted", None, 9),
        (b"kept", b"stays", 9),
        (b"kept", None, 7),
        (b"negative", b"stays", 0),
        (b"negative", b"no version", -1 if strategy == "header" else 0),
    ]:
        send(key, value, version)
    rows = {b"older": b"wins", b"equal": b"last", b"kept": b"stays", b"negative": b"stays"}
    if strategy == "timestamp":
        rows[b"negative"] = b"no version"
    assert refreshed() == rows
    send(b"older", b"too low", 299)
    send(b"deleted", b"too low", 8)
    send(b"equal", b"higher", 6)
    assert refreshed() == {**rows, b"equal": b"higher"}


def test_a_snapshot_that_is_killed_is_the_one_before(
    spark: Any, servers: str, tmp_path: Path, start_command: Callable[..., subprocess.Popen[bytes]]
) -> None:
    model, path = Model(servers), tmp_path / "table"
    model.change(5000, 10_000)
    refresh_snapshot(spark, model.topic, source(servers), path)
    before = dict(model.rows)
    model.change(5000, 10_000)
    process = start_command("snapshot", model.topic, str(path), "--bootstrap-server", servers)
    wait_for((path / "version=2").exists, "the files of version 2", 300)
    kill(process)
    manifest = KeyedTable(path).manifest()
    assert manifest is not None
    assert table_of(spark, path) == (before if manifest.version == 1 else model.rows)
    done = refresh_snapshot(spark, model.topic, source(servers), path)
    assert not done.was_full
    assert table_of(spark, path) == model.rows


def test_another_condition_for_deletions_builds_the_table_anew(
    spark: Any, servers: str, tmp_path: Path
) -> None:
    topic = create_topic(servers)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(4):
        producer.produce(topic, json.dumps({"id": number}).encode(), str(number).encode())
    assert producer.flush(60) == 0
    for condition, left in (("false", [0, 1, 2, 3]), ("id > 1", [0, 1]), ("id > 1", [0, 1])):
        done = apply_changes(spark, topic, source(servers), tmp_path, "id long", delete_when=condition)
        assert sorted(row.id for row in KeyedTable(tmp_path).read(spark).collect()) == left
    assert not done.was_full


class Changes:
    """A log of changes of one partition, each with an id, whose head goes as by retention."""

    def __init__(self, servers: str, **config: str) -> None:
        self.topic = create_topic(servers, config)
        self._servers = servers
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers})

    def add(self, *ids: int, **more: Any) -> None:
        for number in ids:
            value = json.dumps({"id": number, **more}).encode()
            self._producer.produce(self.topic, value, b"key %d" % number, partition=0)
        assert self._producer.flush(60) == 0

    def lose_head(self, offset: int) -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self._servers})
        begin = confluent_kafka.TopicPartition(self.topic, 0, offset)
        for done in admin.delete_records([begin]).values():
            done.result(60)


def ids_of(spark: Any, path: Path) -> list[int]:
    return sorted(row.id for row in KeyedTable(path).read(spark).collect())


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_table_of_changes_keeps_what_retention_takes(
    spark: Any, servers: str, tmp_path: Path, policy: str
) -> None:
    """It was built anew from a log that had lost its head, and rows went without a word. Where only a log
    that is whole could tell what its rows are, that is refused."""
    changes = Changes(servers, **{"cleanup.policy": policy, "delete.retention.ms": "0"})

    def refresh(schema: str = "id long", **more: Any) -> Any:
        return apply_changes(spark, changes.topic, source(servers), tmp_path, schema, **more)

    changes.add(0, 1, 2, 3)
    refresh()
    changes.lose_head(3)
    changes.add(9)
    schema, reason = "id long", "the last refresh is .*"
    if policy == "delete":
        assert not refresh().was_full
        assert ids_of(spark, tmp_path) == [0, 1, 2, 3, 9]
        done = refresh(buckets=4)
        assert (done.was_full, done.offsets_read, done.reason) == (False, 0, "it has 16 buckets, not 4")
        changes.add(3, 10)
        assert refresh(buckets=5).buckets_written <= 5
        assert ids_of(spark, tmp_path) == [0, 1, 2, 3, 9, 10]
        schema, reason = "id long, name string", "its columns changed"
    before = ids_of(spark, tmp_path)
    with pytest.raises(ConnectorError, match=rf"\({reason}\), but 3 offsets at its start are gone"):
        refresh(schema)
    assert ids_of(spark, tmp_path) == before
    assert refresh(schema, is_full=True).was_full
    assert set(ids_of(spark, tmp_path)) == {3, 9} | set(before) - {0, 1, 2}
    if policy == "delete":
        assert refresh("id long").was_full, "nothing that it has is gone"


def test_fields_have_any_name_that_spark_can_tell_apart(spark: Any, servers: str, tmp_path: Path) -> None:
    changes = Changes(servers)

    def refresh(schema: str) -> Any:
        return apply_changes(spark, changes.topic, source(servers), tmp_path, schema)

    fields = {"user.id": 5, "a b": "x", "new": 1, "old": 2, "r": 3, "b`t": 4}
    schema = "id long, `user.id` long, `a b` string, new long, old long, r long, `b``t` long"
    changes.add(1, 2, **fields)
    refresh(schema)
    changes.add(2, 3, **{**fields, "user.id": 6})
    assert not refresh(schema).was_full
    rows = [row.asDict() for row in KeyedTable(tmp_path).read(spark).orderBy("id").collect()]
    assert [(row["id"], row["user.id"]) for row in rows] == [(1, 5), (2, 6), (3, 6)]
    assert all(row[name] == fields[name] for row in rows for name in fields if name != "user.id")
    for refused, said in (
        ("Id long, id long", "the schema has Id, id, which are one name to Spark"),
        ("_corrupt_record string", "a field _corrupt_record: the table has one"),
        ("id long, _PARTITIONS int", "a field _partitions: the table has one"),
    ):
        with pytest.raises(ConnectorError, match=said):
            refresh(refused)


def test_changes_are_applied_to_a_table(spark: Any, servers: str, tmp_path: Path) -> None:
    topic = create_topic(servers)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})

    def change(key: str, value: dict[str, Any] | bytes | None) -> None:
        data = json.dumps(value).encode() if isinstance(value, dict) else value
        producer.produce(topic, data, key.encode(), partition=sum(key.encode()) % 3)
        assert producer.flush(60) == 0

    def refresh(**more: Any) -> Any:
        schema = "id long, name string, op string"
        return apply_changes(spark, topic, source(servers), tmp_path, schema, delete_when="op = 'd'", **more)

    def table() -> dict[str, tuple[int, str]]:
        rows = KeyedTable(tmp_path).read(spark).collect()
        return {bytes(row.key).decode(): (row.id, row["name"]) for row in rows}

    change("a", {"id": 1, "name": "Anna", "op": "c"})
    change("b", {"id": 2, "name": "Bert", "op": "c"})
    change("c", {"id": 3, "name": "Cleo"})
    refresh()
    assert table() == {"a": (1, "Anna"), "b": (2, "Bert"), "c": (3, "Cleo")}
    change("a", {"id": 1, "name": "Anne", "op": "u"})
    change("b", {"id": 2, "op": "d"})
    change("c", None)
    refresh()
    assert table() == {"a": (1, "Anne")}
    change("d", b"{broken")
    with pytest.raises(ConnectorError, match=r"at offset . of partition . does not parse"):
        refresh()
    assert table() == {"a": (1, "Anne")}
    change("e", {"id": 5, "name": "Edda"})
    refresh(skip_malformed=True)
    assert table() == {"a": (1, "Anne"), "e": (5, "Edda")}
    change("e", b"{broken too")
    change("e", {"id": 5, "name": "Edna"})
    for is_full in (False, True):  # a later change of the same key hides no earlier one that was lost
        with pytest.raises(ConnectorError, match=r"at offset . of partition . does not parse"):
            refresh(is_full=is_full)
    assert table() == {"a": (1, "Anne"), "e": (5, "Edda")}
    refresh(skip_malformed=True)
    assert table() == {"a": (1, "Anne"), "e": (5, "Edna")}
    with pytest.raises(ConnectorError, match="a field offset"):
        apply_changes(spark, topic, source(servers), tmp_path, "offset long")


def test_the_command_says_what_is_wrong(servers: str, tmp_path: Path) -> None:
    command = [KOMPAKT, "spark", "snapshot", "absent-topic", str(tmp_path), "--bootstrap-server", servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("kompakt: ")]
    assert "absent-topic: UNKNOWN_TOPIC_OR_PARTITION" in line
    assert "Traceback" not in done.stderr
