"""lz4's frames as Java's and librdkafka's producers write them: independent blocks of 64 KiB, no checksums.

The libraries' readers and writers of frames copy everything once more, or cost a step of Python for each
block. So the frame around the blocks is read and written in kernels, which call lz4's own functions for a
block (`native.py`). A frame with any other header is left to a library's reader.

Source: lz4's frame format description, and Kafka's `Lz4BlockOutputStream`.
"""

from __future__ import annotations

from typing import Any

import numpy

from protocol.kernel import kernel, load_numba, would_load_numba
from protocol.native import MISSING, lz4_addresses, lz4_call
from protocol.record_kernels import copy_bytes

Buffer = bytes | bytearray | memoryview
Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]

# Magic number; version 1 and independent blocks; blocks of 64 KiB; checksum of these two bytes.
FRAME_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
HEADER_BYTES = len(FRAME_HEADER)
_HEADER_NUMBER = int.from_bytes(FRAME_HEADER, "little")
BLOCK_BYTES = 64 * 1024
LENGTH_BYTES = 4
STORED = 1 << 31  # flag in a block's length: it did not become smaller and stands as it is
LEAST_HIGH_LEVEL = 3  # the levels below are lz4's fast form

# Flags in a frame's header.
_IS_INDEPENDENT, _HAS_BLOCK_CHECKSUMS, _HAS_SIZE, _HAS_CHECKSUM = 0x20, 0x10, 0x08, 0x04

# Instead of a number of bytes.
OTHER_FORM = -1
DAMAGED = -2


@kernel
def _read_number(data: Bytes, position: int, size: int) -> int:
    number: Any = numpy.int64(0)
    for index in range(size):
        number |= numpy.int64(data[position + index]) << (8 * index)
    return number  # type: ignore[no-any-return]


@kernel
def _write_number(output: Bytes, position: int, size: int, number: int) -> int:
    for index in range(size):
        output[position + index] = (number >> (8 * index)) & 0xFF
    return position + size


@kernel
def unpacked_room(data: Bytes, start: int, end: int) -> int:
    """As many bytes as data[start:end] may hold, when it is one whole frame of this form, else
    `OTHER_FORM`.
    """
    if end - start < HEADER_BYTES or _read_number(data, start, HEADER_BYTES) != _HEADER_NUMBER:
        return OTHER_FORM
    position = start + HEADER_BYTES
    room = 0
    while end - position >= LENGTH_BYTES:
        length = _read_number(data, position, LENGTH_BYTES)
        position += LENGTH_BYTES
        if length == 0:
            return room if position == end else OTHER_FORM
        size = length & ~STORED
        if size > end - position:
            return OTHER_FORM
        room += size if length >= STORED else BLOCK_BYTES
        position += size
    return OTHER_FORM


@kernel
def unpack(data: Bytes, start: int, end: int, output: Bytes, limit_bytes: int, address: int) -> int:
    """Fill `output` with what the frame data[start:end] holds, up to somewhere behind `limit_bytes`: how many
    bytes, or `DAMAGED`.

    `unpacked_room` has seen to the frame's form. A block that does not fit counts as damaged.
    """
    position = start + HEADER_BYTES
    at = 0
    while start >= 0 and end <= data.size and end - position >= LENGTH_BYTES:
        length = _read_number(data, position, LENGTH_BYTES)
        position += LENGTH_BYTES
        if length == 0 or at > limit_bytes:
            return at
        size = length & ~STORED
        room = min(BLOCK_BYTES, output.size - at)
        if size > end - position or (length >= STORED and size > room):
            return DAMAGED
        if length >= STORED:
            at = copy_bytes(data, position, position + size, output, at)
        else:
            made = lz4_call(address, data.ctypes.data + position, output.ctypes.data + at, size, room)
            if made < 0:
                return DAMAGED
            at += made
        position += size
    return DAMAGED


