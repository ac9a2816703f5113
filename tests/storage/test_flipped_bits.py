"""Goal: one flipped bit is never served, everything else can be read, and it is counted.

Method: a small log of three segments in every codec is shut down (or left as by a crash), one bit of a file
is flipped, and the log is opened again and read from its start as a consumer does that seeks past what it is
told is corrupt. Nothing that comes out may differ from what went in; only records of the batch that was hit
may be missing. Every bit of every header, samples of payloads, and every small file beside the segments.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from protocol.batch import HEADER_BYTES, iterate_headers
from protocol.compression import Codec
from protocol.errors import ErrorCode, KafkaError
from protocol.records import decode_all
from storage.key_search import find_key
from storage.log import Log
from tests.storage.builders import NOW_MS, LogBuilder
from tests.storage.conftest import MakeLog

Records = dict[int, bytes | None]


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def consume(log: Log, max_bytes: int = 300, start: int | None = None) -> tuple[Records, list[int]]:
    """What a consumer gets that goes on at the next offset when it is told of corruption; those offsets."""
    found: Records = {}
    corrupt: list[int] = []
    offset, end = log.log_start_offset if start is None else start, log.log_end_offset
    while offset < end:
        try:
            data = log.read(offset, max_bytes, upper_offset=log.high_watermark).read()
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE, error
            corrupt.append(offset)
            offset += 1
            continue
        assert data, f"nothing at {offset}, below {end}"
        for record in decode_all(data):
            if record.offset >= offset:
                assert record.offset not in found
                found[record.offset] = record.value
        offset = max(header.next_offset for _, header in iterate_headers(data))
    return found, corrupt


def three_segments(builder: LogBuilder, codec: Codec) -> None:
    for number in range(3):
        for batch in range(3):
            values = [b"%d.%d.%d" % (number, batch, record) for record in range(1 + batch)]
            builder.append(*values, codec=codec, timestamp=NOW_MS + number * 10 + batch)
        if number < 2:
            builder.log.roll(NOW_MS)


class Damaged:
    """The same log again and again, each time with another bit flipped."""

    def __init__(self, builder: LogBuilder, attic: Path, *, is_clean: bool) -> None:
        builder.is_damaged = True  # type: ignore[attr-defined]
        self.builder = builder
        self.is_clean = is_clean
        self.whole, corrupt = consume_flushed(builder.log)
        assert not corrupt
        builder.recovery_point = builder.log.log_end_offset
        if is_clean:
            builder.log.close()
        else:
            builder.log.abandon()
        self.attic = attic
        shutil.copytree(builder.directory, attic)

    def batches(self) -> Iterator[tuple[str, int, int, range]]:
        """(file, position, size, offsets) of every batch."""
        for path in sorted(self.attic.glob("*.log")):
            for position, header in iterate_headers(path.read_bytes()):
                yield path.name, position, header.size_bytes, range(header.base_offset, header.next_offset)

    def open_with(self, name: str, bit: int) -> Log:
        self.builder.log.abandon()
        shutil.rmtree(self.builder.directory)
        shutil.copytree(self.attic, self.builder.directory)
        flip(self.builder.directory / name, bit)
        return self.builder.open(is_clean=self.is_clean)


def consume_flushed(log: Log) -> tuple[Records, list[int]]:
    log.flush()
    return consume(log)


def check_flips(
    make_log: MakeLog, attic: Path, codec: Codec, is_clean: bool, bits_of: Callable[[int, int], Iterable[int]]
) -> None:
    builder = make_log(index_interval_bytes=150)
    three_segments(builder, codec)
    damaged = Damaged(builder, attic, is_clean=is_clean)
    for name, position, size, offsets in damaged.batches():
        for bit in bits_of(position, size):
            log = damaged.open_with(name, bit)
            where = f"bit {bit - 8 * position} of the batch at {position} of {name}"
            assert log.log_end_offset == max(damaged.whole) + 1, where
            found, corrupt = consume(log)
            expected = {offset: value for offset, value in damaged.whole.items() if offset not in offsets}
            assert found == expected, where
            assert corrupt == list(offsets), where
            assert log.health.damaged_places == 1, where


clean_or_not = pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])


@clean_or_not
@pytest.mark.parametrize("codec", list(Codec))
def test_a_bit_of_every_part_of_a_batch(
    make_log: MakeLog, tmp_path: Path, codec: Codec, is_clean: bool
) -> None:
    """Some bits of every field, the magic byte and what lies before the checksum included."""
    chance = random.Random(codec)
    fields = (0, 7, 8, 11, 12, 15, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57, HEADER_BYTES)

    def bits_of(position: int, size: int) -> list[int]:
        some = [*chance.sample(fields, 4), chance.randrange(HEADER_BYTES, size)]
        return [8 * (position + byte) + chance.randrange(8) for byte in some]

    check_flips(make_log, tmp_path / "attic", codec, is_clean, bits_of)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "checkpoint", ".metadata"])
def test_every_byte_of_the_small_files(make_log: MakeLog, tmp_path: Path, suffix: str) -> None:
    """After a clean stop: made anew, or not needed; never a wrong record, end, or time."""
    builder = make_log(index_interval_bytes=1)
    three_segments(builder, Codec.NONE)
    damaged = Damaged(builder, tmp_path / "attic", is_clean=True)
    times = [NOW_MS + number * 10 + batch for number in range(3) for batch in range(3)]
    log = builder.open(is_clean=True)
    by_time = [log.offset_for_timestamp(time) for time in times]
    newest = log.max_timestamp_offset()
    chance = random.Random(suffix)
    for path in sorted(damaged.attic.glob("*" + suffix)):
        for byte in range(path.stat().st_size):
            bit = 8 * byte + chance.randrange(8)
            log = damaged.open_with(path.name, bit)
            where = f"bit {bit} of {path.name}"
            assert (log.log_end_offset, log.log_start_offset) == (18, 0), where
            found = [log.offset_for_timestamp(time) for time in times]
            assert [one and one[:2] for one in found] == [one and one[:2] for one in by_time], where
            largest = log.max_timestamp_offset()
            assert largest and newest and largest[:2] == newest[:2], where
            assert consume(log) == (damaged.whole, []), where
            assert log.health.damaged_places == 0, where


@clean_or_not
def test_a_key_is_found_past_damage(make_log: MakeLog, tmp_path: Path, is_clean: bool) -> None:
    """`kompakt get --history`: every version but those of the batch that was hit, which is told of."""
    builder = make_log(index_interval_bytes=150)
    three_segments(builder, Codec.NONE)
    damaged = Damaged(builder, tmp_path / "attic", is_clean=is_clean)
    chance = random.Random(3)
    for name, position, size, offsets in damaged.batches():
        for bit in (8 * (position + 5), 8 * (position + 8) + 3, 8 * (position + chance.randrange(17, size))):
            found = find_key(damaged.open_with(name, bit), b"k", history=True)
            left = [offset for offset in sorted(damaged.whole, reverse=True) if offset not in offsets]
            assert [record.offset for record in found.versions] == left, f"bit {bit} of {name}"
            assert [f"offsets {offsets.start} to" in problem for problem in found.problems] == [True]


@pytest.mark.slow
@clean_or_not
def test_every_bit_of_every_batch(make_log: MakeLog, tmp_path: Path, is_clean: bool) -> None:
    def bits_of(position: int, size: int) -> range:
        return range(8 * position, 8 * (position + size))

    check_flips(make_log, tmp_path / "attic", Codec.NONE, is_clean, bits_of)
