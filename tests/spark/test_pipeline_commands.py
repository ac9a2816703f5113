"""Goal: `kompakt spark ...` does what it says as a user runs it, and whenever it is killed and run again.

Method: the commands are real processes, against a kompakt process: run to their success lines, with every
option, on a terminal and without one; or ended by SIGKILL in the middle and run again. What is in the files
and topics is compared with what was produced.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.exceptions import Exit
from py4j.protocol import Py4JError, Py4JNetworkError

from spark_connector.pipelines import KeyedTable, Refresh, apply_changes, cli, refresh_snapshot
from tests.crash.machine import small_tmpfs
from tests.spark.test_spark import create_topic, place_of, produce, reader, received
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
KOMPAKT = str(Path(sys.executable).with_name("kompakt"))
SCHEMA = "id long, name string, op string"
Popen = subprocess.Popen[str]
Start = Callable[..., Popen]


@pytest.fixture
def servers(kompakt_broker: Any) -> str:
    bootstrap: str = kompakt_broker.bootstrap
    return bootstrap


@pytest.fixture
def start(servers: str) -> Iterator[Start]:
    """Start `kompakt spark ...` in a process group of its own, which ends with the test."""
    started: list[Popen] = []

    def begin(*arguments: str, **environment: str) -> Popen:
        command = [KOMPAKT, "spark", *arguments, "--bootstrap-server", servers, "--master", "local[2]"]
        pipe = subprocess.PIPE
        made = subprocess.Popen(
            command,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env={**os.environ, "COLUMNS": "200", **environment},
            start_new_session=True,
        )
        started.append(made)
        return made

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def said(process: Popen) -> str:
    """What a command that succeeds tells its user."""
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, output + errors
    assert "Traceback" not in errors
    return errors


def lines_of(process: Popen) -> list[str]:
    """The command's own lines, without what the JVM says at its start."""
    noise = re.compile(
        r"WARNING: |Using Spark's|Setting (?:default|Spark) log|To adjust logging|\d\d/\d\d/\d\d "
    )
    return [line for line in said(process).splitlines() if not noise.match(line)]


