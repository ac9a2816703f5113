"""Goal: what a cleaning leaves is right to the byte: the survivors, their batches, their files.

Method: real logs on disk with the real cleaner; batches are compared before and after.
"""

from __future__ import annotations

import os

import pytest

from cleaner.cleaner import FileSink
from cleaner.reading import CorruptSegment
from protocol.batch import is_intact, iterate_headers
from protocol.compression import Codec
from protocol.control import Marker, encode_marker
from protocol.records import Record, decode_batch, encode_batch
from storage.snapshot import LogSnapshot
from storage.types import Origin
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.world import HOUR_MS, NOW_MS, World

CODECS = range(5)


def test_t45_the_clean_part_loses_what_the_dirty_part_supersedes(world: World) -> None:
    world.put_each("abc", "old")
    clean_end = world.roll()
    world.clean()
    world.put_each("ac", "new")
    world.roll()
    result = world.clean(clean_end)
    assert world.pairs() == [("b", "old"), ("a", "new"), ("c", "new")]
    assert world.offsets() == [1, 3, 4]
    assert result.removed["superseded"] == 2


def test_t46_records_without_a_key_are_removed_and_counted(make_world: MakeWorld) -> None:
    world = make_world(cleanup_policy="delete")
    world.put((None, "x"), ("a", "1"), (None, "y"))
    world.put((None, "z"))
    world.put(("a", "2"), (None, "tail"))
    world.roll()
    world.set_policy("compact")
    result = world.clean()
    assert world.pairs() == [("a", "2")]
    assert result.removed["keyless"] == 4
    assert result.removed["superseded"] == 1


@pytest.mark.parametrize("codec", CODECS)
def test_t47_batches_that_stay_whole_are_copied_byte_for_byte(world: World, codec: int) -> None:
    world.put(("a", "1"), ("b", "1"), codec=codec, producer_id=4, producer_epoch=1, base_sequence=9)
    world.put(("c", ""), codec=codec)
    world.roll()
    before = world.batches()
    world.clean()
    assert world.batches() == before


@pytest.mark.parametrize("codec", CODECS)
def test_t48_a_thinned_batch_keeps_its_header(world: World, codec: int) -> None:
    items = [
        (NOW_MS + step, key, b"v", [("h", b"x")])
        for step, key in [(7, b"a"), (3, b"b"), (300, b"c"), (1, b"a")]
    ]
    data = encode_batch(items, codec=codec, producer_id=9, producer_epoch=2, base_sequence=40)
    world.log.append(data, now_ms=NOW_MS)
    world.put(("c", "later"))
    world.roll()
    old, _ = world.batches()[0]
    before = world.records()
    world.clean()
    new, stored = world.batches()[0]
    for name in (
        "base_offset",
        "last_offset_delta",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    ):
        assert getattr(new, name) == getattr(old, name), name
    assert (new.attributes, new.record_count) == (old.attributes, 2)
    assert (new.base_timestamp, new.max_timestamp) == (NOW_MS + 3, NOW_MS + 3)
    assert is_intact(stored, 0, new)
    assert [one.offset for one in world.records()] == [1, 3, 4]
    assert set(world.records()) <= set(before)


@pytest.mark.parametrize("codec", CODECS)
def test_t48_of_log_append_time_the_max_timestamp_is_kept(make_world: MakeWorld, codec: int) -> None:
    world = make_world(message_timestamp_type="LogAppendTime")
    of_the_producer = [(NOW_MS - 1000, key, b"1", ()) for key in (b"a", b"b")]
    world.log.append(encode_batch(of_the_producer, codec=codec), now_ms=NOW_MS)
    world.now_ms += 5
    world.put(("a", "2"))
    world.roll()
    world.clean()
    header = world.headers()[0]
    assert (header.timestamp_type, header.max_timestamp, header.record_count) == (1, NOW_MS, 1)
    assert [one.timestamp for one in world.records()] == [NOW_MS, NOW_MS + 5]


def test_t49_a_batch_of_which_nothing_stays_is_gone(world: World) -> None:
    world.put(("a", "1"), ("b", "1"))
    world.put(("b", "2"), ("a", "2"))
    world.roll()
    world.clean()
    assert [header.base_offset for header in world.headers()] == [2]


@pytest.mark.parametrize("codec", CODECS)
def test_t57_of_duplicates_in_one_batch_the_last_survives(world: World, codec: int) -> None:
    world.put(*((str(number % 3), str(number)) for number in range(30)), codec=codec)
    world.roll()
    world.clean()
    assert world.offsets() == [27, 28, 29]
    assert world.headers()[0].last_offset == 29