@kernel
def packed_room(size: int) -> int:
    """Bytes that a frame of so many bytes takes at most."""
    blocks = -(-size // BLOCK_BYTES)
    return HEADER_BYTES + size + (blocks + 1) * LENGTH_BYTES


@kernel
def pack(data: Bytes, count: int, output: Bytes, at: int, address: int) -> int:
    """Write data[:count] as a frame to `output`, where `packed_room` bytes are free; the position behind."""
    if count > data.size or packed_room(count) > output.size - at:
        raise IndexError("a frame outside its place")
    at = _write_number(output, at, HEADER_BYTES, _HEADER_NUMBER)
    for start in range(0, count, BLOCK_BYTES):
        size = min(BLOCK_BYTES, count - start)
        body = at + LENGTH_BYTES
        made = lz4_call(address, data.ctypes.data + start, output.ctypes.data + body, size, size - 1)
        if made > 0:
            _write_number(output, at, LENGTH_BYTES, made)
            at = body + made
        else:
            _write_number(output, at, LENGTH_BYTES, size | STORED)
            at = copy_bytes(data, start, start + size, output, body)
    return _write_number(output, at, LENGTH_BYTES, 0)


def decompress(data: Buffer, limit_bytes: int) -> Bytes | None:
    """What a frame holds, cut off somewhere behind `limit_bytes`; None where it has another form, no
    functions for it are there or numba is not loaded yet. ValueError when it is damaged.
    """
    if would_load_numba():
        return None
    address = lz4_addresses().decompress
    section = numpy.frombuffer(data, numpy.uint8)
    section.flags.writeable = False
    room = OTHER_FORM if address == MISSING else unpacked_room(section, 0, section.size)
    if room == OTHER_FORM:
        return None
    output = numpy.empty(min(room, limit_bytes + BLOCK_BYTES), numpy.uint8)
    size = unpack(section, 0, section.size, output, limit_bytes, address)
    if size == DAMAGED:
        raise ValueError("a damaged block")
    return output[:size]


def compress(data: Buffer, level: int | None) -> bytes:
    """One frame of these blocks. Levels from 3 on are slower and smaller; for them a library writes the
    frame, as it has them for whole frames only (and as long as numba is not loaded).
    """
    address = lz4_addresses().compress
    is_high = level is not None and level >= LEAST_HIGH_LEVEL
    if is_high or address == MISSING or would_load_numba():
        from cramjam import lz4

        compressor = lz4.Compressor(level=level if is_high else 0, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))  # it takes nothing else
        return bytes(compressor.finish())
    plain = numpy.frombuffer(data, numpy.uint8)
    plain.flags.writeable = False
    output = numpy.empty(packed_room(plain.size), numpy.uint8)
    return output[: pack(plain, plain.size, output, 0, address)].tobytes()


def why_unreadable(data: Buffer) -> str | None:
    """Why Kafka's Java clients cannot read `data` to its end, if it begins as a frame: they read one frame
    alone, each of whose blocks can be unpacked without those before. Whether its bytes are whole, who
    unpacks them will see.

    Source: Kafka's `Lz4BlockInputStream`.
    """
    size = len(data)
    if size < HEADER_BYTES or bytes(data[:4]) != FRAME_HEADER[:4]:
        return "does not begin with a frame"
    flags = data[4]
    if flags >> 6 != 1 or flags & 3:
        return "has a header of another version"
    position = HEADER_BYTES + (8 if flags & _HAS_SIZE else 0)
    blocks = 0
    while size - position >= LENGTH_BYTES:
        length = int.from_bytes(data[position : position + LENGTH_BYTES], "little")
        position += LENGTH_BYTES
        if length == 0:
            position += LENGTH_BYTES if flags & _HAS_CHECKSUM else 0
            return "has something behind its first frame" if position < size else None
        if blocks and length < STORED and not flags & _IS_INDEPENDENT:
            return "has blocks that cannot be unpacked without those before (linked ones)"
        blocks += 1
        position += (length & ~STORED) + (LENGTH_BYTES if flags & _HAS_BLOCK_CHECKSUMS else 0)
    return None


def compile_kernels() -> None:
    """Call the kernels once as a produce does, so that they are in the cache beside their source."""
    load_numba()
    decompress(compress(b"records", 1), 100)
