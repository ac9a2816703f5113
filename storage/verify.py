"""Every invariant of a log directory, as a list of violations: `kompakt verify`, and the teardown of every
test.

Reads only, and believes nothing: batches are walked with their checksums and records, then each index,
snapshot and checkpoint is held against them. An empty list means that Kafka's tools and a restart find
nothing to repair. A log in use may lack its newest index entries, never have wrong ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from protocol.batch import NO_TIMESTAMP, checksum, parse_header
from protocol.errors import KafkaError
from protocol.records import OFFSET_DELTA, locate, payload
from storage import batch_table, layout, sidecar, statistics
from storage.batch_table import CUT, read_table
from storage.checkpoint import CheckpointWitness, judged, read_properties, topic_id_in, written_log_start
from storage.compaction_reach import reach_in
from storage.directory_set import KNOWN_VERSIONS, META_VERSION
from storage.emptied import had_batches
from storage.file import DataFile, Disk, check_regular
from storage.foreign_format import foreign_format
from storage.index import OFFSET_ENTRY, TIME_ENTRY, BrokenIndex
from storage.integrity import epochs_fit
from storage.leader_epochs import LeaderEpochs
from storage.producer_state import decode_snapshot
from storage.segment import MAX_RELATIVE_OFFSET, Segment
from storage.small_files import read_whole
from storage.statistics_kernels import BLOCK_BYTES
from storage.stored_batches import SCAN_BYTES
from storage.txn_index import parse as parse_transactions

MAX_VIOLATIONS = 100

Complain = Callable[[str], None]
Account = Callable[[int], None]
Present = set[tuple[int, str]]
"""(base offset, kind) of the files of segments that are in use"""


def _nobody(size_bytes: int) -> None:
    """Nobody wants to know how far it is."""


class ReadingDisk(Disk):
    """What is on a medium that takes no writes is verified too, and whoever looks repairs nothing."""

    def open(self, path: Path, flags: int) -> int:
        return super().open(path, os.O_RDONLY)


READING_DISK = ReadingDisk()


@contextlib.contextmanager
def _reading(name: str, complain: Complain) -> Iterator[None]:
    """A file that cannot be read is a violation, and hides no other."""
    try:
        yield
    except OSError as error:
        complain(f"{name} cannot be read: {error.strerror or error}")


class SegmentFacts(NamedTuple):
    """The batches of one segment, as columns."""

    base_offset: int
    next_offset: int
    positions: batch_table.Longs
    last_offsets: batch_table.Longs
    largest_timestamps: batch_table.Longs  # the largest up to and with each batch

    @property
    def largest_timestamp(self) -> int:
        return int(self.largest_timestamps[-1]) if len(self.largest_timestamps) else NO_TIMESTAMP


def size_to_verify(directory: Path) -> int:
    """Bytes of all batches in a data directory, or in one partition's."""
    return sum(path.stat().st_size for path in directory.rglob(f"*{layout.LOG_SUFFIX}") if path.is_file())


def is_log_directory(directory: Path) -> bool:
    """Whether this is the directory of one partition."""
    names = [path.name for path in directory.iterdir()]
    return layout.PARTITION_METADATA in names or any(map(layout.parse_segment_file, names))


def is_data_directory(directory: Path) -> bool:
    """Whether a broker may have made this, or may begin in it: it says whose it is, holds a partition, or is
    empty.
    """
    entries = list(directory.iterdir())
    return not entries or any(
        path.name == layout.META_PROPERTIES
        or (layout.parse_partition_directory(path.name) and path.is_dir() and is_log_directory(path))
        for path in entries
    )


