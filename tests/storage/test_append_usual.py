"""Goal: a batch that a look found usual is appended as any other, by fewer steps.

Method: the same random batches, of producers that go on and ones that do not, to two logs with tiny segments,
one of which goes the long way: the same answers, files, producers and ends. The limits of a segment that
are worked out ahead are held against `must_roll`, which decides for each batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from protocol.batch import HEADER_BYTES, parse_header
from protocol.errors import KafkaError
from protocol.one_look import Seen
from storage.producer_state import encode_snapshot
from storage.segment import MAX_RELATIVE_OFFSET, NO_ROOM_KNOWN, Segment
from storage.types import Appended
from tests.storage.builders import HOUR_MS, NOW_MS, LogBuilder, batch
from tests.storage.conftest import MakeLog


def seen_in(data: bytes) -> Seen:
    """What a look tells of a usual batch."""
    header = parse_header(data)
    return Seen(
        0,
        0,
        len(data),
        True,
        header.last_offset_delta,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


@dataclass
class Producers:
    """Batches as clients send them: mostly the next one, sometimes again, out of order, with a new epoch."""

    dice: random.Random
    sequences: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    last: bytes = b""

    def batch(self, now_ms: int) -> bytes:
        dice = self.dice
        if self.last and not dice.randrange(12):
            return self.last
        count, producer_id = dice.choice((1, 1, 2, 7)), dice.choice((-1, -1, 5, 5, 5, 6, 7))
        timestamp = now_ms + dice.choice((0, 0, 0, -1000, 1000, -NOW_MS - HOUR_MS - 1))
        values = [bytes(dice.choice((0, 1, 50)))] * count
        if producer_id < 0:
            self.last = batch(*values, timestamp=timestamp)
            return self.last
        if not dice.randrange(15):
            self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
            self.sequences[producer_id] = 0
        sequence = self.sequences.get(producer_id, 0)
        if not dice.randrange(15):
            sequence = dice.choice((0, sequence + 1, 2**31 - 1))
        else:
            self.sequences[producer_id] = sequence + count
        self.last = batch(
            *values,
            timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0),
            base_sequence=sequence,
        )
        return self.last


def answer(append: Callable[[], Appended]) -> Appended | tuple[int, str]:
    try:
        return append()
    except KafkaError as error:
        return error.code, error.message


def expired(builder: LogBuilder, now_ms: int) -> tuple[int, int]:
    gone = builder.log.expire(now_ms)
    gone.run()
    return gone.removed_segments, gone.removed_bytes


def files(builder: LogBuilder) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(builder.directory.iterdir())
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot")
    }


@pytest.mark.parametrize("seed", range(6))
def test_a_usual_batch_is_appended_as_any_other(make_log: MakeLog, seed: int) -> None:
    dice = random.Random(seed)
    config = {
        "segment_bytes": dice.choice((700, 5_000, 1 << 20)),
        "segment_ms": dice.choice((40 * 60_000, 7 * 24 * HOUR_MS)),
        "segment_index_bytes": dice.choice((36, 96, 1 << 20)),
        "index_interval_bytes": dice.choice((0, 100, 300)),
        "flush_messages": dice.choice((1, 2**63 - 1)),
    }
    quick, slow = make_log(name="quick-2", **config), make_log(name="slow-2", **config)
    producers = Producers(dice)
    quick_count = 0
    for _ in range(600):
        now_ms = quick.now_ms = slow.now_ms = quick.now_ms + dice.choice((0, 10, 60_000))
        data = producers.batch(now_ms)
        before = quick.log.log_end_offset
        appended = quick.log.append_usual(data, seen_in(data))
        if appended is None:
            assert quick.log.log_end_offset == before
        else:
            quick_count += 1
        there = appended or answer(lambda: quick.log.append(data, now_ms=now_ms))  # noqa: B023
        assert there == answer(lambda: slow.log.append(data, now_ms=now_ms))  # noqa: B023
        match dice.randrange(40):
            case 0:
                assert expired(quick, now_ms) == expired(slow, now_ms)
            case 1:
                quick.log.flush()
                slow.log.flush()
            case 2:
                quick.restart()
                slow.restart()
            case 3:
                quick.log.roll(now_ms)
                slow.log.roll(now_ms)
        assert quick.log.high_watermark == slow.log.high_watermark
        assert quick.log.log_end_offset == slow.log.log_end_offset
    assert quick_count > 100
    states = [encode_snapshot(one.log.producers.producers.values()) for one in (quick, slow)]
    assert states[0] == states[1]
    quick.log.close()
    slow.log.close()
    assert files(quick) == files(slow)
    quick.open(is_clean=True)
    slow.open(is_clean=True)


def test_what_goes_the_long_way(make_log: MakeLog) -> None:
    """A log's first batch, a producer's first one, and any of a log that is offline."""
    builder = make_log()
    log, data = builder.log, batch(b"v")
    assert log.append_usual(data, seen_in(data)) is None
    builder.append(b"v")
    assert log.append_usual(data, seen_in(data)) == Appended(1, 1, -1, 0)
    of_producer = batch(b"v", producer_id=3, producer_epoch=0, base_sequence=0)
    assert log.append_usual(of_producer, seen_in(of_producer)) is None
    timeless = batch(b"v", timestamp=-1)
    assert log.append_usual(timeless, seen_in(timeless)) is None
    log.take_offline("for a test")
    assert log.append_usual(data, seen_in(data)) is None
    assert log.log_end_offset == 2


def test_new_settings_hold_for_the_next_batch(make_log: MakeLog) -> None:
    builder = make_log()
    builder.append(b"v")
    data = batch(b"v")
    log = builder.log
    assert log.append_usual(data, seen_in(data)) is not None
    smaller = make_log(name="smaller-2", segment_bytes=len(data)).config
    log.update_config(smaller)
    assert log.append_usual(data, seen_in(data)) is None
    log.append(data, now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize("seed", range(4))
def test_within_its_room_no_segment_must_roll(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(40):
        config = {
            "segment_bytes": dice.choice((HEADER_BYTES, 300, 3_000)),
            "segment_ms": dice.choice((1, 1_000, HOUR_MS)),
            "segment_jitter_ms": dice.choice((0, 500)),
            "segment_index_bytes": dice.choice((12, 36, 120, 1 << 20)),
            "index_interval_bytes": dice.choice((0, 61, 500)),
        }
        builder = LogBuilder(tmp_path / f"orders{number}-2", **config)
        log = builder.log
        limits, interval_bytes = log._roll_limits, log.config.index_interval_bytes
        segment: Segment = log.active_segment
        assert segment.room(limits, interval_bytes) == NO_ROOM_KNOWN
        timestamp = dice.choice((NOW_MS, 0))
        segment.appended(segment.base_offset, timestamp, HEADER_BYTES, interval_bytes)
        room = segment.room(limits, interval_bytes)
        offset = segment.base_offset
        for _ in range(200):
            size = HEADER_BYTES + dice.choice((0, 0, 1, 200))
            offset += dice.choice((1, 5, 1 << 20, MAX_RELATIVE_OFFSET // 3))
            later = timestamp + dice.choice((0, 1, 400, 900, 1_000_000))
            is_within = (
                segment.size_bytes + size <= room.size_bytes
                and offset <= room.last_offset
                and later <= room.max_timestamp
            )
            must_roll = segment.must_roll(size, offset, later, timestamp, limits)
            assert not (is_within and must_roll)
            if must_roll:
                break
            if is_within:
                segment.appended(offset, later, size, interval_bytes)
        log.abandon()
