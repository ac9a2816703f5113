"""lz4's frames as Java's and librdkafka's producers write them: independent blocks of 64 KiB, no checksums.

The library's own reader and writer of frames copy everything once more, and its writer adds a checksum to
each block. Its functions for single blocks do neither, so the frame around the blocks is read and written
here. A frame with any other header is left to the library's reader.

Source: lz4's frame format description, and Kafka's `Lz4BlockOutputStream`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy

Buffer = bytes | bytearray | memoryview
Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]
Block = tuple[int, int, bool]  # position, size in bytes, whether it is stored

# Magic number; version 1 and independent blocks; blocks of 64 KiB; checksum of these two bytes.
FRAME_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
BLOCK_BYTES = 64 * 1024
STORED = 1 << 31  # flag in a block's length: it did not become smaller and stands as it is
END_MARK = bytes(4)
LEAST_HIGH_LEVEL = 3  # the levels below are lz4's fast form

_LENGTH = Struct("<I")


def find_blocks(data: memoryview) -> list[Block] | None:
    """The blocks of `data`, when it is one whole frame of this form."""
    if data[: len(FRAME_HEADER)] != FRAME_HEADER:
        return None
    found: list[Block] = []
    position = len(FRAME_HEADER)
    while len(data) - position >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if length == 0:
            return found if position == len(data) else None
        size = length & ~STORED
        if size > len(data) - position:
            return None
        found.append((position, size, length >= STORED))
        position += size
    return None


def decompress_blocks(data: memoryview, blocks: Sequence[Block], limit_bytes: int) -> Bytes | None:
    """What the blocks hold, None when that is more than `limit_bytes`.

    cramjam.DecompressionError or ValueError when a block is damaged.
    """
    lz4 = _library()
    output = numpy.empty(min(len(blocks) * BLOCK_BYTES, limit_bytes + BLOCK_BYTES), numpy.uint8)
    at = 0
    for position, size, is_stored in blocks:
        if at > limit_bytes:
            return None
        block = data[position : position + size]
        if is_stored:
            if size > BLOCK_BYTES:
                raise ValueError(f"a block of {size} bytes where {BLOCK_BYTES} is the most")
            output[at : at + size] = numpy.frombuffer(block, numpy.uint8)
            at += size
        else:
            at += lz4.decompress_block_into(block, output[at:], output_len=BLOCK_BYTES)
    return None if at > limit_bytes else output[:at]


def compress(data: Buffer, level: int | None) -> bytes:
    """One frame of these blocks. Levels from 3 on are slower and smaller; for them the library writes the
    frame, as it has them for whole frames only.
    """
    lz4 = _library()
    if level is not None and level >= LEAST_HIGH_LEVEL:
        compressor = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))  # it takes nothing else
        return bytes(compressor.finish())
    view = memoryview(data)
    parts: list[Buffer] = [FRAME_HEADER]
    for start in range(0, len(view), BLOCK_BYTES):
        block = view[start : start + BLOCK_BYTES]
        smaller = bytes(lz4.compress_block(block, store_size=False))
        if len(smaller) < len(block):
            parts += (_LENGTH.pack(len(smaller)), smaller)
        else:
            parts += (_LENGTH.pack(len(block) | STORED), block)
    parts.append(END_MARK)
    return b"".join(parts)


def _library() -> Any:
    """Imported on first use: a broker whose producers do not compress never loads it."""
    from cramjam import lz4

    return lz4
