"""Batches of a format that is not read here, told from damage by their checksums: the messages of Kafka
before 0.11, which its later versions leave in old segments, and what a newer Kafka may write.

They cannot be served, but they are no torn write either: a recovery must not cut them off.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct

from protocol.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, checksum, parse_header

Read = Callable[[int, int], bytes]  # (position, size)

_MESSAGE = Struct(">qiIb")  # offset, bytes that follow, CRC-32 of all behind it, magic
_LEAST_MESSAGE_BYTES = 14  # checksum, magic, attributes, and the lengths of key and value
_CHECKSUM_BYTES = 4
_LARGEST_BYTES = 1 << 28
_LARGEST_MAGIC = 16
"""what comes after so many formats is none"""


def foreign_format(read: Read, position: int, end: int) -> str | None:
    """Whose format the bytes of [position, end) begin with, in words; None when it is ours, or none."""
    head = read(position, min(HEADER_BYTES, end - position))
    if len(head) < _MESSAGE.size:
        return None
    _, size, crc, magic = _MESSAGE.unpack_from(head)
    whole = LENGTH_PREFIX_BYTES + size
    if 0 <= magic < MAGIC and size >= _LEAST_MESSAGE_BYTES and whole <= min(_LARGEST_BYTES, end - position):
        covered = read(position, whole)[LENGTH_PREFIX_BYTES + _CHECKSUM_BYTES :]
        if zlib.crc32(covered) == crc:
            return f"message format {magic} of Kafka before 0.11"
    if not MAGIC < magic < _LARGEST_MAGIC:
        return None
    following = _end_of_newer(read, position, end)
    # One alone is a flipped bit: no checksum covers the magic.
    if following is None or _end_of_newer(read, following, end) is None:
        return None
    return f"message format {magic} of a newer Kafka"


def _end_of_newer(read: Read, position: int, end: int) -> int | None:
    """Where a batch ends that is one but for its magic; None when there is none."""
    head = read(position, min(HEADER_BYTES, end - position))
    if len(head) < HEADER_BYTES:
        return None
    header = parse_header(head)
    if header.magic <= MAGIC or not HEADER_BYTES <= header.size_bytes <= min(_LARGEST_BYTES, end - position):
        return None
    data = read(position, header.size_bytes)
    return position + header.size_bytes if checksum(data, 0, len(data)) == header.crc else None
