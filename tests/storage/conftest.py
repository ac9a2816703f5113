"""Every log that a test makes is held against all invariants when the test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.file import SYSTEM_DISK, Disk
from storage.verify import verify_log
from tests.storage.builders import LogBuilder

MakeLog = Callable[..., LogBuilder]


@pytest.fixture
def make_log(tmp_path: Path) -> Iterator[MakeLog]:
    """`make_log(segment_bytes=1000)` makes a log; at the end it is closed and verified.

    `builder.is_damaged = True` says that a test left damage behind on purpose.
    """
    made: list[LogBuilder] = []

    def make(disk: Disk = SYSTEM_DISK, name: str = "orders-2", **config: Any) -> LogBuilder:
        builder = LogBuilder(tmp_path / name, disk, **config)
        made.append(builder)
        return builder

    yield make
    for builder in made:
        if getattr(builder, "is_damaged", False):
            builder.log.abandon()
            continue
        assert verify_log(builder.directory) == []
        if builder.log.offline_reason is None and not builder.log.is_closed:
            builder.log.close()
        else:
            builder.log.abandon()
        assert verify_log(builder.directory) == []


@pytest.fixture
def log(make_log: MakeLog) -> LogBuilder:
    """A log with the default settings."""
    return make_log()
