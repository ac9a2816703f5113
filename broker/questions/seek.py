"""How a read finds an offset or a time, with the real files: `storage/explain.py`, and the step before it.

A time is first turned into an offset, as ListOffsets does it: the first segment that reaches so far, its
time index, a short scan. Blocking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.questions.records import steadily
from broker.questions.words import moment
from storage.explain import OffsetNotThere, ReadExplanation, explain_read
from storage.segments import floor_segment

if TYPE_CHECKING:
    from storage.log import Log
    from storage.types import TimestampOffset


class TimeNotThere(Exception):
    """Every record is older than the time; the message says how much."""


def explain_offset(log: Log, offset: int) -> dict[str, Any]:
    """The five steps to `offset`; `OffsetNotThere` when the log does not reach so far."""
    if offset < log.log_start_offset:
        raise OffsetNotThere(f"offset {offset} is gone: the log starts at {log.log_start_offset}")
    return steadily(lambda: _answer(log, explain_read(log.directory, offset)))


def _answer(log: Log, found: ReadExplanation) -> dict[str, Any]:
    notes = []
    if found.base_offset == log.segments[-1].base_offset:
        notes.append(
            "this is the active segment: its index is in memory and becomes a file when it is closed"
        )
    if found.target >= log.high_watermark:
        notes.append(f"consumers do not see it yet: the high watermark is {log.high_watermark}")
    return {
        "offset": found.target,
        "steps": found.steps(),
        "log_file": found.log_file.name,
        "index_file": found.index_file.name,
        "index_entries": found.index_entry_count,
        "floor_entry": None
        if found.floor_entry is None
        else {
            "relative_offset": found.floor_entry.relative_offset,
            "position": found.floor_entry.position,
        },
        "start_position": found.start_position,
        "batches_scanned": len(found.scanned),
        "found": {
            "log_file": found.found.log_file.name,
            "position": found.found.position,
            "base_offset": found.found.base_offset,
            "last_offset": found.found.last_offset,
        },
        "notes": notes,
    }


def explain_time(log: Log, time_ms: int) -> dict[str, Any]:
    """The steps from a time to an offset, and the five to that offset; `TimeNotThere`."""
    target = log.offset_for_timestamp(time_ms)
    if target is None:
        newest = max(one.max_timestamp for one in log.segments)
        raise TimeNotThere(
            f"no record is so new as {moment(time_ms)}"
            + (f": the newest is of {moment(newest)}" if newest >= 0 else "")
        )
    steps = _time_steps(log, time_ms, target)
    return {"time_ms": time_ms, "time_steps": steps, **explain_offset(log, target.offset)}


def _time_steps(log: Log, time_ms: int, target: TimestampOffset) -> list[str]:
    segment = log.segments[floor_segment(log.segments, target.offset)]
    name = segment.time_index.path.name
    timestamp, offset = segment.time_index.floor(time_ms)
    entry = (
        f"{name}: no entry at or below {time_ms}, start at offset {segment.base_offset}"
        if timestamp < 0
        else f"{name}: {timestamp} → offset {offset} is the floor of {time_ms}"
    )
    return [
        f"segment {segment.base_offset} is the first with a record at or after {moment(time_ms)}",
        entry,
        f"scan from there: the first record at or after it has offset {target.offset}, "
        f"timestamp {target.timestamp}",
    ]
