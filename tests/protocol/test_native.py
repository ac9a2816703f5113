"""Goal: C functions called from kernels do what their libraries' Python functions do, never touch a byte
outside their place whatever they are given, and where there are none everything goes on without.

Method: both ways on random data; places have guards around them; the search for functions is made to fail.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import crc32c
import lz4.block
import lz4.frame
import numpy
import pytest

from protocol import lz4_frames, native
from protocol.compression import Codec, compress, decompress
from protocol.errors import ErrorCode, KafkaError
from protocol.lz4_frames import DAMAGED, OTHER_FORM, pack, packed_room, unpack, unpacked_room
from protocol.native import ALL_ONES, MISSING, Lz4, crc32c_address, crc32c_call, lz4_addresses
from protocol.records import as_array
from storage import checksums
from tests.thoroughness import some_or_all

GUARD = 0xA5
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What was found is remembered for good; a test that changes it must not leave that behind."""
    yield
    crc32c_address.cache_clear()
    lz4_addresses.cache_clear()


def sample(chance: random.Random, size: int) -> bytes:
    """Bytes that compress a little, a lot, or not at all."""
    words = [chance.randbytes(chance.randrange(1, 9)) for _ in range(chance.choice([1, 20, 400]))]
    return (chance.randbytes(size // 3) + b"".join(chance.choices(words, k=size)))[:size]


def test_both_libraries_have_their_functions_here() -> None:
    assert crc32c_address() != MISSING
    assert MISSING not in lz4_addresses()


def test_a_checksum_is_the_librarys_one() -> None:
    chance = random.Random(1)
    data = as_array(chance.randbytes(100_000))
    by_table = checksums.crc32c()._replace(address=MISSING)
    for _ in range(200):
        start = chance.randrange(len(data))
        end = chance.randrange(start, min(len(data), start + chance.choice([8, 300, 100_000])) + 1)
        expected = crc32c.crc32c(data[start:end])
        assert checksums.checksum(data, start, end, checksums.crc32c()) == expected
        assert checksums.checksum(data, start, end, by_table) == expected
        assert crc32c_call(crc32c_address(), ALL_ONES, data.ctypes.data + start, end - start) == (
            expected ^ ALL_ONES
        )


@pytest.mark.parametrize("bounds", [(-1, 5), (0, 11), (9, 20)])
def test_a_checksum_outside_its_bytes_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(IndexError):
        checksums.checksum(as_array(bytes(10)), *bounds, checksums.crc32c())


@pytest.mark.parametrize("seed", range(4))
def test_frames_of_any_length_fit_their_place_exactly(seed: int) -> None:
    chance = random.Random(seed)
    for size in (0, 1, 2, 65_535, 65_536, 65_537, chance.randrange(400_000)):
        data = sample(chance, size)
        room = packed_room(size)
        output = numpy.full(room + 20, GUARD, numpy.uint8)
        end = pack(as_array(data), size, output[: room + 10], 10, lz4_addresses().compress)
        assert set(output[:10].tolist() + output[room + 10 :].tolist()) == {GUARD}
        frame = output[10:end].tobytes()
        assert lz4.frame.decompress(frame) == data
        with pytest.raises(IndexError):
            pack(as_array(data), size, output[:room], 1, lz4_addresses().compress)

        room = unpacked_room(as_array(frame), 0, len(frame))
        unpacked = numpy.full(room + 10, GUARD, numpy.uint8)
        assert (
            unpack(as_array(frame), 0, len(frame), unpacked[:room], room, lz4_addresses().decompress) == size
        )
        assert unpacked[:size].tobytes() == data
        assert set(unpacked[room:].tolist()) == {GUARD}


@some_or_all("frames", 500, 3000)
def test_a_damaged_frame_is_told_and_writes_nothing_outside_its_place(frames: int) -> None:
    chance = random.Random(2)
    address = lz4_addresses().decompress
    results = set()
    for _ in range(frames):
        frame = bytearray(compress(Codec.LZ4, sample(chance, chance.choice([10, 3000, 140_000]))))
        for _ in range(chance.randrange(1, 4)):
            frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        data = as_array(bytes(frame[: chance.choice([len(frame), chance.randrange(len(frame) + 1)])]))
        found = unpacked_room(data, 0, data.size)
        results.add(OTHER_FORM if found == OTHER_FORM else 0)
        room = chance.choice([max(found, 0), chance.randrange(max(found, 0) + 1)])
        output = numpy.full(room + 64, GUARD, numpy.uint8)
        size = unpack(data, 0, data.size, output[:room], room, address)
        results.add(DAMAGED if size == DAMAGED else 1)
        assert size == DAMAGED or 0 <= size <= room
        assert set(output[room:].tolist()) == {GUARD}
    assert results == {OTHER_FORM, DAMAGED, 0, 1}


def test_a_frame_outside_its_bytes_is_damaged() -> None:
    frame = as_array(compress(Codec.LZ4, b"some text"))
    output = numpy.empty(1000, numpy.uint8)
    for start, end in ((-1, frame.size), (0, frame.size + 1)):
        assert unpack(frame, start, end, output, 1000, lz4_addresses().decompress) == DAMAGED


@pytest.fixture
def without_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    crc32c_address.cache_clear()
    lz4_addresses.cache_clear()
    monkeypatch.setattr(native, "_address", lambda module, name: MISSING)


@pytest.mark.usefixtures("without_functions")
def test_without_the_functions_everything_goes_on() -> None:
    assert crc32c_address() == MISSING
    assert lz4_addresses() == Lz4(MISSING, MISSING)
    chance = random.Random(3)
    for level in (None, -5, 1, 9):
        for size in (1, 100, 200_000):
            data = sample(chance, size)
            frame = compress(Codec.LZ4, data, level)
            assert lz4_frames.decompress(frame, size) is None
            assert lz4.frame.decompress(frame) == data == bytes(decompress(Codec.LZ4, frame, size))
    with pytest.raises(KafkaError) as problem:
        decompress(Codec.LZ4, compress(Codec.LZ4, bytes(1000)), 999)
    assert problem.value.code == ErrorCode.MESSAGE_TOO_LARGE


NOT_LOADED = """
import sys
from protocol.compression import Codec, compress, decompress
from protocol.kernel import Kernel, load_numba

frame = compress(Codec.LZ4, bytes(100_000))
for _ in range(2):
    assert bytes(decompress(Codec.LZ4, frame, 100_000)) == bytes(100_000)
    print("numba" in sys.modules, Kernel.has_loader)
    load_numba()
"""


def test_a_frame_that_is_read_while_a_broker_starts_does_not_load_numba() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", NOT_LOADED], capture_output=True, text=True, env=environment)
    assert done.stdout == "False False\nTrue True\n", done.stderr


def test_a_start_compiles_what_a_produce_of_lz4_calls() -> None:
    """Arrays that may be written are another type for numba than those that may not."""
    lz4_frames.compile_kernels()
    compiled = [kernel.compiled() for kernel in (unpacked_room, unpack, pack)]
    before = [len(one.signatures) for one in compiled]
    data = memoryview(bytearray(200_000))
    for level in (1, 2):
        frame = compress(Codec.LZ4, data, level)
        for given in (frame, memoryview(bytearray(frame))):
            assert bytes(decompress(Codec.LZ4, given, 200_000)) == bytes(200_000)
    assert [len(one.signatures) for one in compiled] == before


def test_a_function_of_that_name_with_other_results_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_size_t] * 4)(lambda *arguments: 7)
    address = ctypes.cast(other, ctypes.c_void_p).value
    monkeypatch.setattr(native, "_address", lambda module, name: address)
    crc32c_address.cache_clear()
    lz4_addresses.cache_clear()
    assert crc32c_address() == MISSING
    assert lz4_addresses() == Lz4(MISSING, MISSING)


def test_libraries_that_are_built_in_another_way_have_no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native._address(lz4.block._block, "no_such_function") == MISSING
    assert native._address(lz4.block, "LZ4_compress_default") == MISSING  # not a shared library
    for package, name in ((crc32c, "_crc32c"), (lz4.block, "_block")):
        monkeypatch.delattr(package, name)
        monkeypatch.setitem(sys.modules, f"{package.__name__}.{name}", None)
    crc32c_address.cache_clear()
    lz4_addresses.cache_clear()
    assert crc32c_address() == MISSING
    assert lz4_addresses() == Lz4(MISSING, MISSING)
