"""Goal: what a benchmark calls warm is in memory for as long as it says.

Method: segments that are on the disk, and a system that is asked to drop their pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import warm
from benchmarks.warm import kept_warm
from storage.file import Disk
from storage.page_cache import CAN_TELL_CACHED

SIZE = 300_000


@pytest.fixture
def is_kept(told_path: Path) -> Callable[[], bool]:
    """Whether the pages of `1.log` stay when they may go."""
    path = told_path / "1.log"
    path.write_bytes(b"x" * SIZE)
    (told_path / "empty.log").touch()

    def is_kept() -> bool:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return Disk().is_cached(descriptor, SIZE, 0)
        finally:
            os.close(descriptor)

    return is_kept


@pytest.mark.skipif(not CAN_TELL_CACHED, reason="Linux before 6.5 does not tell what is in the page cache")
def test_pages_stay_in_memory_and_only_meanwhile(told_path: Path, is_kept: Callable[[], bool]) -> None:
    assert not is_kept()
    with kept_warm([told_path]):
        assert is_kept()
    assert not is_kept()


def test_who_may_not_hold_as_much_is_told_what_to_do(
    told_path: Path, is_kept: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_mlock", lambda address, size: -1)
    with pytest.raises(OSError, match="raise `ulimit -l`"), kept_warm([told_path]):
        pytest.fail("nothing is held")
