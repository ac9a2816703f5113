"""Goal: `kompakt dump` shows every file of a data directory, and says where one is damaged, in order.

Method: the files of a log with transactions, codecs and a cleaning are dumped and compared with what was
written; then each is cut, flipped and filled with noise, and the command must end in order.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broker.cli import app
from protocol.compression import Codec
from protocol.records import encode_batch
from storage import layout, statistics
from storage.checkpoint import CheckpointWitness, OffsetCheckpoint, encode_uuid, write_properties
from storage.compaction_reach import write_reach
from storage.file import SYSTEM_DISK
from storage.layout import TopicPartition
from tests.storage.builders import NOW_MS, LogBuilder

runner = CliRunner()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    """A directory with every kind of file; segment 0 ends at 8, and the next has an aborted transaction."""
    log = LogBuilder(tmp_path / "orders-2", index_interval_bytes=1)
    for number in range(4):
        rows = [(NOW_MS + number, b"k%d" % number, b"v", (("h", b"x"),)), (NOW_MS, b"gone", None, ())]
        log.log.append(encode_batch(rows, codec=list(Codec)[number]), now_ms=NOW_MS)
    log.log.roll(NOW_MS)
    log.append(b"\xff", key=b"k", producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True)
    log.end_transaction(7, is_commit=False, epoch=1)
    log.log.roll(NOW_MS)
    log.log.flush()
    statistics.ensure(log.log.segments[0])
    log.log.close()
    for name in (layout.CLEANER_CHECKPOINT, layout.LOG_START_CHECKPOINT, layout.RECOVERY_POINT_CHECKPOINT):
        OffsetCheckpoint(log.directory / name).write({TopicPartition("orders", 2): 8})
    properties = {"version": "1", "cluster.id": encode_uuid(uuid.uuid4()), "node.id": "1"}
    write_properties(SYSTEM_DISK, log.directory / layout.META_PROPERTIES, properties)
    (log.directory / layout.MOVED_HERE).write_text("1000 52311\n")
    write_reach(SYSTEM_DISK, log.directory, 4711)
    (log.directory / layout.CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":-1}')
    yield log.directory


def invoke(path: Path, *options: str) -> tuple[int, str]:
    result = runner.invoke(app, ["dump", str(path), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout + result.stderr


def rows_of(path: Path, *options: str) -> list[dict[str, Any]]:
    status, output = invoke(path, "--json", *options)
    assert status == 0, output
    return [json.loads(line) for line in output.splitlines()]


def name(base: int, suffix: str) -> str:
    return layout.segment_file_name(base, suffix)


def test_batches_and_records(files: Path) -> None:
    log = files / name(0, ".log")
    batches = rows_of(log)
    assert [row["base_offset"] for row in batches] == [0, 2, 4, 6]
    assert [row["codec"] for row in batches] == ["none", "gzip", "snappy", "lz4"]
    records = [row for row in rows_of(log, "--values") if row["kind"] == "record"]
    assert records[2:4] == [
        {
            "kind": "record", "offset": 2, "timestamp": NOW_MS + 1, "key": "k1", "value": "v",
            "headers": [["h", "x"]],
        },
        {"kind": "record", "offset": 3, "timestamp": NOW_MS, "key": "gone", "value": None},
    ]  # fmt: skip
    assert [row["value_bytes"] for row in rows_of(log, "--records") if "value_bytes" in row][:2] == [1, None]
    _, shown = invoke(log, "--values")
    assert shown.splitlines()[1].startswith(
        "  record: offset 0, timestamp 1700000000000 (2023-11-14 22:13:20.000"
    )
    assert 'key "gone", value null' in shown


def test_transactions_and_producers(files: Path) -> None:
    rows = rows_of(files / name(8, ".log"), "--values")
    assert [row["kind"] for row in rows] == ["batch", "record", "batch", "marker"]
    assert (rows[0]["producer_id"], rows[0]["producer_epoch"], rows[0]["is_transactional"]) == (7, 1, True)
    assert (rows[1]["value"], rows[3]["ends"]) == ("0xff", "abort")
    (aborted,) = rows_of(files / name(8, ".txnindex"))
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 8, 9)
    (producer,) = rows_of(files / name(10, ".snapshot"))
    assert (producer["producer_id"], producer["producer_epoch"], producer["last_offset"]) == (7, 1, 8)


def test_indexes_checkpoints_and_the_rest(files: Path) -> None:
    assert [row["offset"] for row in rows_of(files / name(0, ".index"))] == [3, 5, 7]
    assert rows_of(files / name(0, ".timeindex"))[-1] == {
        "kind": "entry", "timestamp": NOW_MS + 3, "offset": 7
    }  # fmt: skip
    (counted,) = rows_of(files / name(0, ".stats"))
    assert (counted["records"], counted["tombstones"], counted["distinct_keys"]) == (8, 4, 5)
    assert rows_of(files / layout.LEADER_EPOCH_CHECKPOINT) == [
        {"kind": "epoch", "epoch": 0, "start_offset": 0}
    ]
    for checkpoint in (
        layout.CLEANER_CHECKPOINT,
        layout.LOG_START_CHECKPOINT,
        layout.RECOVERY_POINT_CHECKPOINT,
    ):
        assert rows_of(files / checkpoint) == [
            {"kind": "offset", "topic": "orders", "partition": 2, "offset": 8}
        ]
    assert {row["name"] for row in rows_of(files / layout.META_PROPERTIES)} == {
        "version",
        "cluster.id",
        "node.id",
    }
    assert [row["name"] for row in rows_of(files / layout.PARTITION_METADATA)] == ["version", "topic_id"]
    assert rows_of(files / layout.CLEAN_SHUTDOWN)[0]["value"] == 0
    assert rows_of(files / layout.COMPACTED_TO) == [{"kind": "compacted", "offset": 4711}]
    assert rows_of(files / layout.MOVED_HERE) == [{"kind": "moved", "base_offset": 1000, "bytes": 52311}]


@pytest.mark.parametrize("name", layout.WITNESS_OF.values())
def test_the_witness_of_a_checkpoint(files: Path, name: str) -> None:
    path = files / name
    CheckpointWitness(path).write((files / layout.LOG_START_CHECKPOINT).read_bytes())
    row = {"kind": "offset", "topic": "orders", "partition": 2, "offset": 8}
    assert rows_of(path) == [row]
    path.write_bytes(path.read_bytes().replace(b" 8", b" 9"))
    status, output = invoke(path, "--json")
    assert status == 1
    assert [json.loads(line) for line in output.splitlines()][-1] == row | {"offset": 9}
    assert "a wrong checksum" in output


def test_what_kafka_preallocates_is_no_damage(tmp_path: Path) -> None:
    index = tmp_path / name(0, ".index")
    index.write_bytes(bytes.fromhex("0000000300000051") + bytes(80))
    assert [row["kind"] for row in rows_of(index)] == ["entry", "unused"]
    log = tmp_path / name(0, ".log")
    log.write_bytes(encode_batch([(NOW_MS, b"k", b"v", ())]) + bytes(500))
    assert rows_of(log)[-1] == {"kind": "unused", "position": 70, "zero_bytes": 500}
    (tmp_path / layout.CLEANER_CHECKPOINT).write_text("")
    assert rows_of(tmp_path / layout.CLEANER_CHECKPOINT) == []


def test_a_damaged_batch_is_named_and_the_next_is_shown(files: Path) -> None:
    path = files / name(0, ".log")
    data = bytearray(path.read_bytes())
    data[65] ^= 1
    path.write_bytes(data)
    status, output = invoke(path)
    assert status == 1
    assert "problem: the batch at position 0 does not have its checksum" in output
    assert output.count("batch: ") == 4


def test_a_topic_id_that_a_start_does_not_take_is_named(files: Path) -> None:
    path = files / layout.PARTITION_METADATA
    path.write_bytes(path.read_bytes()[:-9])
    status, output = invoke(path)
    assert status == 1
    assert "is no id" in output.splitlines()[-1]


def test_noise_gives_a_line_and_never_a_traceback(files: Path) -> None:
    rng = random.Random(3)
    for path in sorted(files.iterdir()):
        good = path.read_bytes()
        for attempt in range(12):
            data = bytearray(good)
            if attempt % 3 == 0:
                data = data[: rng.randrange(len(data) + 1)]
            elif attempt % 3 == 1 and data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            else:
                data = bytearray(rng.randbytes(rng.randrange(200)))
            path.write_bytes(data)
            status, output = invoke(path, "--values")
            assert status in (0, 1)
            assert ("problem: " in output) == (status == 1)
        path.write_bytes(good)


def test_what_is_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert invoke(tmp_path / "notes.txt") == (2, "kompakt: notes.txt is no file of a data directory\n")
    status, output = invoke(tmp_path)
    assert (status, output) == (2, f"kompakt: {tmp_path} is no file\n")
