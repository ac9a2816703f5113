"""Every file of a data directory as rows of plain values: what `kompakt dump` prints.

A row is a dictionary that begins with its kind. Nothing is believed and nothing repaired: bytes that cannot
be right become a row of the kind `problem`, after which as much is shown as can still be told apart. Files
are read in pieces, so that a large log is no large list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy

from protocol.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, is_intact, parse_header
from protocol.compression import Codec
from protocol.control import decode_marker
from protocol.errors import KafkaError
from protocol.records import Record, decode_batch
from storage import layout, sidecar
from storage.checkpoint import topic_id_in, unsealed
from storage.compaction_reach import reach_in
from storage.index import OFFSET_ENTRY, TIME_ENTRY
from storage.producer_state import decode_snapshot
from storage.sidecar import DamagedStatistics
from storage.txn_index import parse as parse_transactions

Row = dict[str, Any]
PROBLEM = "problem"
LARGEST_BATCH_BYTES = 1 << 30
ZEROS_BYTES = 1 << 20
CODECS = {int(codec): codec.name.lower() for codec in Codec}
CHECKPOINTS = frozenset(
    {
        layout.RECOVERY_POINT_CHECKPOINT,
        layout.LOG_START_CHECKPOINT,
        layout.CLEANER_CHECKPOINT,
        layout.REPLICATION_CHECKPOINT,
    }
)
OFFSET_FIELDS = ("topic", "partition", "offset")


class UnknownFile(Exception):
    """No file of a data directory has such a name."""


def dump(path: Path, *, with_records: bool = False, with_values: bool = False) -> Iterator[Row]:
    """The rows of a file, told by its name; UnknownFile, OSError."""
    file = layout.parse_segment_file(path.name)
    if file is not None and file.kind == layout.LOG_SUFFIX:
        return _batches(path, with_records or with_values, with_values)
    readers: dict[str, Callable[[bytes], Iterator[Row]]] = {
        layout.LEADER_EPOCH_CHECKPOINT: lambda data: _checkpoint(data, "epoch", ("epoch", "start_offset")),
        layout.PARTITION_METADATA: _partition_metadata,
        layout.META_PROPERTIES: lambda data: _pairs(data, "=", ("version", "cluster.id", "node.id")),
        layout.CLEAN_SHUTDOWN: _clean_shutdown,
        layout.MOVED_HERE: _moved_here,
        layout.COMPACTED_TO: _compacted_to,
        **dict.fromkeys(layout.WITNESS_OF.values(), _witness),
        **dict.fromkeys(CHECKPOINTS, lambda data: _checkpoint(data, "offset", OFFSET_FIELDS)),
    }
    if file is not None:
        base = file.base_offset
        readers |= {
            layout.INDEX_SUFFIX: lambda data: _offset_index(data, base),
            layout.TIME_INDEX_SUFFIX: lambda data: _time_index(data, base),
            layout.TXN_INDEX_SUFFIX: _transactions,
            layout.SNAPSHOT_SUFFIX: _producers,
            layout.STATISTICS_SUFFIX: _statistics,
        }
    reader = readers.get(path.name if file is None else file.kind)
    if reader is None:
        raise UnknownFile(f"{path.name} is no file of a data directory")
    return reader(path.read_bytes())


def _problem(text: str) -> Row:
    return {"kind": PROBLEM, "problem": text}


# Batches


def _batches(path: Path, with_records: bool, with_values: bool) -> Iterator[Row]:
    position, size = 0, path.stat().st_size
    next_offset = None
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            head = file.read(HEADER_BYTES)
            problem = _fault_of(head, size - position)
            if problem is not None:
                yield _rest(file, position, size, problem)
                return
            header = parse_header(head)
            data = head + file.read(header.size_bytes - HEADER_BYTES)
            is_whole = is_intact(data, 0, header)
            yield _batch(header, position, is_whole)
            if not is_whole:
                yield _problem(f"the batch at position {position} does not have its checksum")
            if next_offset is not None and header.base_offset < next_offset:
                yield _problem(f"the batch at position {position} begins before offset {next_offset}")
            next_offset = header.next_offset
            if with_records and is_whole:
                yield from _records(header, data, position, with_values)
            position += header.size_bytes


def _fault_of(head: bytes, left: int) -> str | None:
    """Why no whole batch begins with `head`; None when one does."""
    if len(head) < HEADER_BYTES:
        return f"{left} bytes are left, too few for a batch"
    magic, size = head[16], int.from_bytes(head[8:12], "big", signed=True) + LENGTH_PREFIX_BYTES
    if magic != MAGIC:
        return f"no batch begins there: its magic byte would be {magic}"
    if not HEADER_BYTES <= size <= LARGEST_BATCH_BYTES:
        return f"no batch begins there: it would have {size} bytes"
    if size > left:
        return f"the batch there claims {size} bytes, {left} are left"
    return None


def _rest(file: BinaryIO, position: int, size: int, problem: str) -> Row:
    """The end of a file; zeros are what preallocation leaves behind the last batch."""
    file.seek(position)
    while data := file.read(ZEROS_BYTES):
        if any(data):
            return _problem(f"position {position}: {problem}")
    return {"kind": "unused", "position": position, "zero_bytes": size - position}


def _batch(header: BatchHeader, position: int, is_whole: bool) -> Row:
    codec = header.codec
    row: Row = {
        "kind": "batch",
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "size_bytes": header.size_bytes,
        "codec": CODECS.get(codec, str(codec)),
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "base_timestamp": None if header.has_delete_horizon else header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "delete_horizon_ms": header.delete_horizon_ms,
        "leader_epoch": header.leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "producer_id": None,
        "crc": f"{header.crc:08x}",
        "is_intact": is_whole,
    }
    if header.producer_id >= 0:
        row["producer_id"] = header.producer_id
        row["producer_epoch"] = header.producer_epoch
        row["base_sequence"] = header.base_sequence
    return row


def _records(header: BatchHeader, data: bytes, position: int, with_values: bool) -> Iterator[Row]:
    try:
        records = decode_batch(data, check_crc=False)
    except KafkaError as error:
        yield _problem(f"the records of the batch at position {position}: {error.message}")
        return
    for record in records:
        yield _marker(record) if header.is_control else _record(record, with_values)


def _marker(record: Record) -> Row:
    marker = decode_marker(record.key, record.value)
    what = "unknown" if marker is None else "commit" if marker.is_commit else "abort"
    return {"kind": "marker", "offset": record.offset, "timestamp": record.timestamp, "ends": what}


def _record(record: Record, with_values: bool) -> Row:
    row: Row = {
        "kind": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
    }
    if with_values:
        row["value"] = _text(record.value)
        if record.headers:
            row["headers"] = [[name, _text(value)] for name, value in record.headers]
    else:
        row["value_bytes"] = None if record.value is None else len(record.value)
    return row


def _text(data: bytes | None) -> str | None:
    """UTF-8 as it is, other bytes in hex."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


