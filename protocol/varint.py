"""Unsigned varints (KIP-482): the lengths, counts and tags of flexible versions.

Generated code reads and writes the one-byte form inline, since nearly every length fits it; these are the
long forms.
"""

from __future__ import annotations

from protocol.errors import MalformedFrame

VARINT_BITS = 32


def read_unsigned(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position behind it; IndexError at the end of the data."""
    byte = data[position]
    position += 1
    if byte < 128:
        return byte, position
    return read_rest(data, position, byte)


def read_rest(data: bytes | bytearray, position: int, first: int) -> tuple[int, int]:
    """Go on behind `first`, a byte above 127. Zero written long is refused: a length's zero means null."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
        if shift >= VARINT_BITS + 3:
            raise MalformedFrame("a varint is longer than five bytes")
    if value == 0 or value >> VARINT_BITS:
        raise MalformedFrame("a varint is zero in more than one byte, or does not fit 32 bits")
    return value, position


def write_unsigned(value: int) -> bytes:
    if value < 128:
        return ONE_BYTE[value]
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    parts = bytearray()
    while value > 127:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


ONE_BYTE = tuple(bytes((value,)) for value in range(128))
