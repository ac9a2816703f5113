"""Goal: the statistics beside a segment are right, never deny a key, and are never believed when they are not
of this segment.

Method: segments of random keys, codecs and tombstones are counted again with plain Python; the hash is held
against published values; the file is damaged byte by byte, cut, swapped and left over from other batches.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import crc32c
import numpy
import pytest

from cleaner.cleaner import Cleaner
from cleaner.results import Range
from protocol.compression import Codec
from protocol.errors import KafkaError
from protocol.records import encode_batch
from storage import layout, sidecar, statistics
from storage.batch_table import as_chunk
from storage.cleaned_segment import CleanedSegment
from storage.file import SYSTEM_DISK, Disk
from storage.segment import Segment
from storage.sidecar import DamagedStatistics, SegmentStatistics
from storage.statistics_kernels import BLOCK_BITS, BLOCK_BYTES, SKETCH_REGISTERS, block_of, is_in_block
from storage.types import Origin
from storage.verify import verify_log
from tests.storage.builders import LATER_MS, NOW_MS, LogBuilder, batch, topic_config
from tests.storage.conftest import MakeLog

CODECS = tuple(Codec)


def filled(log: LogBuilder, records: int, keys: int) -> Segment:
    """One closed segment of random records: every codec, tombstones, where allowed records without a key."""
    rng = random.Random(1)
    keyless = 0.0 if log.config.is_compacted else 0.05
    for number in range(0, records, 50):
        rows = [
            (NOW_MS + number + index, b"key-%d" % rng.randrange(keys) if rng.random() >= keyless else None,
             None if rng.random() < 0.1 else b"v" * rng.randrange(90), ())
            for index in range(50)
        ]  # fmt: skip
        log.log.append(encode_batch(rows, codec=CODECS[number // 50 % len(CODECS)]), now_ms=NOW_MS)
    log.log.roll(NOW_MS)
    log.log.flush()
    return log.log.segments[-2]


def file_of(segment: Segment) -> Path:
    return sidecar.path_of(segment)


def clean(log: LogBuilder, now_ms: int, start: int = 0) -> Segment:
    """A cleaning of everything closed; the segment that is left."""
    Cleaner(map_bytes=1 << 20, load_factor=0.9, run_on_owner=lambda function: function()).clean(
        log.log, Range(start, log.log.segments[-1].base_offset), now_ms
    )
    return log.log.segments[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_the_hash_is_xxh64(key: bytes, value: int) -> None:
    """Published values of XXH64 with seed 0."""
    assert statistics.hash_of(key) == value


def test_counts_are_those_of_the_records(log: LogBuilder) -> None:
    segment = filled(log, 5000, 700)
    found = statistics.ensure(segment)
    records = log.records()
    keys = {record.key for record in records if record.key is not None}
    assert (found.base_offset, found.next_offset, found.holes) == (0, 5000, 0)
    assert (found.batches, found.records) == (100, 5000)
    assert found.keyed_records == sum(record.key is not None for record in records)
    assert found.tombstones == sum(record.key is not None and record.value is None for record in records)
    assert found.empty_values == sum(record.key is not None and record.value == b"" for record in records) > 0
    assert (found.min_timestamp, found.max_timestamp) == (
        min(record.timestamp for record in records),
        max(record.timestamp for record in records),
    )
    assert abs(found.distinct_keys - len(keys)) <= 0.03 * len(keys)
    assert found.tombstones_at(LATER_MS) == (found.tombstones, 0, 0)
    assert verify_log(log.directory) == []


@pytest.mark.parametrize("keys", [0, 1, 40, 41, 3000])
def test_a_key_that_is_there_is_never_denied(make_log: MakeLog, keys: int) -> None:
    log = make_log()
    for number in range(keys):
        log.append(b"v", key=b"k%d" % number)
    log.append(b"v", key=b"")
    log.log.roll(NOW_MS)
    segment = log.log.segments[0]
    statistics.ensure(segment)
    opened = sidecar.open_sidecar(segment)
    assert opened is not None
    assert all(opened.may_hold(statistics.hash_of(b"k%d" % number)) for number in range(keys))
    assert opened.may_hold(statistics.hash_of(b""))
    denied = sum(not opened.may_hold(statistics.hash_of(b"other-%d" % number)) for number in range(2000))
    assert denied >= 1900
    opened.close()


def test_false_positives_are_as_few_as_documented(log: LogBuilder) -> None:
    """FORMAT.md: at most 1.5 in a hundred, sized by distinct keys and not by records."""
    rows = [(NOW_MS, b"key-%d" % (number % 20_000), b"", ()) for number in range(60_000)]
    log.log.append(encode_batch(rows), now_ms=NOW_MS)
    log.log.roll(NOW_MS)
    found, blocks = statistics.build(log.log.segments[0])
    assert 10 <= found.filter_blocks * BLOCK_BITS / found.distinct_keys < 20.5
    wrong = 0
    for number in range(40_000):
        value = numpy.uint64(statistics.hash_of(b"other-%d" % number))
        start = int(block_of(value, found.filter_level)) * BLOCK_BYTES
        wrong += bool(is_in_block(as_chunk(blocks[start : start + BLOCK_BYTES]), value))
    assert wrong / 40_000 < 0.015


@pytest.mark.parametrize("distinct", [0, 1, 10, 1000, 20_000, 300_000])
def test_the_sketch_estimates_within_three_percent(distinct: int) -> None:
    """Four standard deviations of a HyperLogLog with 16 384 registers."""
    rng = random.Random(distinct)
    sketch = numpy.zeros(1 << 14, numpy.uint8)
    for _ in range(distinct):
        value = rng.getrandbits(64)
        rest = value & (1 << 50) - 1
        register = value >> 50
        sketch[register] = max(sketch[register], 51 - rest.bit_length())
    assert math.isclose(statistics.estimate(sketch), distinct, rel_tol=0.03, abs_tol=0.5)


def test_tombstones_are_fresh_then_armed_then_expired(make_log: MakeLog) -> None:
    """S65: a tombstone gets its horizon at the first cleaning and may go when it has passed."""
    log = make_log(cleanup_policy="compact", delete_retention_ms=1000)
    for number in range(10):
        log.append(None if number < 4 else b"v", key=b"k%d" % number)
    log.log.roll(NOW_MS)
    log.log.flush()
    assert statistics.ensure(log.log.segments[0]).tombstones_at(NOW_MS) == (4, 0, 0)
    segment = clean(log, NOW_MS)
    found = statistics.ensure(segment)
    assert found.horizons == ((NOW_MS + 1000, 4),)
    assert found.tombstones_at(NOW_MS + 999) == (0, 4, 0)
    assert found.tombstones_at(NOW_MS + 1000) == (0, 0, 4)


def test_markers_are_no_keys(log: LogBuilder) -> None:
    log.append(b"v", key=b"k", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(7, is_commit=True)
    log.log.roll(NOW_MS)
    log.log.flush()
    found = statistics.ensure(log.log.segments[0])
    assert (found.records, found.keyed_records, found.markers, found.distinct_keys) == (2, 1, 1, 1)


def test_many_horizons_become_few(log: LogBuilder) -> None:
    """A tombstone is told to expire later than it does, never earlier; none is lost."""
    found = statistics._few({10 * number + number % 3: number for number in range(500)})
    assert len(found) == sidecar.MOST_HORIZONS
    assert sum(count for _, count in found) == sum(range(500))
    assert found[-1][0] == 4990 + 499 % 3
    assert list(found) == sorted(found)


# The file


def test_the_file_is_made_once_and_then_read(log: LogBuilder) -> None:
    segment = filled(log, 500, 50)
    found = statistics.ensure(segment)
    before = file_of(segment).stat()
    assert statistics.ensure(segment) == found
    after = file_of(segment).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    told, blocks = sidecar.decode(file_of(segment).read_bytes())
    assert (told, blocks) == statistics.build(segment)
    assert log.files(".tmp") == []


def test_the_active_segment_grows_while_it_is_counted(
    log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(b"v")
    for name in ("estimate", "_few"):

        def grow_and_answer(argument: Any, answer: Any = getattr(statistics, name)) -> Any:
            for _ in range(20):
                log.append(b"v" * 20_000)
            return answer(argument)

        monkeypatch.setattr(statistics, name, grow_and_answer)
    counted = statistics.ensure(log.log.active_segment)
    assert (counted.records, counted.next_offset) == (1, 1)
    assert counted.size_bytes < 200


def test_the_active_segment_has_no_file(log: LogBuilder) -> None:
    log.fill(3)
    assert statistics.ensure(log.log.segments[-1]).records == 3
    assert log.files(layout.STATISTICS_SUFFIX) == []


def test_every_damaged_byte_is_noticed(make_log: MakeLog) -> None:
    """A flipped bit anywhere: the file is refused as a whole, and made anew when it is asked for."""
    log = make_log()
    segment = filled(log, 100, 9)
    statistics.ensure(segment)
    good = file_of(segment).read_bytes()
    for position in range(len(good)):
        data = bytearray(good)
        data[position] ^= 1 << position % 8
        with pytest.raises(DamagedStatistics):
            sidecar.decode(bytes(data))
    for size in range(len(good)):
        with pytest.raises(DamagedStatistics):
            sidecar.decode(good[:size])
    file_of(segment).write_bytes(good[: -BLOCK_BYTES - 30] + bytes(30) + good[-BLOCK_BYTES:])
    assert len(verify_log(log.directory)) == 1
    opened = sidecar.open_sidecar(segment)
    assert opened is not None
    with pytest.raises(DamagedStatistics):
        opened.may_hold((1 << 64) - 1)
    opened.close()
    file_of(segment).write_bytes(b"\0" * len(good))
    statistics.ensure(segment)
    assert file_of(segment).read_bytes() == good


def test_checksums_of_prefixes_are_found_in_any_block(log: LogBuilder, tmp_path: Path) -> None:
    """A segment of a few megabytes has more than one block of them, behind the blocks of its keys."""
    found = statistics.ensure(filled(log, 300, 40))
    found = dataclasses.replace(found, filter_blocks=2)
    a_block = sidecar.CHECKSUMS_A_BLOCK
    numbers = list(range(3 * a_block))
    blocks = [
        struct.pack(f">{a_block}I", *numbers[at : at + a_block]) for at in range(0, len(numbers), a_block)
    ]
    sealed = [block + struct.pack(">I", crc32c.crc32c(block)) for block in blocks]
    path = tmp_path / "some.stats"
    path.write_bytes(b"".join([bytes(found.filter_position + 2 * BLOCK_BYTES), *sealed]))
    for first in (0, 1, a_block - 1, a_block, a_block + 1, 2 * a_block):
        for count in (0, 1, 2, a_block - 1, a_block):
            opened = sidecar.Sidecar(SYSTEM_DISK, os.open(path, os.O_RDONLY), found)
            checksums = opened.checksums_of_prefixes(first, count)
            opened.close()
            assert checksums == tuple(numbers[first : first + count]), f"{count} from {first}"
    data = bytearray(path.read_bytes())
    data[-BLOCK_BYTES] ^= 1
    path.write_bytes(data)
    opened = sidecar.Sidecar(SYSTEM_DISK, os.open(path, os.O_RDONLY), found)
    assert opened.checksums_of_prefixes(0, 2 * a_block) == tuple(numbers[: 2 * a_block])
    with pytest.raises(DamagedStatistics):
        opened.checksums_of_prefixes(2 * a_block - 1, 2)
    opened.close()


def test_a_head_of_any_size_is_read(log: LogBuilder) -> None:
    """With as many horizons as there may be, and more bytes than are read at first."""
    filled(log, 100, 10)
    segment = filled(log, 200, 40)
    found = statistics.ensure(segment)
    assert (found.base_offset, found.holes) == (100, 0)
    assert dataclasses.replace(found, records=found.records - 3).holes == 3
    blocks = file_of(segment).read_bytes()[found.filter_position :]
    horizons = tuple((NOW_MS + number, 1) for number in range(sidecar.MOST_HORIZONS))
    sketch = zlib.compress(random.Random(1).randbytes(SKETCH_REGISTERS), 0)
    large = dataclasses.replace(found, horizons=horizons, packed_sketch=sketch)
    assert large.filter_position > sidecar.FIRST_READ_BYTES
    file_of(segment).write_bytes(large.encode_head() + blocks)
    opened = sidecar.open_sidecar(segment)
    assert opened is not None
    opened.close()
    assert opened.statistics == large
    file_of(segment).unlink()


def test_a_block_with_a_wrong_checksum_is_not_whole() -> None:
    body = bytes(range(BLOCK_BYTES - 4))
    block = body + struct.pack(">I", crc32c.crc32c(body))
    assert sidecar.is_block_whole(block)
    assert not sidecar.is_block_whole(block[:-1] + bytes([block[-1] ^ 1]))
    assert not sidecar.is_block_whole(block[:-1])
    assert not sidecar.is_block_whole(block + b"\0")


def test_statistics_of_other_batches_are_not_believed(make_log: MakeLog) -> None:
    """What Kafka, or a cleaning, made of the segment since has another size or other ends."""
    log = make_log(cleanup_policy="compact")
    segment = filled(log, 500, 50)
    statistics.ensure(segment)
    cleaned = clean(log, NOW_MS)
    assert cleaned is not segment
    assert sidecar.open_sidecar(cleaned) is None
    assert verify_log(log.directory) == []
    assert statistics.ensure(cleaned).records == len(log.records())
    assert sidecar.open_sidecar(cleaned) is not None


def test_right_identity_with_wrong_content_is_a_violation(make_log: MakeLog) -> None:
    log = make_log()
    segment = filled(log, 500, 50)
    found, blocks = statistics.build(segment)
    values = {name: getattr(found, name) for name in found.__dataclass_fields__}
    statistics.write(segment, SegmentStatistics(**{**values, "tombstones": found.tombstones + 1}), blocks)
    assert ["tombstones is" in line for line in verify_log(log.directory)] == [True]
    log.is_damaged = True  # type: ignore[attr-defined]


def test_files_go_with_their_segment(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy="delete", retention_ms=1000, file_delete_delay_ms=0)
    statistics.ensure(filled(log, 100, 9))
    assert len(log.files(layout.STATISTICS_SUFFIX)) == 1
    log.log.expire(LATER_MS).run()
    assert log.files(layout.STATISTICS_SUFFIX) == []


def test_a_start_removes_what_belongs_to_no_segment(make_log: MakeLog) -> None:
    log = make_log()
    log.fill(3)
    for name in (f"{7:020d}.stats", f"{0:020d}.stats.tmp"):
        (log.directory / name).write_bytes(b"x")
    log.restart()
    assert log.files(layout.STATISTICS_SUFFIX) + log.files(layout.TEMPORARY_SUFFIX) == []


def test_a_segment_that_left_the_log_gets_no_file(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy="delete", retention_ms=1000)
    segment = filled(log, 100, 9)
    log.log.expire(LATER_MS).run()
    assert statistics.ensure(segment).records == 100
    assert log.files(layout.STATISTICS_SUFFIX) == []


def test_a_disk_that_refuses_the_file_refuses_no_answer(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log()
    segment = filled(log, 100, 9)

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(5, "an input/output error")

    monkeypatch.setattr(statistics, "write_whole", refuse)
    assert statistics.ensure(segment).records == 100
    assert log.files(layout.STATISTICS_SUFFIX) + log.files(layout.TEMPORARY_SUFFIX) == []


def test_a_broken_segment_is_named(make_log: MakeLog) -> None:
    log = make_log()
    segment = filled(log, 100, 9)
    with segment.file.path.open("r+b") as file:
        file.seek(61)
        file.write(b"\xff\xff\xff\xff\xff\xff")
    with pytest.raises(KafkaError, match=r"offset 0 of 0+\.log is not made of whole records"):
        statistics.ensure(segment)
    log.is_damaged = True  # type: ignore[attr-defined]


def test_the_worked_example(tmp_path: Path) -> None:
    """The bytes of FORMAT.md."""
    cleaned = CleanedSegment(Disk(), tmp_path, 1573, topic_config())
    rows = [(1_700_000_000_000, b"k1", b"v1", ()), (1_700_000_000_005, b"k2", None, ())]
    cleaned.append(encode_batch(rows, base_offset=1573))
    cleaned.finish(NOW_MS)
    segment = cleaned.to_segment()
    segment.rename("")
    statistics.ensure(segment)
    data = file_of(segment).read_bytes()
    assert data[:8] == b"KSTA\x00\x03\x07\x0e"
    assert struct.unpack_from(">qqqq", data, 12) == (1573, 1575, 81, 0)
    assert struct.unpack_from(">qqqqqq", data, 52) == (1, 2, 2, 1, 0, 0)
    assert struct.unpack_from(">qqq", data, 100) == (1_700_000_000_000, 1_700_000_000_005, 2)
    assert data[44:52] == bytes.fromhex("db7080c0db7080c0")
    assert len(data) % 64 == 0


def test_control_batches_of_a_coordinator_do_not_disturb(log: LogBuilder) -> None:
    log.log.append(batch(b"v"), now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.log.roll(NOW_MS)
    assert statistics.ensure(log.log.segments[0]).records == 1
