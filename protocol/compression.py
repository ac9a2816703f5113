"""Codec id <-> bytes of a records section, the output always bounded.

What a batch announces about its size is never believed: decompression writes into a buffer that grows up to
the caller's limit and stops there, so that a few kilobytes cannot claim gigabytes. Formats are those that
Kafka's clients exchange in magic 2: gzip (several members too), snappy (xerial's framing, which Java writes,
and the raw block of librdkafka), lz4 (frames of independent blocks: Java reads no others), zstd.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from types import ModuleType
from typing import Any

import numpy

from protocol import lz4_frames
from protocol.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview
Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

FIRST_GUESS_BYTES = 64 * 1024
GUESSED_RATIO = 4
GROWTH = 4

SNAPPY_BEST_RATIO = 22
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16
XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_VERSIONS = Struct(">ii")
_BLOCK_LENGTH = Struct(">i")

_BUFFER_FULL = "failed to write whole buffer"  # cramjam's text when the output, not the input, ends first


def codec_of(identifier: int) -> Codec:
    """The codec of an attribute's low bits; UNSUPPORTED_COMPRESSION_TYPE when Kafka has no such."""
    try:
        return Codec(identifier)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {identifier}") from None


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as the records section of a batch with this codec; `level` None is the codec's own default."""
    match codec_of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(_cramjam().gzip.compress(data, level))
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            return lz4_frames.compress(data, level)
        case Codec.ZSTD:
            return bytes(_zstd_frames().compress(data, level))


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """The records section itself; at most `limit_bytes` of it are ever produced.

    KafkaError(MESSAGE_TOO_LARGE) when there is more, CORRUPT_MESSAGE when `data` is not of this codec.
    """
    return decompress_array(codec, data, limit_bytes).data


def decompress_array(codec: int, data: Buffer, limit_bytes: int) -> Bytes:
    """As `decompress`, as a read-only numpy view for the kernels; uncompressed data is not copied."""
    known = codec_of(codec)
    match known:
        case Codec.NONE:
            if len(data) > limit_bytes:
                raise _too_large(limit_bytes)
            output = numpy.frombuffer(data, numpy.uint8)
        case Codec.SNAPPY:
            output = _decompress_snappy(memoryview(data), limit_bytes)
        case Codec.LZ4:
            output = _decompress_lz4(data, limit_bytes)
        case Codec.ZSTD:
            whole = _zstd_frames().decompress_one(data, _guess(data, limit_bytes), limit_bytes)
            output = _decompress_stream(known, data, limit_bytes) if whole is None else whole
        case Codec.GZIP:
            output = _decompress_stream(known, data, limit_bytes)
    output.flags.writeable = False
    return output


def _cramjam() -> ModuleType:
    """Imported on first use: a broker whose producers do not compress never loads it."""
    import cramjam

    return cramjam


def _zstd_frames() -> ModuleType:
    """Likewise."""
    from protocol import zstd_frames

    return zstd_frames


def _too_large(limit_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the records decompress to more than {limit_bytes} bytes")


def _corrupt(codec: Codec, reason: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()}: {reason}")


def _guess(data: Buffer, limit_bytes: int) -> int:
    return min(limit_bytes, max(FIRST_GUESS_BYTES, GUESSED_RATIO * len(data)))


def _decompress_stream(codec: Codec, data: Buffer, limit_bytes: int) -> Bytes:
    """gzip, and what is unusual in lz4 and zstd (several frames, linked blocks, checksums): into a buffer
    that is tried larger until the data ends or the limit is reached.
    """
    cramjam = _cramjam()
    module = getattr(cramjam, codec.name.lower())
    capacity = _guess(data, limit_bytes)
    while True:
        output = numpy.empty(capacity, numpy.uint8)
        try:
            written = module.decompress_into(data, output)
        except cramjam.DecompressionError as problem:
            if _BUFFER_FULL not in str(problem):
                raise _corrupt(codec, problem) from None
            if capacity >= limit_bytes:
                raise _too_large(limit_bytes) from None
            capacity = min(limit_bytes, capacity * GROWTH)
        else:
            return output[:written]


def _decompress_lz4(data: Buffer, limit_bytes: int) -> Bytes:
    try:
        output = lz4_frames.decompress(data, limit_bytes)
    except ValueError as problem:
        raise _corrupt(Codec.LZ4, problem) from None
    if output is None:
        return _decompress_stream(Codec.LZ4, data, limit_bytes)
    if output.size > limit_bytes:
        raise _too_large(limit_bytes)
    return output


def _compress_snappy(data: memoryview) -> bytes:
    """Xerial's framing, which every client reads, in the block size of Java's writer."""
    compress_raw = _cramjam().snappy.compress_raw
    parts = [XERIAL_MAGIC, _XERIAL_VERSIONS.pack(1, 1)]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> Bytes:
    blocks = [data]
    if data[: len(XERIAL_MAGIC)] == XERIAL_MAGIC:
        blocks = _xerial_blocks(data)
    cramjam = _cramjam()
    try:
        sizes = [_announced_snappy_bytes(block) for block in blocks]
        total = sum(sizes)
        if total > limit_bytes:
            raise _too_large(limit_bytes)
        output = numpy.empty(total, numpy.uint8)
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            written = cramjam.snappy.decompress_raw_into(block, output[position : position + size])
            if written != size:
                raise _corrupt(Codec.SNAPPY, "a block is shorter than it says")
            position += size
    except (cramjam.DecompressionError, error) as problem:
        raise _corrupt(Codec.SNAPPY, problem) from None
    return output


def _announced_snappy_bytes(block: memoryview) -> int:
    """What a raw block says of itself, refused when a block of that many bytes could not hold it.

    Snappy's best copy makes 64 bytes of three, so that no honest block grows by more than 22 times.
    """
    size = int(_cramjam().snappy.decompress_raw_len(block))
    if size > len(block) * SNAPPY_BEST_RATIO:
        raise _corrupt(Codec.SNAPPY, f"a block of {len(block)} bytes announces {size}")
    return size


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    """The raw blocks of a xerial stream; streams written one behind the other are one stream."""
    blocks = []
    position = 0
    while position < len(data):
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            position += XERIAL_HEADER_BYTES
            if position > len(data):
                raise _corrupt(Codec.SNAPPY, "cut off within a stream header")
            continue
        if len(data) - position < _BLOCK_LENGTH.size:
            raise _corrupt(Codec.SNAPPY, "cut off within a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if length <= 0 or length > len(data) - position:
            raise _corrupt(Codec.SNAPPY, f"a block of {length} bytes with {len(data) - position} left")
        blocks.append(data[position : position + length])
        position += length
    return blocks
