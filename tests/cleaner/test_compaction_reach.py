"""Goal: how far cleanings have known a log is told after any end of the process, so that nobody takes what
they left for the log as it was before.

Method: cleanings that end, or are broken off between two swaps; the log is opened again as after a crash.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from cleaner.cleaner import CleaningAborted
from storage import layout
from storage.compaction_reach import read_reach
from storage.file import SYSTEM_DISK
from storage.log import Log
from tests.cleaner.world import World


@pytest.fixture
def dirty(make_world: Callable[..., World]) -> World:
    """Four closed segments that a cleaning exchanges in four swaps."""
    world = make_world(segment_bytes=400)
    for value in ("a", "b"):
        world.put_each(range(20), value * 20)
    world.roll()
    return world


def test_what_a_cleaning_knew_is_told_after_a_crash(dirty: World) -> None:
    end = dirty.clean().end_offset
    assert dirty.log.compacted_to == end > 0
    dirty.crash()
    assert dirty.log.compacted_to == end


def test_so_it_is_of_one_that_was_broken_off(dirty: World, monkeypatch: pytest.MonkeyPatch) -> None:
    end, replace, swaps = dirty.log.segments[-1].base_offset, Log.replace_segments, 0

    def only_one(log: Log, *what: Any) -> Any:
        nonlocal swaps
        swaps += 1
        if swaps > 1:
            raise OSError(errno.EIO, "the disk does not answer")
        return replace(log, *what)

    monkeypatch.setattr(Log, "replace_segments", only_one)
    with pytest.raises(OSError, match="does not answer"):
        dirty.clean()
    assert swaps == 2
    dirty.crash()
    assert dirty.log.compacted_to == end


def test_one_that_exchanges_nothing_leaves_no_word(dirty: World) -> None:
    dirty.clean(is_dry=True)
    assert dirty.log.compacted_to == 0
    dirty.set_policy("delete")
    with pytest.raises(CleaningAborted):
        dirty.clean()
    assert (dirty.log.compacted_to, read_reach(SYSTEM_DISK, dirty.directory)) == (0, 0)


def test_a_shorter_cleaning_takes_nothing_back(dirty: World) -> None:
    end = dirty.clean().end_offset
    dirty.clean(0, dirty.log.segments[1].base_offset)
    assert dirty.log.compacted_to == end == read_reach(SYSTEM_DISK, dirty.directory)


def test_where_the_word_is_damaged_all_counts_as_compacted(
    dirty: World, caplog: pytest.LogCaptureFixture
) -> None:
    dirty.clean()
    path = dirty.directory / layout.COMPACTED_TO
    right = path.read_bytes()
    for bit in range(0, 8 * len(right), 3):
        data = bytearray(right)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        caplog.clear()
        dirty.crash()
        assert dirty.log.compacted_to == dirty.log.log_end_offset, bit
        assert "counts as compacted" in caplog.text
    path.write_bytes(right)