def verify_data_directory(directory: Path, account: Account = _nobody) -> list[str]:
    """All partitions and checkpoints of a data directory; `account` is told of all bytes of batches read."""
    violations: list[str] = []
    ends: dict[layout.TopicPartition, int] = {}
    for path in sorted(directory.iterdir()):
        topic_partition = layout.parse_partition_directory(path.name) if path.is_dir() else None
        if topic_partition is None or layout.is_deleted_directory(path.name):
            continue
        with _reading(path.name, violations.append):
            found, ends[topic_partition] = _verify(path, account)
            violations += found
    for name in (layout.RECOVERY_POINT_CHECKPOINT, layout.LOG_START_CHECKPOINT, layout.CLEANER_CHECKPOINT):
        with _reading(name, violations.append):
            violations += (f"{name}: {problem}" for problem in _checkpoint_problems(directory / name, ends))
    for name, witness in layout.WITNESS_OF.items():
        with _reading(f"{name} or {witness}", violations.append):
            violations += _witness_problems(directory / name)
    with _reading(layout.META_PROPERTIES, violations.append):
        violations += _properties_problems(directory)
    with _reading(layout.CLEAN_SHUTDOWN, violations.append):
        violations += _mark_problems(directory)
    return violations


def _properties_problems(directory: Path) -> Iterator[str]:
    """What a start reads before anything else: whose the directory is."""
    properties = read_properties(READING_DISK, directory / layout.META_PROPERTIES)
    if properties is not None and not properties.get("cluster.id"):
        yield f"{layout.META_PROPERTIES}: is damaged, it has no cluster.id"
    if properties is not None and properties.get("version", META_VERSION) not in KNOWN_VERSIONS:
        yield f"{layout.META_PROPERTIES}: has the unknown version {properties['version']}"


def _mark_problems(directory: Path) -> Iterator[str]:
    """Whether it was left in order, which a start reads next."""
    mark = directory / layout.CLEAN_SHUTDOWN
    try:
        if mark.exists():
            json.loads(read_whole(READING_DISK, mark) or b"{}")  # old Kafkas leave it empty
    except ValueError:
        yield f"{mark.name}: is damaged, it is no JSON"


def _witness_problems(checkpoint: Path) -> Iterator[str]:
    witness = CheckpointWitness(checkpoint.with_name(layout.WITNESS_OF[checkpoint.name]))
    if not witness.path.exists():
        return
    copy = witness.read()
    if copy is None:
        yield f"{witness.path.name}: is damaged"
        return
    found = read_whole(READING_DISK, checkpoint) if checkpoint.exists() else copy
    if judged(found, copy) != found:
        yield f"{checkpoint.name}: is not what {witness.path.name} says"


def _lines(path: Path) -> list[str]:
    return read_whole(READING_DISK, path).decode(errors="replace").splitlines()


def _has_head(lines: list[str]) -> bool:
    """Whether the version of a checkpoint and the count of its lines are right."""
    return len(lines) >= 2 and lines[0] == "0" and lines[1] == str(len(lines) - 2)


def _checkpoint_problems(path: Path, ends: dict[layout.TopicPartition, int]) -> Iterator[str]:
    if not path.exists():
        return
    lines = _lines(path)
    if not lines:  # Kafka makes the files when it starts, and writes them when there is something to write
        return
    if not _has_head(lines):
        yield "is damaged"
        return
    for line in lines[2:]:
        fields = line.split(" ")
        if len(fields) != 3 or not all(number.isascii() and number.isdigit() for number in fields[1:]):
            yield f"damaged line {line!r}"
            continue
        topic_partition = layout.TopicPartition(fields[0], int(fields[1]))
        end = ends.get(topic_partition)
        if end is not None and int(fields[2]) > end:
            yield f"{topic_partition} is at {fields[2]}, beyond its end {end}"


def verify_log(directory: Path, account: Account = _nobody) -> list[str]:
    """What is wrong with one partition directory, a line each."""
    return _verify(directory, account)[0]


def _verify(directory: Path, account: Account) -> tuple[list[str], int]:
    """The violations, and the offset behind the last record."""
    violations: list[str] = []

    def complain(text: str) -> None:
        if len(violations) < MAX_VIOLATIONS:
            violations.append(f"{directory.name}: {text}")

    present = _verify_names(directory, complain)
    entries: list[tuple[int, int]] = []
    with _reading(layout.LEADER_EPOCH_CHECKPOINT, complain):
        entries = _read_epochs(directory, complain)
    end = _verify_segments(directory, present, LeaderEpochs(entries), complain, account)
    for base, kind in sorted(present):
        if kind == layout.SNAPSHOT_SUFFIX:
            with _reading(layout.segment_file_name(base, kind), complain):
                _verify_snapshot(directory, base, end, complain)
    if entries and entries[-1][1] > end:
        epoch, start = entries[-1]
        complain(f"{layout.LEADER_EPOCH_CHECKPOINT}: epoch {epoch} begins at {start}, beyond the end {end}")
    for name, read in ((layout.PARTITION_METADATA, topic_id_in), (layout.COMPACTED_TO, reach_in)):
        with _reading(name, complain):
            _verify_small(directory / name, read, complain)
    return violations, end


