"""Goal: a partition is the directory of files that Kafka would have made, rolled when Kafka would have
rolled.

Method: logs with small segments in a temporary directory; names, sizes and bytes of the files are
looked at.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from storage import layout
from storage.layout import TopicPartition
from storage.roll import RollLimits
from storage.segment import MAX_RELATIVE_OFFSET
from storage.types import Origin
from tests.storage.builders import HOUR_MS, NOW_MS, LogBuilder, batch, topic_config
from tests.storage.conftest import MakeLog

WEEK_MS = 168 * HOUR_MS


def bases(log: LogBuilder) -> list[int]:
    return [segment.base_offset for segment in log.log.segments]


def test_s25_directory_names() -> None:
    assert layout.partition_directory_name(TopicPartition("configured-topic", 2)) == "configured-topic-2"
    assert layout.parse_partition_directory("configured-topic-2") == TopicPartition("configured-topic", 2)
    assert layout.parse_partition_directory("a-b-10") == TopicPartition("a-b", 10)
    for name in ("lost+found", "orders", "orders-", "-1", "orders-1.0123-delete", "orders-x"):
        assert layout.parse_partition_directory(name) is None
    deleted = layout.deleted_directory_name(TopicPartition("x" * 249, 3))
    assert len(deleted) <= 255
    assert layout.is_deleted_directory(deleted)
    assert layout.parse_partition_directory(deleted) is None


def test_s26_s27_file_names_are_base_offsets(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200)
    log.fill(5)
    log.log.flush()
    for base in bases(log):
        for suffix in (".log", ".index", ".timeindex"):
            assert (log.directory / f"{base:020d}{suffix}").is_file()
        first = (log.directory / f"{base:020d}.log").read_bytes()[:8]
        assert not first or struct.unpack(">q", first)[0] == base
    assert layout.parse_segment_file("00000000000001000000.log") == (1_000_000, ".log", "")
    for name in (
        "1.log",
        "0000000000000100000x.log",
        "00000000000001000000.txt",
        "00000000000001000000.log.bak",
    ):
        assert layout.parse_segment_file(name) is None


def test_s28_only_the_last_segment_grows(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=500)
    seen: dict[int, int] = {}
    for _ in range(30):
        log.append()
        sizes = {segment.base_offset: segment.file.size() for segment in log.log.segments}
        *closed, _active = sorted(sizes)
        for base in closed:
            assert seen.setdefault(base, sizes[base]) == sizes[base]
        assert [segment.is_active for segment in log.log.segments] == [False] * len(closed) + [True]
    assert len(seen) > 3


def test_s29_roll_by_size(make_log: MakeLog) -> None:
    size = len(batch())
    log = make_log(segment_bytes=3 * size)
    log.fill(7)
    assert bases(log) == [0, 3, 6]
    assert [segment.size_bytes for segment in log.log.segments] == [3 * size, 3 * size, size]


def test_s29_s35_roll_by_age_of_the_records(log: LogBuilder) -> None:
    """Kafka measures from the first batch's timestamp to that of the batch that comes."""
    log.append(timestamp=NOW_MS)
    log.now_ms = NOW_MS + WEEK_MS + 1
    log.append(timestamp=NOW_MS + WEEK_MS)
    assert bases(log) == [0]
    log.append(timestamp=NOW_MS + WEEK_MS + 1)
    assert bases(log) == [0, 2]


def test_s29_roll_by_age_of_the_segment_where_records_have_no_time(make_log: MakeLog) -> None:
    log = make_log(segment_ms=24 * HOUR_MS)
    log.append(timestamp=-1)
    log.now_ms += 24 * HOUR_MS
    log.append(timestamp=-1)
    assert bases(log) == [0]
    log.now_ms += 1
    log.append(timestamp=-1)
    assert bases(log) == [0, 2]


def test_s29_a_record_without_a_time_does_not_age_a_segment_that_has_one(make_log: MakeLog) -> None:
    log = make_log(segment_ms=24 * HOUR_MS)
    log.append()
    log.now_ms += 48 * HOUR_MS
    log.append(timestamp=-1)
    assert bases(log) == [0]
    log.append(timestamp=log.now_ms)
    assert bases(log) == [0, 2]


def test_an_idle_or_empty_segment_never_rolls(log: LogBuilder) -> None:
    log.now_ms += 10 * WEEK_MS
    log.append()
    assert bases(log) == [0]


