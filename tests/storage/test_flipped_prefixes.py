"""Goal: a flip in what no batch checksum covers (base offset, length, leader epoch, magic) is never served
from a cleaned segment either, where a base offset may move within a hole and nothing around it tells.

Method: a log is cleaned, so that its offsets have holes, and its statistics are written as the broker does
a second later; then every bit of the first 17 bytes of every batch is flipped in turn, the log is opened as
after a clean stop or a crash, and read as a consumer reads. The same before there are statistics, as long as
the process lives. Also statistics of other batches, several flipped bits, and stretches of a large file.
"""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import crc32c
import numpy
import pytest

from cleaner.cleaner import Cleaner
from cleaner.results import Range
from protocol.batch import iterate_headers
from storage import sidecar, statistics
from storage.batch_table import BASE_OFFSET, POSITION, read_table
from storage.integrity import Place, survey
from storage.prefixes import CRC_TABLE, STRETCH_BYTES, Prefixes, Witness, flipped_bit, prefixes_of
from storage.segment import Segment
from storage.statistics_kernels import seal_blocks
from storage.verify import verify_log
from tests.storage.builders import NOW_MS, LogBuilder
from tests.storage.conftest import MakeLog
from tests.storage.test_flipped_bits import Damaged, consume

UNCOVERED_BYTES = 17
SEED = 6


def cleaned_log(
    make_log: MakeLog, batches: int = 40, *, keys: int = 12, value: int = 10, has_statistics: bool = True
) -> LogBuilder:
    """A cleaned segment with holes, and an active one; statistics of the cleaned one beside it."""
    builder = make_log(cleanup_policy="compact", index_interval_bytes=150)
    chance = random.Random(SEED)
    for number in range(batches):
        key = b"%d" % chance.randrange(keys)
        builder.append(*[b"%d" % number * value] * (1 + number % 3), key=key, timestamp=NOW_MS + number)
    builder.log.roll(NOW_MS)
    builder.append(b"active")
    builder.log.flush()
    segment = clean(builder)
    if has_statistics:
        statistics.ensure(segment)
    return builder


def clean(builder: LogBuilder) -> Segment:
    cleaner = Cleaner(map_bytes=1 << 20, load_factor=0.9, run_on_owner=lambda function: function())
    cleaner.clean(builder.log, Range(0, builder.log.segments[-1].base_offset), NOW_MS)
    return builder.log.segments[0]


clean_or_not = pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])


@pytest.mark.slow
@clean_or_not
def test_every_bit_before_the_checksum(make_log: MakeLog, tmp_path: Path, is_clean: bool) -> None:
    check_flips(make_log, tmp_path, is_clean, every=1)


@clean_or_not
def test_some_bits_before_the_checksum(make_log: MakeLog, tmp_path: Path, is_clean: bool) -> None:
    check_flips(make_log, tmp_path, is_clean, every=13)


def check_flips(make_log: MakeLog, tmp_path: Path, is_clean: bool, every: int) -> None:
    builder = cleaned_log(make_log)
    damaged = Damaged(builder, tmp_path / "attic", is_clean=is_clean)
    batches = [one for one in damaged.batches() if one[0] == f"{0:020d}.log"]
    assert len(batches) > 5
    gaps = [after[3].start - before[3].stop for before, after in itertools.pairwise(batches)]
    assert max(gaps) > 0, "no hole to move in"
    for name, position, _, offsets in batches:
        for bit in range(8 * position + position % every, 8 * (position + UNCOVERED_BYTES), every):
            log = damaged.open_with(name, bit)
            where = f"bit {bit - 8 * position} of the batch at {position}"
            found, corrupt = consume(log)
            assert found == {key: one for key, one in damaged.whole.items() if key not in offsets}, where
            assert set(offsets) & damaged.whole.keys() <= set(corrupt), where
            assert log.health.damaged_places == 1, where


