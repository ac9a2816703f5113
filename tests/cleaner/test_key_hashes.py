"""Goal: a cleaning knows the keys of compressed batches from their append, and is the same as if it had
unpacked them; the memory for that is bounded, and whatever is not remembered is unpacked.

Method: the same log is mapped with and without what was remembered; unpacking is made to fail where nothing
may be unpacked.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from cleaner import map_kernels, mapping
from cleaner.mapping import Mapper
from cleaner.reading import Chunk, ChunkReader
from cleaner.unpacking import new_scratch
from protocol.compression import Codec
from protocol.native import MISSING
from protocol.records import as_array, encode_record
from storage.key_hashes import ENTRY_BYTES, HASH_BYTES, LOOK_EVERY_BYTES, KeyHashes, LogKeyHashes
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.maps import MapByHand
from tests.cleaner.world import World
from tests.storage.builders import topic_config

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
NOTHING = LogKeyHashes(KeyHashes(0))


def mapped(
    world: World, known: LogKeyHashes, start: int, slots: int = 1000, classes: int = 1, number: int = 0
) -> tuple[MapByHand, Mapper]:
    offset_map = MapByHand(24 * slots, 0.75)
    mapper = Mapper(offset_map, ChunkReader(4096, lambda size: None), known, classes=classes, number=number)
    segments = [one for one in world.closed() if one.next_offset > start]
    mapper.run(segments, start, world.log.active_segment.base_offset, world.aborted())
    return offset_map, mapper


def refuse_to_unpack(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(chunk: Chunk, index: int) -> Any:
        raise AssertionError("a batch was unpacked")

    monkeypatch.setattr(mapping, "decompressed", refused)
    without = new_scratch()._replace(decompress=MISSING, compress=MISSING)  # so that lz4 goes there as well
    monkeypatch.setattr(map_kernels, "new_scratch", lambda: without)


def filled(world: World, seed: int, batches: int = 60) -> None:
    """Batches of any codec and length, keys of any length, some of them of transactions that are aborted."""
    chance = random.Random(seed)
    keys = [chance.randbytes(chance.randrange(40)) for _ in range(80)]
    for number in range(batches):
        pairs = [
            (chance.choice(keys), None if chance.random() < 0.2 else chance.randbytes(chance.randrange(200)))
            for _ in range(chance.randrange(1, 12))
        ]
        world.put(*pairs, codec=chance.choice([Codec.NONE, *PACKED]))
        if number % 20 == 9:
            fields = {"producer_epoch": 0, "base_sequence": number // 20, "is_transactional": True}
            world.put((keys[0], "taken back"), codec=Codec.LZ4, producer_id=7, **fields)
            world.end_transaction(7, is_commit=False)
    world.roll()


@pytest.mark.parametrize("seed", range(6))
def test_a_map_is_the_same_as_if_everything_had_been_unpacked(make_world: MakeWorld, seed: int) -> None:
    world = make_world(key_hash_bytes=1 << 20)
    filled(world, seed)
    end = world.log.active_segment.base_offset
    for start, slots, classes in [(0, 1000, 1), (end // 3, 1000, 1), (0, 40, 1), (0, 1000, 4), (7, 30, 2)]:
        known, one = mapped(world, world.log.key_hashes, start, slots, classes, classes - 1)
        unpacked, other = mapped(world, NOTHING, start, slots, classes, classes - 1)
        assert known.table.tolist() == unpacked.table.tolist()
        assert (known.latest_offset, known.entries) == (unpacked.latest_offset, unpacked.entries)
        assert (one.records_read, one.keyless) == (other.records_read, other.keyless)
        assert (known.entries == known.capacity) is (slots < 100)


@pytest.mark.parametrize("codec", PACKED)
def test_nothing_that_was_just_appended_is_unpacked_to_be_mapped(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    world = make_world(key_hash_bytes=1 << 20)
    world.put(("a", "1"), ("b", "1"), ("a", None), codec=codec)
    world.put(("b", "2"), codec=codec)
    world.roll()
    refuse_to_unpack(monkeypatch)
    known, _ = mapped(world, world.log.key_hashes, 0)
    assert (known.get(b"a"), known.get(b"b")) == (2, 3)


@pytest.mark.parametrize(
    "config", [{"compression_type": "zstd"}, {"message_timestamp_type": "LogAppendTime"}]
)
def test_what_the_broker_writes_anew_is_known_as_it_is_stored(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, config: dict[str, str]
) -> None:
    world = make_world(key_hash_bytes=1 << 20, **config)
    world.put(("a", "1"), ("b", "1"), codec=Codec.LZ4)
    if "compression_type" in config:
        world.put(("a", "2"))  # it comes as it is, and is stored compressed
    world.roll()
    refuse_to_unpack(monkeypatch)
    assert mapped(world, world.log.key_hashes, 0)[0].entries == 2


def test_only_compressed_batches_that_are_cleaned_by_offset_are_remembered(make_world: MakeWorld) -> None:
    world = make_world(key_hash_bytes=1 << 20)
    world.put(("a", "1"))
    assert world.key_hashes.used_bytes == 0
    world.put(("a", "1"), codec=Codec.LZ4)
    assert world.key_hashes.used_bytes == ENTRY_BYTES + HASH_BYTES
    world.log.update_config(topic_config(cleanup_policy="delete"))
    assert world.key_hashes.used_bytes == 0
    world.put(("a", "1"), codec=Codec.LZ4)
    assert world.key_hashes.used_bytes == 0
    for number, config in enumerate(
        ({"compression_type": "uncompressed"}, {"compaction_strategy": "timestamp"})
    ):
        other = make_world(name=f"others-{number}", key_hash_bytes=1 << 20, **config)
        other.put(("a", "1"), codec=Codec.LZ4)
        assert other.key_hashes.used_bytes == 0


def test_a_cleaning_a_new_log_start_and_a_closed_log_let_go(make_world: MakeWorld) -> None:
    world = make_world(key_hash_bytes=1 << 20, cleanup_policy="compact,delete")
    one = ENTRY_BYTES + HASH_BYTES
    for _ in range(3):
        world.put(("a", "1"), codec=Codec.LZ4)
    world.log.flush()
    world.log.delete_records(1)
    assert world.key_hashes.used_bytes == 2 * one
    world.roll()
    world.put(("a", "1"), codec=Codec.LZ4)
    world.clean()
    assert world.key_hashes.used_bytes == one
    assert world.offsets() == [2, 3]
    world.log.close()
    assert world.key_hashes.used_bytes == 0


def test_beyond_the_limit_the_largest_log_forgets_its_oldest_batches() -> None:
    section = as_array(encode_record(0, 0, b"key", b"value"))
    shared = KeyHashes(3 * (ENTRY_BYTES + HASH_BYTES))
    one, other = LogKeyHashes(shared), LogKeyHashes(shared)
    for number in range(3):
        one.add(number, 7, section, 1)
    other.add(0, 7, section, 1)
    other.add(1, 7, section, 1)
    assert [one.find(number, 7, 1) is not None for number in range(3)] == [False, False, True]
    assert [other.find(number, 7, 1) is not None for number in range(2)] == [True, True]
    one.forget()
    other.forget(1)
    assert shared.used_bytes == ENTRY_BYTES + HASH_BYTES


@pytest.mark.parametrize("small", [0, 10, 1000])
@pytest.mark.parametrize("large", [2, 3])
def test_large_logs_end_up_with_like_shares(small: int, large: int) -> None:
    """Or of two logs that were filled one behind the other, one would have nothing."""
    section = as_array(encode_record(0, 0, b"key", b"value"))
    size = ENTRY_BYTES + HASH_BYTES
    shared = KeyHashes((6000 + small) * size)
    few = [LogKeyHashes(shared) for _ in range(small)]
    logs = [LogKeyHashes(shared) for _ in range(large)]
    for log in [logs[0], *few, *logs[1:]]:
        for number in range(1 if log in few else 8000):
            log.add(number, 7, section, 1)
    for log in logs:
        kept = len(log.offsets)
        assert abs(kept - 6000 // large) <= 1 + LOOK_EVERY_BYTES // size
        assert log.used_bytes == kept * size
    assert list(logs[-1].offsets) == list(range(8000 - len(logs[-1].offsets), 8000))
    assert [len(log.offsets) for log in few] == [1] * small
    for log in (*few, *logs):
        log.forget()
    assert shared.used_bytes == 0
    few.append(LogKeyHashes(shared))
    for number in range(7000 + small):
        few[-1].add(number, 7, section, 1)
    assert len(few[-1].offsets) == 6000 + small


def test_a_batch_beyond_the_limit_or_without_keys_is_not_remembered() -> None:
    shared = KeyHashes(ENTRY_BYTES + HASH_BYTES - 1)
    log = LogKeyHashes(shared)
    log.add(0, 7, as_array(encode_record(0, 0, b"key", b"value")), 1)
    assert log.find(0, 7, 1) is None
    keyless = LogKeyHashes(KeyHashes())
    keyless.add(0, 7, as_array(encode_record(0, 0, None, b"value")), 1)
    assert keyless.find(0, 7, 1) is None


def test_another_batch_at_the_same_offset_is_unpacked(make_world: MakeWorld) -> None:
    """None can be there as long as the log is open; the checksum and the count are looked at all the same."""
    log = LogKeyHashes(KeyHashes())
    log.add(0, 7, as_array(encode_record(0, 0, b"key", b"value")), 1)
    assert log.find(0, 8, 1) is None
    assert log.find(0, 7, 2) is None
    assert log.find(1, 7, 1) is None
    assert NOTHING.find(0, 7, 1) is None
