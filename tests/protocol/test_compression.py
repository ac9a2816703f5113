"""Goal: every codec's forms that Kafka's clients write are read, and no input makes more output than allowed.

Method: round trips, forms put together by hand (members, frames, xerial and raw snappy), bombs measured by
the memory of a process of their own, every truncation and thousands of damaged inputs.
"""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard

from protocol.compression import XERIAL_MAGIC, Codec, compress, decompress
from protocol.errors import ErrorCode, KafkaError
from protocol.lz4_frames import BLOCK_BYTES, FRAME_HEADER, STORED

REAL = [codec for codec in Codec if codec is not Codec.NONE]
SAMPLES = [b"a", b"hello world " * 5000, random.Random(1).randbytes(200_000), bytes(1_000_000)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", SAMPLES, ids=["one", "words", "random", "zeros"])
def test_round_trip_within_exactly_its_size(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, len(data))) == data
    assert bytes(decompress(codec, memoryview(bytearray(packed)), 1 << 30)) == data
    with pytest.raises(KafkaError) as problem:
        decompress(codec, packed, len(data) - 1)
    assert problem.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_level_is_used(codec: Codec) -> None:
    data = b"".join(str(number * number).encode() for number in range(50_000))
    assert compress(codec, data, 9) != compress(codec, data, 1)
    assert bytes(decompress(codec, compress(codec, data, 9), len(data))) == data


@pytest.mark.parametrize("identifier", [5, 6, 7])
def test_codecs_that_kafka_does_not_have_are_refused(identifier: int) -> None:
    for attempt in (lambda: compress(identifier, b"x"), lambda: decompress(identifier, b"x", 10)):
        with pytest.raises(KafkaError) as problem:
            attempt()
        assert problem.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_gzip_members_one_behind_the_other() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 100)) == b"one two"


def test_lz4_frames_one_behind_the_other() -> None:
    both = compress(Codec.LZ4, b"one ") + compress(Codec.LZ4, b"two")
    assert bytes(decompress(Codec.LZ4, both, 100)) == b"one two"


def test_lz4_frames_have_independent_blocks() -> None:
    """Kafka's Java reader refuses frames whose blocks depend on each other."""
    flags = compress(Codec.LZ4, bytes(200_000))[4]
    assert flags >> 6 == 1, "frame version"
    assert flags & 0x20, "block independence"


def test_lz4_frames_of_other_writers() -> None:
    """With linked blocks and a content checksum: in a log that another broker wrote. From clients such are
    refused (tests/storage/test_append.py).
    """
    data = b"abc " * 50_000
    compressor = cramjam.lz4.Compressor(level=4, content_checksum=True, block_linked=True)
    compressor.compress(data)
    assert bytes(decompress(Codec.LZ4, bytes(compressor.finish()), len(data))) == data


@pytest.mark.parametrize("data", SAMPLES, ids=["one", "words", "random", "zeros"])
@pytest.mark.parametrize("block_size", [0, 4, 5, 7])
@pytest.mark.parametrize("option", ["", "block_linked", "content_checksum", "block_checksum", "store_size"])
def test_lz4_frames_of_every_form(data: bytes, block_size: int, option: str) -> None:
    """Those that are taken apart here and those that are left to the library."""
    options = {"block_linked": False, "store_size": False} | ({option: True} if option else {})
    packed = lz4.frame.compress(data, block_size=block_size, **options)
    assert bytes(decompress(Codec.LZ4, packed, len(data))) == data
    with pytest.raises(KafkaError) as problem:
        decompress(Codec.LZ4, packed, len(data) - 1)
    assert problem.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("level", [None, -5, 0, 1, 3, 9, 17])
@pytest.mark.parametrize("data", SAMPLES, ids=["one", "words", "random", "zeros"])
def test_lz4_frames_are_read_by_others(data: bytes, level: int | None) -> None:
    assert lz4.frame.decompress(compress(Codec.LZ4, data, level)) == data


def test_lz4_blocks_larger_than_the_frame_allows_are_corrupt() -> None:
    header = FRAME_HEADER
    for size in (BLOCK_BYTES + 1, 1 << 20):
        stored = header + (size | STORED).to_bytes(4, "little") + bytes(size) + bytes(4)
        packed = bytes(cramjam.lz4.compress_block(bytes(size), store_size=False))
        smaller = header + len(packed).to_bytes(4, "little") + packed + bytes(4)
        for data in (stored, smaller):
            with pytest.raises(KafkaError) as problem:
                decompress(Codec.LZ4, data, 1 << 30)
            assert problem.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("data", SAMPLES, ids=["one", "words", "random", "zeros"])
