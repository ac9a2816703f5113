"""How far a micro-batch of so many bytes reaches, in offsets. Pure; the sizes come from `probing.py`.

A look at the beginning of a backlog tells nothing of larger records behind it. So what was planned is looked
at in its midst and at its end as well, and where the sizes of two places differ the border between them is
closed in on: with the larger size for all of it, small records would come a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_connector.offsets import Offsets, TopicPartition, backlogs
from spark_connector.probing import Probe

LOOKS = 32
HALVINGS = 6
"""Of what is planned of one partition: at its end, its half, its quarter and so on; less often of many."""
CLOSER_LOOKS = 6
"""How often a border between small records and large ones is halved at most, at each trigger."""
FACTOR = 2.0
"""Sizes that differ by less are taken for the same."""

Look = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, Probe]]
Sizes = dict[int, float]
"""Bytes per offset that were seen at offsets of one partition."""


def within_bytes(start: Offsets, end: Offsets, limit: int, look: Look) -> dict[TopicPartition, int]:
    """Ends about `limit` bytes behind `start` in all, by what `look` shows at the places that it is given.

    Large records between two places that showed small ones are not noticed: as many offsets of them as lie
    before, and with many partitions up to half of what is planned.
    """
    first = look(places_to_look(start, end))
    planned = limit_bytes(start, end, limit, first)
    sizes = {tp: {start[tp]: seen.bytes_per_offset} for tp, seen in first.items() if seen.end < planned[tp]}
    for halvings in range(max(2, min(HALVINGS, LOOKS // max(len(sizes), 1)))):
        asked = {tp: start[tp] + max((planned[tp] - start[tp] >> halvings) - 1, 0) for tp in sizes}
        _add(sizes, asked, look(asked))
    for _ in range(CLOSER_LOOKS):
        _, borders = _cut(start, planned, limit, first, sizes)
        if not borders:
            break
        _add(sizes, borders, look(borders))
    return _cut(start, planned, limit, first, sizes)[0]


def _add(sizes: dict[TopicPartition, Sizes], asked: Offsets, seen: Mapping[TopicPartition, Probe]) -> None:
    for tp, found in seen.items():
        sizes[tp][asked[tp]] = found.bytes_per_offset


def _cut(
    start: Offsets,
    planned: Offsets,
    limit: int,
    first: Mapping[TopicPartition, Probe],
    sizes: Mapping[TopicPartition, Sizes],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """`planned` cut to `limit` by all `sizes`, each partition by the same part of its bytes; and the middles
    of those stretches in which a cut fell and whose sizes differ.
    """
    steps = {
        tp: _steps(sizes.get(tp) or {start[tp]: _bytes_per_offset(tp, first)}, planned[tp])
        for tp in (backlogs(start, planned) if first else ())
    }
    costs = {tp: sum((until - begin) * size for begin, until, size, _ in steps[tp]) for tp in steps}
    total = sum(costs.values())
    ends = dict(planned)
    borders: dict[TopicPartition, int] = {}
    if total <= limit:
        return ends, borders
    for tp in steps:
        budget = costs[tp] * limit / total
        for begin, until, size, smaller in steps[tp]:
            if (until - begin) * size > budget:
                least = first[tp].next_offset if tp in first else start[tp] + 1
                ends[tp] = min(max(begin + int(budget / size), least), planned[tp])
                if size > FACTOR * smaller and until - begin > 1:
                    borders[tp] = (begin + until) // 2
                break
            budget -= (until - begin) * size
    return ends, borders


def _steps(sizes: Sizes, end: int) -> list[tuple[int, int, float, float]]:
    """Stretches between the places that were looked at: begin, end, the larger size of both, the smaller."""
    places = sorted(sizes)
    found = []
    for begin, until in zip(places, [*places[1:], end], strict=True):
        both = sizes[begin], sizes.get(until, sizes[begin])
        found.append((begin, until, max(both), min(both)))
    return found


def places_to_look(start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """Where to look at sizes: at the beginnings of the largest backlogs."""
    backlog = backlogs(start, end)
    largest = sorted(backlog, key=lambda tp: (-backlog[tp], tp))[:LOOKS]
    return {tp: start[tp] for tp in largest}


def limit_bytes(
    start: Offsets, end: Offsets, limit: int, probes: Mapping[TopicPartition, Probe]
) -> dict[TopicPartition, int]:
    """Ends about `limit` bytes behind `start` in all, shared in proportion to each partition's backlog.

    The first batch of a partition is never cut: it would be fetched, whole, once more. A partition that
    could not be looked at takes the average of its topic, or of all; without any, nothing is limited.
    """
    if not probes:
        return dict(end)
    backlog = backlogs(start, end)
    sizes = {tp: _bytes_per_offset(tp, probes) for tp in backlog}
    total = sum(size * sizes[tp] for tp, size in backlog.items())
    limited = dict(end)
    for topic_partition, size in backlog.items():
        granted = max(int(limit * size / total), 1) if total > limit else size
        reached = start[topic_partition] + granted
        if topic_partition in probes:
            reached = max(reached, probes[topic_partition].next_offset)
        limited[topic_partition] = min(reached, end[topic_partition])
    return limited


def _bytes_per_offset(topic_partition: TopicPartition, probes: Mapping[TopicPartition, Probe]) -> float:
    if topic_partition in probes:
        return probes[topic_partition].bytes_per_offset
    same = [seen.bytes_per_offset for tp, seen in probes.items() if tp.topic == topic_partition.topic]
    known = same or [seen.bytes_per_offset for seen in probes.values()]
    return sum(known) / len(known)
