"""A producer's batches seen by one kernel: those of a whole request, or one by itself.

The steps between two kernels or libraries are Python's, and the broker has mostly slept before a batch comes:
with nothing of them in the caches they cost more than the work (benchmarks/NOTES.md). Header, checksum and
records are therefore held against a topic's rules in one call, lz4's frames unpacked in it. Only what is
usual is known here, and what else a batch may be is not told apart: who asked looks the longer way, which
says what is wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy

from protocol.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAGIC_POSITION,
)
from protocol.compression import Codec
from protocol.kernel import IS_PLAIN_PYTHON, Kernel, allocating_kernel, kernel
from protocol.lz4_frames import OTHER_FORM, unpack, unpacked_room
from protocol.native import ALL_ONES, MISSING, crc32c_address, crc32c_call, lz4_addresses
from protocol.record_kernels import OK, Bytes, Longs, validate_records
from protocol.records import as_array, encode_batch

UNUSUAL = -1
"""instead of a number of partitions"""
MAX_PARTITIONS = 126
"""of a request that is looked at, whose number flexible versions write in one byte"""
UNPACKED_BYTES = 1 << 20
"""larger ones are unusual"""
BEHIND_CORRELATION = 8
_API_AND_VERSION_BYTES = 4
_NO_TAGS_BYTES = 2  # behind the partitions, of the topic and the request
_LONG_VARINT_BYTES = 5
_LAST_DELTA, _BASE_TIMESTAMP, _MAX_TIMESTAMP, _PRODUCER_ID, _EPOCH, _SEQUENCE, _COUNT = (
    23, 27, 35, 43, 51, 53, 57,
)  # fmt: skip
"""positions in a batch's header"""
_SURE_MS = 1 << 62  # sums of two such numbers fit 64 bits
_LZ4 = int(Codec.LZ4)


class Seen(NamedTuple):
    """A partition of a request, and what a log has to know of its batch to append it."""

    partition: int
    start: int
    end: int
    """of its records, in the data"""
    is_usual: int
    """whether the function of this name says so; all that follows means nothing if not"""
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


(
    PARTITION, START, END, IS_USUAL, LAST_OFFSET_DELTA, MAX_TIMESTAMP,
    PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE,
) = range(len(Seen._fields))  # fmt: skip
"""columns of `Desk.found`"""


class Desk:
    """Where the kernels put what they see and unpack. Owned by: a thread, for there may be several event
    loops in a process (`broker.testing`), and kernels let go of the interpreter.
    """

    __slots__ = ("found", "rows", "workspace")

    def __init__(self) -> None:
        self.found: Longs = numpy.zeros((MAX_PARTITIONS, len(Seen._fields)), numpy.int64)
        """what `look_at_request` saw last: a row for each partition, as `Seen`"""
        self.rows = self.found.data
        unpacked = numpy.empty(UNPACKED_BYTES, numpy.uint8)
        self.workspace: tuple[Bytes, Bytes] = (unpacked, as_array(unpacked.data))
        """for what is unpacked, as kernels write to it and as they read it"""


_of_thread = threading.local()


def desk() -> Desk:
    """That of this thread; who looks often keeps it."""
    try:
        found: Desk = _of_thread.desk
    except AttributeError:
        found = _of_thread.desk = Desk()
    return found


class Usual(NamedTuple):
    """What a topic takes without a closer look: plain numbers, as the kernels want them."""

    max_bytes: int
    """of a batch"""
    codecs: int
    """a bit for each; where there is none nothing is usual"""
    requires_keys: bool
    after_max_ms: int
    """how far a timestamp may be ahead"""
    crc32c: int
    lz4: int
    """addresses of functions"""

    @classmethod
    def of(
        cls, max_bytes: int, codecs: Iterable[Codec], after_max_ms: int, *, requires_keys: bool = False
    ) -> Usual:
        """Of `codecs` those that can be looked at here, which are plain and lz4 at most."""
        crc32c, lz4 = crc32c_address(), lz4_addresses().decompress
        known = {Codec.NONE} if lz4 == MISSING else {Codec.NONE, Codec.LZ4}
        bits = sum(1 << codec for codec in known & set(codecs)) if crc32c != MISSING else 0
        return cls(max_bytes, bits, requires_keys, after_max_ms, crc32c, lz4)


@kernel
def _number(data: Bytes, position: int, size: int) -> int:
    """Of `size` bytes, the sign included."""
    number: Any = numpy.int64(0)
    for index in range(size):
        number = number << 8 | numpy.int64(data[position + index])
    unused = 64 - 8 * size
    return int(number << unused >> unused)


@kernel
def _is_intact(data: Bytes, start: int, end: int, crc32c: int) -> bool:
    begin = start + ATTRIBUTES_POSITION
    found_crc = numpy.int64(crc32c_call(crc32c, ALL_ONES, data.ctypes.data + begin, end - begin))
    return bool(found_crc ^ ALL_ONES == _number(data, start + CRC_POSITION, 4) & ALL_ONES)


