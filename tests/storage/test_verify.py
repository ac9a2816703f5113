"""Goal: the checker that every other test leans on sees each kind of damage.

Method: a good directory is damaged in one place at a time; every damage must be named, and the good one
must not be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import layout, statistics
from storage.checkpoint import CheckpointWitness, OffsetCheckpoint, written_log_start
from storage.verify import is_data_directory, size_to_verify, verify_data_directory, verify_log
from tests.storage.builders import TOPIC_PARTITION, LogBuilder, batch
from tests.storage.conftest import MakeLog

SIZE = len(batch())


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped record": lambda d: flip(d / name(0, ".log"), 66),
    "flipped checksum": lambda d: flip(d / name(0, ".log"), 18),
    "flipped magic": lambda d: flip(d / name(0, ".log"), SIZE + 16),
    "offset that goes back": lambda d: flip(d / name(20, ".log"), 7),
    "leader epoch of a batch": lambda d: flip(d / name(20, ".log"), 13),
    "cut log": lambda d: cut(d / name(0, ".log"), 5),
    "garbage behind the log": lambda d: (d / name(20, ".log")).write_bytes(
        (d / name(20, ".log")).read_bytes() + b"x" * 80
    ),
    "index offset": lambda d: flip(d / name(0, ".index"), 3),
    "index position": lambda d: flip(d / name(0, ".index"), 7),
    "index length": lambda d: cut(d / name(0, ".index"), 3),
    "missing index": lambda d: (d / name(0, ".index")).unlink(),
    "missing time index": lambda d: (d / name(20, ".timeindex")).unlink(),
    "time": lambda d: flip(d / name(0, ".timeindex"), 7),
    "time index without its last entry": lambda d: cut(d / name(0, ".timeindex"), 12),
    "time index length": lambda d: cut(d / name(0, ".timeindex"), 1),
    "snapshot": lambda d: flip(d / name(20, ".snapshot"), 3),
    "snapshot beyond the end": lambda d: (d / name(20, ".snapshot")).rename(d / name(99, ".snapshot")),
    "left over cleaned": lambda d: (d / name(0, ".log.cleaned")).write_bytes(b""),
    "left over swap": lambda d: (d / name(0, ".log.swap")).write_bytes(b""),
    "orphan index": lambda d: (d / name(7, ".index")).write_bytes(b""),
    "transaction index": lambda d: (d / name(0, ".txnindex")).write_bytes(b"x" * 34),
    "epochs": lambda d: (d / "leader-epoch-checkpoint").write_text("0\n2\n1 5\n0 7\n"),
    "epochs cut": lambda d: (d / "leader-epoch-checkpoint").write_text("0\n2\n1 5\n"),
    "epochs cut within a line": lambda d: (d / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1"),
    "epochs that are no numbers": lambda d: (d / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n"),
    "epochs that are no text": lambda d: (d / "leader-epoch-checkpoint").write_bytes(b"0\n1\n\xff 0\n"),
    "compacted to": lambda d: (d / "kompakt-compacted-to").write_bytes(b"crc32c 00000000\n5\n"),
    "metadata": lambda d: (d / "partition.metadata").write_text("version: 7\n"),
    "metadata without a whole id": lambda d: cut(d / "partition.metadata", 9),
    "metadata that is no text": lambda d: (d / "partition.metadata").write_bytes(b"version: \xff\n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_seen(make_log: MakeLog, damage: str) -> None:
    log = make_log(segment_bytes=20 * SIZE, index_interval_bytes=3 * SIZE)
    log.fill(30, step_ms=5)
    log.log.close()
    assert verify_log(log.directory) == []
    DAMAGES[damage](log.directory)
    found = verify_log(log.directory)
    assert found
    assert all(line.startswith("orders-2: ") for line in found)
    log.is_damaged = True  # type: ignore[attr-defined]


def test_checkpoints_of_a_data_directory(log: LogBuilder) -> None:
    log.fill(3)
    log.log.flush()
    root = log.directory.parent
    path = root / "cleaner-offset-checkpoint"
    assert verify_data_directory(root) == []
    for text in ("0\n1\norders 2 4\n", "0\n2\norders 2 3\n", "0\n", "0\n1\norders x 3\n"):
        path.write_text(text)
        assert verify_data_directory(root)
    path.write_text("0\n1\norders 2 3\n")
    assert verify_data_directory(root) == []


@pytest.mark.parametrize("name", layout.WITNESS_OF)
def test_a_checkpoint_and_its_witness(log: LogBuilder, name: str) -> None:
    log.fill(20)
    log.log.flush()
    root = log.directory.parent
    witness = CheckpointWitness(root / layout.WITNESS_OF[name])
    checkpoint = OffsetCheckpoint(root / name, witness=witness)
    checkpoint.write({layout.TopicPartition("orders", 2): 5})
    assert verify_data_directory(root) == []
    checkpoint.path.write_text("0\n1\norders 2 4\n")
    assert verify_data_directory(root) == [f"{checkpoint.path.name}: is not what {witness.path.name} says"]
    checkpoint.path.write_text("0\n1\norders 2 12\n")
    assert verify_data_directory(root) == [], "Kafka wrote it since"
    witness.path.write_text(witness.path.read_text().replace("5", "4"))
    assert verify_data_directory(root) == [f"{witness.path.name}: is damaged"]
    witness.path.unlink()


def test_the_marks_that_a_start_reads_first(log: LogBuilder) -> None:
    log.fill(3)
    log.log.flush()
    root = log.directory.parent
    properties, mark = root / layout.META_PROPERTIES, root / layout.CLEAN_SHUTDOWN
    properties.write_text("#\nversion=1\ncluster.id=abc\nnode.id=1\n")
    for content in (b"", b'{"version":0,"brokerEpoch":-1}'):
        mark.write_bytes(content)
        assert verify_data_directory(root) == []
    for content in (b"garbage", b"\xff\xfe"):
        mark.write_bytes(content)
        assert verify_data_directory(root) == [f"{mark.name}: is damaged, it is no JSON"]
    mark.unlink()
    for content in (b"", b"garbage", b"\xff\xfe=1\n", b"cluster.id=\n"):
        properties.write_bytes(content)
        assert verify_data_directory(root) == [f"{properties.name}: is damaged, it has no cluster.id"]
    properties.unlink()
    assert verify_data_directory(root) == []


def test_where_a_log_starts_is_known_by_any_path_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were deleted within a segment are no records, from wherever somebody looks."""
    (tmp_path / "orders-2").mkdir()
    (tmp_path / "elsewhere").symlink_to("orders-2")
    path = tmp_path / layout.LOG_START_CHECKPOINT
    OffsetCheckpoint(path).write({TOPIC_PARTITION: 5})
    assert written_log_start(tmp_path / "orders-2") == 5
    assert written_log_start(tmp_path / "elsewhere") == 5
    assert written_log_start(tmp_path / "orders-3") == 0
    assert written_log_start(tmp_path) == 0, "no directory of a partition"
    monkeypatch.chdir(tmp_path / "orders-2")
    assert written_log_start(Path()) == 5
    path.write_bytes(b"0\n2\norders 2 5\n")
    assert written_log_start(Path()) == 0


