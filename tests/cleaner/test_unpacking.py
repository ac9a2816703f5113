"""Goal: a batch of lz4 that is unpacked and written anew within a kernel ends as if the library's Python
functions had done it, and so does one that a kernel has to leave to them.

Method: the same random log is cleaned both ways, the functions that kernels call being there or not.
"""

from __future__ import annotations

import random
from pathlib import Path

import lz4.frame
import pytest

from cleaner import map_kernels, mapping, rewriting, unpacking
from cleaner.mapping import decompressed
from cleaner.offset_map import Bytes
from cleaner.reading import Chunk, CorruptSegment
from cleaner.results import Range
from cleaner.unpacking import Lz4Scratch, new_scratch
from protocol.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, parse_header, seal_header
from protocol.compression import Codec
from protocol.native import MISSING
from protocol.records import encode_batch
from storage.batch_table import ATTRIBUTES
from storage.types import Origin
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.world import HOUR_MS, NOW_MS, World


def take_the_functions_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def without() -> Lz4Scratch:
        return new_scratch()._replace(decompress=MISSING, compress=MISSING)

    monkeypatch.setattr(map_kernels, "new_scratch", without)
    monkeypatch.setattr(rewriting, "new_scratch", without)


def fill(world: World, seed: int) -> None:
    """All that a batch may be: long and short, with tombstones, keyless records, transactions, a producer."""
    chance = random.Random(seed)
    keys = [chance.randbytes(chance.randrange(1, 20)) for _ in range(60)]
    sequence = 0
    for number in range(50):
        pairs = [
            (chance.choice(keys), None if chance.random() < 0.2 else chance.randbytes(chance.randrange(2000)))
            for _ in range(chance.randrange(1, 100))
        ]
        fields = {}
        if number % 9 == 4:
            fields = {"producer_id": 3, "producer_epoch": 0, "base_sequence": sequence}
            sequence += len(pairs)
        world.put(*pairs, codec=chance.choice([Codec.LZ4, Codec.LZ4, Codec.NONE, Codec.ZSTD]), **fields)
        if number % 15 == 7:
            world.put((keys[0], "taken back"), codec=Codec.LZ4, producer_id=7, producer_epoch=0,
                      base_sequence=number // 15, is_transactional=True)  # fmt: skip
            world.end_transaction(7, is_commit=number % 2 == 0)
        if number % 20 == 19:
            world.roll()
    world.roll()


def lives(make_world: MakeWorld, name: str, seed: int) -> list[object]:
    """What is left behind two cleanings, and what each said of itself."""
    seen: list[object] = []
    world = make_world(name=name, key_hash_bytes=1 << 14, delete_retention_ms=HOUR_MS)
    fill(world, seed)
    middle = world.log.segments[1].base_offset
    for start, end in ((0, middle), (middle, None)):
        result = world.clean(start, end)
        seen += [world.batches(), result.removed, result.records_kept, result.tombstones_kept]
        world.now_ms += 2 * HOUR_MS
    return seen


@pytest.mark.parametrize("seed", range(5))
def test_a_cleaning_is_the_same_without_the_functions(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    left: set[int] = set()

    def noted(chunk: Chunk, index: int) -> Bytes:
        left.add(int(chunk.batches[ATTRIBUTES, index]) & CODEC_MASK)
        return decompressed(chunk, index)

    monkeypatch.setattr(mapping, "decompressed", noted)
    monkeypatch.setattr(rewriting, "decompressed", noted)
    within = lives(make_world, "within-0", seed)
    assert left == {Codec.ZSTD}, "no batch of lz4 is left to Python"
    take_the_functions_away(monkeypatch)
    assert lives(make_world, "without-0", seed) == within
    assert left == {Codec.ZSTD, Codec.LZ4}


def test_a_batch_larger_than_the_scratch_is_cleaned(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "SCRATCH_BYTES", 100_000)
    world = make_world()
    for _ in range(2):
        world.put(*((str(number), bytes(3000)) for number in range(50)), ("x", None), codec=Codec.LZ4)
    world.put(("7", "new"), codec=Codec.LZ4)
    world.roll()
    world.clean()
    assert [header.record_count for header in world.headers()] == [50, 1]


@pytest.mark.parametrize("options", [{"content_checksum": True}, {"block_linked": True}, {"block_size": 7}])
def test_a_frame_of_another_form_is_cleaned(world: World, options: dict[str, bool | int]) -> None:
    """As others may write them, and other brokers take them; what is left of the batch is a frame of ours."""
    rows = [(NOW_MS, b"%d" % number, b"value " * 900, ()) for number in range(60)]
    plain = encode_batch(rows)
    header = parse_header(plain)
    section = lz4.frame.compress(plain[HEADER_BYTES:], **({"block_linked": False} | options))
    world.log.append(packed(header, section), now_ms=NOW_MS, origin=Origin.COORDINATOR)
    world.put(("7", "new"))
    world.roll()
    world.clean()
    assert len(world.pairs()) == 60
    assert [one.codec for one in world.headers()] == [Codec.LZ4, Codec.NONE]


def packed(header: BatchHeader, section: bytes) -> bytes:
    changed = header._replace(attributes=Codec.LZ4)
    return bytes(seal_header(changed, section) + section)


def test_a_flipped_bit_in_what_is_written_anew_stops_the_cleaning(world: World, tmp_path: Path) -> None:
    """The batch is read twice; between the two its bytes may change on a bad disk."""
    world.put(("a", "1"), ("b", "1"), codec=Codec.LZ4)
    world.put(("a", "2"), codec=Codec.LZ4)
    world.roll()
    path = world.closed()[0].file.path
    cleaner = world.cleaner()
    map_dirty_part = cleaner._map_dirty_part

    def then_flip(*arguments: object) -> object:
        made = map_dirty_part(*arguments)  # type: ignore[arg-type]
        data = bytearray(path.read_bytes())
        data[30] ^= 1  # of the first batch's base timestamp
        path.write_bytes(data)
        return made

    cleaner._map_dirty_part = then_flip  # type: ignore[method-assign, assignment]
    with pytest.raises(CorruptSegment, match=r"at offset 0 .* fails its checksum"):
        cleaner.clean(world.log, Range(0, world.log.log_end_offset), NOW_MS)
    world.is_damaged = True
