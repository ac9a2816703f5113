"""Runs of offsets that fare alike, as `__share_group_state` has them. Pure.

Mirrors Kafka's RecordState, PersisterStateBatch and PersisterStateBatchCombiner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple


class DeliveryState(IntEnum):
    """The numbers are those of `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """A run of offsets that fare alike, as it is written down."""

    first: int
    last: int
    state: DeliveryState
    deliveries: int
    """how often it was sent"""


def joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """In the order of the offsets, neighbours that fare alike as one."""
    result: list[StateBatch] = []
    for batch in sorted(batches):
        if result and result[-1].last + 1 == batch.first and result[-1][2:] == batch[2:]:
            result[-1] = result[-1]._replace(last=batch.last)
        else:
            result.append(batch)
    return result


def overlaid(under: Sequence[StateBatch], over: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    """What is known when `over` was written down behind `under`, from `start_offset` on."""
    result = list(over)
    for one in under:
        first = one.first
        for above in sorted(over):
            if above.last < first or above.first > one.last:
                continue
            if above.first > first:
                result.append(one._replace(first=first, last=above.first - 1))
            first = above.last + 1
        if first <= one.last:
            result.append(one._replace(first=first))
    return joined(
        one._replace(first=max(one.first, start_offset)) for one in result if one.last >= start_offset
    )