# Indexes


def _entries(data: bytes, entry: Any) -> tuple[Any, int, list[Row]]:
    """The entries, how many empty ones follow (Kafka preallocates), and what is wrong."""
    whole = len(data) - len(data) % entry.itemsize
    problems = []
    if whole != len(data):
        problems.append(_problem(f"{len(data)} bytes are no whole entries of {entry.itemsize}"))
    entries = numpy.frombuffer(data[:whole], entry)
    used = numpy.flatnonzero(numpy.frombuffer(data[:whole], numpy.uint8))
    count = int(used[-1]) // entry.itemsize + 1 if len(used) else min(1, len(entries))
    if count == 1 and not len(used) and len(entries) > 1:
        count = 0
    return entries[:count], len(entries) - count, problems


def _offset_index(data: bytes, base_offset: int) -> Iterator[Row]:
    entries, empty, problems = _entries(data, OFFSET_ENTRY)
    before = (-1, -1)
    for number, (relative, position) in enumerate(entries.tolist()):
        yield {"kind": "entry", "offset": base_offset + relative, "position": position}
        if relative <= before[0] or position <= before[1]:
            yield _problem(f"entry {number} does not ascend")
        before = (relative, position)
    yield from _unused(empty)
    yield from problems


def _time_index(data: bytes, base_offset: int) -> Iterator[Row]:
    entries, empty, problems = _entries(data, TIME_ENTRY)
    before = (-1, -1)
    for number, (timestamp, relative) in enumerate(entries.tolist()):
        yield {"kind": "entry", "timestamp": timestamp, "offset": base_offset + relative}
        if timestamp <= before[0] or relative < before[1]:
            yield _problem(f"entry {number} does not ascend")
        before = (timestamp, relative)
    yield from _unused(empty)
    yield from problems