def _verify_names(directory: Path, complain: Complain) -> Present:
    """Which files of segments are in use; the others must not be of a swap, nor these without a log."""
    files = [file for path in directory.iterdir() if (file := layout.parse_segment_file(path.name))]
    for file in files:
        if file.state in (layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX):
            complain(f"{layout.segment_file_name(*file)} is left of an unfinished swap")
    present = {(file.base_offset, file.kind) for file in files if not file.state}
    for base, kind in sorted(present):
        if kind in layout.SEGMENT_SUFFIXES and (base, layout.LOG_SUFFIX) not in present:
            complain(f"{layout.segment_file_name(base, kind)} has no log")
    return present


def _verify_segments(
    directory: Path, present: Present, epochs: LeaderEpochs, complain: Complain, account: Account
) -> int:
    """All segments in order, with what belongs to each; the offset behind the last record."""
    bases = sorted(base for base, kind in present if kind == layout.LOG_SUFFIX)
    log_start_offset = written_log_start(directory)
    expected = 0
    for base, behind in itertools.zip_longest(bases, bases[1:]):
        if base < expected:
            complain(f"segment {base} begins before {expected}, where the one before it ends")
        log_name = layout.segment_file_name(base, layout.LOG_SUFFIX)
        with _reading(log_name, complain):
            facts = _walk(directory, base, epochs, complain, account)
            expected = facts.next_offset
            is_needed = behind is not None and behind > log_start_offset
            if is_needed and not len(facts.positions) and had_batches(READING_DISK, directory, base):
                complain(f"{log_name} is empty: offsets {base} to {behind - 1} are lost")
            _verify_indexes(directory, facts, base == bases[-1], complain)
            if (base, layout.STATISTICS_SUFFIX) in present:
                _verify_statistics(directory, facts, complain)
    return expected


def _walk(
    directory: Path, base_offset: int, epochs: LeaderEpochs, complain: Complain, account: Account
) -> SegmentFacts:
    """Read all batches of a segment and complain about each that is not right."""
    name = layout.segment_file_name(base_offset, layout.LOG_SUFFIX)
    file = DataFile(READING_DISK, directory / name)
    check_regular(file.path, file.path.stat().st_mode)
    size = file.size()
    tables = []
    next_offset, position, wanted = base_offset, 0, SCAN_BYTES
    while position < size:
        data = file.read(min(wanted, size - position), position)
        table, stopped, reason = read_table(data)
        if not table.shape[1] and reason == CUT and len(data) == wanted:
            wanted *= 2
            continue
        next_offset = _verify_batches(name, data, table, position, base_offset, next_offset, complain)
        table[batch_table.POSITION] += position
        for column in numpy.flatnonzero(~epochs_fit(epochs, table))[:MAX_VIOLATIONS]:
            offset, epoch = table[batch_table.BASE_OFFSET, column], table[batch_table.LEADER_EPOCH, column]
            complain(f"{name}: batch {offset} has leader epoch {epoch}, not {epochs.epoch_at(int(offset))}")
        tables.append(table)
        position += stopped
        account(int(stopped))
        if not stopped:
            found = foreign_format(lambda position, size: file.read(size, position), position, size)
            complain(f"{name}: {found or 'no whole batch'} at {position} of {size} bytes")
            break
    file.close()
    whole = (
        numpy.concatenate(tables, axis=1) if tables else numpy.empty((batch_table.TABLE_ROWS, 0), numpy.int64)
    )
    return SegmentFacts(
        base_offset,
        next_offset,
        whole[batch_table.POSITION],
        whole[batch_table.LAST_OFFSET],
        numpy.maximum.accumulate(whole[batch_table.MAX_TIMESTAMP]) if whole.shape[1] else whole[0],
    )


