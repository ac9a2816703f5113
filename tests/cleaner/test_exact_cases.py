"""Goal: cases of the catalogue whose exact numbers matter: what is left after each pass, how far a checkpoint
goes, how large reads and buffers become.

Method: Apache Kafka's own cases with its numbers (LogCleanerTest), and logs whose files were written by hand,
with holes that no client can make.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner.mapping import Mapper
from cleaner.reading import ChunkReader
from cleaner.rewriting import Rewriter
from protocol.control import Marker, marker_batch
from protocol.records import encode_batch
from storage.layout import LOG_SUFFIX, TopicPartition, segment_file_name
from storage.segment import Segment
from storage.types import AbortedTransaction
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.house import House
from tests.cleaner.maps import MapByHand
from tests.cleaner.world import NOW_MS, RETENTION_MS, World
from tests.storage.builders import batch


def write_segment(directory: Path, base_offset: int, *batches: tuple[int, str]) -> None:
    """A segment's `.log` by hand: one record at each offset."""
    directory.mkdir(parents=True, exist_ok=True)
    data = [
        encode_batch([(NOW_MS, key.encode(), b"v", ())], base_offset=offset, now_ms=NOW_MS)
        for offset, key in batches
    ]
    (directory / segment_file_name(base_offset, LOG_SUFFIX)).write_bytes(b"".join(data))


def test_t37_the_checkpoint_passes_a_hole_between_two_segments(tmp_path: Path) -> None:
    """The next cleaning begins behind the offsets that are missing between the segments, and there is nothing
    left to do (without it an endless loop: apache/kafka#7932).
    """
    place = TopicPartition("t", 0)
    write_segment(tmp_path / "t-0", 0, (0, "a"), (1, "b"), (2, "b"), (3, "a"))
    write_segment(tmp_path / "t-0", 14, (14, "c"))
    house = House(tmp_path)
    house.log("t", min_cleanable_dirty_ratio=0.0)
    result = house.clean()
    assert result is not None
    assert result.end_offset == 14
    assert house.checkpoints() == {place: 14}
    assert [record.offset for record in house.records("t")] == [2, 3, 14]
    assert house.clean() is None
    house.close()


