"""Records of a batch as Python values, on top of the kernels of `record_kernels`.

The broker's hot path uses `payload` and the kernels only; `encode_batch` and `decode_batch` are for whoever
handles few records (internal topics, commands, tests). `encode_column_batch` turns columns into a batch
without a Python object a record, for bulk writers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy

from protocol import batch
from protocol.batch import BatchHeader
from protocol.compression import compress, decompress_array
from protocol.errors import ErrorCode, KafkaError
from protocol.record_kernels import (
    BAD_HEADERS,
    FAULTS,
    HEADER_COUNT,
    HEADERS_POSITION,
    KEY_BYTES,
    KEY_POSITION,
    KEYLESS,
    LOCATED_ROWS,
    OFFSET_DELTA,
    OK,
    RECORD_BYTES,
    RECORD_POSITION,
    TIMESTAMP_DELTA,
    VALUE_BYTES,
    VALUE_POSITION,
    encode_records_columns,
    keyless_records,
    locate_records,
    record_sizes_columns,
    validate_records,
)

__all__ = [
    "BAD_HEADERS",
    "DEFAULT_LIMIT_BYTES",
    "FAULTS",
    "HEADERS_POSITION",
    "HEADER_COUNT",
    "KEYLESS",
    "KEY_BYTES",
    "KEY_POSITION",
    "LOCATED_ROWS",
    "OFFSET_DELTA",
    "OK",
    "RECORD_BYTES",
    "RECORD_POSITION",
    "TIMESTAMP_DELTA",
    "VALUE_BYTES",
    "VALUE_POSITION",
    "Columns",
    "Record",
    "as_array",
    "compile_kernels",
    "decode_all",
    "decode_batch",
    "decode_headers",
    "encode_batch",
    "encode_column_batch",
    "encode_headers",
    "encode_record",
    "encode_records_columns",
    "keyless_records",
    "locate",
    "locate_records",
    "payload",
    "record_sizes_columns",
    "validate_records",
]

Buffer = bytes | bytearray | memoryview
Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]
Longs = numpy.ndarray[Any, numpy.dtype[numpy.int64]]
Headers = Sequence[tuple[str | bytes, bytes | None]]
Item = tuple[int | None, bytes | None, bytes | None, Headers]

DEFAULT_LIMIT_BYTES = 2**31 - 1
"""of a stored batch, whose size was looked at when it was let in: as much as any broker may be set to take"""


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def as_array(buffer: Buffer) -> Bytes:
    """A read-only uint8 view of `buffer`: the one type that the kernels are compiled for."""
    return numpy.frombuffer(memoryview(buffer).toreadonly(), numpy.uint8)


def _frozen(array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """A read-only contiguous view (or copy) of a column, so that kernels are compiled for one type only."""
    view = numpy.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def payload(buffer: Buffer, position: int, header: BatchHeader, limit: int = DEFAULT_LIMIT_BYTES) -> Bytes:
    """The decompressed records section of the batch at `position`, `limit` bytes at most."""
    stored = memoryview(buffer)[position + batch.HEADER_BYTES : position + header.size_bytes]
    if len(stored) != header.size_bytes - batch.HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size_bytes} bytes is cut off")
    return decompress_array(header.codec, stored, limit)


def locate(records: Bytes, record_count: int) -> Longs:
    """`locate_records`, with KafkaError(CORRUPT_MESSAGE) when these are not `record_count` whole records."""
    table = locate_records(records, record_count)
    if len(table) != LOCATED_ROWS:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{records.size} bytes are not {record_count} whole records"
        )
    return table


def _append_varint(output: bytearray, number: int) -> None:
    raw = ((number << 1) ^ (number >> 63)) & 0xFFFFFFFFFFFFFFFF
    while raw >= 128:
        output.append((raw & 127) | 128)
        raw >>= 7
    output.append(raw)


def _append_bytes(output: bytearray, data: bytes | None) -> None:
    if data is None:
        output.append(1)
    else:
        _append_varint(output, len(data))
        output += data


def encode_headers(headers: Headers) -> bytes:
    """The headers of one record, their count first."""
    output = bytearray()
    _append_varint(output, len(headers))
    for key, value in headers:
        _append_bytes(output, key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key)
        _append_bytes(output, value)
    return bytes(output)


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """One record as it stands in a records section."""
    body = bytearray(1)
    _append_varint(body, timestamp_delta)
    _append_varint(body, offset_delta)
    _append_bytes(body, key)
    _append_bytes(body, value)
    if headers:
        body += encode_headers(headers)
    else:
        body.append(0)
    output = bytearray()
    _append_varint(output, len(body))
    return bytes(output + body)


def encode_batch(
    records: Sequence[Item],
    *,
    base_offset: int = 0,
    codec: int = 0,
    producer_id: int = batch.NO_PRODUCER_ID,
    producer_epoch: int = batch.NO_PRODUCER_EPOCH,
    base_sequence: int = batch.NO_SEQUENCE,
    now_ms: int = batch.NO_TIMESTAMP,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = 0,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """One batch of (timestamp or None for `now_ms`, key, value, headers).

    `offset_deltas` and `last_offset_delta` make the holes of a cleaned batch (no records at all: an empty
    batch with codec none); `log_append_time_ms` makes it LogAppendTime; `delete_horizon_ms` arms its
    tombstones (KIP-534).
    """
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    times = [now_ms if item[0] is None else item[0] for item in records]
    base_timestamp = times[0] if times else batch.NO_TIMESTAMP
    max_timestamp = max(times, default=batch.NO_TIMESTAMP)
    attributes = codec if records else 0
    attributes |= (batch.TRANSACTIONAL if is_transactional else 0) | (batch.CONTROL if is_control else 0)
    if log_append_time_ms is not None:
        attributes |= batch.LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    if delete_horizon_ms is not None:
        attributes |= batch.DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    section = b"".join(
        encode_record(delta, time - base_timestamp, key, value, headers)
        for delta, time, (_, key, value, headers) in zip(deltas, times, records, strict=True)
    )
    return batch.build_batch(
        compress(codec, section, level) if records else b"",
        record_count=len(records),
        last_offset_delta=(deltas[-1] if records else 0) if last_offset_delta is None else last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A varint that a kernel has already found whole."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def decode_headers(records: Buffer, position: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    """The headers at a record's HEADERS_POSITION; keys that are not UTF-8 survive a round trip."""
    data = memoryview(records)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = _varint(data, position)
        key = str(data[position : position + size], "utf-8", "surrogateescape")
        size, position = _varint(data, position + size)
        headers.append((key, None if size < 0 else bytes(data[position : position + size])))
        position += max(size, 0)
    return tuple(headers)


