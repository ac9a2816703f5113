"""Which partition a key belongs to: the choices of the Java producer and of librdkafka, as kernels.

A record lands where every other producer of the topic would have put it, or lookups by key, compaction and
joins by partition break: `murmur2` is Java's (and Kafka Streams', kafka-python's), `crc32` that of librdkafka
and all that is built on it. Records without a key go round the partitions, a run of bytes to each.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy

from protocol.kernel import kernel
from spark_connector.kernels import Bytes

MURMUR2 = 0
CRC32 = 1
PARTITIONERS = {"murmur2": MURMUR2, "crc32": CRC32}

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

# The checksum is linear, so that those of single bytes give the table of its polynomial.
_TABLE = numpy.array([zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)], numpy.int64)


@kernel
def murmur2(data: Bytes, start: int, size: int) -> int:
    """The 32-bit hash of `size` bytes, as the Java client computes it, without a sign."""
    value: Any = (_SEED ^ size) & _MASK
    position = start
    for _ in range(size >> 2):
        word = (
            numpy.int64(data[position])
            | numpy.int64(data[position + 1]) << 8
            | numpy.int64(data[position + 2]) << 16
            | numpy.int64(data[position + 3]) << 24
        )
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _MASK
        value = ((value * _MULTIPLIER) & _MASK) ^ word
        position += 4
    left = size & 3
    if left == 3:
        value ^= numpy.int64(data[position + 2]) << 16
    if left >= 2:
        value ^= numpy.int64(data[position + 1]) << 8
    if left >= 1:
        value ^= numpy.int64(data[position])
        value = (value * _MULTIPLIER) & _MASK
    value ^= value >> 13
    value = (value * _MULTIPLIER) & _MASK
    return value ^ (value >> 15)  # type: ignore[no-any-return]


@kernel
def crc32(data: Bytes, start: int, size: int) -> int:
    """The checksum of `size` bytes that zlib computes."""
    value = _MASK
    for position in range(start, start + size):
        value = _TABLE[(value ^ numpy.int64(data[position])) & 0xFF] ^ (value >> 8)
    return value ^ _MASK


@kernel
def partition_of(partitioner: int, data: Bytes, start: int, size: int, partitions: int) -> int:
    """The partition of a key, -1 for one that has none of its own: null, and for librdkafka also empty."""
    if size < 0 or (partitioner == CRC32 and size == 0):
        return -1
    if partitioner == CRC32:
        return crc32(data, start, size) % partitions
    return (murmur2(data, start, size) & _POSITIVE) % partitions
