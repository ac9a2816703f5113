"""Goal: the offset map forgets nothing, invents nothing, and keeps to its memory.

Method: the hash against its published vectors, the map against a dict.
"""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.offset_map import ENTRY_BYTES, GROWTH_STEPS, NOT_FOUND, BufferTooSmall
from protocol.siphash import siphash
from tests.cleaner.maps import MapByHand

# SipHash-2-4 with 128 bits, key 00 01 ... 0f, of the first n bytes of 00 01 02 ...: from its authors.
VECTORS = {0: "a3817f04ba25a8e66df67214c7550293", 15: "5493e99933b0a8117e08ec0f97cfc3d9"}
MASK = 2**64 - 1


def plain_siphash(data: bytes, key: bytes, compression: int, finalization: int) -> bytes:
    """SipHash-c-d with 128 bits, as its authors describe it."""

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0], v[2] = (v[0] + v[1]) & MASK, (v[2] + v[3]) & MASK
            v[1], v[3] = rotated(v[1], 13) ^ v[0], rotated(v[3], 16) ^ v[2]
            v[0] = rotated(v[0], 32)
            v[2], v[0] = (v[2] + v[1]) & MASK, (v[0] + v[3]) & MASK
            v[1], v[3] = rotated(v[1], 17) ^ v[2], rotated(v[3], 21) ^ v[0]
            v[2] = rotated(v[2], 32)

    keys = [int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")]
    v = [keys[0] ^ 0x736F6D6570736575, keys[1] ^ 0x646F72616E646F6D ^ 0xEE]
    v += [keys[0] ^ 0x6C7967656E657261, keys[1] ^ 0x7465646279746573]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        rounds(compression)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(finalization)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(finalization)
    return low.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


@pytest.mark.parametrize("size", VECTORS)
def test_t31_the_description_of_the_hash_is_right(size: int) -> None:
    assert plain_siphash(bytes(range(size)), bytes(range(16)), 2, 4).hex() == VECTORS[size]


@pytest.mark.parametrize("behind", [0, 24])
def test_t31_the_kernel_hashes_as_described_whatever_stands_behind_the_key(behind: int) -> None:
    secret = numpy.arange(16, dtype=numpy.uint8).view(numpy.uint64)
    for size in range(40):
        data = numpy.frombuffer(bytes(range(3, size + 3)) + b"\xff" * behind + b"-", numpy.uint8)[:-1]
        data.flags.writeable = False
        low, high = siphash(data, 0, size, secret[0], secret[1])
        found = int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")
        assert found == plain_siphash(bytes(range(3, size + 3)), bytes(range(16)), 1, 3)


def test_t31_an_entry_takes_24_bytes_of_the_buffer() -> None:
    assert MapByHand(24 * 1000).slots == 1000
    assert ENTRY_BYTES == 24


def test_t32_at_most_the_load_factor_of_the_slots_is_used() -> None:
    offset_map = MapByHand(24 * 10, 0.9)
    assert offset_map.capacity == 9
    for number in range(9):
        offset_map.put(b"%d" % number, number)
    assert offset_map.utilization == 0.9


@pytest.mark.parametrize(("memory", "load_factor"), [(24, 0.9), (48, 0.5), (10, 1.0), (24 * 100, 0.001)])
def test_t30_a_buffer_for_not_even_one_key_is_refused(memory: int, load_factor: float) -> None:
    with pytest.raises(BufferTooSmall, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        MapByHand(memory, load_factor)


def test_t34_the_last_offset_of_a_key_wins() -> None:
    offset_map = MapByHand(24 * 100)
    offset_map.put(b"k", 3)
    offset_map.put(b"k", 7)
    assert offset_map.get(b"k") == 7
    assert offset_map.entries == 1


def test_an_empty_key_and_offset_zero_are_ordinary() -> None:
    offset_map = MapByHand(24 * 100)
    assert offset_map.get(b"") == NOT_FOUND
    offset_map.put(b"", 0)
    assert offset_map.get(b"") == 0


def test_the_table_grows_and_keeps_its_entries() -> None:
    offset_map = MapByHand(24 * 300_000)
    sizes = set()
    for number in range(0, 200_000, 7):
        offset_map.put(b"key %d" % number, number)
        sizes.add(offset_map.table.size // 3)
    offset_map.reserve(150_000)
    sizes.add(offset_map.table.size // 3)
    assert sizes == {*GROWTH_STEPS[:1], 300_000}
    assert all(offset_map.get(b"key %d" % number) == number for number in range(0, 200_000, 7))
    assert offset_map.get(b"key 1") == NOT_FOUND


@settings(max_examples=30)
@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 2**62)), max_size=150))
def test_the_map_is_a_dict(puts: list[tuple[bytes, int]]) -> None:
    offset_map = MapByHand(24 * 200, 0.9)
    model: dict[bytes, int] = {}
    for key, offset in puts:
        offset_map.put(key, offset)
        model[key] = offset
    assert {key: offset_map.get(key) for key in model} == model
    assert offset_map.entries == len(model)


@settings(max_examples=30)
@given(st.dictionaries(st.binary(max_size=4), st.integers(50, 400), max_size=40), st.integers(40, 60))
def test_a_bit_for_each_last_offset(entries: dict[bytes, int], start: int) -> None:
    offset_map = MapByHand(24 * 200)
    for key, offset in entries.items():
        offset_map.put(key, offset)
    bits = offset_map.last_offset_bits(start, 1000)
    marked = {start + index for index in range(8 * bits.size) if bits[index >> 3] >> (index & 7) & 1}
    assert marked == {offset for offset in entries.values() if offset >= start}
    assert offset_map.last_offset_bits(start, 0).size == 0