def _verify_batches(
    name: str,
    data: bytes,
    table: batch_table.Table,
    start: int,
    base_offset: int,
    next_offset: int,
    complain: Complain,
) -> int:
    """Checksums, offsets and records of the batches in one chunk; the offset behind the last one."""
    for position in table[batch_table.POSITION].tolist():
        header = parse_header(data, position)
        where = f"{name}: batch {header.base_offset} at {start + position}"
        if header.base_offset < next_offset:
            complain(f"{where} begins before {next_offset}")
        if header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
            complain(f"{where} lies too far from the base offset")
        next_offset = header.next_offset
        if checksum(data, position, header.size_bytes) != header.crc:
            complain(f"{where} does not have its checksum")
            continue
        try:
            deltas = locate(payload(data, position, header), header.record_count)[OFFSET_DELTA]
        except KafkaError as problem:
            complain(f"{where}: {problem.message}")
            continue
        if len(deltas) and (
            deltas[0] < 0 or deltas[-1] > header.last_offset_delta or (numpy.diff(deltas) <= 0).any()
        ):
            complain(f"{where} has records whose offsets do not ascend within it")
    return next_offset


def _verify_indexes(directory: Path, facts: SegmentFacts, is_active: bool, complain: Complain) -> None:
    for kind, check in (
        (layout.INDEX_SUFFIX, _verify_offset_index),
        (layout.TIME_INDEX_SUFFIX, _verify_time_index),
    ):
        name = layout.segment_file_name(facts.base_offset, kind)
        path = directory / name
        if not path.exists():
            if len(facts.positions):  # Kafka makes that of an empty segment when it needs it
                complain(f"{name} is missing")
            continue
        with _reading(name, complain):
            check(name, read_whole(READING_DISK, path), facts, is_active, complain)
    path = directory / layout.segment_file_name(facts.base_offset, layout.TXN_INDEX_SUFFIX)
    if path.exists():
        with _reading(path.name, complain):
            _verify_transactions(path, facts, complain)