def test_roll_goes_on_after_a_restart(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    log.append(timestamp=NOW_MS)
    log.restart()
    log.append(timestamp=NOW_MS + 1001)
    assert bases(log) == [0, 1]


def test_t21_max_compaction_lag_caps_the_age(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy="compact", max_compaction_lag_ms=1000)
    log.append(timestamp=NOW_MS)
    log.append(timestamp=NOW_MS + 1000)
    log.append(timestamp=NOW_MS + 1001)
    assert bases(log) == [0, 2]


@pytest.mark.parametrize("jitter_ms", [1000, 5000, 2**62])
def test_t22_s34_jitter_never_rolls_every_record(make_log: MakeLog, jitter_ms: int) -> None:
    log = make_log(segment_ms=1000, segment_jitter_ms=jitter_ms)
    log.fill(200)
    assert bases(log) == [0]
    assert RollLimits(log.config).jitter_ms == 999


def test_s34_jitter_is_drawn_from_none_to_all_of_it(make_log: MakeLog) -> None:
    limits = RollLimits(make_log(segment_ms=1000, segment_jitter_ms=1).config)
    assert {limits.draw_jitter_ms(random.Random(seed)) for seed in range(50)} == {0, 1}


def test_s34_jitter_differs_between_segments(make_log: MakeLog) -> None:
    log = make_log(segment_ms=100_000, segment_jitter_ms=90_000)
    for number in range(2000):
        log.append(timestamp=NOW_MS + number * 1000)
    spans = {after - before for before, after in zip(bases(log), bases(log)[1:], strict=False)}
    assert len(spans) > 3
    assert all(9 <= span <= 101 for span in spans)


def test_roll_when_the_index_is_full(make_log: MakeLog) -> None:
    log = make_log(segment_index_bytes=36, index_interval_bytes=0)
    log.fill(10)
    assert bases(log) == [0, 4, 8]


def test_roll_when_a_relative_offset_would_overflow(log: LogBuilder) -> None:
    log.append()
    log.log.log_end_offset = MAX_RELATIVE_OFFSET
    log.append()
    assert bases(log) == [0]
    log.append()
    assert bases(log) == [0, MAX_RELATIVE_OFFSET + 1]


def test_s37_offsets_are_global(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=300)
    log.fill(20)
    assert len(log.log.segments) > 4
    assert log.offsets() == list(range(20))


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_s3_s13_offsets_are_never_reused_and_never_change(make_log: MakeLog, how: str) -> None:
    log = make_log(segment_bytes=300)
    log.fill(10)
    before = log.records()
    for _ in range(3):
        log.restart() if how == "restart" else log.crash()
        assert log.records(0)[:10] == before
        assert log.append().base_offset == log.log.log_end_offset - 1
    assert log.offsets() == list(range(13))


def test_s3_not_even_when_all_records_are_gone(make_log: MakeLog) -> None:
    log = make_log(retention_ms=1000)
    log.fill(5)
    log.log.flush()
    log.now_ms += 2000
    log.log.expire(log.now_ms).run()
    assert log.log.log_start_offset == 5
    log.crash()
    assert log.append().base_offset == 5


def test_s36_the_active_segment_is_rolled_before_it_is_deleted(make_log: MakeLog) -> None:
    log = make_log(retention_ms=1000)
    log.fill(3)
    log.log.flush()
    before = log.log.active_segment
    log.log.expire(NOW_MS + 2000).run()
    assert not before.is_active
    assert bases(log) == [3]


def test_s38_newer_segments_are_not_touched(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=300, retention_bytes=600)
    log.fill(20)
    log.log.flush()
    before = {path.name: path.stat() for path in log.directory.iterdir()}
    expired = log.log.expire(NOW_MS)
    expired.run()
    assert expired.removed_segments == 2
    for segment in log.log.segments:
        status = segment.file.path.stat()
        old = before[segment.file.path.name]
        assert (status.st_ino, status.st_mtime_ns, status.st_size) == (
            old.st_ino,
            old.st_mtime_ns,
            old.st_size,
        )


def test_preallocated_files_are_trimmed(make_log: MakeLog) -> None:
    log = make_log(preallocate=True, segment_bytes=10_000)
    path = log.log.active_segment.file.path
    assert path.stat().st_size == 10_000
    log.fill(3)
    log.log.roll(NOW_MS)
    assert path.stat().st_size == 3 * len(batch())
    log.append()
    log.crash()
    assert log.offsets() == [0, 1, 2, 3]
    log.append()


def test_settings_change_while_the_log_is_open(log: LogBuilder) -> None:
    log.fill(3)
    log.log.update_config(topic_config(segment_bytes=2 * len(batch())))
    log.fill(4)
    assert bases(log) == [0, 3, 5]


def test_a_batch_of_the_broker_itself_is_stored_like_any_other(log: LogBuilder) -> None:
    log.log.append(batch(key=None), now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert log.offsets() == [0]


def test_s33_few_descriptors_serve_many_segments(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from storage.file import POOL

    monkeypatch.setattr(POOL, "capacity", 8)
    log = make_log(segment_bytes=100)
    log.fill(200)
    log.log.flush()
    assert len(log.log.segments) == 200
    for _ in range(2):
        assert log.offsets() == list(range(200))
        assert POOL.open_files <= 8 + 1
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    open_here = [link for link in links if str(link.resolve()).startswith(str(log.directory))]
    assert len(open_here) <= 10


def test_leader_epochs_are_noted(log: LogBuilder) -> None:
    log.fill(2)
    log.log.leader_epoch = 3
    log.fill(2)
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 2\n"
    assert log.log.end_offset_for_epoch(0) == (0, 2)
    assert log.log.end_offset_for_epoch(2) == (0, 2)
    assert log.log.end_offset_for_epoch(3) == (3, 4)
    assert log.log.end_offset_for_epoch(4) == (-1, -1)
    log.crash()
    assert log.log.leader_epoch == 3
    assert log.log.end_offset_for_epoch(1) == (0, 2)


def test_epochs_of_deleted_records_go_with_them(make_log: MakeLog) -> None:
    log = make_log()
    log.fill(2)
    log.log.leader_epoch = 3
    log.fill(2)
    log.log.flush()
    log.log.delete_records(3)
    assert log.log.leader_epochs.entries == [(3, 3)]


def test_epochs_of_lost_records_go_with_them_but_for_the_last(log: LogBuilder) -> None:
    """The file was written, the records were not. The last one was told to clients: it never goes back."""
    log.fill(2)
    (log.directory / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n2 2\n3 5\n")
    log.crash()
    assert log.log.leader_epochs.entries == [(0, 0), (3, 2)]
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 2\n"
    assert log.log.leader_epoch == 3


@pytest.mark.parametrize("restart", ["restart", "crash"])
def test_a_log_that_was_emptied_keeps_its_epoch(make_log: MakeLog, restart: str) -> None:
    """Else who read to its end would be told that the log was cut off there."""
    log = make_log()
    log.fill(2)
    log.log.begin_epoch(3)
    log.fill(2)
    log.log.flush()
    log.log.delete_records(4)
    log.recovery_point = log.log_start_offset = 4
    for _ in range(2):
        getattr(log, restart)()
        assert log.log.leader_epoch == 3
        assert log.log.end_offset_for_epoch(3) == (3, 4)
        assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n3 4\n"


def test_a_log_without_records_has_the_end_of_its_epoch(log: LogBuilder) -> None:
    assert log.log.end_offset_for_epoch(0) == (0, 0)
    assert log.log.end_offset_for_epoch(1) == (-1, -1)
    log.log.begin_epoch(4)
    assert log.log.end_offset_for_epoch(4) == (4, 0)
    log.restart()
    assert log.log.leader_epoch == 4


def test_an_empty_segment_is_not_closed(log: LogBuilder) -> None:
    for _ in range(2):
        log.log.roll(NOW_MS)
        assert len(log.log.segments) == 1
    log.append()
    for _ in range(2):
        log.log.roll(NOW_MS)
        assert [segment.base_offset for segment in log.log.segments] == [0, 1]


def test_a_lost_epoch_file_is_made_anew(log: LogBuilder) -> None:
    log.fill(2)
    log.log.leader_epoch = 3
    log.fill(2)
    log.log.close()
    (log.directory / "leader-epoch-checkpoint").unlink()
    log.open(is_clean=True)
    assert log.log.leader_epochs.entries == [(0, 0), (3, 2)]


def test_topic_id_stays(log: LogBuilder) -> None:
    topic_id = log.log.topic_id
    text = (log.directory / "partition.metadata").read_text()
    assert text.startswith("version: 0\ntopic_id: ")
    assert log.restart().topic_id == topic_id
