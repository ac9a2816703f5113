"""Goal: a damaged `.txnindex` never lets an aborted record pass for a committed one, or the reverse, and
breaks no read.

Method: a log with aborted and committed transactions, also across a roll, is closed or left as by a crash;
each bit of each transaction index is flipped in turn, with and without the statistics that hold its
checksum; the log is opened, asked, and the file compared with what it was. In a cleaned log without these
statistics some flips cannot be told, as nothing else says where a transaction began whose data are gone;
there it is what a reader of committed records sees that has to stay as it was, for every range.
"""

from __future__ import annotations

import shutil
from itertools import combinations
from pathlib import Path

import pytest

from cleaner.cleaner import Cleaner
from cleaner.results import Range
from protocol.batch import BatchHeader
from protocol.control import Marker, decode_marker
from protocol.records import decode_batch
from storage import layout, statistics
from storage.log import Log
from storage.txn_index import ENTRY, ENTRY_BYTES, parse
from storage.types import AbortedTransaction
from storage.verify import verify_log
from tests.storage.builders import NOW_MS, LogBuilder
from tests.storage.conftest import MakeLog
from tests.storage.test_flipped_bits import flip
from tests.thoroughness import some_or_all

# Of the bits of a file; odd, so that every bit of a byte has its turn.
a_step = some_or_all("step", 7, 1)
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


@a_step
@clean_or_not
@pytest.mark.parametrize("has_statistics", [True, False], ids=["statistics", "none"])
def test_every_bit(
    make_log: MakeLog, tmp_path: Path, is_clean: bool, has_statistics: bool, step: int
) -> None:
    builder = transactional_log(make_log)
    for segment in builder.log.segments[:-1] if has_statistics else ():
        statistics.ensure(segment)
    copies = Copies(builder, tmp_path / "attic", is_clean=is_clean)
    assert len(copies.indexes) == 3
    for path in copies.indexes:
        for bit in range(0, 8 * path.stat().st_size, step):
            copies.restore()
            flip(builder.directory / path.name, bit)
            copies.check(f"bit {bit} of {path.name}")


@clean_or_not
def test_torn_files(make_log: MakeLog, tmp_path: Path, is_clean: bool) -> None:
    """Cut off anywhere (a file that is gone altogether is taken for one that never was)."""
    copies = Copies(transactional_log(make_log), tmp_path / "attic", is_clean=is_clean)
    assert len(copies.indexes) == 3
    for path in copies.indexes:
        data = path.read_bytes()
        for size in range(1, len(data)):
            copies.restore()
            (copies.builder.directory / path.name).write_bytes(data[:size])
            copies.check(f"{size} bytes of {path.name}")


def clean(builder: LogBuilder, segments: int) -> None:
    """Clean so many segments, one by one as they are small; there are no statistics of them."""
    cleaner = Cleaner(map_bytes=1 << 20, load_factor=0.9, run_on_owner=lambda function: function())
    cleaner.clean(builder.log, Range(0, builder.log.segments[segments].base_offset), NOW_MS)
    assert builder.files(layout.STATISTICS_SUFFIX) == []


@a_step
def test_a_cleaned_segment_with_statistics(make_log: MakeLog, tmp_path: Path, step: int) -> None:
    """Its data are gone: the checksum alone says which bit was flipped."""
    builder = transactional_log(make_log)
    clean(builder, 2)
    for segment in builder.log.segments[:-1]:
        statistics.ensure(segment)
    assert builder.files(layout.STATISTICS_SUFFIX) == [f"{0:020d}.stats"], "both became one segment"
    copies = Copies(builder, tmp_path / "attic", is_clean=True)
    assert [path.stat().st_size for path in copies.indexes] == [3 * ENTRY_BYTES, ENTRY_BYTES]
    for path in copies.indexes:
        for bit in range(0, 8 * path.stat().st_size, step):
            copies.restore()
            flip(builder.directory / path.name, bit)
            copies.check(f"bit {bit} of {path.name}")


def batches_of(log: Log) -> list[tuple[BatchHeader, bool]]:
    """All batches, and which of them are abort markers."""
    found = []
    for header, data in log.scan(0):
        is_abort = False
        if header.is_control and header.record_count:
            record = decode_batch(data)[0]
            is_abort = decode_marker(record.key, record.value) == Marker(is_commit=False)
        found.append((header, is_abort))
    return found


def committed(log: Log) -> list[list[int]]:
    """For each range the base offsets of the batches that a read_committed reader takes for committed, who
    proceeds as Kafka's `CompletedFetch`.
    """
    batches = batches_of(log)
    found = []
    for start, upper in combinations(range(log.log_end_offset + 1), 2):
        coming = sorted(log.aborted_transactions(start, upper), key=lambda one: one.first_offset)
        dropped: set[int] = set()
        seen = []
        for header, is_abort in batches:
            if header.last_offset < start or header.base_offset >= upper:
                continue
            while coming and coming[0].first_offset <= header.last_offset:
                dropped.add(coming.pop(0).producer_id)
            if is_abort:
                dropped.discard(header.producer_id)
            elif not header.is_control and not (header.is_transactional and header.producer_id in dropped):
                seen.append(header.base_offset)
        found.append(seen)
    return found