@allocating_kernel
def is_usual(
    data: Bytes,
    start: int,
    end: int,
    now_ms: int,
    max_bytes: int,
    codecs: int,
    requires_keys: bool,
    after_max_ms: int,
    crc32c: int,
    lz4: int,
    unpacked: Bytes,
    unpacked_view: Bytes,
) -> bool:
    """Whether data[start:end] is one batch that a client may append as it is, whatever the log holds.

    Called with the fields of a `Usual` and with a workspace, when `is_ready`.
    """
    size = end - start
    if size < HEADER_BYTES or size > max_bytes or end > data.size or data[start + MAGIC_POSITION] != MAGIC:
        return False
    # Base offset 0, the length, and (from attributes on) at most a codec.
    if _number(data, start, 8) or _number(data, start + 8, 4) != size - LENGTH_PREFIX_BYTES:
        return False
    attributes = _number(data, start + ATTRIBUTES_POSITION, 2)
    if attributes & ~CODEC_MASK or not codecs >> attributes & 1:
        return False
    count = _number(data, start + _COUNT, 4)
    if count <= 0 or count != _number(data, start + _LAST_DELTA, 4) + 1:
        return False
    if _number(data, start + _PRODUCER_ID, 8) >= 0 and _number(data, start + _SEQUENCE, 4) < 0:
        return False
    if not _is_intact(data, start, end, crc32c):
        return False
    section = data[start + HEADER_BYTES : end]
    if attributes == _LZ4:
        room = unpacked_room(section, 0, section.size)
        if room == OTHER_FORM or room > unpacked.size:
            return False
        unpacked_bytes = unpack(section, 0, section.size, unpacked, unpacked.size, lz4)
        if unpacked_bytes < 0:
            return False
        section = unpacked_view[:unpacked_bytes]
    fault, _, max_delta = validate_records(section, count, requires_keys)
    base = _number(data, start + _BASE_TIMESTAMP, 8)
    if fault != OK or not (-_SURE_MS < base < _SURE_MS and -_SURE_MS < max_delta < _SURE_MS):
        return False
    largest = base + max_delta
    return largest == _number(data, start + _MAX_TIMESTAMP, 8) and largest - now_ms <= after_max_ms


@kernel
def _begins_alike(data: Bytes, start: int, head: Bytes) -> bool:
    """But for the correlation id."""
    for place in range(head.size):
        is_free = _API_AND_VERSION_BYTES <= place < BEHIND_CORRELATION
        if data[start + place] != head[place] and not is_free:
            return False
    return True


@kernel
def _compact_length(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """A length of flexible versions and the position behind it; UNUSUAL for null, and what is no length."""
    value: Any = numpy.int64(0)
    for index in range(_LONG_VARINT_BYTES):
        if position >= end:
            break
        byte = numpy.int64(data[position])
        position += 1
        value |= (byte & 0x7F) << 7 * index
        if byte < 128:
            is_long_zero = index > 0 and value == 0
            return (UNUSUAL if is_long_zero or value >> 32 else value - 1), position
    return UNUSUAL, position


@allocating_kernel
def look_at_request(
    data: Bytes,
    start: int,
    end: int,
    head: Bytes,
    is_flexible: bool,
    now_ms: int,
    max_bytes: int,
    codecs: int,
    requires_keys: bool,
    after_max_ms: int,
    crc32c: int,
    lz4: int,
    unpacked: Bytes,
    unpacked_view: Bytes,
    rows: Longs,
) -> int:
    """How many partitions data[start:end] has, a Produce request that begins with `head` (but for its
    correlation id) and has nothing behind the partitions of its one topic; `rows` tells of each.

    UNUSUAL for all others: more partitions than rows, no records or tags in one of them, bytes missing or
    left over. Called with the fields of a `Usual` and with the workspace and `found` of a desk, when
    `is_ready`.
    """
    position = start + head.size
    if end > data.size or end - position < 4 or not _begins_alike(data, start, head):
        return UNUSUAL
    if is_flexible:
        count, position, last = _number(data, position, 1) - 1, position + 1, end - _NO_TAGS_BYTES
    else:
        count, position, last = _number(data, position, 4), position + 4, end
    if not 0 < count <= rows.shape[0]:
        return UNUSUAL
    for number in range(count):
        if last - position < (5 if is_flexible else 8):  # of a number and a length
            return UNUSUAL
        rows[number, PARTITION] = _number(data, position, 4)
        if is_flexible:
            size, position = _compact_length(data, position + 4, last)
        else:
            size, position = _number(data, position + 4, 4), position + 8
        begin, position = position, position + size
        if size < 1 or position + is_flexible > last:
            return UNUSUAL
        rows[number, START], rows[number, END] = begin, position
        if is_flexible:
            if data[position]:
                return UNUSUAL
            position += 1
    if position != last or (is_flexible and (data[last] or data[last + 1])):
        return UNUSUAL
    for number in range(count):
        begin = rows[number, START]
        rows[number, IS_USUAL] = is_usual(
            data, begin, rows[number, END], now_ms, max_bytes, codecs, requires_keys,
            after_max_ms, crc32c, lz4, unpacked, unpacked_view,
        )  # fmt: skip
        if not rows[number, IS_USUAL]:
            continue
        rows[number, LAST_OFFSET_DELTA] = _number(data, begin + _LAST_DELTA, 4)
        rows[number, MAX_TIMESTAMP] = _number(data, begin + _MAX_TIMESTAMP, 8)
        rows[number, PRODUCER_ID] = _number(data, begin + _PRODUCER_ID, 8)
        rows[number, PRODUCER_EPOCH] = _number(data, begin + _EPOCH, 2)
        rows[number, BASE_SEQUENCE] = _number(data, begin + _SEQUENCE, 4)
    return count


def is_ready() -> bool:
    """Whether numba is there, which takes longer to load than many batches to be looked at otherwise."""
    return Kernel.is_numba_loaded or IS_PLAIN_PYTHON


def compile_kernels() -> None:
    """Call the kernels once as a produce does, so that they are in the cache beside their source. On any
    thread: nothing is taken for usual that would be unpacked.
    """
    usual = Usual.of(1 << 20, [Codec.NONE], 0)
    batch = as_array(encode_batch([(0, b"key", b"value", ())]))
    own = desk()
    is_usual(batch, 0, batch.size, 0, *usual, *own.workspace)
    look_at_request(batch, 0, batch.size, batch, True, 0, *usual, *own.workspace, own.found)
