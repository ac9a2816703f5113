"""Goal: the map holds what the dirty part says last, and the part that it covers is known exactly.

Method: small logs with tiny maps; what a cleaning leaves, and where it says the next one begins, is compared.
"""

from __future__ import annotations

import pytest

from cleaner.cleaner import CleaningAborted
from cleaner.mapping import Mapper
from cleaner.offset_map import COMFORTABLE_LOAD, ENTRY_LONGS, GROWTH_STEPS, NOT_FOUND
from cleaner.reading import Chunk, ChunkReader
from cleaner.results import Range
from cleaner.transactions import CleanedTransactions
from protocol.compression import Codec
from protocol.records import encode_batch
from storage.batch_table import as_chunk, read_table
from storage.types import Origin
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.maps import MapByHand
from tests.cleaner.world import NOW_MS, World


def mapped(
    world: World, start: int, end: int, slots: int = 100, read_bytes: int = 4096
) -> tuple[MapByHand, Mapper]:
    offset_map = MapByHand(24 * slots, 0.75)
    mapper = Mapper(offset_map, ChunkReader(read_bytes, lambda size: None), world.log.key_hashes)
    segments = [one for one in world.log.segments if one.base_offset < end and one.next_offset > start]
    mapper.run(segments, start, end, [])
    return offset_map, mapper


def test_t33_records_below_the_first_dirty_offset_and_without_a_key_stay_out(make_world: MakeWorld) -> None:
    world = make_world(cleanup_policy="delete")
    world.put(("a", "1"), ("b", "1"), (None, "x"), ("c", "1"))
    end = world.roll()
    offset_map, mapper = mapped(world, 1, end)
    assert [offset_map.get(key) for key in (b"a", b"b", b"c")] == [NOT_FOUND, 1, 3]
    assert offset_map.entries == 2
    assert mapper.keyless == 1


def test_t46_records_without_a_key_are_counted_by_the_round_that_removes_them(make_world: MakeWorld) -> None:
    """Those behind the last key for which the map has room are covered by the map as well."""
    world = make_world(slots=4, cleanup_policy="delete")
    for number in range(8):
        world.put((str(number), "v"))
        world.put((None, "x"))
    world.set_policy("compact")
    end, at, counted = world.roll(), 0, []
    while at < end:
        result = world.clean(at)
        at = result.end_offset
        counted.append((at, result.removed["keyless"], result.removed["superseded"]))
    assert counted == [(6, 3, 0), (12, 3, 0), (16, 2, 0)]
    assert world.keys() == [str(number) for number in range(8)]


