"""Offsets as values: JSON forms, ranges, splits and rate limits. Pure; asks no broker.

The JSON is that of Spark's own Kafka source, `{"topic":{"0":5}}`, in its order (see `canonical.py`): Spark
compares offsets as strings, and the same offsets in another order would be an empty extra micro-batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from spark_connector.canonical import in_order_of_scala, java_hash
from spark_connector.errors import ConnectorError

LATEST = -1
EARLIEST = -2


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class OffsetRange:
    """What one task reads: offsets from `start` up to but without `end`.

    EARLIEST and LATEST in place of an offset are looked up by the task itself when it starts.
    """

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def is_resolved(self) -> bool:
        return self.start >= 0 and self.end >= 0

    @property
    def size(self) -> int:
        """Offsets, not records: cleaned logs have holes."""
        return max(self.end - self.start, 0)


def to_json_object(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The canonical form, as Spark's own source stores it in a checkpoint."""
    topics: dict[str, list[int]] = {}
    for topic_partition in sorted(offsets):
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    # The map of topics is put to again for each further partition, and looks at its size each time.
    checks = len(topics) + (bool(topics) and len(list(topics.values())[-1]) > 1)
    return {
        topic: {
            str(number): offsets[TopicPartition(topic, number)]
            for number in in_order_of_scala(topics[topic], int, len(topics[topic]))
        }
        for topic in in_order_of_scala(list(topics), java_hash, checks)
    }


def from_json_object(value: Any, what: str = "offset") -> dict[TopicPartition, int]:
    """Read `{"topic":{"0":5}}`; ConnectorError for anything else."""
    if not isinstance(value, dict):
        raise _wrong_form(what, value)
    result: dict[TopicPartition, int] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise _wrong_form(what, value)
        for partition, offset in partitions.items():
            if not partition.isdecimal() or not isinstance(offset, int) or isinstance(offset, bool):
                raise _wrong_form(what, value)
            result[TopicPartition(topic, int(partition))] = offset
    return result


def parse_offsets(text: str, what: str) -> dict[TopicPartition, int]:
    """The offsets of an option's JSON text."""
    return from_json_object(_load(text, what), what)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """The partitions of `{"topic":[0,1]}`."""
    value = _load(text, "assign")
    topics = value if isinstance(value, dict) else {}
    if not any(topics.values()) or not all(map(_are_partitions, topics.values())):
        raise ConnectorError(f'assign must look like {{"topic":[0,1]}}, not {text}')
    return tuple(sorted({TopicPartition(topic, number) for topic in topics for number in topics[topic]}))


def _are_partitions(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)


def require_same_partitions(
    given: Iterable[TopicPartition], found: Iterable[TopicPartition], what: str
) -> None:
    """An option that gives offsets must give them for every partition that is read, and for no other."""
    given, found = set(given), set(found)
    if given == found:
        return
    parts = []
    if found - given:
        parts.append(f"missing: {_listed(found - given)}")
    if given - found:
        parts.append(f"not among the partitions to read: {_listed(given - found)}")
    raise ConnectorError(
        f"{what} must name each partition to read and no other (-1: latest, -2: earliest); {'; '.join(parts)}"
    )


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut large ranges into tasks: first none longer than `max_records`, then about `min_partitions` in all.

    Resolved ranges only; empty ones are dropped. With `min_partitions` those whose share of the tasks rounds
    to one stay whole, and the others share what is left: never fewer pieces than Spark's own source makes.
    """
    left = [piece for piece in ranges if piece.size > 0]
    if max_records:
        left = [part for piece in left for part in _divide(piece, math.ceil(piece.size / max_records))]
    if not min_partitions or min_partitions <= len(left):
        return left
    total = sum(piece.size for piece in left)
    cut = {piece for piece in left if _tasks_of(piece, total, min_partitions) > 1}
    cut_size = sum(piece.size for piece in cut)
    tasks = min_partitions - (len(left) - len(cut))
    result: list[OffsetRange] = []
    for piece in left:
        result.extend(_divide(piece, _tasks_of(piece, cut_size, tasks)) if piece in cut else [piece])
    return result


def _tasks_of(piece: OffsetRange, total: int, tasks: int) -> int:
    """Its share of `tasks` by its size in `total`, at least 1; a half is rounded up.

    As Scala rounds: `round` takes a half to the even number, which made fewer tasks than asked for.
    """
    return max(math.floor(piece.size / total * tasks + 0.5), 1)


def _divide(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` ranges of nearly the same size, one an offset at most, that cover `piece` exactly."""
    parts = min(parts, piece.size)
    edges = [piece.start + piece.size * index // parts for index in range(parts + 1)]
    return [replace(piece, start=edges[index], end=edges[index + 1]) for index in range(parts)]


def limit_offsets(start: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Ends that lie `limit` offsets behind `start` in all, shared in proportion to each partition's backlog.

    A partition with a backlog gets at least one offset, so that small ones do not starve behind large ones.
    """
    backlog = backlogs(start, end)
    total = sum(backlog.values())
    limited = dict(end)
    for topic_partition, size in backlog.items():
        share = limit * size / total
        granted = math.ceil(share) if share < 1 else math.floor(share)
        limited[topic_partition] = min(end[topic_partition], start[topic_partition] + granted)
    return limited


def backlogs(start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """How many offsets of each partition lie between `start` and `end`; of those that have some."""
    return {tp: end[tp] - start[tp] for tp in end if tp in start and end[tp] > start[tp]}


def _load(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise ConnectorError(f"{what} is neither a known word nor JSON: {text} ({problem})") from None


def _wrong_form(what: str, value: Any) -> ConnectorError:
    return ConnectorError(f'{what} must look like {{"topic":{{"0":23,"1":-2}}}}, not {json.dumps(value)}')


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(topic_partition) for topic_partition in sorted(partitions))
