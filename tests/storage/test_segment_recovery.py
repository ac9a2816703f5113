"""Goal: a segment that is whole is recovered by one reading, and what comes of it is what Python, which looks
at everything twice, makes of the same bytes; where something is wrong, the quick way has left no trace.

Method: every recovery of logs with bits flipped, cut files, holes, transactions and far offsets is done both
ways. What is skipped of producers, and added to indexes at once, is compared with doing it one by one.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy
import pytest

from protocol.control import Marker, marker_batch
from protocol.kernel import load_numba
from storage import batch_table, replay, segment_recovery, stretch
from storage.batch_table import read_table
from storage.file import SYSTEM_DISK, DataFile, Disk
from storage.index import OffsetIndex, TimeIndex
from storage.integrity import NO_ANCHORS, Place, walk_stretch
from storage.leader_epochs import LeaderEpochs
from storage.log import Log
from storage.producer_state import ProducerStateManager
from storage.stretch import WholeFile
from storage.types import LogLimits
from tests.storage.builders import NOW_MS, LogBuilder, batch, entries_of
from tests.storage.conftest import MakeLog
from tests.storage.test_flipped_bits import Damaged
from tests.storage.test_flipped_prefixes import cleaned_log
from tests.storage.test_stretch import mixed_log
from tests.thoroughness import some_or_all

SEED = 11
SIZE = len(batch())


class Compared(WholeFile):
    """Whatever it is asked, `walk_stretch` is asked as well."""

    said: ClassVar[Counter[bool]] = Counter()

    def __init__(self, file: DataFile, place: Place) -> None:
        super().__init__(file, place)
        self._of = file, place

    def tables(self) -> Iterator[batch_table.Table]:
        file, place = self._of
        made: list[batch_table.Table] = []
        for table in super().tables():
            made.append(table.copy())
            yield table
        size = place.size_bytes
        walk = walk_stretch(
            lambda position, size: file.read(size, position), place, 0, size, place.end_offset, NO_ANCHORS
        )
        assert self.is_intact == walk.is_intact
        if self.is_intact:
            assert (self.next_offset, self.is_apart) == (walk.next_offset, walk.is_apart)
            expected, end, _ = read_table(file.read(size, 0))
            assert end == size
            assert numpy.array_equal(numpy.concatenate([expected[:, :0], *made], axis=1), expected)
        self.said[self.is_intact] += 1


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    load_numba()
    monkeypatch.setattr(segment_recovery, "WholeFile", Compared)
    monkeypatch.setattr(Compared, "said", Counter())
    return Compared.said


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_recovery, "WholeFile", stretch.WholeFile)
    monkeypatch.setattr(stretch, "would_load_numba", lambda: True)
    monkeypatch.setattr(stretch, "SMALL_BYTES", 1 << 40)


def made_of(log: Log) -> Any:
    """Everything that a recovery makes."""
    return (
        [
            (
                segment.size_bytes, segment.next_offset, segment.damages, entries_of(segment.offset_index),
                entries_of(segment.time_index), segment.txn_index.entries(), segment.max_timestamp,
                segment.bytes_since_entry,
            )
            for segment in log.segments
        ],
        state_of(log.producers),
        log.leader_epochs.entries,
        (log.log_start_offset, log.log_end_offset, log.health.damaged_places),
    )  # fmt: skip


def state_of(producers: ProducerStateManager) -> Any:
    return (
        {
            one.producer_id: (
                one.epoch, one.coordinator_epoch, one.last_timestamp, one.transaction_start, list(one.batches)
            )
            for one in producers.producers.values()
        },
        producers.open_transactions(),
        producers._completed,
        producers.first_unstable_offset,
    )  # fmt: skip


def with_producers(make_log: MakeLog) -> LogBuilder:
    """Three segments; idempotent and transactional producers, of which some abort and one goes on."""
    builder = make_log(index_interval_bytes=150)
    sequences: Counter[int] = Counter()
    chance = random.Random(SEED)
    for number in range(60):
        producer = chance.choice((3, 4, 5, 6))
        is_transactional = producer > 4
        builder.append(
            *[b"%d" % number] * chance.randrange(1, 4), producer_id=producer, producer_epoch=0,
            base_sequence=sequences[producer], is_transactional=is_transactional, timestamp=NOW_MS + number,
        )  # fmt: skip
        sequences[producer] = builder.log.producers.producers[producer].last_sequence + 1
        if is_transactional and chance.random() < 0.3:
            builder.end_transaction(producer, is_commit=chance.random() < 0.5)
        if number in (20, 40):
            builder.log.roll(builder.now_ms)
    builder.log.flush()
    return builder


MAKERS = [mixed_log, cleaned_log, with_producers]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("most", [1, 5, stretch.MOST_COLUMNS])
def test_both_make_the_same_of_a_whole_log(
    make_log: MakeLog, said: Counter[bool], monkeypatch: pytest.MonkeyPatch, make: Any, most: int
) -> None:
    monkeypatch.setattr(stretch, "MOST_COLUMNS", most)
    builder = make(make_log)
    quick = made_of(builder.crash())
    count = said[True]
    assert count >= len(builder.log.segments)
    assert not said[False]
    slowly(monkeypatch)
    assert made_of(builder.crash()) == quick
    assert said[True] == count


@some_or_all("step", 3, 1)
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("recovery_point", [0, 1 << 40])
def test_both_make_the_same_of_flipped_bits(
    make_log: MakeLog, tmp_path: Path, said: Counter[bool], make: Any, recovery_point: int, step: int
) -> None:
    """Below the recovery point damage stays, at or above it the log ends there."""
    builder = make(make_log)
    builder.recovery_point = min(recovery_point, builder.log.log_end_offset)
    damaged = Damaged(builder, tmp_path / "attic", is_clean=False)
    chance = random.Random(SEED)
    for name, position, size, _ in list(damaged.batches())[::step]:
        for bit in (*chance.sample(range(61 * 8), 2), chance.randrange(size * 8)):
            made = made_of(damaged.open_with(name, position * 8 + bit))
            with pytest.MonkeyPatch.context() as patch:
                slowly(patch)
                assert made_of(damaged.open_with(name, position * 8 + bit)) == made
    assert said[True] and said[False]


def test_both_make_the_same_of_a_file_cut_anywhere(
    make_log: MakeLog, said: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = make_log(index_interval_bytes=50)
    for number in range(4):
        builder.append(b"v" * 20, producer_id=7, producer_epoch=0, base_sequence=number)
    path = builder.log.active_segment.file.path
    whole = path.read_bytes()
    for size in range(0, len(whole) + 1, 7):
        made = []
        for way in (True, False):
            builder.log.abandon()
            path.write_bytes(whole[:size])
            with monkeypatch.context() as patch:
                if not way:
                    slowly(patch)
                made.append(made_of(builder.open()))
        assert made[0] == made[1]
        last = size // (len(whole) // 4)
        assert builder.log.log_end_offset == last
        producers = builder.log.producers.producers
        assert len(producers[7].batches if last else ()) == last, "what was taken back is not counted twice"
    assert said[True] and said[False]


def test_a_last_batch_far_away_is_doubted(make_log: MakeLog, said: Counter[bool]) -> None:
    """A flip of its offset leaves all checksums right; where the recovery point says so it is right."""
    builder = make_log()
    builder.fill(3)
    path = builder.log.active_segment.file.path
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 2 * SIZE, 500)
    for recovery_point, expected in ((0, [0, 1]), (501, [0, 1, 500])):
        builder.log.abandon()
        path.write_bytes(data)
        builder.recovery_point = recovery_point
        builder.open()
        assert builder.offsets() == expected
    assert said == {True: 2}


def test_what_is_small_is_not_worth_loading_numba_for(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = make_log()
    builder.fill(3)
    segment = builder.log.segments[0]
    place = Place(0, segment.size_bytes, None, LeaderEpochs())
    asked = []
    monkeypatch.setattr(stretch, "would_load_numba", lambda: asked.append(True) or True)
    walk = WholeFile(segment.file, place)
    assert not list(walk.tables())
    assert not walk.is_intact
    monkeypatch.setattr(stretch, "SMALL_BYTES", segment.size_bytes - 1)
    walk = WholeFile(segment.file, place)
    assert [table.shape[1] for table in walk.tables()] == [3]
    assert walk.is_intact
    assert len(asked) == 2


# Producers


def random_batches(chance: random.Random, count: int) -> list[bytes]:
    made = []
    for offset in range(count):
        producer = chance.choice((-1, 1, 2, 3))
        fields: Any = {"producer_id": producer, "producer_epoch": chance.randrange(2)}
        if producer > 0 and chance.random() < 0.15:
            data = marker_batch(Marker(chance.random() < 0.5, offset), now_ms=NOW_MS + offset, **fields)
        elif producer > 0:
            fields |= {"base_sequence": offset, "is_transactional": chance.random() < 0.5}
            data = batch(b"v", timestamp=NOW_MS + offset, **fields)
        else:
            data = batch()
        made.append(struct.pack(">q", offset) + data[8:])
    return made


def reader(data: bytes) -> replay.Read:
    return lambda position, count: data[position : position + count]


def replayed(batches: list[bytes], limits: LogLimits) -> Any:
    """What is known of the producers of these batches when they were replayed a few at a time."""
    producers, aborted, at = ProducerStateManager(limits), [], 0
    for size in (1, 4, 30, 85):
        data = b"".join(batches[at : at + size])
        table, _, _ = read_table(data)
        aborted += replay.replay(producers, reader(data), table, 2)
        at += size
    return state_of(producers), aborted


@pytest.mark.parametrize("max_producers", [2, 100])
def test_what_is_not_decisive_makes_no_difference(
    monkeypatch: pytest.MonkeyPatch, max_producers: int
) -> None:
    limits = LogLimits(max_producers=max_producers)
    skipped = aborted = 0

    def all_of_them(table: batch_table.Table, columns: batch_table.Longs) -> batch_table.Longs:
        nonlocal skipped
        skipped += len(columns) - len(decisive(table, columns))
        return columns

    decisive = replay.decisive
    for seed in range(60):
        batches = random_batches(random.Random(seed), 120)
        quick = replayed(batches, limits)
        with monkeypatch.context() as patch:
            patch.setattr(replay, "decisive", all_of_them)
            assert replayed(batches, limits) == quick
        aborted += len(quick[1])
    assert aborted > 100
    assert (skipped > 100) == (max_producers == 100), "where some have to be forgotten each counts"


def test_a_long_run_of_one_producer_is_its_last_five() -> None:
    data = b"".join(
        struct.pack(">q", offset) + batch(producer_id=7, producer_epoch=0, base_sequence=offset)[8:]
        for offset in range(100)
    )
    table, _, _ = read_table(data)
    assert replay.decisive(table, numpy.arange(100)).tolist() == [95, 96, 97, 98, 99]


# Indexes


@pytest.mark.parametrize("seed", range(20))
def test_entries_added_at_once_are_those_added_one_by_one(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def indexes(name: str) -> tuple[OffsetIndex, TimeIndex]:
        offsets = OffsetIndex(SYSTEM_DISK, tmp_path / name, 1000)
        times = TimeIndex(SYSTEM_DISK, tmp_path / f"{name}.times", 1000)
        offsets.reset()
        times.reset()
        return offsets, times

    at_once, singly = indexes("a"), indexes("b")
    offset, position, time = 1000, 0, -1
    for size in (0, 1, 2, 20, 0, 5):
        rows = []
        for _ in range(size):
            offset, position = offset + chance.randrange(1, 9), position + chance.randrange(1, 99)
            time += chance.choice((0, 0, 3))
            rows.append((offset, position, time, offset))
        columns = numpy.array(rows, numpy.int64).reshape(-1, 4).T
        at_once[0].extend(columns[0], columns[1])
        at_once[1].extend(columns[2], columns[3])
        for row in rows:
            singly[0].append(row[0], row[1])
            singly[1].maybe_append(row[2], row[3])
    assert entries_of(at_once[0]) == entries_of(singly[0])
    assert entries_of(at_once[1]) == entries_of(singly[1])
    for far in (offset + 2**31, offset - 2**33):
        with pytest.raises(OverflowError):
            at_once[0].extend(numpy.array([offset + 1, far]), numpy.array([position + 1, position + 2]))
    assert entries_of(at_once[0]) == entries_of(singly[0])


# Flushes


def flushes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are flushed from now on."""
    names: list[str] = []

    def fdatasync(disk: Disk, descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(Disk, "fdatasync", fdatasync)
    return names


def test_a_topic_that_leaves_flushes_to_the_system_does_not_wait_for_one(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not flushed before the crash is not after it; the next flush covers all of it."""
    builder = make_log(flush_messages=1000, segment_bytes=5 * SIZE)
    builder.fill(8)
    builder.log.flush()
    builder.fill(4)
    builder.recovery_point = builder.log.recovery_point
    calls = flushes(monkeypatch)
    builder.crash()
    assert not calls
    assert (builder.log.recovery_point, builder.log.high_watermark, builder.log.log_end_offset) == (8, 12, 12)
    builder.log.flush()
    assert calls == [f"{base:020d}.log" for base in (5, 10)]
    assert builder.log.recovery_point == 12
    assert builder.log.begin_flush() is None


def test_a_durable_topic_is_flushed_before_it_is_served(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = make_log(segment_bytes=5 * SIZE)
    builder.fill(12)
    calls = flushes(monkeypatch)
    builder.crash()
    assert calls == [f"{base:020d}.log" for base in (0, 5, 10)]
    assert (builder.log.recovery_point, builder.log.high_watermark) == (12, 12)


def test_a_stop_flushes_what_was_recovered(make_log: MakeLog) -> None:
    builder = make_log(flush_messages=1000, segment_bytes=5 * SIZE)
    builder.fill(12)
    builder.crash()
    assert builder.log.recovery_point == 0
    builder.log.close()
    assert builder.log.recovery_point == 12
    builder.open(is_clean=True)
    assert builder.offsets() == list(range(12))


@pytest.mark.parametrize(("tail", "said"), [(bytes(3000), True), (bytes(2999) + b"\x01", False)])
def test_zeros_that_are_cut_off_are_called_zeros(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture, tail: bytes, said: bool
) -> None:
    """A kill leaves the room that preallocate=true has made: that is no alarm."""
    log = make_log(preallocate=True, segment_bytes=4096)
    log.fill(2)
    log.log.abandon()
    segment = log.directory / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[: 2 * SIZE] + tail)
    log.open()
    assert log.log.log_end_offset == 2
    assert f"{len(tail)} bytes behind offset 2 are no good batches and are cut off" in caplog.text
    assert ("room that preallocate=true has made" in caplog.text) is said
