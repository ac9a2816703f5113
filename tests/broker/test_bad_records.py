"""Goal: a record batch that is none is refused with the protocol's own error, whatever its bytes say of
themselves, and harms no record beside it.

Method: as in `test_bad_input.py`, a real process and a neighbour. Good batches stand before and behind the
bad one in the same request; memory is watched while batches announce gigabytes and bombs go off.
"""

from __future__ import annotations

import struct
from typing import Any

import cramjam
import lz4.frame
import pytest

from protocol.batch import HEADER_BYTES, checksum
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.records import encode_batch
from tests.siege import (
    COMPACTED,
    MAX_DECOMPRESSED_BYTES,
    MIB,
    PLAIN,
    PRODUCE_VERSION,
    SLACK_BYTES,
    Neighbour,
    Siege,
    produce_request,
)

CRC_POSITION, ATTRIBUTES_POSITION, LAST_DELTA_POSITION, COUNT_POSITION = 17, 21, 23, 57


def batch(count: int = 3, codec: int = 0, **fields: Any) -> bytearray:
    items = [(1_700_000_000_000, b"k%d" % index, b"v" * 50, ()) for index in range(count)]
    return bytearray(encode_batch(items, codec=codec, now_ms=1_700_000_000_000, **fields))


def sealed(wire: bytearray) -> bytes:
    """With the length and checksum that its bytes now have."""
    struct.pack_into(">i", wire, 8, len(wire) - 12)
    struct.pack_into(">I", wire, CRC_POSITION, checksum(wire, 0, len(wire)))
    return bytes(wire)


def patched(position: int, number: bytes, wire: bytearray | None = None) -> bytes:
    """A batch with other bytes at `position`, and the right checksum."""
    wire = batch() if wire is None else wire
    wire[position : position + len(number)] = number
    return sealed(wire)


def with_section(section: bytes, count: int, codec: int = 0) -> bytes:
    """A batch whose records are `section`."""
    wire = bytearray(batch()[:HEADER_BYTES]) + section
    struct.pack_into(">h", wire, ATTRIBUTES_POSITION, codec)
    struct.pack_into(">i", wire, LAST_DELTA_POSITION, count - 1)
    struct.pack_into(">i", wire, COUNT_POSITION, count)
    return sealed(wire)


def wrong_checksum() -> bytes:
    wire = batch()
    wire[-1] ^= 1
    return bytes(wire)


def wrong_length(length: int) -> bytes:
    wire = batch()
    struct.pack_into(">i", wire, 8, length)
    return bytes(wire)


def wrong_magic(magic: int) -> bytes:
    wire = batch()
    wire[16] = magic
    return bytes(wire)


CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
BAD_BATCHES = {
    "nothing": (b"", INVALID),
    "null": (None, INVALID),
    "one byte": (b"\0", INVALID),
    "noise": (bytes(range(256)), CORRUPT),
    "cut off": (bytes(batch()[:-1]), INVALID),
    "tail": (bytes(batch()) + b"\0", CORRUPT),
    "two batches": (bytes(batch() + batch()), INVALID),
    "checksum": (wrong_checksum(), CORRUPT),
    "negative length": (wrong_length(-1), CORRUPT),
    "2 GiB length": (wrong_length(0x7FFFFFFF), INVALID),
    "magic 0": (wrong_magic(0), INVALID),
    "magic 1": (wrong_magic(1), INVALID),
    "magic 3": (wrong_magic(3), CORRUPT),
    "magic -1": (wrong_magic(255), CORRUPT),
    "base offset": (bytes(b"\0\0\0\0\0\0\0\7" + batch()[8:]), INVALID),
    "no records": (with_section(b"", 0), INVALID),
    "negative count": (patched(COUNT_POSITION, struct.pack(">i", -1)), INVALID),
    "count too high": (with_section(bytes(batch()[HEADER_BYTES:]), 4), INVALID),
    "count too low": (with_section(bytes(batch()[HEADER_BYTES:]), 2), INVALID),
    "2 billion records": (with_section(bytes(batch()[HEADER_BYTES:]), 0x7FFFFFFF), INVALID),
    "deltas do not fit the count": (patched(LAST_DELTA_POSITION, struct.pack(">i", 7)), INVALID),
    "negative last delta": (patched(LAST_DELTA_POSITION, struct.pack(">i", -3)), INVALID),
    "control batch": (patched(ATTRIBUTES_POSITION, b"\0\x20"), INVALID),
    "unknown codec": (patched(ATTRIBUTES_POSITION, b"\0\7"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a record longer than the batch": (patched(HEADER_BYTES, b"\xfe\x01"), INVALID),
    "a negative record length": (patched(HEADER_BYTES, b"\x01"), INVALID),
    "an endless varint": (patched(HEADER_BYTES, b"\xff" * 12), INVALID),
    "a key longer than its record": (patched(HEADER_BYTES + 4, b"\x7e"), INVALID),
    "headers that are not there": (patched(len(batch()) - 1, b"\x02"), INVALID),
    "2 billion headers": (with_section(b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f", 1), INVALID),
    **{
        f"{codec.name} noise": (with_section(b"\x28\xb5\x2f\xfe" + bytes(100), 3, codec), INVALID)
        for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
    },
    "SNAPPY noise": (with_section(b"\xff" * 40, 3, Codec.SNAPPY), INVALID),
    "SNAPPY announces 2 GiB": (with_section(b"\xff\xff\xff\xff\x07" + bytes(40), 3, Codec.SNAPPY), INVALID),
    "xerial block of -1": (
        with_section(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\xff\xff\xff\xff", 3, Codec.SNAPPY),
        INVALID,
    ),
    "zstd announces 2^62": (
        with_section(b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 62) + bytes(40), 3, Codec.ZSTD),
        INVALID,
    ),
    "cut off gzip": (with_section(bytes(batch(500, Codec.GZIP)[HEADER_BYTES:-20]), 500, Codec.GZIP), INVALID),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
async def test_batches_that_are_none(siege: Siege, neighbour: Neighbour, what: str) -> None:
    """T144-T152: the protocol's own error; the connection lives, and good batches beside it are stored."""
    wire, code = BAD_BATCHES[what]
    client = await siege.connect()
    with siege.takes_at_most(SLACK_BYTES):
        for version in (7, 9):
            good = bytes(batch())
            request = produce_request((PLAIN, 0, good), (PLAIN, 0, wire), (PLAIN, 0, good))
            answer = await client.ask(request, version)
            codes = [topic.partition_responses[0].error_code for topic in answer.responses]
            assert codes == [ErrorCode.NONE, code, ErrorCode.NONE]


def bombs() -> dict[str, bytes]:
    """128 MiB of zeros, in less than a MiB."""
    zeros = bytes(128 * MIB)
    return {
        "gzip": with_section(bytes(cramjam.gzip.compress(zeros, 1)), 1, Codec.GZIP),
        "zstd": with_section(bytes(cramjam.zstd.compress(zeros)), 1, Codec.ZSTD),
        "lz4": with_section(lz4.frame.compress(zeros, store_size=True), 1, Codec.LZ4),
    }


async def test_decompression_bombs(siege: Siege, neighbour: Neighbour) -> None:
    client = await siege.connect()
    for name, wire in bombs().items():
        assert len(wire) <= 1_048_588, name
        with siege.takes_at_most(SLACK_BYTES + MAX_DECOMPRESSED_BYTES):
            answer = await client.ask(produce_request((PLAIN, 0, wire)), PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE, name


async def test_keyless_records_on_a_compacted_topic(siege: Siege, neighbour: Neighbour) -> None:
    """T144, G24: the error names the record, and older versions get the code alone."""
    wire = encode_batch([(1, b"k", b"v", ()), (1, None, b"v", ())], now_ms=1)
    client = await siege.connect()
    for version in (7, 9):
        answer = await client.ask(produce_request((COMPACTED, 0, wire)), version)
        partition = answer.responses[0].partition_responses[0]
        assert partition.error_code == ErrorCode.INVALID_RECORD
        named = [error.batch_index for error in partition.record_errors]
        assert named == ([1] if version >= 8 else [])


@pytest.mark.parametrize("acks", [-128, -2, 2, 32767])
async def test_acks_that_do_not_exist(siege: Siege, neighbour: Neighbour, acks: int) -> None:
    client = await siege.connect()
    answer = await client.ask(produce_request((PLAIN, 0, bytes(batch())), acks=acks), PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_g25_a_refused_produce_with_acks_0_closes_the_connection(
    siege: Siege, neighbour: Neighbour
) -> None:
    client = await siege.connect()
    client.send(produce_request((PLAIN, 0, wrong_checksum()), acks=0), PRODUCE_VERSION)
    assert await client.is_closed_by_peer()
    await siege.explains(client, "Produce: acks=0: CORRUPT_MESSAGE", "client attacker")