@pytest.mark.parametrize("codec", range(5))
def test_t34_a_later_record_of_the_same_batch_wins(world: World, codec: int) -> None:
    world.put(("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
    world.put(("b", "2"), codec=codec)
    offset_map, _ = mapped(world, 0, world.roll())
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.latest_offset) == (2, 3, 3)


def test_t35_a_map_for_one_key_makes_progress_one_offset_a_round(make_world: MakeWorld) -> None:
    world = make_world(slots=2)
    world.put_each([0, 1, 0, 1, 0])
    world.roll()
    for first_dirty, left in [(2, [1, 2, 3, 4]), (3, [2, 3, 4]), (4, [3, 4])]:
        result = world.clean(first_dirty)
        assert world.offsets() == left
        assert result.end_offset == first_dirty + 1 if first_dirty < 4 else 5


@pytest.mark.parametrize("codec", [0, 3])
def test_t35_a_map_that_fills_in_the_middle_of_a_batch_makes_progress(
    make_world: MakeWorld, codec: int
) -> None:
    world = make_world(slots=4)
    world.put(*((str(number % 5), str(number)) for number in range(20)), codec=codec)
    world.roll()
    assert world.clean_all() > 1
    assert world.table() == {str(number % 5): str(number) for number in range(15, 20)}
    assert world.offsets() == [15, 16, 17, 18, 19]


def test_t34_plain_and_packed_batches_side_by_side_do_not_fill_the_table(world: World) -> None:
    """In a full one the search for a key that it does not hold would never end."""
    half = GROWTH_STEPS[0] // 2
    world.put(*((str(number), "") for number in range(half)))
    world.put(*((str(number), "") for number in range(half, 2 * half)), codec=Codec.ZSTD)
    end = world.roll()
    offset_map, _ = mapped(world, 0, end, 8 * half, 1 << 22)
    assert offset_map.entries == 2 * half
    assert offset_map.entries <= len(offset_map.table) // ENTRY_LONGS * COMFORTABLE_LOAD


def test_t36_records_behind_the_mapped_part_are_kept_unread(make_world: MakeWorld) -> None:
    world = make_world(slots=4)
    world.put_each("abcdefg")
    world.put_each("abcdefg")
    world.roll()
    result = world.clean()
    assert result.end_offset == 3
    assert world.offsets() == list(range(14))


def test_t37_offsets_missing_at_the_end_of_a_segment_are_passed(world: World) -> None:
    """Here the last batch ends at 3, and the next segment is said to begin at 14."""
    world.put_each("abba")
    end = world.roll()
    offset_map, _ = mapped(world, 0, end + 10)
    assert offset_map.latest_offset == end + 9


def test_t38_a_start_within_a_segment_maps_from_there(world: World) -> None:
    world.put_each(range(100))
    end = world.roll()
    offset_map, mapper = mapped(world, 60, end)
    assert offset_map.entries == 40
    assert offset_map.get(b"59") == NOT_FOUND
    assert mapper.records_read == 40


def test_t39_offsets_beyond_any_small_number_are_mapped(world: World) -> None:
    world.put(("a", "1"))
    data = encode_batch([(NOW_MS, b"b", b"1", ())], base_offset=7_206_178)
    offset_map = MapByHand(24 * 10, 0.75)
    table, _, _ = read_table(data)
    mapper = Mapper(offset_map, ChunkReader(4096, lambda size: None), world.log.key_hashes)
    chunk = Chunk(world.log.segments[0], data, as_chunk(data), table, table.shape[1])
    assert mapper._map_chunk(chunk, 0, CleanedTransactions([]))
    assert (offset_map.get(b"b"), offset_map.latest_offset) == (7_206_178, 7_206_178)


def test_t40_what_was_read_and_written_is_counted(make_world: MakeWorld) -> None:
    world = make_world(slots=4)
    world.put_each([0, 1, 0, 1, 0])
    world.roll()
    size = world.log.size_bytes
    result = world.clean(2)
    assert (result.records_read, result.records_kept, result.end_offset) == (5, 2, 5)
    assert (result.bytes_read, result.bytes_written) == (size, world.log.size_bytes)
    assert result.removed["keyless"] == 0
    assert result.removed["superseded"] == 3


@pytest.mark.parametrize("read_bytes", [1, 100, 700, 1 << 20])
@pytest.mark.parametrize("codec", [0, 4])
def test_t41_a_batch_larger_than_the_buffer_is_mapped(world: World, read_bytes: int, codec: int) -> None:
    world.put(("a", "x" * 3000), ("b", "1"), codec=codec)
    world.put(("a", "2"))
    offset_map, _ = mapped(world, 0, world.roll(), read_bytes=read_bytes)
    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (2, 1)


def test_t42_an_abort_stops_the_mapping_and_moves_nothing(world: World) -> None:
    world.put_each("abab")
    world.roll()
    before = world.batches()

    def abort(size: int) -> None:
        raise CleaningAborted

    cleaner = world.cleaner()
    cleaner._account = abort
    with pytest.raises(CleaningAborted):
        cleaner.clean(world.log, Range(0, 4), world.now_ms)
    assert world.batches() == before
    assert world.files(".cleaned") == []


def test_t33_control_batches_are_not_mapped(world: World) -> None:
    data = encode_batch(
        [(NOW_MS, b"a", b"1", ())], producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    world.log.append(data, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    world.end_transaction(5, is_commit=True)
    offset_map, _ = mapped(world, 0, world.roll())
    assert (offset_map.entries, offset_map.latest_offset) == (1, 1)
