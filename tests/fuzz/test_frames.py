"""Goal: no bytes lead a decoder astray: it answers with a message or MalformedFrame, soon and in little
memory.

Method: every message of every version is fed noise, and valid frames with bytes flipped, cut and put in; a
frame that is still read writes itself to bytes that read the same. Announced counts and lengths are raised
to their limits under a tracer.
"""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from protocol.codegen import decode, encode
from protocol.errors import MalformedFrame
from protocol.framing import decode_request_header
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.schema import schema_of
from tests.protocol.messages import all_messages, filled, versions_of

ROUNDS = 6
LONG_ROUNDS = 400
EXTREMES = tuple(
    map(bytes.fromhex, ("ff", "00", "7fffffff", "80000000", "ffffffff", "ffffffff0f", "8080808000"))
)
MEMORY_BYTES = 400_000


def damaged(wire: bytes, chance: random.Random) -> bytes:
    """One to three hurts to a frame: a flipped byte, a cut, an insertion, an extreme number."""
    hurt = bytearray(wire)
    for _ in range(chance.randint(1, 3)):
        position = chance.randrange(len(hurt) + 1)
        match chance.randrange(4):
            case 0 if position < len(hurt):
                hurt[position] = chance.randrange(256)
            case 1:
                del hurt[position : position + chance.randint(1, 8)]
            case 2:
                hurt[position:position] = chance.randbytes(chance.randint(1, 8))
            case _:
                extreme = chance.choice(EXTREMES)
                hurt[position : position + len(extreme)] = extreme
    return bytes(hurt)


def survives(cls: type[Any], version: int, wire: bytes) -> None:
    try:
        message = decode(cls, version, wire)
    except MalformedFrame:
        return
    again = b"".join(encode(message, version))
    # A sign that stands for a byte that is no text takes three, and may make the lengths of its string and of
    # a tagged field longer by one each.
    longer = 4 * again.count("\N{REPLACEMENT CHARACTER}".encode())
    assert len(again) - longer <= len(wire), "nothing is read that was not there"
    # By bytes: a float that is no number is not equal to itself.
    assert b"".join(encode(decode(cls, version, again), version)) == again


def torture(cls: type[Any], rounds: int) -> None:
    for version in versions_of(cls):
        chance = random.Random(f"{cls.__name__} {version}")
        for seed in range(rounds):
            survives(cls, version, chance.randbytes(chance.randrange(60)))
            wire = b"".join(encode(filled(cls, version, seed % 10), version))
            survives(cls, version, damaged(wire[:400], chance))
            survives(cls, version, damaged(wire, chance))


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_damaged_frames(cls: type[Any]) -> None:
    torture(cls, ROUNDS)


@pytest.mark.fuzz
@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_damaged_frames_at_length(cls: type[Any]) -> None:
    torture(cls, LONG_ROUNDS)


@pytest.mark.parametrize(
    ("cls", "version", "text"),
    [
        (ProduceRequest, 3, "ffff ffff 00000000 7fffffff"),
        (ProduceRequest, 9, "00 ffff 00000000 ffffffff0f"),
        (ProduceRequest, 9, "ffffffff0f ffff"),
        (ProduceRequest, 9, "00 ffff 00000000 02 02 74 02 00000003 ffffffff07"),
        (FetchRequest, 4, "ffffffff 00000000 00000000 00000000 00 00000001 0001 74 7fffffff"),
        (FetchRequest, 7, "ffffffff 00000000 00000000 00000000 00 00000000 00000000 00000000 40000000"),
        (
            FetchRequest,
            7,
            "ffffffff 00000000 00000000 00000000 00 00000000 00000000 00000000 00000001 0001 74 7fffffff",
        ),
        (MetadataRequest, 1, "7fffffff" + "0000" * 50),
        (MetadataRequest, 1, "80000000"),
        (MetadataRequest, 9, "ffffffff0f" + "01" * 50),
        (MetadataRequest, 9, "00 00 00 00 ffffffff0f"),
    ],
)
def test_an_announced_size_is_never_allocated(cls: type[Any], version: int, text: str) -> None:
    """Two thousand million elements, or bytes, in a frame of a few: refused without a trace in memory."""
    wire = bytes.fromhex(text)
    decode_nothing(cls, version)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFrame):
            decode(cls, version, wire)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES
    finally:
        tracemalloc.stop()


def decode_nothing(cls: type[Any], version: int) -> None:
    """Have the codec compiled, so that its making is not measured."""
    with pytest.raises(MalformedFrame):
        decode(cls, version, b"")


def test_noise_before_a_header() -> None:
    chance = random.Random(27)
    read = 0
    for _ in range(3000):
        kind = chance.choice((b"", b"\x00\x00\x00\x09", b"\x00\x01\x00\x0b", b"\x00\x12\x00\x03"))
        frame = kind + chance.randbytes(chance.randrange(30))
        if kind and chance.randrange(2):  # else hardly a length of a client id is one
            frame = kind + chance.randbytes(4) + chance.randrange(-2, 20).to_bytes(2, "big", signed=True)
            frame += chance.randbytes(chance.randrange(20)) + bytes(chance.randrange(20))
        try:
            header, position = decode_request_header(frame)
        except MalformedFrame:
            continue
        read += 1
        assert 0 < position <= len(frame)
        assert header.client_id is None or len(header.client_id) <= len(frame)
    assert read > 100


def test_kinds_are_known() -> None:
    """Internal records refuse a tail, so damage behind them is seen; behind a request or a response Kafka
    overlooks what it does not know, and librdkafka relies on it.
    """
    for cls in all_messages():
        version = versions_of(cls)[-1]
        wire = b"".join(encode(cls(), version)) + b"tail"
        if schema_of(cls).kind in ("request", "response"):
            assert decode(cls, version, wire) == cls()
        else:
            with pytest.raises(MalformedFrame):
                decode(cls, version, wire)