@pytest.mark.parametrize("cleaned", [1, 2])
def test_a_cleaned_log_that_was_written_elsewhere(make_log: MakeLog, tmp_path: Path, cleaned: int) -> None:
    """As Apache Kafka leaves one: no statistics. Its indexes are believed, though some of their entries can
    be read from no batch any more.
    """
    builder = transactional_log(make_log)
    clean(builder, cleaned)
    entries = builder.log.aborted_transactions(0, builder.log.log_end_offset)
    left = {header.base_offset for header, _ in batches_of(builder.log)}
    assert any(one.first_offset not in left for one in entries)
    Copies(builder, tmp_path / "attic", is_clean=True).check("nothing damaged")


@a_step
@pytest.mark.parametrize("cleaned", [1, 2])
def test_every_bit_of_an_index_of_a_cleaned_log_that_was_written_elsewhere(
    make_log: MakeLog, tmp_path: Path, cleaned: int, step: int
) -> None:
    """What cannot be told: a first or stable offset that moves within a hole, where no batch is left."""
    builder = transactional_log(make_log)
    clean(builder, cleaned)
    right = committed(builder.log)
    copies = Copies(builder, tmp_path / "attic", is_clean=True)
    assert len(copies.indexes) == (3 if cleaned == 1 else 2), "two segments are cleaned into one"
    for path in copies.indexes:
        for bit in range(0, 8 * path.stat().st_size, step):
            copies.restore()
            flip(builder.directory / path.name, bit)
            assert committed(builder.open(is_clean=True)) == right, f"bit {bit} of {path.name}"


def test_a_torn_index_of_a_cleaned_log_keeps_the_rest(make_log: MakeLog, tmp_path: Path) -> None:
    builder = transactional_log(make_log)
    clean(builder, 2)
    right = committed(builder.log)
    copies = Copies(builder, tmp_path / "attic", is_clean=True)
    assert len(copies.indexes) == 2
    for path in copies.indexes:
        data = path.read_bytes()
        for size in range(1, len(data)):
            copies.restore()
            index = builder.directory / path.name
            index.write_bytes(data[:size])
            assert committed(builder.open(is_clean=True)) == right, f"{size} bytes of {path.name}"
            whole = size - size % ENTRY_BYTES
            assert index.read_bytes()[:whole] == data[:whole], f"{size} bytes of {path.name}"


@pytest.mark.parametrize("has_snapshots", [True, False])
@clean_or_not
def test_an_entry_of_a_transaction_that_is_all_in_an_earlier_segment_is_made_again(
    make_log: MakeLog, tmp_path: Path, *, is_clean: bool, has_snapshots: bool
) -> None:
    """Only the marker is in the segment whose index lost its last entry: what the marker ends is known of a
    snapshot and the batches before it, or of these alone.
    """
    builder = make_log(index_interval_bytes=1, cleanup_policy="compact")
    for producer_id in (8, 7):
        builder.append(
            b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    builder.log.roll(NOW_MS)
    for producer_id in (7, 8):
        builder.end_transaction(producer_id, is_commit=False)
    builder.log.roll(NOW_MS)
    builder.append(b"h")
    builder.log.flush()
    copies = Copies(builder, tmp_path / "attic", is_clean=is_clean)
    copies.restore()
    for suffix in (layout.STATISTICS_SUFFIX, *([] if has_snapshots else [layout.SNAPSHOT_SUFFIX])):
        for path in builder.directory.glob(f"*{suffix}"):
            path.unlink()
    [index] = (builder.directory / path.name for path in copies.indexes)
    index.write_bytes(index.read_bytes()[:-ENTRY_BYTES])
    copies.check("the last entry is gone")


@pytest.mark.parametrize(
    "data",
    [
        ENTRY.pack(1, 7, 0, 2, 3),
        ENTRY.pack(0, 7, 3, 2, 3),
        ENTRY.pack(0, 7, 0, 2, 3) + ENTRY.pack(0, 8, 1, 2, 3),
        ENTRY.pack(0, 7, 0, 2, 3)[:-1],
    ],
    ids=["version", "ends before it begins", "does not ascend", "cut"],
)
def test_entries_that_cannot_be_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="entr"):
        parse(data)


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


def test_recovery_leaves_no_statistics_that_vouch_for_another_index(make_log: MakeLog) -> None:
    """In a cleaned segment it finds fewer aborted transactions than the index had: here one is made up."""
    builder = transactional_log(make_log)
    builder.restart()
    first = builder.log.segments[0]
    [entry] = first.txn_index.entries()
    first.txn_index.append([entry._replace(first_offset=entry.first_offset + 1)])
    statistics.remake(first)
    builder.recovery_point = 0
    builder.crash()
    assert builder.log.segments[0].txn_index.entries() == [entry]
    assert builder.files(layout.STATISTICS_SUFFIX) == [f"{5:020d}.stats"], "the other's are right"