def test_zstd_frames_that_do_not_say_their_size(data: bytes) -> None:
    """As Java's producer writes them."""
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert bytes(decompress(Codec.ZSTD, packed, len(data))) == data
    with pytest.raises(KafkaError) as problem:
        decompress(Codec.ZSTD, packed, len(data) - 1)
    assert problem.value.code == ErrorCode.MESSAGE_TOO_LARGE
    for size in range(1, min(len(packed), 50)):
        with pytest.raises(KafkaError) as problem:
            decompress(Codec.ZSTD, packed[:-size], len(data))
        assert problem.value.code == ErrorCode.CORRUPT_MESSAGE


def test_zstd_frames_one_behind_the_other() -> None:
    both = compress(Codec.ZSTD, b"one ") + compress(Codec.ZSTD, b"two")
    assert bytes(decompress(Codec.ZSTD, both, 100)) == b"one two"
    with pytest.raises(KafkaError) as problem:
        decompress(Codec.ZSTD, both + b"three", 100)
    assert problem.value.code == ErrorCode.CORRUPT_MESSAGE


def test_snappy_raw_as_librdkafka_writes_it() -> None:
    data = b"raw " * 50_000
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data))) == data


def test_snappy_in_xerial_framing_as_java_writes_it() -> None:
    packed = compress(Codec.SNAPPY, b"x" * 100_000)
    assert packed[:16] == XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
    assert bytes(decompress(Codec.SNAPPY, packed + compress(Codec.SNAPPY, b"yz"), 100_002))[-3:] == b"xyz"


def test_snappy_announcements_are_not_believed() -> None:
    """A raw block that says two gigabytes, in five bytes: refused before anything is allocated."""
    for block in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x07" + bytes(1000)):
        framed = XERIAL_MAGIC + bytes(8) + len(block).to_bytes(4, "big") + block
        for data in (block, framed):
            with pytest.raises(KafkaError) as problem:
                decompress(Codec.SNAPPY, data, 1 << 40)
            assert problem.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", REAL)
def test_cut_input_is_corrupt_at_every_byte(codec: Codec) -> None:
    packed = compress(codec, b"some words, some words, some other words " * 40)
    whole = 0
    for size in range(len(packed)):
        try:
            decompress(codec, packed[:size], 1 << 20)
            whole += 1
        except KafkaError as problem:
            assert problem.code == ErrorCode.CORRUPT_MESSAGE
    # The 16 bytes of xerial's header alone are an empty stream; nothing else that is cut passes for whole.
    assert whole == (1 if codec is Codec.SNAPPY else 0)


@pytest.mark.parametrize("codec", REAL)
def test_damaged_input_never_breaks_the_limit_nor_anything_else(codec: Codec) -> None:
    chance = random.Random(7)
    packed = compress(codec, b"some words, some words, some other words " * 200)
    for _ in range(1500):
        damaged = bytearray(packed)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            assert len(decompress(codec, damaged, 20_000)) <= 20_000
        except KafkaError as problem:
            assert problem.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


BOMB = """
import resource, sys
from protocol.compression import Codec, compress, decompress
from protocol.lz4_frames import BLOCK_BYTES, FRAME_HEADER, STORED
from protocol.errors import KafkaError
codec = Codec[sys.argv[1]]
one = compress(codec, bytes(64 << 20))
bomb = one * 16 if codec is not Codec.SNAPPY else one
decompress(codec, compress(codec, b"warm"), 10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, 1 << 20)
except KafkaError as problem:
    print(problem.code.name, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_stops_at_the_limit(codec: Codec) -> None:
    """A gigabyte of zeros (64 MiB for snappy) under a limit of one mebibyte takes but a few."""
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", BOMB, codec.name], cwd=root, capture_output=True, text=True, check=True
    )
    name, grown_kib = done.stdout.split()
    assert name == "MESSAGE_TOO_LARGE"
    assert int(grown_kib) < 16 * 1024


def test_codec_library_is_loaded_on_first_use_only() -> None:
    root = Path(__file__).resolve().parent.parent.parent
    script = (
        "import sys, protocol.compression as c; c.decompress(0, b'x', 1); print('cramjam' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
