"""Goal: what a cleaning leaves of a log with transactions is what Apache Kafka's own `Cleaner` leaves of the
same segments: data, markers, empty batches, delete horizons, transaction indexes. And where an offset map is
too small for one pass, all passes together leave what Kafka's leave, and no pass loses anything.

Method: dice write logs (`cleaning_dice.py`), `CleanedLogs.java` has Kafka's class clean a copy with the same
clock, and what is left is compared after each pass.

Where a full map ends a pass is not Kafka's in three ways, all on purpose: Kafka goes on over the aborted
batches and markers behind the last key that had room, kompakt over records without a key; and kompakt maps
the last record before the dirty part once more where its batch has a delete horizon (`_is_armed`). So the
passes of the two part there, and what is compared is where they arrive.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import IO, NamedTuple

import pytest

from cleaner.offset_map import ENTRY_BYTES
from protocol.batch import DELETE_HORIZON, BatchHeader, iterate_headers
from protocol.compression import Codec
from protocol.control import Marker, encode_marker, marker_batch
from protocol.records import Record, decode_batch, encode_batch
from storage.types import Origin
from tests.cleaner.world import World
from tests.kafka import compare
from tests.kafka.cleaning_dice import HOUR_MS, ROOMY_SLOTS, Append, Life, Mark, Settings, Step, draw
from tests.kafka.fixtures import or_skip
from tests.kafka.jars import HERE, environment
from tests.kafka.tools import SHORT, Tools
from tests.thoroughness import some_or_all

pytestmark = pytest.mark.java
CLOSING_ROUNDS = 4
"""until nothing waits: data goes first, then the empty batch at a round's end, then markers, once armed"""
CLOSING_MS = 25 * HOUR_MS
OFFSET_ENTRY = Struct(">ii")
"""offset behind the base offset, position"""
ABORTED_ENTRY = Struct(">hqqqq")
"""version, producer id, first and last offset, last stable offset"""
ABORT, _ = encode_marker(Marker(is_commit=False))
SMALL_SLOTS = (3, 5, 8, 20)
Batch = tuple[BatchHeader, list[Record]]


class KafkaCleaner:
    """The program that runs Kafka's class, one pass after the other."""

    def __init__(self, command: list[str], errors: IO[bytes]) -> None:
        self._errors = errors
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            env=environment(),
        )  # fmt: skip

    def clean(
        self, directory: Path, now_ms: int, start: int, end: int, settings: Settings
    ) -> tuple[int, list[str]]:
        """One pass over [start, end): how far the map reached, and the active producers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        words = (directory, now_ms, start, end, settings.slots * ENTRY_BYTES, settings.load_factor)
        print(*words, *kafka_settings(settings), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().split()
        if not answer or answer[0] == "ERR":
            self._errors.seek(0)
            pytest.fail(f"{answer}: {self._errors.read()[-4000:].decode(errors='replace')}")
        return int(answer[0]), answer[1:]


def kafka_settings(settings: Settings) -> list[str]:
    return [
        "cleanup.policy=compact",
        f"internal.segment.bytes={settings.segment_bytes}",
        f"delete.retention.ms={settings.delete_retention_ms}",
        f"index.interval.bytes={settings.index_interval_bytes}",
        "file.delete.delay.ms=0",
        f"segment.ms={2**53}",
        f"message.timestamp.type={'LogAppendTime' if settings.has_append_time else 'CreateTime'}",
    ]


@pytest.fixture(scope="module")
def kafka_cleaner() -> Iterator[KafkaCleaner]:
    tools = or_skip(lambda: Tools().with_compiler())
    command = tools.jvm(str(HERE / "CleanedLogs.java"), "-Xmx256m", *SHORT, log_level="ERROR")
    with tempfile.TemporaryFile() as errors:
        cleaner = KafkaCleaner(command, errors)
        with cleaner.process:
            yield cleaner
            assert cleaner.process.stdin is not None
            cleaner.process.stdin.close()


class Left(NamedTuple):
    """What is in a directory."""

    batches: list[object]
    aborted: list[tuple[str, str]]


def batches_of(directory: Path) -> Iterator[Batch]:
    """All batches of a log."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iterate_headers(data):
            yield header, decode_batch(data, position)


def left(directory: Path, *, with_segments: bool) -> Left:
    """All batches, with the segments they are in, and the transaction indexes.

    Compressed batches are compared unpacked: encoders differ. With their sizes differs which segments fit
    into one, so that `with_segments` is only for logs without; and for such in which none outgrew its limit
    as its batches got their horizons: Kafka lets it, kompakt makes two of it (T59).
    """
    batches: list[object] = [
        (header._replace(crc=0, batch_length=0 if header.codec else header.batch_length), records)
        for header, records in batches_of(directory)
    ]
    indexes = sorted(directory.glob("*.txnindex"))
    aborted = [(path.stem, path.read_bytes().hex()) for path in indexes]
    if with_segments:
        batches += [(path.stem, path.stat().st_size) for path in sorted(directory.glob("*.log"))]
    else:
        aborted = [("", "".join(text for _, text in aborted))]
    return Left(batches, [one for one in aborted if one[1]])