def _located(buffer: Buffer, position: int, *, check_crc: bool) -> tuple[BatchHeader, Bytes, Longs]:
    """The batch at `position`: its header, its records unpacked, and where they are (`locate`)."""
    header = batch.parse_header(buffer, position)
    if header.magic != batch.MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"only record batches with magic 2 are taken, not {header.magic}"
        )
    if check_crc and not batch.is_intact(buffer, position, header):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} fails its checksum"
        )
    if header.record_count == 0:
        return header, numpy.empty(0, numpy.uint8), numpy.empty((LOCATED_ROWS, 0), numpy.int64)
    section = payload(buffer, position, header)
    return header, section, locate(section, header.record_count)


def decode_batch(buffer: Buffer, position: int = 0, *, check_crc: bool = True) -> list[Record]:
    """The records of the batch at `position`, control batches included; KafkaError when it is damaged."""
    header, section, table = _located(buffer, position, check_crc=check_crc)
    data = section.data
    stamped = header.max_timestamp if header.timestamp_type == batch.TIMESTAMP_LOG_APPEND_TIME else None
    records = []
    for delta, time, key, key_size, value, value_size, first, count, _, _ in table.T.tolist():
        records.append(
            Record(
                header.base_offset + delta,
                header.base_timestamp + time if stamped is None else stamped,
                None if key_size < 0 else bytes(data[key : key + key_size]),
                None if value_size < 0 else bytes(data[value : value + value_size]),
                decode_headers(data, first, count) if count else (),
            )
        )
    return records