def kill(process: Popen) -> None:
    assert process.poll() is None, "it ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def test_a_java_that_does_not_start_is_told_with_what_to_do(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    done = subprocess.run(
        [KOMPAKT, "spark", "archive", "t", str(tmp_path / "archive")],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert last.startswith("kompakt: Spark does not start: ")
    assert "Java 17" in last


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME is /nowhere, where there is no bin/java"),
        ({"JAVA_HOME": "", "PATH": "/nowhere"}, "there is no java on the PATH, and JAVA_HOME is not set"),
    ],
    ids=["another place", "none"],
)
def test_a_java_that_is_not_there_is_told_before_spark_looks_for_it(
    environment: dict[str, str], words: str
) -> None:
    """Spark's launch script would say two lines of its own, and ours would stand behind them."""
    without = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(
        [KOMPAKT, "spark", "archive", "t", "/archive"],
        env={**without, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    what = f"kompakt: Spark does not start: {words} (it needs Java 17 or newer)\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", what)


class NoSession:
    """Stands for a session, and for what builds one: starting Spark takes longer than to see a line."""

    builder = property(lambda self: self)

    def __getattr__(self, name: str) -> Any:
        return lambda *_arguments: self


@pytest.mark.parametrize(
    "problem",
    [
        Py4JError(
            "An error occurred while calling o1.start.\n: java.io.IOException: mkdir of file:/t failed"
        ),
        NotADirectoryError(20, "Not a directory", "/t"),
    ],
    ids=["Java's", "Python's"],
)
def test_a_path_that_is_a_file_is_one_line(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession", NoSession())
    with pytest.raises(Exit), cli._spark("local[1]"):
        raise problem
    said_at_last = capsys.readouterr().err.splitlines()[-1]
    assert said_at_last.startswith("kompakt: ")
    assert "/t" in said_at_last


class KilledSession(NoSession):
    """One whose JVM was killed: to stop it fails as well."""

    def stop(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    "problem",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o1.isActive"),
        ConnectionRefusedError(111, "Connection refused"),
    ],
    ids=["amid an answer", "py4j's words", "asked again"],
)
def test_a_killed_java_is_one_line_that_says_so(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was two, of which the last was `standard output: Connection refused`, and status 2."""
    monkeypatch.setattr("pyspark.sql.SparkSession", KilledSession())
    with pytest.raises(Exit) as ended, cli._spark("local[1]"):
        raise problem
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.splitlines() == [f"kompakt: {cli.GONE}"]


def test_a_java_that_ends_behind_the_work_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession", KilledSession())
    with cli._spark("local[1]"):
        pass


def test_a_line_stays_one_where_nobody_knows_how_wide_it_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    """As in the log of a cron job; and brackets of a path are no markup."""
    path = "/lake/[red]" + "a" * 200
    cli._tell(Refresh(1, 2, 2, 1, rows=3, was_full=False, reason=""), path)
    assert capsys.readouterr().err == f"{path}: version 1, refreshed, 3 rows\n"


@pytest.mark.slow
def test_a_full_disk_is_told(servers: str, start: Start) -> None:
    """Spark says that a task failed, and why only in the causes behind the error."""
    topic = create_topic(servers)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(2000):
        producer.produce(topic, b"%d" % number, random.randbytes(1500))
    assert producer.flush(60) == 0
    with small_tmpfs(1 << 20) as disk:
        for command in ("archive", "snapshot"):
            process = start(command, topic, str(disk / command))
            _, errors = process.communicate(timeout=240)
            last = errors.splitlines()[-1]
            assert (process.returncode, "Traceback" in errors) == (1, False), errors
            assert last.startswith("kompakt: ")
            assert last.endswith(" (No space left on device)")
            shutil.rmtree(disk / command)


def test_archive_and_restore_by_command(spark: Any, servers: str, tmp_path: Path, start: Start) -> None:
    """--checkpoint, --option and --no-keep-partitions; a terminal is told how far it is."""
    topic, copy = create_topic(servers), create_topic(servers)
    sent = produce(servers, topic, 300)
    archive, checkpoint = tmp_path / "archive", tmp_path / "noted"
    arguments = ("archive", topic, str(archive), "--checkpoint", str(checkpoint))
    shown = said(start(*arguments, "--option", "maxOffsetsPerTrigger=150", FORCE_COLOR="1"))
    assert f"archiving {topic}: 300 records, " in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert (checkpoint / "commits" / "1").exists()
    assert not (archive / "_checkpoint").exists()
    assert received(spark.read.parquet(str(archive))) == sorted(sent, key=place_of)

    arguments = ("restore", str(archive), copy, "--checkpoint", str(tmp_path / "restored"))
    options = ("--no-keep-partitions", "--option", "partitioner=crc32")
    assert lines_of(start(*arguments, *options)) == [f"300 records written to {copy}"]
    restored = received(reader(spark, servers, copy, includeHeaders="true").load())
    assert Counter(map(what_of, restored)) == Counter(map(what_of, sent))
    assert partitions_of(restored) == {key: {crc32_partition(key)} for key in partitions_of(sent)}


@pytest.mark.slow
def test_ctrl_c_is_one_line(spark: Any, servers: str, tmp_path: Path, start: Start) -> None:
    """Whenever it comes, the JVM ends as well: one that was just starting stayed for ever."""
    topic, archive = create_topic(servers), tmp_path / "archive"
    sent = produce(servers, topic, 300)
    arguments = ("archive", topic, str(archive), "--option", "maxOffsetsPerTrigger=3")

    def interrupted_when(condition: Callable[[Popen], bool], what: str) -> None:
        process = start(*arguments)
        wait_for(lambda: condition(process), what, 240)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output, errors = process.communicate(timeout=120)  # when the JVM has let go of them
        assert (process.returncode, output, "Traceback" in errors) == (130, "", False), errors
        (line,) = [line for line in errors.splitlines() if line.startswith("kompakt: ")]
        assert line == "kompakt: interrupted; the same command goes on where it stopped"

    interrupted_when(has_java, "a JVM that starts")
    interrupted_when(lambda _: (archive / "_spark_metadata" / "1").exists(), "the second micro-batch")
    said(start("archive", topic, str(archive)))
    assert received(spark.read.parquet(str(archive))) == sorted(sent, key=place_of)


@pytest.mark.slow
def test_a_source_that_is_killed_is_one_line(spark: Any, servers: str, tmp_path: Path, start: Start) -> None:
    """Spark says that the stream failed, and nothing of why."""
    topic, archive = create_topic(servers), tmp_path / "archive"
    sent = produce(servers, topic, 300)
    process = start("archive", topic, str(archive), "--option", "maxOffsetsPerTrigger=3")
    wait_for((archive / "_spark_metadata" / "1").exists, "the second micro-batch", 240)
    (java,) = children_of(process.pid)
    (runner,) = [one for one in children_of(java) if b"python_streaming_source_runner" in command_of(one)]
    os.kill(runner, signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    last = errors.splitlines()[-1]
    assert (process.returncode, output, last) == (1, "", f"kompakt: {cli.SOURCE_GONE}"), errors
    said(start("archive", topic, str(archive)))
    assert received(spark.read.parquet(str(archive))) == sorted(sent, key=place_of)


def children_of(process: int) -> list[int]:
    threads = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for one in threads for child in one.read_text().split()]


def command_of(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def has_java(process: Popen) -> bool:
    """Whether a child runs Java, which then has some seconds to go before it can be asked anything."""
    return any(Path(f"/proc/{child}/comm").read_text() == "java\n" for child in children_of(process.pid))


def what_of(record: Any) -> tuple[Any, ...]:
    """A record without its place."""
    return record.key, record.value, record.timestamp_ms, record.headers


def partitions_of(records: list[Any]) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for record in records:
        if record.key is not None:
            found.setdefault(record.key, set()).add(record.partition)
    return found


def crc32_partition(key: bytes) -> int:
    return zlib.crc32(key) % 3


@pytest.mark.slow
def test_a_restore_that_is_killed_goes_on(spark: Any, servers: str, tmp_path: Path, start: Start) -> None:
    """Nothing is missing; twice is there at most the micro-batch that was cut short."""
    topic, copy = create_topic(servers), create_topic(servers)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for number in range(6000):
        producer.produce(topic, b"%d" % number, b"%d" % (number % 50), partition=number % 3)
    assert producer.flush(60) == 0
    archive, checkpoint = tmp_path / "archive", tmp_path / "restored"
    rows = reader(spark, servers, topic, includeHeaders="true").load()
    rows.repartition(150, "offset").write.parquet(str(archive))  # 64 files go into a micro-batch
    arguments = ("restore", str(archive), copy, "--checkpoint", str(checkpoint))
    process = start(*arguments)
    wait_for((checkpoint / "offsets" / "1").exists, "the second micro-batch", 240)
    kill(process)
    assert (checkpoint / "commits" / "0").exists()
    assert not (checkpoint / "commits" / "2").exists(), "it had finished"
    finished = len(list((checkpoint / "commits").glob("[0-9]")))
    (line,) = lines_of(start(*arguments))
    written = int(line.replace(",", "").removesuffix(f" records written to {copy}"))
    assert 0 < written < 6000
    found = [
        (row.partition, int(row.value))
        for row in reader(spark, servers, copy).load().select("partition", "value").collect()
    ]
    counts = Counter(found)
    assert set(counts) == {(number % 3, number) for number in range(6000)}
    twice = [place for place, count in counts.items() if count > 1]
    assert max(counts.values()) <= 2
    assert len(twice) <= written
    assert finished < 3
    assert (checkpoint / "commits" / "2").exists()


def test_a_snapshot_by_command(spark: Any, servers: str, tmp_path: Path, start: Start) -> None:
    """--buckets and --full; the lines say what was read and what the table is now."""
    topic = create_topic(servers, {"cleanup.policy": "compact"})
    table = tmp_path / "table"
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(300):
        producer.produce(topic, b"%d" % number, b"%d" % (number % 60), partition=number % 3)
    assert producer.flush(60) == 0
    refresh_snapshot(spark, topic, {"kafka.bootstrap.servers": servers}, table, buckets=4)
    assert lines_of(start("snapshot", topic, str(table), "--buckets", "4", "--full")) == [
        f"everything: 300 offsets of {topic}",
        "60 keys changed, 4 of 4 buckets written",
        f"{table}: version 2, built anew (asked for), 60 rows",
    ]
    rows = KeyedTable(table).read(spark).select("key", "value").collect()
    assert {int(row.key): int(row.value) for row in rows} == {key: 240 + key for key in range(60)}
    assert len(rows) == 60


class Changes:
    """A change log and the table that it makes."""

    def __init__(self, servers: str) -> None:
        self.topic = create_topic(servers)
        self.rows: dict[str, tuple[int, str]] = {}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._chance = random.Random(3)

    def send(self, count: int, keys: int = 3000) -> None:
        for number in range(count):
            key = self._chance.randrange(keys)
            is_deleted = self._chance.random() < 0.2
            change = {"id": key, "name": f"name {number}", "op": "d" if is_deleted else "u"}
            self._producer.produce(self.topic, json.dumps(change), f"{key}", partition=key % 3)
            self.rows.pop(f"{key}", None)
            if not is_deleted:
                self.rows[f"{key}"] = key, f"name {number}"
        assert self._producer.flush(60) == 0

    def send_malformed(self) -> None:
        self._producer.produce(self.topic, b"{broken", b"bad", partition=0)
        assert self._producer.flush(60) == 0


def table_of(spark: Any, path: Path) -> dict[str, tuple[int, str]]:
    rows = KeyedTable(path).read(spark).collect()
    table = {bytes(row.key).decode(): (row.id, row["name"]) for row in rows}
    assert len(table) == len(rows), "a key has two rows"
    return table


def test_a_schema_that_spark_does_not_know_is_told_in_its_words(
    spark: Any, servers: str, tmp_path: Path, start: Start
) -> None:
    """Spark's message begins with an empty line, which says nothing."""
    topic = create_topic(servers)
    produce(servers, topic, 3)
    process = start("apply", topic, str(tmp_path / "table"), "--schema", "id lon")
    output, errors = process.communicate(timeout=240)
    assert (process.returncode, output) == (1, "")
    assert 'kompakt: [UNSUPPORTED_DATATYPE] Unsupported data type "LON".' in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_changes_that_are_killed_while_they_are_applied(
    spark: Any, servers: str, tmp_path: Path, start: Start
) -> None:
    """The table is the one before or the one after; applied again, each change is in it once."""
    changes, path = Changes(servers), tmp_path / "table"
    changes.send(6000)
    source = {"kafka.bootstrap.servers": servers}
    apply_changes(spark, changes.topic, source, path, SCHEMA, delete_when="op = 'd'")
    before = dict(changes.rows)
    assert table_of(spark, path) == before
    changes.send(6000)
    changes.send_malformed()
    arguments = ("apply", changes.topic, str(path), "--schema", SCHEMA, "--delete-when", "op = 'd'")
    process = start(*arguments, "--skip-malformed")
    wait_for((path / "version=2").exists, "the files of version 2", 240)
    kill(process)
    manifest = KeyedTable(path).manifest()
    assert manifest is not None
    assert table_of(spark, path) == (before if manifest.version == 1 else changes.rows)
    if manifest.version == 2:  # it was quicker than the kill: there must be something to apply
        changes.send(10)
    lines = lines_of(start(*arguments, "--skip-malformed"))
    assert re.fullmatch(rf"changes: [\d,]+ offsets of {changes.topic}", lines[0])
    assert re.fullmatch(r"[\d,]+ keys changed, \d+ of 16 buckets written", lines[1])
    version = manifest.version + 1
    assert lines[2:] == [f"{path}: version {version}, refreshed, {len(changes.rows):,} rows"]
    assert table_of(spark, path) == changes.rows