@pytest.mark.parametrize("is_clean", [True, False])
def test_statistics_that_cannot_be_read_keep_no_log_from_opening(make_log: MakeLog, is_clean: bool) -> None:
    """Here there is a directory in the place of each."""
    builder = transactional_log(make_log)
    builder.restart()
    before = [segment.txn_index.entries() for segment in builder.log.segments]
    paths = list(builder.directory.glob("*.stats"))
    assert len(paths) == 2
    for path in paths:
        path.unlink()
        path.mkdir()
    builder.restart() if is_clean else builder.crash()
    assert [segment.txn_index.entries() for segment in builder.log.segments] == before
    complaints = verify_log(builder.directory)
    for path in paths:
        assert any(path.name in complaint for complaint in complaints)
        path.rmdir()


def test_a_damaged_marker_keeps_the_file(make_log: MakeLog, tmp_path: Path) -> None:
    """Where batches are damaged they may be markers: then what the file says is believed."""
    builder = transactional_log(make_log)
    copies = Copies(builder, tmp_path / "attic", is_clean=True)
    copies.restore()
    log = builder.directory / f"{0:020d}.log"
    flip(log, 8 * (log.stat().st_size // 2))
    copies.check("a flip among the batches")


def test_a_damaged_marker_in_an_earlier_segment_keeps_the_file(make_log: MakeLog, tmp_path: Path) -> None:
    """Where the snapshot of a segment is gone, the segments before are read for it: damage there says
    nothing against an index.
    """
    builder = transactional_log(make_log)
    copies = Copies(builder, tmp_path / "attic", is_clean=True)
    for snapshot in copies.attic.glob("*" + layout.SNAPSHOT_SUFFIX):
        snapshot.unlink()
    size = (copies.attic / f"{0:020d}.log").stat().st_size
    for position in range(70, size, 40):  # somewhere in each batch
        copies.restore()
        flip(builder.directory / f"{0:020d}.log", 8 * position)
        copies.check(f"a flip at {position}")


def test_a_damaged_batch_keeps_no_torn_file(make_log: MakeLog, tmp_path: Path) -> None:
    """What is left of the batches is all that can be believed, and a read of committed records is answered:
    from a file with a piece of an entry it would not be.
    """
    builder = transactional_log(make_log)
    copies = Copies(builder, tmp_path / "attic", is_clean=True)
    copies.restore()
    flip(builder.directory / f"{0:020d}.log", 8 * 70)  # in the first batch
    index = builder.directory / f"{5:020d}.txnindex"
    index.write_bytes(index.read_bytes()[:-1])
    copies.check("a flip among the batches, a torn index")


def test_an_index_that_lacks_an_entry_for_a_marker_without_data_is_whole(make_log: MakeLog) -> None:
    """As a second cleaning leaves one: of transaction 8 no batch is left, of 7 the last one's header is. The
    snapshot still knows where 8 began; that says nothing against the file.
    """
    builder = make_log(index_interval_bytes=1, cleanup_policy="compact", segment_bytes=1000)
    for producer_id in (7, 8):
        builder.append(
            b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    builder.append(bytes(700), key=b"first")
    builder.log.roll(NOW_MS)
    builder.append(b"w", producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True)
    for producer_id in (8, 7):
        builder.end_transaction(producer_id, is_commit=False)
    builder.append(bytes(500), key=b"second")
    builder.log.roll(NOW_MS)
    builder.append(b"v", producer_id=8, producer_epoch=0, base_sequence=1)
    for _ in range(2):
        clean(builder, 2)
    aborted = builder.log.aborted_transactions(0, builder.log.log_end_offset)
    assert [one.producer_id for one in aborted] == [7]
    assert sum(is_abort for _, is_abort in batches_of(builder.log)) == 2
    [index] = builder.directory.glob("*" + layout.TXN_INDEX_SUFFIX)
    before = index.read_bytes()
    assert builder.files(layout.SNAPSHOT_SUFFIX)[:1] == [f"{3:020d}.snapshot"]
    builder.restart()
    assert index.read_bytes() == before


@pytest.mark.parametrize("left", [None, b""], ids=["missing", "empty"])
def test_t170_a_lost_index_is_made_anew_where_the_statistics_know_of_it(
    make_log: MakeLog, left: bytes | None
) -> None:
    """Else what was aborted would be served as committed, and the next cleaning would keep it for good."""
    builder = transactional_log(make_log)
    for segment in builder.log.segments[:-1]:
        statistics.ensure(segment)
    before = builder.log.aborted_transactions(0, builder.log.log_end_offset)
    builder.log.flush()
    builder.recovery_point = builder.log.recovery_point
    closed = builder.log.segments[:-1]
    builder.log.close()
    for segment in closed:
        path = segment.txn_index.path
        path.unlink() if left is None else path.write_bytes(left)
    builder.open(is_clean=True)
    assert builder.log.aborted_transactions(0, builder.log.log_end_offset) == before
    assert sum(1 for segment in closed if segment.txn_index.path.exists()) == len(closed)
    assert verify_log(builder.directory) == []
    builder.log.close()
