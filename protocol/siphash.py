"""SipHash-1-3 with 128 bits over record keys, by kernel: what maps and sets of keys store in place of keys.

With a secret of the process no client can make two keys that collide, as it could with MD5, and chance will
not: a few billion keys have one chance in 10^19.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy

from protocol.kernel import kernel, unchecked_kernel

Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]
Longs = numpy.ndarray[Any, numpy.dtype[numpy.int64]]
U64 = numpy.uint64

SECRET = numpy.frombuffer(secrets.token_bytes(16), numpy.uint64)
"""of this process; nothing that it makes outlives it"""


@unchecked_kernel
def _load(data: Bytes, position: Any) -> Any:
    """Eight bytes, little-endian, which the caller has seen to be there.

    Written out, and indexed without a sign, so that the compiler makes one load of it; a check of each
    index, or of its sign, would part it into eight.
    """
    at = U64(position)
    return (
        U64(data[at])
        | U64(data[at + U64(1)]) << U64(8)
        | U64(data[at + U64(2)]) << U64(16)
        | U64(data[at + U64(3)]) << U64(24)
        | U64(data[at + U64(4)]) << U64(32)
        | U64(data[at + U64(5)]) << U64(40)
        | U64(data[at + U64(6)]) << U64(48)
        | U64(data[at + U64(7)]) << U64(56)
    )


@kernel
def _round(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    a = a + b
    c = c + d
    b = ((b << U64(13)) | (b >> U64(51))) ^ a
    d = ((d << U64(16)) | (d >> U64(48))) ^ c
    a = (a << U64(32)) | (a >> U64(32))
    a = a + d
    c = c + b
    d = ((d << U64(21)) | (d >> U64(43))) ^ a
    b = ((b << U64(17)) | (b >> U64(47))) ^ c
    c = (c << U64(32)) | (c >> U64(32))
    return a, b, c, d


@kernel
def siphash(data: Bytes, position: int, size: int, key_low: Any, key_high: Any) -> tuple[Any, Any]:
    """SipHash-1-3 with 128 bits of data[position : position + size], which must lie inside `data`."""
    if position < 0 or size < 0 or position + size > data.size:
        raise IndexError("a key outside its batch")
    a = key_low ^ U64(0x736F6D6570736575)
    b = key_high ^ U64(0x646F72616E646F6D) ^ U64(0xEE)
    c = key_low ^ U64(0x6C7967656E657261)
    d = key_high ^ U64(0x7465646279746573)
    end = position + size
    while position + 8 <= end:
        word = _load(data, position)
        a, b, c, d = _round(a, b, c, d ^ word)
        a ^= word
        position += 8
    word = U64(size) << U64(56)
    rest = end - position
    if rest > 0:
        if position + 8 <= data.size:
            word |= _load(data, position) & ((U64(1) << U64(8 * rest)) - U64(1))
        else:
            for index in range(rest):
                word |= U64(data[position + index]) << U64(8 * index)
    a, b, c, d = _round(a, b, c, d ^ word)
    a, b, c, d = _round(a ^ word, b, c ^ U64(0xEE), d)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    low = a ^ b ^ c ^ d
    a, b, c, d = _round(a, b ^ U64(0xDD), c, d)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    return low, a ^ b ^ c ^ d


@kernel
def hash_keys(data: Bytes, positions: Longs, sizes: Longs, count: int, secret: Any, hashes: Any) -> None:
    """Rows 0 and 1 of `hashes` for each key; a key of size -1 (null) is left out.

    All keys of a block are hashed before any is looked up: independent work for the processor to overlap.
    """
    for index in range(count):
        if sizes[index] >= 0:
            low, high = siphash(data, positions[index], sizes[index], secret[0], secret[1])
            hashes[0, index] = low
            hashes[1, index] = high
