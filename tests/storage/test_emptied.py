"""Goal: a segment in the midst of a log that has lost all of its bytes is told, at the start and by `verify`:
nothing is lost in silence. One that a cleaning has left empty is none of those.

Method: the `.log` of the second of three segments is cut to 0 bytes, with or without its indexes; the log is
opened as after a clean stop and as after a crash.
"""

from __future__ import annotations

import logging

import pytest

from storage import layout, statistics
from storage.checkpoint import OffsetCheckpoint
from storage.verify import verify_log
from tests.storage.builders import TOPIC_PARTITION, LogBuilder, batch
from tests.storage.conftest import MakeLog

SIZE = len(batch())
ENTRIES = (layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX)


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def three_segments(make_log: MakeLog, **config: object) -> LogBuilder:
    """Offsets 0 to 9, 10 to 19, and 20 to 24."""
    builder = make_log(segment_bytes=10 * SIZE, **config)
    builder.fill(25, step_ms=5)
    builder.log.close()
    builder.recovery_point = 25
    builder.is_damaged = True  # type: ignore[attr-defined]
    return builder


def empty(builder: LogBuilder, base: int, *suffixes: str) -> None:
    for suffix in (layout.LOG_SUFFIX, *suffixes):
        (builder.directory / name(base, suffix)).write_bytes(b"")


def told(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == level and "is empty" in one.message]


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("base", [0, 10])
def test_what_was_emptied_is_told(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture, is_clean: bool, base: int
) -> None:
    builder = three_segments(make_log)
    empty(builder, base)
    words = f"orders-2: {name(base, '.log')} is empty: offsets {base} to {base + 9} are lost"
    assert words in verify_log(builder.directory)
    log = builder.open(is_clean=is_clean)
    (line,) = told(caplog, logging.ERROR)
    assert f"{builder.directory / name(base, '.log')} is empty" in line
    assert f"offsets {base} to {base + 9} are lost" in line
    assert log.health.damaged_places == 1
    assert builder.offsets(10 - base) == [*range(10 - base, 20 - base), *range(20, 25)]


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crashed"])
def test_where_its_indexes_are_empty_too(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture, is_clean: bool
) -> None:
    """Then it may have been cleaned when its topic was a compacted one."""
    builder = three_segments(make_log)
    empty(builder, 10, *ENTRIES)
    assert not any("are lost" in line for line in verify_log(builder.directory))
    log = builder.open(is_clean=is_clean)
    assert not told(caplog, logging.ERROR)
    (line,) = told(caplog, logging.WARNING)
    assert "if the topic was never compacted, offsets 10 to 19 are lost" in line
    assert log.health.damaged_places == 0


def test_statistics_tell_of_batches_without_times(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    builder = make_log(segment_bytes=10 * SIZE, cleanup_policy="compact")
    for _ in range(25):
        builder.append(timestamp=-1)
    statistics.ensure(builder.log.segments[1])
    builder.log.close()
    builder.is_damaged = True  # type: ignore[attr-defined]
    empty(builder, 10)
    builder.open(is_clean=True)
    assert len(told(caplog, logging.ERROR)) == 1


def test_what_a_cleaning_has_left_is_right(make_log: MakeLog, caplog: pytest.LogCaptureFixture) -> None:
    builder = three_segments(make_log, cleanup_policy="compact")
    empty(builder, 10, *ENTRIES)
    assert verify_log(builder.directory) == []
    log = builder.open(is_clean=True)
    assert not told(caplog, logging.ERROR) and not told(caplog, logging.WARNING)
    assert log.health.damaged_places == 0


def test_in_a_compacted_log_the_index_tells(make_log: MakeLog, caplog: pytest.LogCaptureFixture) -> None:
    builder = three_segments(make_log, cleanup_policy="compact")
    empty(builder, 10)
    assert any("offsets 10 to 19 are lost" in line for line in verify_log(builder.directory))
    builder.open(is_clean=True)
    assert len(told(caplog, logging.ERROR)) == 1


def test_below_the_start_of_the_log_nothing_is_missed(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    builder = three_segments(make_log)
    empty(builder, 0)
    builder.log_start_offset = 10
    OffsetCheckpoint(builder.directory.parent / layout.LOG_START_CHECKPOINT).write({TOPIC_PARTITION: 10})
    assert not any("lost" in line for line in verify_log(builder.directory))
    builder.open(is_clean=True)
    assert not told(caplog, logging.ERROR)


def test_the_end_of_a_log_is_told_as_such(make_log: MakeLog, caplog: pytest.LogCaptureFixture) -> None:
    builder = three_segments(make_log)
    empty(builder, 20)
    builder.open(is_clean=True)
    assert any("orders-2 ends at 20, and ended at 25" in one.getMessage() for one in caplog.records)