@pytest.mark.parametrize("codec", CODECS)
def test_t58_a_batch_is_packed_again_with_its_own_codec(world: World, codec: int) -> None:
    world.put(*((str(number), "value " * 20) for number in range(50)), codec=codec)
    world.put(("7", "new"))
    world.roll()
    world.clean()
    header, data = world.batches()[0]
    assert (header.codec, header.record_count) == (codec, 49)
    assert len(decode_batch(data)) == 49


def test_t59_a_segment_that_grows_beyond_its_limit_is_continued_in_another(make_world: MakeWorld) -> None:
    """Every batch is armed with a far horizon, so that every record takes more bytes than before."""
    world = make_world(segment_bytes=2000, delete_retention_ms=10**15)
    keys = [str(number) for number in range(400)]
    for start in range(0, 400, 20):
        world.put(*((key, None) for key in keys[start : start + 20]))
    world.roll()
    before = world.records()
    count = len(world.closed())
    result = world.clean()
    assert result.bytes_written > result.bytes_read
    assert len(world.closed()) > count
    assert all(segment.size_bytes <= 2000 for segment in world.closed())
    assert world.records() == before


@pytest.mark.parametrize("read_bytes", [64, 1024, 1 << 20])
@pytest.mark.parametrize("codec", CODECS)
def test_t60_a_batch_larger_than_the_buffers_is_cleaned(world: World, read_bytes: int, codec: int) -> None:
    world.read_bytes = read_bytes
    world.put(("a", "x" * 200_000), ("b", os.urandom(50_000).hex()), codec=codec)
    world.put(("a", "small"))
    world.put(("c", "x" * 5000), ("c", "last"))
    world.roll()
    world.clean()
    assert world.offsets() == [1, 2, 4]


def test_t60_a_packed_batch_may_have_more_records_than_bytes(world: World) -> None:
    world.put(*[("a", "1")] * 10_000, codec=Codec.ZSTD)
    world.put(("b", "1"))
    assert world.headers()[0].size_bytes < 10_000
    world.roll()
    world.clean()
    assert world.offsets() == [9_999, 10_000]


def test_t61_messages_written_under_a_larger_limit_are_cleaned(world: World) -> None:
    world.put(("a", "x" * 10_000))
    world.put(("a", "2"), ("b", "y" * 10_000))
    world.config = world.config.__class__(**{**vars_of(world), "max_message_bytes": 100})
    world.log.update_config(world.config)
    world.roll()
    world.clean()
    assert world.offsets() == [1, 2]


def vars_of(world: World) -> dict[str, object]:
    return {name: getattr(world.config, name) for name in world.config.__dataclass_fields__}


@pytest.mark.parametrize(
    ("position", "byte"), [(16, 3), (8, 0x7F), (8, 0x80), (60, 0xFF), (62, 0x99), (21, 0x04)],
    ids=["magic", "size beyond the file", "negative size", "count", "record", "codec"],
)  # fmt: skip
def test_t62_damage_is_found_and_the_source_is_untouched(world: World, position: int, byte: int) -> None:
    """T62, T63: magic, size, count and contents of the second batch."""
    world.put(("a", "1"))
    second = world.log.size_bytes
    world.put(("b", "1"))
    world.put(("a", "2"))
    world.roll()
    path = world.log.segments[0].file.path
    content = bytearray(path.read_bytes())
    content[second + position] = byte
    path.write_bytes(content)
    world.is_damaged = True
    with pytest.raises(CorruptSegment):
        world.clean()
    assert path.read_bytes() == content
    assert world.files(".cleaned") == []


def test_t62_damage_of_the_clean_part_is_found(world: World) -> None:
    world.put(("a", "1"))
    end = world.roll()
    world.put(("b", "2"))
    world.roll()
    path = world.log.segments[0].file.path
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    world.is_damaged = True
    with pytest.raises(CorruptSegment, match="checksum"):
        world.clean(end)
    assert path.read_bytes() == content


def test_t63_a_torn_end_is_damage(world: World) -> None:
    world.put_each("ab")
    world.roll()
    segment = world.log.segments[0]
    os.truncate(segment.file.path, segment.size_bytes - 1)
    world.is_damaged = True
    with pytest.raises(CorruptSegment):
        world.clean()


def test_t64_chunks_of_which_nothing_stays_do_not_grow_buffers(world: World) -> None:
    world.read_bytes = 1024
    for number in range(500):
        world.put(("a", str(number)))
    world.roll()
    world.clean()
    assert world.pairs() == [("a", "499")]


