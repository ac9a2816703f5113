"""Where a key is and what it holds: the partitions that clients would choose for it, and the answer as JSON.

Clients differ: Java's and most others hash with murmur2, librdkafka with CRC-32, sarama with FNV-1a. Who
writes one topic with two of them has a key in two partitions, which the answer shows.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.questions.shown import at_most, in_full
from broker.questions.veil import veiled
from storage.key_search import KeySearch, find_key

if TYPE_CHECKING:
    from protocol.records import Record
    from storage.log import Log

PARTITIONERS = ("all", "murmur2", "crc32", "fnv1a")
ENCODINGS = ("text", "hex", "base64")
MASK = 0xFFFFFFFF
MOST_BYTES = 32 << 20
"""of the versions of a key in one partition, which are in memory all at once, and again as JSON"""


class BadKey(ValueError):
    """The key is not written as it is said to be."""


def decode_key(written: bytes, encoding: str) -> bytes:
    """The bytes of a key that was written as it is, in hex (as it is shown, with 0x, too) or in base64;
    BadKey.
    """
    if encoding == "text":
        return written
    text = written.decode(errors="backslashreplace")
    try:
        return (
            bytes.fromhex(text.removeprefix("0x"))
            if encoding == "hex"
            else base64.b64decode(text, validate=True)
        )
    except (binascii.Error, ValueError) as error:
        raise BadKey(f"{text!r} is no {encoding}: {error}") from error


def murmur2(key: bytes) -> int:
    """The hash of Java's `DefaultPartitioner`, without its sign bit."""
    multiplier = 0x5BD1E995
    value = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & MASK
        word = (word ^ word >> 24) * multiplier & MASK
        value = (value * multiplier & MASK) ^ word
    if len(key) > whole:
        value = (value ^ int.from_bytes(key[whole:], "little")) * multiplier & MASK
    value = (value ^ value >> 13) * multiplier & MASK
    return (value ^ value >> 15) & 0x7FFFFFFF


def fnv1a(key: bytes) -> int:
    """The hash of sarama's hash partitioner: the absolute value of FNV-1a's 32 bits."""
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & MASK
    return min(value, -value & MASK)


def partitions_for(key: bytes, partitioner: str, count: int) -> list[int]:
    """The partitions to look into."""
    if partitioner == "murmur2":
        return [murmur2(key) % count]
    if partitioner == "crc32":
        return [zlib.crc32(key) % count]
    if partitioner == "fnv1a":
        return [fnv1a(key) % count]
    return list(range(count))


def key_answer(
    log: Log, key: bytes, history: bool, *, most_bytes: int = MOST_BYTES, shortened: bool = False
) -> dict[str, Any]:
    """On an I/O thread: what one partition has of the key, its versions as far as they are `most_bytes`."""
    partition = log.topic_partition.partition
    if log.offline_reason is not None:
        found = KeySearch(problems=[f"the log is offline: {log.offline_reason}"])
    else:
        found = find_key(log, key, history=history, most_bytes=most_bytes)
    return {
        "partition": partition,
        "versions": [
            _version(record, at_most if shortened else in_full)
            for record in veiled(log.topic_partition, found.versions)
        ],
        "is_cut": found.is_cut,
        "segments": found.segments,
        "segments_ruled_out": found.ruled_out,
        "bytes_read": found.bytes_read,
        "problems": found.problems,
    }


def _version(record: Record, shown: Callable[[str, bytes | None], dict[str, Any]]) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "is_tombstone": record.value is None,
        **shown("value", record.value),
        "headers": [{"key": name, **shown("value", value)} for name, value in record.headers],
    }
