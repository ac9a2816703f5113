"""Goal: a cleaning with `compaction.compression.type` changes how batches are stored, and nothing that any
reader sees; without it every batch keeps its codec (T58).

Method: logs of all codecs, with transactions, tombstones, markers, stamped times and thinned batches are
cleaned twice, with and without it: records, headers and counts must be the same, the bytes fewer. Damage and
what does not become smaller must stay to the byte.
"""

from __future__ import annotations

import random

import pytest

from cleaner.recoding import Recoder
from config.broker import BrokerConfig
from config.topic import TopicConfig
from protocol.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, is_intact, parse_header, seal_header
from protocol.compression import Codec
from protocol.records import decode_batch, encode_batch
from storage.append import chosen_codec
from storage.verify import verify_log
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.world import NOW_MS, World

WANTED = ("zstd", "lz4", "snappy", "gzip")
TEXT = "the same words again and again, as tables have them; " * 4


def fill(world: World, seed: int = 1) -> None:
    """Forty keys in batches of up to nine records, in all codecs; a producer aborts, another commits."""
    chance = random.Random(seed)
    for number in range(60):
        keys = [f"k{chance.randrange(40)}" for _ in range(chance.randrange(1, 10))]
        values = [None if chance.random() < 0.1 else f"{TEXT}{chance.random()}" for _ in keys]
        world.put(*zip(keys, values, strict=True), codec=number % 5)
        if number % 20 == 7:
            fields = {
                "producer_id": 7,
                "producer_epoch": 0,
                "base_sequence": number // 20,
                "is_transactional": True,
            }
            world.put(("aborted", TEXT), codec=Codec.GZIP, **fields)
            world.end_transaction(7, is_commit=number == 27)
        if number % 25 == 24:
            world.roll()
    world.roll()


def shape(header: BatchHeader) -> BatchHeader:
    """All of a header that is not about how its records are stored."""
    return header._replace(batch_length=0, crc=0, attributes=header.attributes & ~CODEC_MASK)


def compressible(world: World) -> list[int]:
    """The codecs of the batches with records that are not markers."""
    return [header.codec for header in world.headers() if header.record_count and not header.is_control]


def data_batches(world: World) -> list[bytes]:
    return [data for header, data in world.batches() if not header.is_control]


@pytest.mark.parametrize("wanted", WANTED)
def test_w21_the_same_records_in_another_codec(make_world: MakeWorld, wanted: str) -> None:
    plain = make_world(name="plain-0")
    packed = make_world(name="packed-0", compaction_compression_type=wanted)
    results = []
    for world in (plain, packed):
        fill(world)
        results.append(world.clean())
    assert [shape(header) for header in packed.headers()] == [shape(header) for header in plain.headers()]
    assert packed.records() == plain.records()
    assert packed.aborted() == plain.aborted()
    assert set(compressible(plain)) == set(range(5))
    codec, _ = chosen_codec(packed.log.config, wanted)
    assert compressible(packed).count(codec) > compressible(plain).count(codec)
    for (before, old), (after, new) in zip(plain.batches(), packed.batches(), strict=True):
        assert new == old if after.codec == before.codec else (after.codec == codec and len(new) < len(old))
    assert all(is_intact(data, 0, header) for header, data in packed.batches())
    assert verify_log(packed.directory) == []
    assert results[0].removed == results[1].removed
    assert results[0].records_kept == results[1].records_kept
    sizes = [sum(segment.size_bytes for segment in world.log.segments[:-1]) for world in (plain, packed)]
    assert [result.bytes_written for result in results] == sizes
    if wanted in ("zstd", "gzip"):
        assert sizes[1] < 0.9 * sizes[0]


@pytest.mark.parametrize("wanted", WANTED)
def test_a_dry_run_tells_what_would_be_written(make_world: MakeWorld, wanted: str) -> None:
    world = make_world(compaction_compression_type=wanted)
    fill(world)
    told = world.clean(is_dry=True)
    assert told.bytes_written == world.clean().bytes_written


def test_a_second_cleaning_thins_what_the_first_has_packed(make_world: MakeWorld) -> None:
    """And packs nothing twice: what is in the codec already stays to the byte where all of it stays."""
    world = make_world(compaction_compression_type="zstd")
    fill(world)
    world.clean()
    before = data_batches(world)
    world.clean(world.log.segments[-1].base_offset)
    assert data_batches(world) == before
    table = world.table()
    world.put(("k1", "new"), ("k2", None))
    end = world.roll()
    world.clean(end - 2)
    table.pop("k2", None)
    assert world.table() == {**table, "k1": "new"}
    assert data_batches(world) != before


def test_times_that_the_broker_stamped_and_horizons_stay(make_world: MakeWorld) -> None:
    world = make_world(
        compaction_compression_type="zstd", message_timestamp_type="LogAppendTime", delete_retention_ms=1000
    )
    world.put(*((f"k{number}", TEXT) for number in range(5)))
    world.put(*((f"k{number}", None) for number in range(5)), ("alive", TEXT))
    world.roll()
    world.clean()
    (header,) = [one for one in world.headers() if one.record_count]
    assert (header.codec, header.delete_horizon_ms) == (Codec.ZSTD, NOW_MS + 1000)
    assert {record.timestamp for record in world.records()} == {NOW_MS}


def test_what_does_not_become_smaller_stays(make_world: MakeWorld) -> None:
    world = make_world(compaction_compression_type="gzip")
    noise = random.Random(5).randbytes(3000)
    world.put((b"noise", noise))
    world.put(("tiny", ""))
    world.roll()
    before = world.batches()
    world.clean()
    assert world.batches() == before


def test_damage_is_not_made_to_look_whole() -> None:
    whole = encode_batch([(NOW_MS, b"k", TEXT.encode(), ())])
    damaged = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    recoder = Recoder(Codec.ZSTD, 3)
    packed = bytes(recoder.recode(memoryview(whole)))
    assert len(packed) < len(whole)
    assert decode_batch(packed) == decode_batch(whole)
    assert bytes(recoder.recode(memoryview(damaged))) == damaged
    mixed = bytes(recoder.recode(memoryview(whole + damaged + whole)))
    assert mixed == packed + damaged + packed


def test_records_that_are_not_of_their_codec_stay() -> None:
    """Their checksum is right: what wrote them was wrong, and nobody here can know what was meant."""
    batch = encode_batch([(NOW_MS, b"k", TEXT.encode(), ())])
    header, records = parse_header(batch), batch[HEADER_BYTES:]
    lying = seal_header(header._replace(attributes=header.attributes | Codec.GZIP), records) + records
    assert bytes(Recoder(Codec.ZSTD, 3).recode(memoryview(lying))) == lying


def test_the_level_is_the_topics(make_world: MakeWorld) -> None:
    sizes = []
    for level in (1, 22):
        world = make_world(
            name=f"level-{level}", compaction_compression_type="zstd", compression_zstd_level=level
        )
        chance = random.Random(3)
        words = [bytes(chance.choices(b"abcdefgh ", k=6)).decode() for _ in range(300)]
        for key in range(20):
            world.put((f"k{key}", " ".join(chance.choices(words, k=900))))
        world.roll()
        world.clean()
        sizes.append(world.log.size_bytes)
    assert sizes[1] < sizes[0]


def test_the_brokers_own_topics_are_read_at_every_start() -> None:
    broker = BrokerConfig.parse({"log.cleaner.compaction.compression.type": "zstd"})
    assert TopicConfig.resolve({}, broker).compaction_compression_type == "zstd"
    assert TopicConfig.resolve({}, broker, is_internal=True).compaction_compression_type == "producer"
