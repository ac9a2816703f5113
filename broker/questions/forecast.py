"""When a disk will be full, and where it levels off instead (W16). Pure: sizes, rates and settings in.

A log grows by what is written to it until something takes away as much: retention, or compaction, which is
down to the live records of its last cleaning each time. How large it is just before that follows from the
settings that say when a segment is closed, when it is old, and when a log is dirty enough. Where nothing
takes anything away (no retention, a cleaner that is off or fails) it grows without end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from broker.questions.words import duration, size
from config.definition import LONG_MAX
from config.topic import TopicConfig

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
SHOWN_TOPICS = 5
ENDLESS = 2**53
"""so many ms (285 000 years) or bytes never come; any JSON reader has smaller numbers whole"""


class Growing(NamedTuple):
    """One log: its size now, what is written to it, and the size it does not outgrow (inf: no such size)."""

    topic: str
    size_bytes: int
    bytes_per_second: float
    levels_off_bytes: float

    @property
    def room_bytes(self) -> float:
        """By how much it will grow yet."""
        return max(0.0, self.levels_off_bytes - self.size_bytes)

    @property
    def is_growing(self) -> bool:
        return self.bytes_per_second > 0 and self.room_bytes > 0


def levels_off_bytes(
    config: TopicConfig, size_bytes: int, bytes_per_second: float, live_bytes: int | None, active_bytes: int
) -> float:
    """How large a log gets if writing goes on like this and its keys stay as many as they are; inf: without
    end. `live_bytes` is what the last cleaning left, None where nothing cleans; `active_bytes` are of
    `size_bytes`.
    """
    per_ms = bytes_per_second / SECOND_MS
    active = min(config.segment_bytes, per_ms * config.max_segment_ms)
    bounds = []
    if config.is_compacted and live_bytes is not None:
        # Where nobody writes nothing closes it, unless segment.idle.ms does.
        unclosed = active if config.segment_idle_ms >= 0 else max(active, active_bytes)
        bounds.append(live_bytes + _dirty_bytes(config, per_ms, live_bytes) + unclosed)
    if config.is_deleted and not (config.is_compacted and live_bytes is None):
        if config.retention_ms >= 0:
            bounds.append(per_ms * config.retention_ms + active)
        if config.retention_bytes >= 0:
            bounds.append(config.retention_bytes + config.segment_bytes)
    bound = min(bounds, default=inf)
    return bound if bytes_per_second else min(bound, size_bytes)


def _dirty_bytes(config: TopicConfig, per_ms: float, live_bytes: int) -> float:
    """What has been written and closed since the last cleaning when the next one begins."""
    ratio = config.min_cleanable_dirty_ratio
    by_ratio = live_bytes * ratio / (1 - ratio) if ratio < 1 else inf
    lag_ms = config.max_compaction_lag_ms
    by_lag = per_ms * lag_ms if lag_ms < LONG_MAX else inf
    return min(by_ratio, by_lag) + per_ms * config.min_compaction_lag_ms


def full_in_ms(free_bytes: int, logs: Iterable[Growing]) -> int | None:
    """When so many bytes will be taken up; None: never. Each log grows at its rate until its room is used."""
    growing = sorted(
        (one.room_bytes / one.bytes_per_second, one.bytes_per_second) for one in logs if one.is_growing
    )
    together = list(accumulate(rate for _, rate in reversed(growing)))[::-1]
    now, free = 0.0, float(free_bytes)
    for (until, _), rate in zip(growing, together, strict=True):
        if free <= (until - now) * rate:
            due_ms = (now + free / rate) * SECOND_MS
            return int(due_ms) if due_ms < ENDLESS else None
        free -= (until - now) * rate
        now = until
    return None


def forecast(
    free_bytes: int,
    logs: Sequence[Growing],
    observed_ms: int,
    beside: Mapping[str, Sequence[Growing]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Of one directory, as JSON has it; of the topics those that grow fastest, the fastest first. `beside`
    are the logs of other directories on its file system, which fill it as well.
    """
    rates: dict[str, float] = defaultdict(float)
    levels: dict[str, float] = defaultdict(float)
    for one in logs:
        levels[one.topic] += one.levels_off_bytes
        if one.is_growing:
            rates[one.topic] += one.bytes_per_second
    fastest = sorted(rates, key=lambda topic: (-rates[topic], topic))
    rate, due_ms = sum(rates.values()), full_in_ms(free_bytes, chain(logs, *beside.values()))
    others = [path for path, found in beside.items() if any(one.is_growing for one in found)]
    level = _finite(sum(levels.values()))
    will_shrink = level is not None and level < sum(one.size_bytes for one in logs)
    return {
        "sentence": sentence(rate, due_ms, level, observed_ms, others, will_shrink=will_shrink),
        "observed_ms": observed_ms,
        "bytes_per_second": rate,
        "full_in_ms": due_ms,
        "levels_off_at_bytes": level,
        "topics": [
            {
                "topic": topic,
                "bytes_per_second": rates[topic],
                "levels_off_at_bytes": _finite(levels[topic]),
            }
            for topic in fastest[:SHOWN_TOPICS]
        ],
    }


def _finite(size_bytes: float) -> int | None:
    return int(size_bytes) if size_bytes < ENDLESS else None


def sentence(
    bytes_per_second: float,
    due_ms: int | None,
    level: int | None,
    observed_ms: int,
    others: Sequence[str] = (),
    *,
    will_shrink: bool = False,
) -> str:
    """The forecast for a person; `others` are directories whose logs fill the same file system, `will_shrink`
    says that all logs are larger together than where they level off.
    """
    those = f"those of {' and '.join(others)} on the same file system"
    if bytes_per_second == 0:
        still = "its logs do not grow"
        return still if due_ms is None else f"{still}, {those} do: full in {_about(due_ms)}"
    words = f"its logs grow by {size(round(bytes_per_second * DAY_MS / SECOND_MS))} a day"
    if due_ms is not None:
        words += f": full in {_about(due_ms)}" + (f", together with {those}" if others else "")
    elif level is not None and will_shrink:
        words += f", until retention or compaction brings them down to {size(level)}"
    elif level is not None:
        words += f", and level off at {size(level)}"
    return words if observed_ms >= DAY_MS else f"{words} (watched for {_about(observed_ms)})"


def _about(time_ms: int) -> str:
    """Without what is finer than its unit."""
    unit_ms = next((unit for unit in (DAY_MS, HOUR_MS, MINUTE_MS) if time_ms >= 2 * unit), SECOND_MS)
    return duration(time_ms // unit_ms * unit_ms)