def test_t65_the_file_of_a_preallocated_topic_is_trimmed(make_world: MakeWorld) -> None:
    world = make_world(preallocate=True, segment_bytes=100_000)
    world.put_each("aab")
    world.roll()
    world.clean()
    segment = world.log.segments[0]
    assert segment.file.path.stat().st_size == segment.size_bytes < 1000
    world.log.close()


def test_t66_the_modification_time_is_that_of_the_last_source(world: World) -> None:
    world.put_each("aab")
    world.roll()
    world.now_ms += HOUR_MS
    world.put_each("cd")
    world.roll()
    expected = world.log.segments[1].last_modified_ms
    world.clean()
    assert len(world.closed()) == 1
    assert world.log.segments[0].last_modified_ms == expected
    assert world.log.segments[0].file.path.stat().st_mtime_ns // 1_000_000 == expected


def test_t67_times_are_found_before_and_after(make_world: MakeWorld) -> None:
    world = make_world(index_interval_bytes=100)
    for number in range(200):
        world.put((str(number % 50), "v"), now_ms=NOW_MS)
        world.now_ms += 10
    world.roll()
    world.clean()
    kept = world.records()
    for record in kept[::7]:
        found = world.log.offset_for_timestamp(record.timestamp)
        assert found is not None
        assert (found.timestamp, found.offset) == (record.timestamp, record.offset)
    latest = world.log.max_timestamp_offset()
    assert latest is not None
    assert (latest.timestamp, latest.offset) == (kept[-1].timestamp, kept[-1].offset)


