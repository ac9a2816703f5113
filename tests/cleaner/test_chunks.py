"""Goal: chunks hold the same batches whether a kernel reads them or Python does, and no byte that the file
does not have.

Method: random segments read both ways with all sorts of sizes; functions of this test in place of `pread`;
files that are shorter than they should be.
"""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Callable

import numpy
import pytest

from cleaner.pauses import new_pauses
from cleaner.read_kernels import read_bytes
from cleaner.reading import ChunkReader, CorruptSegment
from protocol.batch import HEADER_BYTES
from protocol.native import MISSING, libc_address
from storage.batch_table import POSITION, SIZE_BYTES
from storage.file import Disk
from tests.cleaner.world import World

PREAD = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64)
LENGTH_AT = 8
"""of a batch, in its header"""
Pread = Callable[[int, int, int, int], int]


def reader_of(size: int, pread: int | None = None) -> ChunkReader:
    reader = ChunkReader(size, lambda size: None)
    if pread is not None:
        reader._pread = pread
    return reader


def chunks(world: World, reader: ChunkReader) -> list[tuple[int, bytes, list[list[int]]]]:
    """(position in the file, bytes, batches) of each."""
    found, position = [], 0
    for one in reader.chunks(world.log.segments[0]):
        found.append((position, bytes(one.data), one.columns.tolist()))
        position += int(one.columns[POSITION, -1] + one.columns[SIZE_BYTES, -1])
    return found


@pytest.fixture
def filled(world: World) -> World:
    chance = random.Random(4)
    for number in range(300):
        world.put((f"{number}", "x" * chance.choice([1, 50, 900, 900, 9000])))
    world.roll()
    return world


@pytest.mark.parametrize("size", [1, HEADER_BYTES, 1000, 4096, 9100, 200_000, 4 << 20])
def test_kernels_and_python_read_the_same(filled: World, size: int) -> None:
    by_kernel, by_python = chunks(filled, reader_of(size)), chunks(filled, reader_of(size, MISSING))
    assert by_kernel == by_python
    assert len(by_kernel) >= filled.log.segments[0].size_bytes // max(size, 9200)


def test_a_file_that_is_too_short_is_told_either_way(filled: World) -> None:
    segment = filled.log.segments[0]
    content = segment.file.path.read_bytes()
    os.truncate(segment.file.path, segment.size_bytes - 1)
    for pread in (None, MISSING):
        with pytest.raises(CorruptSegment, match="shorter"):
            chunks(filled, reader_of(100_000, pread))
    segment.file.path.write_bytes(content)


def few_bytes(descriptor: int, address: int, size: int, position: int) -> int:
    """Never more than 1,000 bytes at once, as POSIX allows."""
    return libc_pread(descriptor, address, min(size, 1000), position)


def failing(descriptor: int, address: int, size: int, position: int) -> int:
    return -1


libc_pread: Pread = PREAD(libc_address("pread"))


@pytest.mark.parametrize("given", [few_bytes, failing])
def test_what_a_read_does_not_bring_is_asked_for_again(filled: World, given: Pread) -> None:
    function = PREAD(given)
    pread = ctypes.cast(function, ctypes.c_void_p).value
    assert chunks(filled, reader_of(50_000, pread)) == chunks(filled, reader_of(50_000, MISSING))


def test_no_byte_is_written_behind_a_buffer() -> None:
    with pytest.raises(IndexError):
        read_bytes(0, 0, 11, numpy.empty(10, numpy.uint8), libc_address("pread"), new_pauses())


def test_a_buffer_that_grew_for_a_batch_is_given_back(world: World) -> None:
    world.put(("large", "x" * 50_000))
    for number in range(20):
        world.put((str(number), "x" * 900))
    world.roll()
    reader = reader_of(4096)
    sizes = [reader._buffer.size for _ in reader.chunks(world.log.segments[0])]
    assert sizes[0] > 50_000
    assert set(sizes[1:]) == {4096}


def test_a_length_beyond_what_counts_as_the_end_is_damage(world: World) -> None:
    """Of a segment that is still written a dry run sees a part: a batch that claims to reach beyond it was
    asked for again without end.
    """
    for number in range(20):
        world.put((str(number), "x" * 100))
    segment = world.log.segments[0]
    content = segment.file.path.read_bytes()
    size = segment.size_bytes // 20
    end = 10 * size
    damaged = bytearray(content)
    at = 8 * size + LENGTH_AT
    damaged[at : at + 4] = (5 * size).to_bytes(4, "big")
    segment.file.path.write_bytes(damaged)
    asked: list[int] = []

    def account(got: int) -> None:
        asked.append(got)
        assert len(asked) < 100

    with pytest.raises(CorruptSegment, match="claims"):
        for _ in ChunkReader(1 << 20, account, {segment: end}).chunks(segment):
            pass
    assert sum(asked) <= 2 * end
    segment.file.path.write_bytes(content)


def test_after_readahead_was_stopped_a_chunk_is_asked_for_as_a_whole(
    filled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pieces would wait for the disk one by one."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(Disk, "prefetch", lambda disk, descriptor, size, at: asked.append((at, size)))
    chunks(filled, reader_of(50_000))
    assert asked == []
    filled.log.segments[0].file.stop_readahead()
    found = chunks(filled, reader_of(50_000))
    assert [at for at, _ in asked] == [at for at, _, _ in found]