def without_horizons(batches: Iterable[Batch]) -> list[Batch]:
    """A horizon replaces the base timestamp; with both the sizes fall out."""
    return [
        (
            header._replace(
                attributes=header.attributes & ~DELETE_HORIZON, base_timestamp=0, batch_length=0, crc=0
            ),
            records,
        )
        for header, records in batches
    ]


class Data(NamedTuple):
    """The records of a log but for those of transactions that were aborted."""

    records: dict[int, Record]

    @classmethod
    def of(cls, directory: Path) -> Data:
        found: dict[int, Record] = {}
        begun: dict[int, list[int]] = {}
        for header, records in batches_of(directory):
            if header.is_control:
                offsets = begun.pop(header.producer_id, []) if records else []
                for offset in offsets if records and records[0].key == ABORT else []:
                    del found[offset]
                continue
            found |= {one.offset: one for one in records}
            if header.is_transactional:
                begun.setdefault(header.producer_id, []).extend(one.offset for one in records)
        return cls(found)

    def latest(self, end: int) -> dict[bytes | None, Record]:
        """What a reader of everything before `end` ends with."""
        found = {one.key: one for one in self.records.values() if one.offset < end and one.key is not None}
        return {key: one for key, one in found.items() if one.value is not None}

    def since(self, offset: int) -> dict[int, Record]:
        return {one: record for one, record in self.records.items() if one >= offset}