def _unused(count: int) -> Iterator[Row]:
    if count:
        yield {"kind": "unused", "entries": count}


def _transactions(data: bytes) -> Iterator[Row]:
    try:
        entries = parse_transactions(data)
    except ValueError as error:
        yield _problem(str(error))
        return
    for entry in entries:
        yield {"kind": "aborted", **entry._asdict()}


# Producers, statistics


def _producers(data: bytes) -> Iterator[Row]:
    try:
        states = decode_snapshot(data)
    except ValueError as error:
        yield _problem(str(error))
        return
    for state in states:
        yield {
            "kind": "producer",
            "producer_id": state.producer_id,
            "producer_epoch": state.epoch,
            "last_sequence": state.last_sequence,
            "last_offset": state.last_data_offset,
            "last_timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_first_offset": state.transaction_start,
        }


def _statistics(data: bytes) -> Iterator[Row]:
    try:
        found, _ = sidecar.decode(data)
    except DamagedStatistics as error:
        yield _problem(str(error))
        return
    names = (
        "base_offset", "next_offset", "size_bytes", "batches", "records", "keyed_records", "distinct_keys",
        "tombstones", "empty_values", "markers", "holes", "min_timestamp", "max_timestamp", "filter_blocks",
    )  # fmt: skip
    yield {"kind": "statistics", **{name: getattr(found, name) for name in names}}
    for horizon_ms, count in found.horizons:
        yield {"kind": "armed", "delete_horizon_ms": horizon_ms, "tombstones": count}


# Text


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()


def _checkpoint(data: bytes, kind: str, names: tuple[str, ...]) -> Iterator[Row]:
    lines = _lines(data)
    if not lines:  # Kafka makes the file when it starts
        return
    if len(lines) < 2 or lines[0] != "0":
        yield _problem("no version 0 and count at its head")
        return
    for number, line in enumerate(lines[2:], 3):
        fields: list[Any] = line.split(" ")
        digits = fields[1:] if names[0] == "topic" else fields
        if len(fields) != len(names) or not all(field.lstrip("-").isdecimal() for field in digits):
            yield _problem(f"line {number} is not {' '.join(names)}: {line!r}")
            continue
        values = (text if name == "topic" else int(text) for name, text in zip(names, fields, strict=True))
        yield {"kind": kind, **dict(zip(names, values, strict=True))}
    if lines[1] != str(len(lines) - 2):
        yield _problem(f"{len(lines) - 2} lines instead of {lines[1]}")


def _witness(data: bytes) -> Iterator[Row]:
    copy = unsealed(data)
    if copy is None:
        yield _problem("a wrong checksum")
    yield from _checkpoint(copy or data.partition(b"\n")[2], "offset", OFFSET_FIELDS)


def _pairs(data: bytes, separator: str, required: tuple[str, ...]) -> Iterator[Row]:
    pairs = {}
    for number, line in enumerate(_lines(data), 1):
        if not line.strip() or line.startswith(("#", "!")):
            continue
        name, found, value = line.partition(separator)
        if not found:
            yield _problem(f"line {number} is no name{separator}value: {line!r}")
            continue
        pairs[name.strip()] = value.strip()
        yield {"kind": "property", "name": name.strip(), "value": value.strip()}
    for name in required:
        if name not in pairs:
            yield _problem(f"there is no {name}")


def _partition_metadata(data: bytes) -> Iterator[Row]:
    yield from _pairs(data, ": ", ())
    try:
        topic_id_in(data)
    except ValueError as error:
        yield _problem(str(error))


def _moved_here(data: bytes) -> Iterator[Row]:
    try:
        base_offset, size_bytes = map(int, data.split())
    except ValueError:
        yield _problem("it is not two numbers")
    else:
        yield {"kind": "moved", "base_offset": base_offset, "bytes": size_bytes}


def _compacted_to(data: bytes) -> Iterator[Row]:
    try:
        yield {"kind": "compacted", "offset": reach_in(data)}
    except ValueError as problem:
        yield _problem(str(problem))


def _clean_shutdown(data: bytes) -> Iterator[Row]:
    try:
        values = json.loads(data) if data else {}
    except ValueError as error:
        yield _problem(f"no JSON: {error}")
        return
    for name, value in values.items() if isinstance(values, dict) else ():
        yield {"kind": "property", "name": name, "value": value}
