"""Few tasks: ranges with little to read share one. Pure; asks no broker.

Starting a Python task costs Spark about 30 ms, as long as reading 50,000 records of 100 bytes takes. So a
topic of 200 partitions with a few records each is read by one task, not by 200.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_connector.offsets import OffsetRange

PACK_BYTES = 16 * 1024 * 1024


def pack_ranges(
    ranges: Sequence[OffsetRange],
    sizes: Mapping[OffsetRange, int],
    limit: int,
    at_least: int,
    bytes_per_offset: Mapping[str, float],
) -> list[tuple[OffsetRange, ...]]:
    """Groups of ranges, each of one task, in order; no fewer than `at_least` if there are as many ranges.

    `sizes` are offsets to read: together at most `limit` and, by the topic's
    `bytes_per_offset`, about PACK_BYTES. What is larger has a task of its own.
    """
    if not limit or len(ranges) <= at_least:
        return [(wanted,) for wanted in ranges]
    shares = [_share(wanted, sizes[wanted], limit, bytes_per_offset) for wanted in ranges]
    # More tasks are asked for than the limits make: make the limits as much smaller.
    ceiling = min(1.0, sum(shares) / at_least)
    groups: list[list[OffsetRange]] = []
    filled = 0.0
    for index, (wanted, share) in enumerate(zip(ranges, shares, strict=True)):
        left = len(ranges) - index
        is_needed = len(groups) + left <= at_least
        if not groups or is_needed or filled + share > ceiling:
            groups.append([])
            filled = 0.0
        groups[-1].append(wanted)
        filled += share
    return [tuple(group) for group in groups]


def _share(wanted: OffsetRange, size: int, limit: int, bytes_per_offset: Mapping[str, float]) -> float:
    """How much of a task's room the range takes; 1 is all of it."""
    size_bytes = size * bytes_per_offset.get(wanted.topic_partition.topic, 0.0)
    return max(size / limit, size_bytes / PACK_BYTES)
