"""Goal: old segments go exactly when Kafka lets them go, and nothing else does.

Method: the pure rules are tried on lists of facts; then logs with a clock of their own are expired and
opened again.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from protocol.errors import ErrorCode, KafkaError
from storage.retention import RetentionRules, SegmentFacts, expired_segments
from tests.storage.builders import HOUR_MS, NOW_MS, LogBuilder, batch
from tests.storage.conftest import MakeLog

SIZE = len(batch())


class FakeSegment(NamedTuple):
    size_bytes: int
    largest_timestamp: int


def facts(*segments: tuple[int, int]) -> list[SegmentFacts]:
    """(size, timestamp) each; ten offsets a segment."""
    return [SegmentFacts(FakeSegment(*one), 10 * (number + 1)) for number, one in enumerate(segments)]


def count(
    *segments: tuple[int, int],
    ms: int = -1,
    size: int = -1,
    start: int = 0,
    end: int = 1000,
    delete: bool = True,
) -> int:
    return expired_segments(
        facts(*segments),
        RetentionRules(delete, ms, size),
        now_ms=1000,
        log_start_offset=start,
        high_watermark=end,
    )


def test_t127_by_time_oldest_first_up_to_the_first_that_stays() -> None:
    assert count((1, 100), (1, 200), (1, 900), (1, 100), (1, 990), ms=500) == 2
    assert count((1, 500), (1, 990), ms=500) == 0, "exactly as old as allowed stays"
    assert count((1, 499), (1, 990), ms=500) == 1


def test_no_time_at_all_keeps_what_is_of_this_moment() -> None:
    assert count((1, 100), (1, 999), (1, 1000), ms=0) == 2


def test_t128_by_size() -> None:
    segments = [(100, 0)] * 5
    assert count(*segments, size=500) == 0
    assert count(*segments, size=400) == 1
    assert count(*segments, size=401) == 0
    assert count(*segments, size=150) == 3
    assert count(*segments, size=0) == 5, "no byte at all: the active one goes too"
    assert count(*segments, size=0, end=40) == 4


def test_t129_no_limit() -> None:
    assert count((100, 0), (100, 0)) == 0
    assert count((100, 0), (100, 0), size=-2) == 0, "whatever is negative, as in Kafka"


def test_time_and_size_together() -> None:
    assert count((100, 0), (100, 900), (100, 900), (100, 900), ms=500, size=200) == 2


def test_t130_all_segments_even_the_active_one_but_not_when_it_is_empty() -> None:
    assert count((1, 0), (1, 0), ms=10) == 2
    assert count((1, 0), (0, 0), ms=10) == 1
    assert count((0, 0), ms=10) == 0


def test_t131_never_at_or_above_the_high_watermark() -> None:
    assert count((1, 0), (1, 0), (1, 0), ms=10, end=20) == 2
    assert count((1, 0), (1, 0), (1, 0), ms=10, end=19) == 1
    assert count((1, 0), (1, 0), (0, 0), ms=10, end=19) == 1, "an empty one behind it takes none away"
    assert count((1, 0), (1, 0), (0, 0), ms=10, end=9) == 0


def test_t132_compact_alone_ignores_time_and_size_but_not_the_log_start() -> None:
    segments = [(100, 0)] * 4
    assert count(*segments, ms=1, size=1, delete=False) == 0
    assert count(*segments, delete=False, start=20) == 2
    assert count(*segments, delete=False, start=19) == 1
    assert count(*segments, delete=False, start=40) == 3, "the last one has nothing behind it"
    assert count(*segments, delete=False, start=40, end=20) == 2


def test_t130_s52_a_log_that_expires_whole(make_log: MakeLog) -> None:
    log = make_log(retention_ms=HOUR_MS, segment_bytes=3 * SIZE, file_delete_delay_ms=0)
    log.fill(10)
    log.log.flush()
    assert log.log.expire(NOW_MS + HOUR_MS).removed_segments == 0
    expired = log.log.expire(NOW_MS + HOUR_MS + 1)
    assert (expired.removed_segments, expired.removed_bytes) == (4, 10 * SIZE)
    assert (log.log.log_start_offset, log.log.log_end_offset, log.log.size_bytes) == (10, 10, 0)
    assert log.files(".deleted")
    expired.run()
    assert log.log._list._removals.run(NOW_MS + HOUR_MS + 1) == 4
    assert not log.files(".deleted")
    assert log.files(".log") == [f"{10:020d}.log"]
    assert log.append().base_offset == 10


def test_s40_s32_whole_files_go_and_only_closed_ones(make_log: MakeLog) -> None:
    """S32: a segment goes by its newest record, so a slow topic keeps old records long."""
    log = make_log(retention_ms=10 * HOUR_MS, segment_bytes=3 * SIZE)
    for _ in range(9):
        log.append(timestamp=log.now_ms)
        log.now_ms += HOUR_MS
    log.log.flush()
    assert [segment.size_bytes for segment in log.log.segments] == [3 * SIZE] * 3
    assert log.log.expire(NOW_MS + 12 * HOUR_MS).removed_segments == 0, "its newest record is 10 hours old"
    expired = log.log.expire(NOW_MS + 12 * HOUR_MS + 1)
    expired.run()
    assert expired.removed_segments == 1
    assert log.offsets() == [3, 4, 5, 6, 7, 8]


def test_files_stay_for_readers_until_the_delay_is_over(make_log: MakeLog) -> None:
    log = make_log(retention_bytes=SIZE, segment_bytes=SIZE, file_delete_delay_ms=60_000)
    log.fill(5)
    log.log.flush()
    log.log.expire(NOW_MS).run()
    removals = log.log._list._removals
    assert removals.run(NOW_MS + 59_999) == 0
    assert len(log.files(".log.deleted")) == 4
    assert removals.run(NOW_MS + 60_000) == 4
    assert not log.files(".deleted")


def test_deleted_files_left_by_a_crash_go_at_the_start(make_log: MakeLog) -> None:
    log = make_log(retention_bytes=SIZE, segment_bytes=SIZE)
    log.fill(5)
    log.log.flush()
    log.log.expire(NOW_MS)
    assert log.files(".deleted")
    log.crash()
    assert not log.files(".deleted")
    assert log.offsets() == [4]


def test_snapshots_go_with_their_segments(make_log: MakeLog) -> None:
    log = make_log(retention_bytes=2 * SIZE, segment_bytes=SIZE)
    log.fill(5)
    log.log.flush()
    log.log.expire(NOW_MS).run()
    assert log.files(".snapshot") == [f"{offset:020d}.snapshot" for offset in (3, 4)]


def test_t136_delete_records(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=2 * SIZE)
    log.fill(10)
    log.log.flush()
    log.append()
    with pytest.raises(KafkaError) as caught:
        log.log.delete_records(11)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log.delete_records(5) == 5
    assert log.log.delete_records(3) == 5, "the start never goes back"
    assert log.offsets() == [5, 6, 7, 8, 9, 10]
    expired = log.log.expire(NOW_MS)
    expired.run()
    assert expired.removed_segments == 2
    assert log.log.log_start_offset == 5
    assert log.log.delete_records(log.log.high_watermark) == 10


def test_t136_not_on_a_compacted_topic(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy="compact")
    log.fill(3)
    log.log.flush()
    with pytest.raises(KafkaError) as caught:
        log.log.delete_records(1)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_t136_on_a_topic_without_a_policy(make_log: MakeLog) -> None:
    """As in Kafka: without one nothing goes by itself, what a client deletes does."""
    log = make_log(cleanup_policy="", segment_bytes=SIZE, retention_bytes=0, retention_ms=0)
    log.fill(3)
    log.log.flush()
    assert log.log.expire(NOW_MS + HOUR_MS).removed_segments == 0
    assert log.log.delete_records(2) == 2
    assert log.log.expire(NOW_MS).removed_segments == 2
    assert log.offsets() == [2]


def test_t131_what_is_not_flushed_does_not_expire(make_log: MakeLog) -> None:
    log = make_log(retention_ms=HOUR_MS, segment_bytes=SIZE)
    log.fill(3)
    assert log.log.expire(NOW_MS + 9 * HOUR_MS).removed_segments == 0
    log.log.flush()
    assert log.log.expire(NOW_MS + 9 * HOUR_MS).removed_segments == 3


def test_records_without_a_time_go_by_the_age_of_their_file(log: LogBuilder) -> None:
    log.append(timestamp=-1)
    log.log.roll(NOW_MS)
    log.log.flush()
    segment = log.log.segments[0]
    assert segment.largest_timestamp == segment.last_modified_ms == NOW_MS


def test_a_record_without_a_time_is_not_as_old_as_its_segment(make_log: MakeLog) -> None:
    log = make_log(retention_ms=HOUR_MS)
    log.append(timestamp=-1)
    log.now_ms += HOUR_MS
    log.append(timestamp=-1)
    log.log.flush()
    log.now_ms += 1
    assert log.log.expire(log.now_ms).removed_segments == 0
    assert log.log.log_start_offset == 0
    log.now_ms += HOUR_MS
    assert log.log.expire(log.now_ms).removed_segments == 1, "nobody has written for longer than that"