def offsets_and_timestamps(buffer: Buffer) -> tuple[Longs, Longs]:
    """Those of the records that `decode_batch` gives, int64 (n), timestamps in ms; the same errors."""
    header, _, table = _located(buffer, 0, check_crc=True)
    offsets = header.base_offset + table[OFFSET_DELTA]
    timestamps = header.base_timestamp + table[TIMESTAMP_DELTA]
    if header.timestamp_type == batch.TIMESTAMP_LOG_APPEND_TIME:
        timestamps[:] = header.max_timestamp
    return offsets, timestamps


def decode_all(buffer: Buffer) -> Iterator[Record]:
    """The records of all whole batches of `buffer` but control batches."""
    for position, header in batch.iterate_headers(buffer):
        if not header.is_control:
            yield from decode_batch(buffer, position)


class Columns(NamedTuple):
    """Rows as `encode_records_columns` takes them: Arrow's layout, with int64 offsets and byte masks for
    nulls.

    `header_offsets` of all zeros is right for rows without headers. `timestamps` are absolute here.
    """

    keys: Bytes
    key_offsets: Longs
    key_nulls: Bytes
    values: Bytes
    value_offsets: Longs
    value_nulls: Bytes
    headers: Bytes
    header_offsets: Longs
    timestamps: Longs

    def rows(self, start: int, end: int) -> Columns:
        """The rows start ... end - 1; no bytes are copied."""
        return Columns(
            self.keys,
            self.key_offsets[start : end + 1],
            self.key_nulls[start:end],
            self.values,
            self.value_offsets[start : end + 1],
            self.value_nulls[start:end],
            self.headers,
            self.header_offsets[start : end + 1],
            self.timestamps[start:end],
        )

    def sizes(self) -> Longs:
        """An upper bound of each row's bytes in a batch, before compression."""
        deltas = self.timestamps - (self.timestamps[0] if len(self.timestamps) else 0)
        return record_sizes_columns(
            _frozen(self.key_offsets),
            _frozen(self.key_nulls),
            _frozen(self.value_offsets),
            _frozen(self.value_nulls),
            _frozen(self.header_offsets),
            _frozen(deltas),
        )

    def section(self, base_timestamp: int) -> Bytes:
        """The records section of all rows."""
        return encode_records_columns(
            _frozen(self.keys),
            _frozen(self.key_offsets),
            _frozen(self.key_nulls),
            _frozen(self.values),
            _frozen(self.value_offsets),
            _frozen(self.value_nulls),
            _frozen(self.headers),
            _frozen(self.header_offsets),
            _frozen(self.timestamps - base_timestamp),
        )


def encode_column_batch(columns: Columns, *, codec: int = 0, base_offset: int = 0) -> bytes:
    """One CreateTime batch of all rows (at least one) of `columns`."""
    count = len(columns.timestamps)
    if count == 0:
        raise ValueError("a batch of no rows")
    base_timestamp = int(columns.timestamps[0])
    section = columns.section(base_timestamp).data
    return batch.build_batch(
        compress(codec, section) if codec else section,
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=int(columns.timestamps.max()),
        attributes=codec,
        base_offset=base_offset,
    )


def compile_kernels() -> None:
    """Call every kernel once, so that all are in the cache beside their source."""
    section = as_array(encode_record(0, 0, b"key", b"value"))
    validate_records(section, 1, True)
    keyless_records(section, 1)
    locate_records(section, 1)
    one = numpy.zeros(1, numpy.uint8)
    ends = numpy.array([0, 1], numpy.int64)
    columns = Columns(one, ends, one, one, ends, one, one, ends * 0, numpy.zeros(1, numpy.int64))
    encode_column_batch(columns)
    columns.sizes()