@pytest.mark.parametrize("is_counted_first", [True, False], ids=["counted", "read"])
def test_before_there_are_statistics(make_log: MakeLog, is_counted_first: bool) -> None:
    """Who has cleaned the log remembers, until the statistics are written, and they are not of a damage."""
    log = cleaned_log(make_log, has_statistics=False).log
    segment = log.segments[0]
    whole, _ = consume(log)
    data = segment.file.path.read_bytes()
    for position, header in iterate_headers(data):
        for bit in range(position % 13, 8 * UNCOVERED_BYTES, 13):
            flipped = bytearray(data)
            flipped[position + bit // 8] ^= 1 << bit % 8
            segment.file.path.write_bytes(flipped)
            if is_counted_first:
                statistics.ensure(segment)
            else:
                assert not segment.check_again(0, segment.size_bytes)
            offsets = range(header.base_offset, header.next_offset)
            where = f"bit {bit} of the batch at {position}"
            found, corrupt = consume(log)
            assert found == {key: one for key, one in whole.items() if key not in offsets}, where
            assert set(offsets) & whole.keys() <= set(corrupt), where
            assert not sidecar.path_of(segment).exists(), where
            segment.file.path.write_bytes(data)
            segment.set_damages(())
            segment.trust = None
            segment.rebuild_indexes()
    statistics.ensure(segment)
    assert sidecar.path_of(segment).exists()
    assert segment.prefixes is None, "the file says it from now on"


def test_statistics_are_not_made_of_damaged_bytes(make_log: MakeLog, tmp_path: Path) -> None:
    """Who asks for the statistics of a damaged segment does not make the damage the truth."""
    damaged = Damaged(cleaned_log(make_log), tmp_path / "attic", is_clean=True)
    name, position, _, offsets = [one for one in damaged.batches() if one[0] == f"{0:020d}.log"][-1]
    for bit in range(8 * position, 8 * position + 64, 5):
        log = damaged.open_with(name, bit)
        segment = log.segments[0]
        before = sidecar.path_of(segment).read_bytes()
        statistics.ensure(segment)
        assert sidecar.path_of(segment).read_bytes() == before
        assert not set(offsets) & consume(log)[0].keys()


def test_verify_tells_a_moved_base_offset(make_log: MakeLog, tmp_path: Path) -> None:
    builder = cleaned_log(make_log)
    damaged = Damaged(builder, tmp_path / "attic", is_clean=True)
    path = damaged.attic / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    headers = list(iterate_headers(bytes(data)))
    for (_, before), (position, header) in itertools.pairwise(headers):
        for bit in range(5):
            moved = header.base_offset ^ 1 << bit
            if before.next_offset <= moved < header.base_offset:
                data[position : position + 8] = moved.to_bytes(8, "big")
                path.write_bytes(data)
                assert any("a base offset" in line for line in verify_log(damaged.attic))
                return
    pytest.fail("no hole to move in")


def test_statistics_of_other_batches_say_nothing(make_log: MakeLog) -> None:
    """A file of as many bytes that belongs to other batches (left by a crash, or by another broker)."""
    builder = cleaned_log(make_log)
    segment = builder.log.segments[0]
    whole = builder.records()
    path = sidecar.path_of(segment)
    found, blocks = statistics.build(segment)
    checksums = numpy.frombuffer(blocks[found.filter_blocks * 64 :], numpy.uint8).copy()
    checksums[:60] ^= 0x5A
    seal_blocks(checksums, CRC_TABLE)
    other = sidecar.SegmentStatistics(
        **{**found.__dict__, "first_checksum": 1, "last_checksum": 2, "packed_sketch": found.packed_sketch}
    )
    builder.log.close()
    path.write_bytes(other.encode_head() + blocks[: found.filter_blocks * 64] + checksums.tobytes())
    log = builder.open(is_clean=True)
    assert builder.records() == whole
    assert log.health.damaged_places == 0


def test_a_log_of_many_stretches(make_log: MakeLog, tmp_path: Path) -> None:
    """Only the batch that was hit is refused, wherever it lies, and what is asked for first."""
    builder = cleaned_log(make_log, 2000, keys=900, value=40)
    size = builder.log.segments[0].size_bytes
    assert size > 4 * STRETCH_BYTES
    damaged = Damaged(builder, tmp_path / "attic", is_clean=True)
    batches = [one for one in damaged.batches() if one[0] == f"{0:020d}.log"]
    chance = random.Random(SEED)
    for name, position, _, offsets in chance.sample(batches, 8):
        log = damaged.open_with(name, 8 * position + chance.randrange(40, 64))
        start = chance.choice(sorted(damaged.whole))
        tail = {key: one for key, one in damaged.whole.items() if key >= start and key not in offsets}
        assert consume(log, start=start)[0] == tail
        assert consume(log)[0] == {key: one for key, one in damaged.whole.items() if key not in offsets}, (
            position
        )


def test_of_some_stretches_the_statistics_tell_no_others(make_log: MakeLog) -> None:
    builder = cleaned_log(make_log, 2000, keys=900, value=40)
    builder.recovery_point = builder.log.recovery_point
    segment = builder.restart().segments[0]
    assert segment.prefixes is None
    whole = sidecar.witness_of(segment, 0, segment.size_bytes)
    assert whole is not None
    checksums = tuple(whole.checksums)
    assert len(checksums) > 4
    for number in range(len(checksums)):
        begin = number * STRETCH_BYTES
        for count in range(1, len(checksums) - number + 1):
            found = sidecar.witness_of(segment, begin + 1, begin + count * STRETCH_BYTES)
            assert found == Witness(number, checksums[number : number + count], is_certain=True)


def test_one_flipped_bit_is_found() -> None:
    chance = random.Random(SEED)
    for size in (1, 16, 160, 4000):
        data = chance.randbytes(size)
        right = crc32c.crc32c(data)
        for bit in {0, 8 * size - 1, chance.randrange(8 * size)}:
            wrong = bytearray(data)
            wrong[bit // 8] ^= 1 << bit % 8
            assert flipped_bit(bytes(wrong), right) == bit
        if size > 1:
            assert flipped_bit(bytes([data[0] ^ 3]) + data[1:], right) is None


def test_more_than_one_bit_condemns_the_stretch_of_a_certain_witness(make_log: MakeLog) -> None:
    segment = cleaned_log(make_log).log.segments[0]
    table, _, _ = read_table(segment.read_at(0, segment.size_bytes))
    made = Prefixes()
    made.add(table)
    assert prefixes_of(table)[:8] == int(table[BASE_OFFSET, 0]).to_bytes(8, "big")
    for is_certain in (True, False):
        witness = Witness(0, [made.of(0)], is_certain)
        assert witness.right(table, 0, segment.size_bytes).all()
        wrong = table.copy()
        wrong[BASE_OFFSET, 3] ^= 0b11
        assert witness.right(wrong, 0, segment.size_bytes).any() == (not is_certain)
        wrong[BASE_OFFSET, 3] ^= 0b01
        assert numpy.flatnonzero(~witness.right(wrong, 0, segment.size_bytes)).tolist() == [3]
        gap = numpy.delete(wrong, 5, axis=1)  # a damaged place: nothing can be said
        assert (numpy.diff(gap[POSITION]) > 0).all()
        assert witness.right(gap, 0, segment.size_bytes).all()


def test_a_start_without_statistics_reads_all(make_log: MakeLog, tmp_path: Path) -> None:
    builder = cleaned_log(make_log)
    whole = builder.records()
    builder.log.close()
    sidecar.path_of(builder.log.segments[0]).unlink()
    shutil.copytree(builder.directory, tmp_path / "copy")
    builder.open(is_clean=True)
    assert builder.records() == whole


def test_damage_at_the_largest_offset_is_seen_as_well(make_log: MakeLog) -> None:
    """It lies behind every bound of what is to be checked."""
    builder = make_log()
    for value in (b"one", b"two", b"three"):
        builder.append(value)
    data = bytearray(builder.log.segments[0].read_at(0, builder.log.size_bytes))
    size = len(data) // 3
    data[size : size + 8] = (2**63 - 1).to_bytes(8, "big")
    data[2 * size - 1] ^= 1
    place = Place(0, len(data), None, None)
    found = survey(lambda position, count: bytes(data[position : position + count]), place)
    assert [(damage.position, damage.end) for damage in found.damages] == [(size, 2 * size)]