class Play:
    """A life lived on both sides."""

    def __init__(self, life: Life, root: Path, kafka: KafkaCleaner) -> None:
        self.settings = life.settings
        self._kafka = kafka
        self._has_equal_segments = life.settings.codecs == (Codec.NONE,)
        self._own = root / "own"
        self._copy = root / "orders-2"
        for directory in (self._own, self._copy):
            directory.mkdir(parents=True)
        self.world = World(
            self._own, life.settings.slots, load_factor=life.settings.load_factor,
            segment_bytes=life.settings.segment_bytes,
            delete_retention_ms=life.settings.delete_retention_ms,
            index_interval_bytes=life.settings.index_interval_bytes,
            message_timestamp_type="LogAppendTime" if life.settings.has_append_time else "CreateTime",
        )  # fmt: skip
        self._reached = self._kafka_reached = 0
        self.have_parted = False  # where their passes ended
        self.kafka_was_forgetful = False
        self._last_offsets: dict[bytes | None, int] = {}

    def write(self, step: Step) -> None:
        world = self.world
        world.now_ms += step.wait_ms
        if isinstance(step, Mark):
            data = marker_batch(
                Marker(step.is_commit),
                producer_id=step.producer_id,
                producer_epoch=step.epoch,
                now_ms=world.now_ms,
            )
            world.log.append(data, now_ms=world.now_ms, origin=Origin.COORDINATOR)
            return
        data = encode_batch(
            [(world.now_ms - age, key, value, ()) for age, key, value in step.pairs],
            codec=step.codec, producer_id=step.producer_id, producer_epoch=step.epoch,
            base_sequence=step.sequence, is_transactional=step.is_transactional,
        )  # fmt: skip
        if step.has_keyless:
            world.set_policy("delete")
        world.log.append(data, now_ms=world.now_ms)
        world.set_policy("compact")

    def live(self, segments: tuple[tuple[Step, ...], ...], idle_ms: int, pauses_ms: tuple[int, ...]) -> None:
        """A round: write, then clean both sides."""
        active = self.world.log.segments[-1].base_offset
        for segment in segments:
            for step in segment:
                self.write(step)
            self.world.roll()
        self.world.now_ms += idle_ms
        self._settle()
        for path in self._own.iterdir():
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex") and int(path.stem) >= active:
                shutil.copy(path, self._copy)
        stable = self.world.log.last_stable_offset
        end = max(one.base_offset for one in self.world.log.segments if one.base_offset <= stable)
        written = Data.of(self._own).records.values()
        self._last_offsets.update((one.key, one.offset) for one in written if one.offset < end)
        pauses = iter(pauses_ms)
        while min(self._reached, self._kafka_reached) < end:
            self._clean(end)
            if not self.have_parted:
                pause = next(pauses, None)
                if pause is None:
                    return
                self.world.now_ms += pause
                self._settle()
        if self.have_parted:
            self._compare_data()

    def _settle(self) -> None:
        """Forget old producers, and give Kafka the state of those that are left."""
        self.world.log.producers.expire(self.world.now_ms)
        self.world.log.settle()
        for path in self._copy.glob("*.snapshot"):
            path.unlink()
        for path in (*self._own.glob("*.snapshot"), *self._own.glob("leader-epoch-checkpoint")):
            shutil.copy(path, self._copy)

    def _clean(self, end: int) -> None:
        """A pass of each side that has not reached the end."""
        if self._reached < end:
            before = Data.of(self._own)
            result = self.world.clean(self._reached, end)
            assert self._reached < result.end_offset <= end
            self._reached = result.end_offset
            after = Data.of(self._own)
            assert after.since(self._reached) == before.since(self._reached), "not mapped, and gone"
            assert after.latest(self._reached) == before.latest(self._reached), "the last of a key is gone"
        if self._kafka_reached < end:
            self.kafka_was_forgetful |= self._is_forgetful(self._kafka_reached)
            now_ms = self.world.now_ms
            reached, active = self._kafka.clean(self._copy, now_ms, self._kafka_reached, end, self.settings)
            assert reached > self._kafka_reached
            self._kafka_reached = reached
            assert active == self._active_producers()
        self.have_parted |= self._reached != self._kafka_reached or self.kafka_was_forgetful
        limit = self.settings.segment_bytes
        if any(path.stat().st_size > limit for path in self._copy.glob("*.log")):
            self._has_equal_segments = False
        if not self.have_parted:
            ours, theirs = (
                left(one, with_segments=self._has_equal_segments) for one in (self._own, self._copy)
            )
            assert not (told := compare.differences(theirs.batches, ours.batches)), told
            assert ours.aborted == theirs.aborted

    def _active_producers(self) -> list[str]:
        return [
            f"{one}:{-1 if last.last_data_offset is None else last.last_data_offset}:{last.producer_epoch}"
            for one, last in sorted(self.world.log.producers.active_producers().items())
        ]

    def _is_forgetful(self, offset: int) -> bool:
        """Whether Kafka's pass from `offset` on takes what was committed for aborted, and does not map it.

        It reads all entries of the segment that it begins in (`LocalLog.collectAbortedTransactions` asks from
        the log's start on). Of a transaction that ended before the place where it begins to read it never
        meets the end. So what its producer's next records supersede stays; and what they delete is back when
        the tombstone has gone (seed 65, slow). kompakt asks for transactions that end in the pass
        (`aborted_from`).
        """
        begins = max(int(path.stem) for path in self._copy.glob("*.log") if int(path.stem) <= offset)
        stem = self._copy / f"{begins:020}"
        places = OFFSET_ENTRY.iter_unpack(stem.with_suffix(".index").read_bytes())
        read_from = max((begins + one for one, _ in places if begins + one <= offset), default=begins)
        index = stem.with_suffix(".txnindex")
        entries = ABORTED_ENTRY.iter_unpack(index.read_bytes()) if index.exists() else ()
        forgotten = {producer_id for _, producer_id, _, last_offset, _ in entries if last_offset < read_from}
        return any(
            header.producer_id in forgotten and header.last_offset >= offset
            for header, _ in batches_of(self._copy)
            if header.is_transactional and not header.is_control
        )

    def _compare_data(self) -> None:
        """All are cleaned to the same end: each side has the same records, and no others."""
        ours, theirs = (Data.of(one).records for one in (self._own, self._copy))
        if self.kafka_was_forgetful:
            theirs = {
                offset: one
                for offset, one in theirs.items()
                if offset in ours or offset >= self._last_offsets.get(one.key, -1)
            }
        assert not (told := compare.differences(list(theirs.values()), list(ours.values()))), told

    def close(self, marks: tuple[Mark, ...]) -> None:
        """End what is open, wait for all that waits, and compare what is left for good."""
        for number in range(CLOSING_ROUNDS):
            last = Append(0, ((0, b"last %d" % number, b""),), Codec.NONE, -1, -1, -1, is_transactional=False)
            self.live((((*marks, last) if number == 0 else (last,)),), CLOSING_MS, (0,) * 1000)
        if not self.kafka_was_forgetful:
            ours, theirs = (without_horizons(batches_of(one)) for one in (self._own, self._copy))
            assert not (told := compare.differences(theirs, ours)), told


def play(seed: int, slots: tuple[int, ...], root: Path, kafka: KafkaCleaner) -> Play:
    life = draw(seed, slots)
    one = Play(life, root / str(seed), kafka)
    try:
        for part in life.rounds:
            one.live(*part)
        one.close(life.closing)
    except Exception as problem:
        problem.add_note(f"seed {seed}: {life.settings}")
        raise
    finally:
        one.world.log.abandon()
    shutil.rmtree(root / str(seed) / "own")
    return one


@some_or_all("seeds", 24, 300)
def test_logs_with_transactions_are_cleaned_as_by_kafka(
    seeds: int, tmp_path: Path, kafka_cleaner: KafkaCleaner
) -> None:
    played = [play(seed, (ROOMY_SLOTS,), tmp_path, kafka_cleaner) for seed in range(seeds)]
    assert not any(one.have_parted for one in played)


@some_or_all("seeds", 16, 120)
def test_passes_with_too_small_a_map_arrive_where_kafkas_do(
    seeds: int, tmp_path: Path, kafka_cleaner: KafkaCleaner
) -> None:
    played = [play(seed, SMALL_SLOTS, tmp_path, kafka_cleaner) for seed in range(seeds)]
    assert sum(one.have_parted for one in played) > seeds / 4