def test_what_is_a_data_directory(tmp_path: Path) -> None:
    assert is_data_directory(tmp_path), "a broker may begin in an empty one"
    (tmp_path / "notes.txt").write_text("something else")
    (tmp_path / "session-7").mkdir()
    (tmp_path / "session-7" / "file").write_text("a directory with the name of a partition")
    assert not is_data_directory(tmp_path)
    (tmp_path / "orders-2").mkdir()
    (tmp_path / "orders-2" / name(0, ".log")).write_bytes(b"")
    assert is_data_directory(tmp_path)
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh" / layout.META_PROPERTIES).write_text("")
    assert is_data_directory(tmp_path / "fresh")


def test_a_log_in_use_is_right(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=5 * SIZE, index_interval_bytes=SIZE)
    for _ in range(12):
        log.append()
        assert verify_log(log.directory) == []


def test_a_checkpoint_that_kafka_made_and_never_wrote_is_good(log: LogBuilder) -> None:
    checkpoint = log.directory.parent / layout.CLEANER_CHECKPOINT
    checkpoint.write_bytes(b"")
    assert verify_data_directory(log.directory.parent) == []
    assert OffsetCheckpoint(checkpoint).read() == {}
    checkpoint.write_bytes(b"0\n")
    assert verify_data_directory(log.directory.parent) == [f"{checkpoint.name}: is damaged"]


def test_progress_is_told_of_every_byte(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=20 * SIZE)
    log.fill(50)
    log.log.close()
    for check, directory in ((verify_log, log.directory), (verify_data_directory, log.directory.parent)):
        told: list[int] = []
        assert check(directory, told.append) == []
        assert sum(told) == size_to_verify(directory) == 50 * SIZE


def test_it_only_reads(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup on a medium that takes no writes could not be verified, and a damaged index that has
    statistics beside it was made anew, under a broker that runs maybe.
    """
    log = make_log(segment_bytes=20 * SIZE, index_interval_bytes=3 * SIZE)
    log.fill(30, step_ms=5)
    statistics.ensure(log.log.segments[0])
    log.log.close()
    cut(log.directory / name(0, ".index"), 3)
    before = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    opened, system_open = [], os.open

    def note(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if log.directory in Path(path).parents:
            opened.append(flags & os.O_ACCMODE)
        return system_open(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", note)
    for _ in range(2):
        assert any(f"{name(0, '.index')} has" in line for line in verify_log(log.directory))
    assert set(opened) == {os.O_RDONLY}
    assert {path.name: path.read_bytes() for path in log.directory.iterdir()} == before
    log.is_damaged = True  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_read_is_named_and_hides_no_other(log: LogBuilder) -> None:
    """A bad sector ended it with a line that named no file, and nothing else was looked at."""
    log.fill(30)
    log.log.roll(1)
    log.log.flush()
    log.log.close()
    root, names = log.directory.parent, []
    checkpoint = OffsetCheckpoint(
        root / layout.CLEANER_CHECKPOINT, witness=CheckpointWitness(root / layout.CLEANER_WITNESS)
    )
    checkpoint.write({})
    (root / layout.CLEAN_SHUTDOWN).write_text("{}")
    (root / layout.META_PROPERTIES).write_text("cluster.id=abc\n")
    (log.directory / name(0, ".txnindex")).write_bytes(b"")
    (log.directory / name(30, ".timeindex")).write_bytes(b"x")
    assert len(verify_data_directory(root)) == 1
    for path in (*sorted(log.directory.iterdir()), *sorted(root.glob("*-offset-*")), *root.glob("*.pro*")):
        if path.suffix != ".log" and path.name != name(30, ".timeindex"):
            path.unlink()
            path.mkdir()
            names.append(path.name)
    (root / "gone-0").mkdir()
    (root / "gone-0" / name(0, ".log")).symlink_to("/no/such/file")
    found = verify_data_directory(root)
    for one in (*names, name(30, ".timeindex"), f"gone-0: {name(0, '.log')}"):
        assert any(one in line for line in found), (one, found)
    assert size_to_verify(root) > 0
    log.is_damaged = True  # type: ignore[attr-defined]
