"""Goal: a damaged `.txnindex` never lets an aborted record pass for a committed one, or the reverse, and
breaks no read.

Method: a log with aborted and committed transactions, also across a roll, is closed or left as by a crash;
each bit of each transaction index is flipped in turn, with and without the statistics that hold its
checksum; the log is opened, asked, and the file compared with what it was.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cleaner.cleaner import Cleaner
from cleaner.results import Range
from storage import layout, statistics
from storage.log import Log
from storage.types import AbortedTransaction
from tests.storage.builders import NOW_MS, LogBuilder
from tests.storage.conftest import MakeLog
from tests.storage.test_flipped_bits import flip

clean_or_not = pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])


def transactional_log(make_log: MakeLog) -> LogBuilder:
    """Producer 7 aborts twice and commits once, 8 begins before a roll and aborts behind it, 9 stays open."""
    builder = make_log(index_interval_bytes=1, cleanup_policy="compact")
    sequences = {7: 0, 8: 0, 9: 0}

    def write(producer_id: int, value: bytes) -> None:
        builder.append(
            value, key=value, producer_id=producer_id, producer_epoch=0,
            base_sequence=sequences[producer_id], is_transactional=True,
        )  # fmt: skip
        sequences[producer_id] += 1

    write(7, b"a")
    write(8, b"b")
    builder.end_transaction(7, is_commit=False)
    write(7, b"c")
    builder.end_transaction(7, is_commit=True)
    builder.log.roll(NOW_MS)
    write(8, b"d")
    builder.end_transaction(8, is_commit=False)
    write(7, b"e")
    builder.end_transaction(7, is_commit=False)
    builder.log.roll(NOW_MS)
    write(7, b"f")
    write(9, b"g")
    builder.end_transaction(7, is_commit=False)
    builder.append(b"h")
    builder.log.flush()
    return builder


def asked(log: Log) -> list[list[AbortedTransaction]]:
    """The answers for every range."""
    end = log.log_end_offset
    return [log.aborted_transactions(start, upper) for start in range(end) for upper in range(start + 1, end)]


class Copies:
    """The log again and again, each time with another damage."""

    def __init__(self, builder: LogBuilder, attic: Path, *, is_clean: bool) -> None:
        builder.is_damaged = True  # type: ignore[attr-defined]
        self.builder, self.attic, self.is_clean = builder, attic, is_clean
        self.answers = asked(builder.log)
        builder.recovery_point = builder.log.log_end_offset
        if is_clean:
            builder.log.close()
        else:
            builder.log.abandon()
        shutil.copytree(builder.directory, attic)
        self.indexes = sorted(attic.glob("*" + layout.TXN_INDEX_SUFFIX))

    def restore(self) -> None:
        self.builder.log.abandon()
        shutil.rmtree(self.builder.directory)
        shutil.copytree(self.attic, self.builder.directory)

    def check(self, where: str) -> None:
        log = self.builder.open(is_clean=self.is_clean)
        assert asked(log) == self.answers, where
        for path in self.indexes:
            assert (self.builder.directory / path.name).read_bytes() == path.read_bytes(), where


@clean_or_not
@pytest.mark.parametrize("has_statistics", [True, False], ids=["statistics", "none"])
def test_every_bit(make_log: MakeLog, tmp_path: Path, is_clean: bool, has_statistics: bool) -> None:
    builder = transactional_log(make_log)
    for segment in builder.log.segments[:-1] if has_statistics else ():
        statistics.ensure(segment)
    copies = Copies(builder, tmp_path / "attic", is_clean=is_clean)
    assert len(copies.indexes) == 3
    for path in copies.indexes:
        for bit in range(0, 8 * path.stat().st_size, 1 if is_clean and has_statistics else 5):
            copies.restore()
            flip(builder.directory / path.name, bit)
            copies.check(f"bit {bit} of {path.name}")


@clean_or_not
def test_torn_files(make_log: MakeLog, tmp_path: Path, is_clean: bool) -> None:
    """Cut off anywhere (a file that is gone altogether is taken for one that never was)."""
    copies = Copies(transactional_log(make_log), tmp_path / "attic", is_clean=is_clean)
    for path in copies.indexes:
        data = path.read_bytes()
        for size in range(1, len(data)):
            copies.restore()
            (copies.builder.directory / path.name).write_bytes(data[:size])
            copies.check(f"{size} bytes of {path.name}")


def test_a_cleaned_segment(make_log: MakeLog, tmp_path: Path) -> None:
    """Its data are gone: an entry that is made anew may begin at the first batch that is left."""
    builder = transactional_log(make_log)
    cleaner = Cleaner(map_bytes=1 << 20, load_factor=0.9, run_on_owner=lambda function: function())
    cleaner.clean(builder.log, Range(0, builder.log.segments[-1].base_offset), NOW_MS)
    for segment in builder.log.segments[:-1]:
        statistics.ensure(segment)
    copies = Copies(builder, tmp_path / "attic", is_clean=True)
    end = builder.log.log_end_offset - 2  # of the ranges from 0 on the last
    for path in copies.indexes:
        for bit in range(0, 8 * path.stat().st_size, 3):
            copies.restore()
            flip(builder.directory / path.name, bit)
            log = builder.open(is_clean=True)
            right = {one[0::2]: one.first_offset for one in copies.answers[end]}
            for one in log.aborted_transactions(0, log.log_end_offset):
                assert right[one[0::2]] <= one.first_offset < one.last_offset, f"bit {bit}: {one}"


def test_statistics_are_written_for_the_next_start(make_log: MakeLog) -> None:
    """A start that had to read the segments leaves what lets the next one believe their indexes."""
    builder = transactional_log(make_log)
    assert builder.files(layout.STATISTICS_SUFFIX) == []
    builder.restart()
    assert builder.files(layout.STATISTICS_SUFFIX) == [f"{base:020d}.stats" for base in (0, 5)]
    before = {path.name: path.stat().st_ino for path in builder.directory.glob("*.stats")}
    builder.restart()
    assert {path.name: path.stat().st_ino for path in builder.directory.glob("*.stats")} == before


def test_what_a_crash_left_of_a_replacement_is_removed(make_log: MakeLog) -> None:
    builder = transactional_log(make_log)
    torn = builder.directory / f"{0:020d}.txnindex.tmp"
    torn.write_bytes(b"torn")
    builder.restart()
    assert not torn.exists()


def test_a_damaged_marker_keeps_the_file(make_log: MakeLog, tmp_path: Path) -> None:
    """Where batches are damaged they may be markers: then what the file says is believed."""
    builder = transactional_log(make_log)
    copies = Copies(builder, tmp_path / "attic", is_clean=True)
    copies.restore()
    log = builder.directory / f"{0:020d}.log"
    flip(log, 8 * (log.stat().st_size // 2))
    copies.check("a flip among the batches")
