"""What a dry run has to know when the map does not hold all keys: a mapping for each class of keys.

A real cleaning takes several rounds then, each of which begins where the map was full in the round before;
nothing of that can be counted ahead without writing. Here the keys are divided by their hash: each pass maps
those of one class, of the whole log, and leaves one bit for each record that wins its key. The bits of all
passes together are what a map of any size would have said. A class that fills the map is divided in two.

They say what one cleaning with memory enough would do. What the rounds of a real one do besides: a tombstone
that is both past its horizon and superseded by a later round counts as a tombstone there, as superseded here;
a batch that got a delete horizon in an early round keeps it, some bytes more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy

from cleaner.offset_map import Bytes, OffsetMap
from storage.segment import Segment
from storage.types import AbortedTransaction

if TYPE_CHECKING:
    from cleaner.mapping import Mapper
    from cleaner.versions import VersionMapper

MOST_PASSES = 1 << 12


class Sifted(NamedTuple):
    """The bits of [start, end), and how many records without a key are there."""

    bits: Bytes
    keyless: int


MapperOf = Callable[[int, int], "Mapper | VersionMapper"]
"""(how many classes, which of them) -> what maps that one"""


def sift(
    offset_map: OffsetMap,
    mapper_of: MapperOf,
    segments: Sequence[Segment],
    start: int,
    end: int,
    aborted: Sequence[AbortedTransaction],
    *,
    limit_bytes: int,
    mapped_share: float,
) -> Sifted | None:
    """All passes over `segments`, from `start` to `end`; None when the bits or the passes would be too many.

    `mapped_share` is how much of it one map held: the classes to begin with.
    """
    if (end - start + 7) // 8 > limit_bytes:
        return None
    classes = 2
    while classes * mapped_share < 1 and classes < MOST_PASSES:
        classes *= 2
    pending = [(classes, number) for number in range(classes)]
    bits = numpy.zeros((end - start + 7) // 8, numpy.uint8)
    for _ in range(MOST_PASSES):
        classes, number = pending.pop()
        mapper = mapper_of(classes, number)
        mapper.run(segments, start, end, aborted)
        if offset_map.latest_offset + 1 < end:
            pending += [(2 * classes, number), (2 * classes, number + classes)]
            continue
        bits |= offset_map.last_offset_bits(start, bits.size)[: bits.size]
        if not pending:
            return Sifted(bits, mapper.keyless)
    return None