def test_t37_a_map_that_is_full_before_the_hole_takes_one_more_round(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    directory = tmp_path / "orders-2"
    write_segment(directory, 0, (0, "a"), (1, "b"), (2, "a"), (3, "c"))
    write_segment(directory, 14, (14, "d"), (20, "a"))
    world = make_world(slots=4, load_factor=0.5)
    world.roll()
    checkpoints = []
    checkpoint = 0
    while checkpoint < 21:
        checkpoint = world.clean(checkpoint).end_offset
        checkpoints.append(checkpoint)
    assert checkpoints == [2, 14, 21]
    assert world.offsets() == [1, 3, 14, 20]


def test_t39_two_records_millions_of_offsets_apart_are_mapped(make_world: MakeWorld, tmp_path: Path) -> None:
    far = 7_206_178
    write_segment(tmp_path / "orders-2", 0, (0, "a"), (far, "b"))
    world = make_world()
    end = world.roll()
    assert end == far + 1
    offset_map = MapByHand(24 * 10, 0.75)
    mapper = Mapper(offset_map, ChunkReader(4096, lambda size: None), world.log.key_hashes)
    mapper.run(world.closed(), 0, end, [])
    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (0, far)
    assert (offset_map.entries, offset_map.latest_offset) == (2, far)
    assert world.clean().end_offset == end
    assert world.offsets() == [0, far]


READ_BYTES = 1024
SMALL = 20


def with_a_large_batch(world: World) -> int:
    """Two closed segments of small batches, in the midst of the first one of about 5,000 bytes; its size."""
    world.read_bytes = READ_BYTES
    world.put_each(range(SMALL))
    before = world.log.size_bytes
    world.put(("large", "x" * 5000), ("small", "x"))
    size = world.log.size_bytes - before
    world.put_each(range(SMALL, 2 * SMALL))
    world.put(("small", "y"))
    world.roll()
    world.put_each(range(SMALL))
    world.roll()
    return size


def test_t41_reads_grow_for_one_batch_and_are_what_was_configured_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T41, T60: exactly one read a pass is larger, and exactly as large as the batch."""
    size = with_a_large_batch(world)
    asked: list[tuple[int, int, int]] = []
    read = ChunkReader._read

    def noting(
        reader: ChunkReader, segment: Segment, position: int, wanted: int, checked_to: int
    ) -> Sequence[int]:
        asked.append((segment.base_offset, position, wanted))
        return read(reader, segment, position, wanted, checked_to)

    monkeypatch.setattr(ChunkReader, "_read", noting)
    world.clean()
    sizes = [wanted for _, _, wanted in asked]
    large = [index for index, wanted in enumerate(sizes) if wanted > READ_BYTES]
    assert [sizes[index] for index in large] == [size, size], "once for mapping, once for rewriting"
    assert all(0 < wanted <= READ_BYTES for index in large for wanted in sizes[index + 1 : index + 4])
    assert world.offsets()[-1] == 3 * SMALL + 2


def test_t60_the_output_buffer_shrinks_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """T41, T60: it grows for one batch that is rebuilt, and the next segment finds it as configured."""
    size = with_a_large_batch(world)
    sizes: dict[int, set[int]] = {}
    rewrite = Rewriter._rewrite_chunk

    def noting(self: Rewriter, chunk: object, sink: object) -> None:
        found = sizes.setdefault(chunk.segment.base_offset, set())  # type: ignore[attr-defined]
        found.add(self._output.size)
        rewrite(self, chunk, sink)  # type: ignore[arg-type]
        found.add(self._output.size)

    monkeypatch.setattr(Rewriter, "_rewrite_chunk", noting)
    second = world.closed()[1].base_offset
    world.clean()
    configured = READ_BYTES + READ_BYTES // 4
    assert min(sizes[0]) == configured
    assert size <= max(sizes[0]) < 2 * size, "it had to grow"
    assert sizes[second] == {configured}, "and is what it was before"


def test_t64_where_nothing_stays_no_read_and_no_buffer_grows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-6854: Kafka took a chunk without anything to keep for one that was too small."""
    world.read_bytes = READ_BYTES
    for number in range(200):
        world.put(("a", str(number)))
    world.roll()
    reads: list[int] = []
    outputs: set[int] = set()
    read, rewrite = ChunkReader._read, Rewriter._rewrite_chunk

    def noting_read(
        reader: ChunkReader, segment: Segment, position: int, wanted: int, checked_to: int
    ) -> Sequence[int]:
        reads.append(wanted)
        return read(reader, segment, position, wanted, checked_to)

    def noting_rewrite(self: Rewriter, chunk: object, sink: object) -> None:
        rewrite(self, chunk, sink)  # type: ignore[arg-type]
        outputs.add(self._output.size)

    monkeypatch.setattr(ChunkReader, "_read", noting_read)
    monkeypatch.setattr(Rewriter, "_rewrite_chunk", noting_rewrite)
    world.clean()
    assert max(reads) <= READ_BYTES
    assert outputs == {READ_BYTES + READ_BYTES // 4}
    assert world.pairs() == [("a", "199")]


@pytest.mark.parametrize("codec", [0, 4])
def test_t97_what_is_left_after_each_of_three_passes(make_world: MakeWorld, codec: int) -> None:
    """Kafka's numbers for a map of four slots, three of which are used."""
    world = make_world(slots=4, delete_retention_ms=50_000)
    script: list[tuple[int, str, tuple[int, ...]]] = [
        (1, "put", (1, 2)), (2, "put", (2, 3)), (1, "put", (3, 4)), (1, "commit", ()), (2, "commit", ()),
        (1, "put", (2, 3)), (1, "abort", ()), (2, "put", (4, 5)), (1, "put", (5, 6)), (1, "commit", ()),
        (2, "abort", ()), (2, "put", (6, 7)), (2, "commit", ()),
    ]  # fmt: skip
    sequences = {1: 0, 2: 0}
    for producer_id, what, keys in script:
        if what != "put":
            world.end_transaction(producer_id, is_commit=what == "commit")
            continue
        pairs = [(str(key), "v") for key in keys]
        world.put(
            *pairs, codec=codec, producer_id=producer_id, producer_epoch=0,
            base_sequence=sequences[producer_id], is_transactional=True,
        )  # fmt: skip
        sequences[producer_id] += len(keys)
    assert world.roll() == 20
    both = [AbortedTransaction(1, 8, 10, 11), AbortedTransaction(2, 11, 16, 17)]
    assert world.aborted() == both

    bases = [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert one_pass(world, 0) == (4, bases, [0, 2, 3, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19], both)
    assert one_pass(world, 4) == (14, bases, [0, 2, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19], [])
    world.now_ms += 50_000
    bases = [0, 2, 4, 6, 7, 13, 15, 17, 19]
    assert one_pass(world, 14) == (20, bases, [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19], [])


def one_pass(world: World, start: int) -> tuple[int, list[int], list[int], list[AbortedTransaction]]:
    """How far it came; base offsets of batches, offsets of records, aborted transactions that are left."""
    end = world.clean(start).end_offset
    return end, [header.base_offset for header in world.headers()], world.all_offsets(), world.aborted()


def test_t98_one_producer_begins_each_transaction_at_sequence_0_in_the_same_epoch(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """As Kafka's group coordinator writes (here the file of such a log): the older data and marker go, the
    last ones stay.
    """
    batches = []
    for _ in range(2):
        batches.append(
            batch(key=b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        )
        batches.append(marker_batch(Marker(True), producer_id=1, producer_epoch=0, now_ms=NOW_MS))
    batches += [batch(key=b"a"), batch(key=b"b")]
    directory = tmp_path / "orders-2"
    directory.mkdir()
    data = b"".join(struct.pack(">q", offset) + one[8:] for offset, one in enumerate(batches))
    (directory / segment_file_name(0, LOG_SUFFIX)).write_bytes(data)
    world = make_world()
    world.crash()
    assert world.log.log_end_offset == 6
    world.roll()
    world.clean()
    assert (world.all_offsets(), world.last_offsets()) == ([1, 3, 4, 5], [1, 2, 3, 4, 5])
    world.clean()
    world.now_ms += RETENTION_MS + 1
    world.clean()
    assert (world.all_offsets(), world.last_offsets()) == ([3, 4, 5], [2, 3, 4, 5])


def test_t98_what_a_coordinator_writes_has_no_sequence_to_be_held_against(world: World) -> None:
    """The second transaction begins at sequence 0 again, in the same epoch: it is no repetition."""
    fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    for value in "12":
        appended = world.put(("a", value), **fields, trusted=True)
        assert appended.last_offset == world.log.log_end_offset - 1
        world.end_transaction(1, is_commit=True)
    assert world.committed() == {"a": "2"}
    assert world.all_offsets()[:4] == [0, 1, 2, 3]


def test_t103_the_log_of_transactions_is_cleaned_like_any_other(tmp_path: Path) -> None:
    """`__transaction_state` as it comes in a directory of Kafka's; nothing here writes it."""
    house = House(tmp_path)
    house.put(
        "__transaction_state", ("id-1", "empty"), ("id-2", "empty"), ("id-1", "committed"), ("id-2", None)
    )
    house.put("__transaction_state", ("id-3", "empty"))
    result = house.clean()
    assert result is not None
    assert house.table("__transaction_state") == {"id-1": "committed", "id-3": "empty"}
    assert [record.offset for record in house.records("__transaction_state")] == [2, 3, 4]
    house.close()


def test_t141_a_cleaning_that_takes_the_first_records_leaves_the_start(world: World) -> None:
    """Record 0 is gone, the log begins at 0 all the same, also for a reader and after a start."""
    world.put_each("aaab")
    world.roll()
    world.clean()
    assert world.offsets() == [2, 3]
    assert world.log.log_start_offset == 0
    assert world.log.read(0, 1 << 16, upper_offset=4).read()
    world.crash()
    assert (world.log.log_start_offset, world.offsets()) == (0, [2, 3])


@pytest.mark.parametrize("codec", [0, 4])
def test_t68_a_first_record_without_a_time_changes_no_other_time(world: World, codec: int) -> None:
    """Its -1 is the time that the others are counted from, as in any batch."""
    items = [(-1, b"a", b"1", ()), (NOW_MS - 5000, b"b", b"1", ()), (NOW_MS, b"c", b"old", ())]
    world.log.append(encode_batch(items, codec=codec), now_ms=NOW_MS)
    world.put(("c", "new"))
    world.roll()
    world.clean()
    assert [(record.key, record.timestamp) for record in world.records()] == [
        (b"a", -1),
        (b"b", NOW_MS - 5000),
        (b"c", NOW_MS),
    ]


def test_t59_t89_an_aborted_transaction_stands_in_the_part_that_has_its_marker(world: World) -> None:
    """One source becomes several parts, since `segment.bytes` is less now than it was."""
    world.put(("a", "x"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(7, is_commit=False)
    world.put_each(range(10), value="v" * 50)
    world.put(("b", "x"), producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True)
    world.put_each(range(10, 20), value="v" * 50)
    world.end_transaction(7, is_commit=False)
    world.roll()
    world.log.update_config(dataclasses.replace(world.log.config, segment_bytes=600))
    before = world.aborted()
    world.clean()
    parts = world.closed()
    assert len(parts) > 3
    for part in parts:
        for entry in part.txn_index.entries():
            assert part.base_offset <= entry.last_offset < part.next_offset
    assert world.aborted() == before
    assert [entry.last_offset for entry in before] == [1, 23]