def _read_entries(name: str, data: bytes, entry: Any, is_active: bool, complain: Complain) -> Any:
    """The entries of an index file. Kafka maps that of an active segment with room, so zeros may end it."""
    if len(data) % entry.itemsize:
        complain(f"{name} has {len(data)} bytes, no whole entries")
        data = b""
    entries = numpy.frombuffer(data, entry)
    if is_active and len(entries):
        used = numpy.flatnonzero(numpy.frombuffer(data, numpy.uint8))
        entries = entries[: int(used[-1]) // entry.itemsize + 1] if len(used) else entries[:0]
    return entries


def _verify_offset_index(
    name: str, data: bytes, facts: SegmentFacts, is_active: bool, complain: Complain
) -> None:
    entries = _read_entries(name, data, OFFSET_ENTRY, is_active, complain)
    positions = entries["position"].astype(numpy.int64)
    offsets = entries["offset"].astype(numpy.int64) + facts.base_offset
    if (numpy.diff(offsets) <= 0).any() or (numpy.diff(positions) <= 0).any():
        complain(f"{name} is not ascending")
    columns = numpy.searchsorted(facts.positions, positions)
    known = numpy.append(facts.positions, -1)[columns] == positions
    right = known & (numpy.append(facts.last_offsets, -1)[columns] == offsets)
    for number in numpy.flatnonzero(~right)[:MAX_VIOLATIONS]:
        if not known[number]:
            complain(f"{name}: no batch begins at {positions[number]}")
        else:
            ends = facts.last_offsets[columns[number]]
            complain(f"{name}: the batch at {positions[number]} ends with {ends}, not {offsets[number]}")


def _verify_time_index(
    name: str, data: bytes, facts: SegmentFacts, is_active: bool, complain: Complain
) -> None:
    entries = _read_entries(name, data, TIME_ENTRY, is_active, complain)
    times = entries["timestamp"].astype(numpy.int64)
    offsets = entries["offset"].astype(numpy.int64) + facts.base_offset
    if (numpy.diff(times) <= 0).any() or (numpy.diff(offsets) < 0).any():
        complain(f"{name} is not ascending")
    largest = numpy.append(facts.largest_timestamps, NO_TIMESTAMP)[
        numpy.searchsorted(facts.last_offsets, offsets)
    ]
    for number in numpy.flatnonzero(largest != times)[:MAX_VIOLATIONS]:
        complain(
            f"{name}: up to {offsets[number]} the largest timestamp is {largest[number]}, not {times[number]}"
        )
    last = int(times[-1]) if len(times) else NO_TIMESTAMP
    # As in Kafka a time below that of a batch without one has no entry.
    if not is_active and last != max(facts.largest_timestamp, NO_TIMESTAMP):
        complain(f"{name} ends with {last}, the largest timestamp is {facts.largest_timestamp}")


def _verify_statistics(directory: Path, facts: SegmentFacts, complain: Complain) -> None:
    """Those of other batches count as missing: a cleaning, or Kafka, has changed the segment since."""
    segment = Segment.open(READING_DISK, directory, facts.base_offset)
    segment.note_end(facts.next_offset)  # else it looks into its index, and makes a damaged one anew
    path = sidecar.path_of(segment)
    try:
        found, blocks = sidecar.read_file(READING_DISK, path)
    except (sidecar.DamagedStatistics, OSError) as problem:
        complain(f"{path.name}: {getattr(problem, 'strerror', problem)}")
        return
    try:
        if not sidecar.describes(found, segment):
            return
        right, right_blocks = statistics.build(segment)
    except (KafkaError, BrokenIndex):  # a damaged segment has its own lines
        return
    finally:
        segment.file.close()
    for field in dataclasses.fields(right):
        told, real = getattr(found, field.name), getattr(right, field.name)
        if field.name == "packed_sketch":
            if not numpy.array_equal(found.sketch, right.sketch):
                complain(f"{path.name}: the sketch is not that of the keys in the segment")
        elif told != real:
            complain(f"{path.name}: {field.name} is {real}, not {told}")
    filter_bytes = found.filter_blocks * BLOCK_BYTES
    if blocks[:filter_bytes] != right_blocks[:filter_bytes]:
        complain(f"{path.name}: the key filter is not that of the keys in the segment")
    if blocks[filter_bytes:] != right_blocks[filter_bytes:]:
        complain(f"{path.name}: a base offset, length or leader epoch of the .log is not what it was")


def _verify_transactions(path: Path, facts: SegmentFacts, complain: Complain) -> None:
    try:
        entries = parse_transactions(read_whole(READING_DISK, path))
    except ValueError as problem:
        complain(f"{path.name}: {problem}")
        return
    markers = [entry.last_offset for entry in entries]
    if markers != sorted(markers):
        complain(f"{path.name} is not ascending")
    for marker in markers:
        if not facts.base_offset <= marker < max(facts.next_offset, facts.base_offset + 1):
            complain(f"{path.name}: marker {marker} is not of this segment")


def _verify_snapshot(directory: Path, offset: int, end_offset: int, complain: Complain) -> None:
    name = layout.segment_file_name(offset, layout.SNAPSHOT_SUFFIX)
    if offset > end_offset:
        complain(f"{name} lies beyond the end {end_offset}")
    try:
        decode_snapshot(read_whole(READING_DISK, directory / name))
    except ValueError as problem:
        complain(f"{name}: {problem}")


def _read_epochs(directory: Path, complain: Complain) -> list[tuple[int, int]]:
    """(leader epoch, its first offset); none when the file is damaged."""
    path = directory / layout.LEADER_EPOCH_CHECKPOINT
    if not path.exists():
        return []
    lines = _lines(path)
    if not _has_head(lines):
        complain(f"{path.name} is damaged")
        return []
    try:
        entries = [(int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines[2:])]
    except ValueError:
        complain(f"{path.name} has a line that is no epoch and offset")
        return []
    for before, after in itertools.pairwise(entries):
        if before[0] >= after[0] or before[1] >= after[1]:
            complain(f"{path.name} is not ascending: {before}, {after}")
    return entries


def _verify_small(path: Path, read: Callable[[bytes], object], complain: Complain) -> None:
    try:
        if path.exists():
            read(read_whole(READING_DISK, path))
    except ValueError as problem:
        complain(f"{path.name} is damaged: {problem}")