def test_t67_the_header_of_an_emptied_batch_hides_no_newest_record(make_world: MakeWorld) -> None:
    """It stays for its producer's sequence, with the time of a record that is gone."""
    world = make_world()
    world.put(("a", "1"))
    world.now_ms += 10
    world.put(("b", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    world.now_ms -= 10
    world.put(("b", "2"))
    world.roll()
    world.clean()
    assert [(header.record_count, header.max_timestamp - NOW_MS) for header in world.headers()] == [
        (1, 0), (0, 10), (1, 0),
    ]  # fmt: skip
    latest = world.log.max_timestamp_offset()
    assert latest is not None
    assert (latest.timestamp, latest.offset) == (NOW_MS, 0)


def test_t67_a_segment_that_was_emptied_hides_no_times(make_world: MakeWorld) -> None:
    """Apache Kafka finds nothing here (tests/kafka/test_compaction.py): to it, the time of an empty segment
    is that of its file.
    """
    world = make_world(segment_bytes=5_000)
    world.put(("a", "1" * 3_000), now_ms=NOW_MS)
    world.now_ms += HOUR_MS
    world.roll()
    world.put(("a", "2" * 3_000), now_ms=NOW_MS + 1)
    world.roll()
    world.clean()
    emptied, second = world.closed()
    assert emptied.size_bytes == 0
    assert emptied.last_modified_ms > NOW_MS + 1
    found = world.log.offset_for_timestamp(NOW_MS + 1)
    assert found is not None
    assert found.offset == second.base_offset


@pytest.mark.parametrize("codec", CODECS)
def test_t68_headers_times_and_empty_values_survive(world: World, codec: int) -> None:
    items = [
        (NOW_MS, b"a", b"", [("h", None), ("h", b""), ("x", b"\x00")]),
        (NOW_MS - 5, b"", b"empty key", []),
        (NOW_MS + 9, b"gone", b"x", []),
    ]
    world.log.append(encode_batch(items, codec=codec), now_ms=NOW_MS)
    world.put(("gone", "2"))
    world.roll()
    world.clean()
    assert world.records()[:2] == [
        Record(0, NOW_MS, b"a", b"", (("h", None), ("h", b""), ("x", b"\x00"))),
        Record(1, NOW_MS - 5, b"", b"empty key"),
    ]


def test_t69_a_user_key_that_looks_like_a_marker_is_none(world: World) -> None:
    key, _ = encode_marker(Marker(True))
    world.put((key, "1"))
    world.put(("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(5, is_commit=True)
    world.put((key[:-1], "1"))
    world.roll()
    world.clean()
    assert world.all_offsets() == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", CODECS)
def test_t70_every_codec_gives_the_same_table(make_world: MakeWorld, codec: int) -> None:
    world = make_world(segment_bytes=20_000)
    model: dict[str | None, str | None] = {}
    for round_number in range(2):
        for start in range(0, 1500, 25):
            pairs = [(str((start + i) * 7919 % 100), f"{round_number} {start + i}" * 3) for i in range(25)]
            world.put(*pairs, codec=codec)
            model.update(pairs)
        world.put(("large", "x" * 15_000), codec=codec)
        model["large"] = "x" * 15_000
        world.roll()
        size = world.log.size_bytes
        world.clean_all()
        assert world.table() == model
        assert world.log.size_bytes < size / 2
    assert len(world.keys()) == 101


def test_t71_control_batches_are_never_looked_up_by_key(world: World) -> None:
    for producer_id in (5, 6):
        world.put(
            ("a", "1"), producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        world.end_transaction(producer_id, is_commit=True)
    world.roll()
    world.clean()
    assert world.last_offsets() == [0, 1, 2, 3]


def test_t72_a_second_cleaning_changes_nothing(make_world: MakeWorld) -> None:
    world = make_world(segment_bytes=1000)
    for number in range(200):
        world.put((str(number % 30), str(number)), ("x", None))
    world.roll()
    world.clean()
    before = world.batches()
    result = world.clean()
    assert world.batches() == before
    assert sum(result.removed.values()) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_dry_run_counts_the_same_and_writes_nothing(make_world: MakeWorld, codec: int) -> None:
    world = make_world(segment_bytes=2000)
    for number in range(100):
        world.put((str(number % 9), str(number)), ("x", None), codec=codec)
    world.roll()
    before = world.batches()
    dry = world.clean(is_dry=True)
    assert (world.batches(), world.files(".cleaned")) == (before, [])
    wet = world.clean()
    assert dry.removed == wet.removed
    assert (dry.records_kept, dry.bytes_written) == (wet.records_kept, wet.bytes_written)


@pytest.mark.parametrize("value_bytes", [1, 2000])
def test_checksums_of_small_and_large_batches_are_right(world: World, value_bytes: int) -> None:
    for number in range(20):
        world.put((str(number), "x" * value_bytes), ("same", "x"))
    world.roll()
    world.clean()
    assert all(is_intact(data, 0, header) for header, data in world.batches())
    assert len(world.records()) == 21


def test_the_sink_is_told_how_far_the_batches_reach_that_it_gets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that it knows whether they fit into one segment (T110); here the buffer is full again and again."""
    write = FileSink.write
    reached = []

    def judge(self: FileSink, batches: memoryview, last_offset: int) -> None:
        *_, (_, last) = iterate_headers(batches)
        reached.append((last.last_offset, last_offset))
        write(self, batches, last_offset)

    monkeypatch.setattr(FileSink, "write", judge)
    world.read_bytes = 1024
    world.put_each(range(100))
    world.put_each(range(100, 110), os.urandom(200).hex(), codec=Codec.ZSTD)
    world.roll()
    world.clean()
    assert len(reached) > 5
    assert [told for _, told in reached] == [last for last, _ in reached]


def test_how_many_keys_there_are_is_not_known_while_deleted_records_are_there(make_world: MakeWorld) -> None:
    """What lies below the log's start is not mapped: a key may be there twice until its segment goes."""
    world = make_world(cleanup_policy="compact,delete")
    world.put_each("aab")
    world.roll()
    world.log.flush()
    assert world.clean().keys == 2
    world.put_each("b")
    world.roll()
    world.log.flush()
    world.log.delete_records(2)
    assert world.clean().keys is None


def test_a_packed_control_batch_stays_as_it_is(world: World) -> None:
    """As long as data of its transaction are there it waits for no time; Apache Kafka packs no marker, and
    cleans one that somebody packed.
    """
    world.put(("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    key, value = encode_marker(Marker(is_commit=True))
    world.log.append(
        encode_batch(
            [(NOW_MS, key, value, ())], codec=Codec.GZIP, producer_id=5, producer_epoch=0,
            is_transactional=True, is_control=True,
        ),
        now_ms=NOW_MS, origin=Origin.COORDINATOR,
    )  # fmt: skip
    world.roll()
    before = world.batches()
    world.clean()
    assert world.batches() == before


def test_t110_offsets_too_far_for_one_segment_begin_another(world: World) -> None:
    """T59, T110: as a segment of an old Kafka may hold them; here they come straight to the sink."""
    world.put_each("ab")
    world.roll()
    far = [
        encode_batch([(NOW_MS, b"k", b"v", ())], base_offset=offset)
        for offset in (0, 5, 2**31 + 4, 2**31 + 9)
    ]
    sink = FileSink(LogSnapshot.of(world.log), world.closed())
    data = b"".join(far)
    sink.write(memoryview(data), 2**31 + 9)
    sink.finish(NOW_MS)
    assert [one.base_offset for one in sink.cleaned] == [0, 2**31 + 4]
    assert [one.last_offset for one in sink.cleaned] == [5, 2**31 + 9]
    assert b"".join(one.file.path.read_bytes() for one in sink.cleaned) == data
    sink.abandon()
    assert world.files(".cleaned") == []
