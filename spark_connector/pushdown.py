"""Filters of a query, applied while reading: fewer partitions, narrower ranges, few keys of a table.

A reader that has `pushFilters` fails every read while `spark.sql.python.filterPushdown.enabled` is false, as
it is by default, so this one is used only when the option `pushdown` asks for it. What is not applied to the
letter goes back to Spark, which filters again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from spark_connector.client import Cluster
from spark_connector.offsets import OffsetRange, TopicPartition
from spark_connector.options import Options
from spark_connector.planning import resolve_ranges
from spark_connector.reader import BatchReader, Edges
from spark_connector.shape import Shape
from spark_connector.tasks import Task

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, wanted: found == wanted,
    EqualNullSafe: lambda found, wanted: found == wanted,
    In: lambda found, wanted: found in wanted,
    GreaterThan: lambda found, wanted: found > wanted,
    GreaterThanOrEqual: lambda found, wanted: found >= wanted,
    LessThan: lambda found, wanted: found < wanted,
    LessThanOrEqual: lambda found, wanted: found <= wanted,
    StringStartsWith: lambda found, wanted: found.startswith(wanted),
    StringEndsWith: lambda found, wanted: found.endswith(wanted),
    StringContains: lambda found, wanted: wanted in found,
}


class FilteringReader(BatchReader):
    """Owned by: the driver's planning process, and a pickled copy by each task."""

    def __init__(self, options: Options, shape: Shape) -> None:
        super().__init__(options, shape)
        self._of_partitions: list[Filter] = []
        self._first_offset = 0
        self._end_offset: int | None = None
        self._first_ms: int | None = None
        self._keys: frozenset[bytes] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes what it can of the filters, all of which hold; gives back what Spark has to look at."""
        return [wanted for wanted in filters if not self._take(wanted)]

    def _take(self, wanted: Filter) -> bool:
        """Whether the filter is applied to the letter; it may have been applied in part otherwise."""
        plain = wanted.child if isinstance(wanted, Not) else wanted
        name = plain.attribute[0] if len(plain.attribute) == 1 else ""
        if name not in self._shape.record_columns:
            return False
        if isinstance(wanted, IsNotNull):
            return name in NEVER_NULL or (name == "key" and self._options.is_view)
        if type(plain) not in _COMPARISONS or plain.value is None:
            return False
        if name in ("topic", "partition"):
            if isinstance(plain, In) and None in plain.value:
                return False
            self._of_partitions.append(wanted)
            return True
        if isinstance(wanted, Not):
            return False
        if name == "offset":
            return self._take_offset(wanted)
        if name == "timestamp":
            self._take_timestamp(wanted)
        elif name == "key" and self._options.is_view:
            return self._take_key(wanted)
        return False

    def _take_offset(self, wanted: Any) -> bool:
        """A lower bound always; an upper one not for a table, where an older record would seem the last."""
        low, high = _bounds(wanted)
        if low is not None:
            self._first_offset = max(self._first_offset, low)
        if high is not None:
            if self._options.is_view:
                return False
            self._end_offset = high + 1 if self._end_offset is None else min(self._end_offset, high + 1)
        return not isinstance(wanted, In)

    def _take_timestamp(self, wanted: Any) -> None:
        """All before the first record that is as young is older; what follows it may be of any age."""
        low = None
        if isinstance(wanted, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual) and isinstance(
            wanted.value, datetime
        ):
            low = -((EPOCH - wanted.value) // timedelta(milliseconds=1))
        # Records without a timestamp read as -1 ms, wherever they are, and no look-up finds them.
        if low is not None and low > 0:
            self._first_ms = max(low, self._first_ms or 0)

    def _take_key(self, wanted: Any) -> bool:
        values = wanted.value if isinstance(wanted, In) else (wanted.value,)
        if not isinstance(wanted, In | EqualTo | EqualNullSafe):
            return False
        if not all(isinstance(value, bytes | bytearray | str) for value in values):
            return False
        keys = {value.encode() if isinstance(value, str) else bytes(value) for value in values}
        self._keys = frozenset(keys if self._keys is None else self._keys & keys)
        return True

    def _narrow(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        ranges = [wanted for wanted in ranges if self._is_wanted(wanted.topic_partition)]
        if not ranges or (self._keys is not None and not self._keys):
            return []
        if not self._first_offset and self._end_offset is None and self._first_ms is None:
            return ranges
        found = resolve_ranges(cluster, ranges)
        young = {}
        if self._first_ms is not None:
            places = [wanted.topic_partition for wanted in ranges]
            young = cluster.list_offsets(dict.fromkeys(places, self._first_ms))
        narrowed = []
        for wanted, now in zip(ranges, found, strict=True):
            place = wanted.topic_partition
            start, end = max(now.start, self._first_offset), now.end
            if self._first_ms is not None:
                start = max(start, young[place]) if young[place] >= 0 else end
            if self._end_offset is not None:
                end = min(end, self._end_offset)
            if start < end:
                narrowed.append(
                    replace(wanted, start=start, end=wanted.end if self._end_offset is None else end)
                )
        return narrowed

    def _late_edges(self, known: Edges, words: Edges) -> Edges:
        """An upper bound stays where the log ends just there: what comes later is beyond it."""
        return words if self._end_offset is None else (words[0], known[1])

    def _is_wanted(self, place: TopicPartition) -> bool:
        values = {"topic": place.topic, "partition": place.partition}
        return all(_holds(wanted, values) for wanted in self._of_partitions)

    def _task(self, ranges: tuple[OffsetRange, ...]) -> Task:
        return Task(ranges, self._options.is_view, None if self._keys is None else tuple(sorted(self._keys)))


def _holds(wanted: Filter, values: dict[str, Any]) -> bool:
    if isinstance(wanted, Not):
        return not _holds(wanted.child, values)
    compare = _COMPARISONS[type(wanted)]
    return compare(values[wanted.attribute[0]], wanted.value)


def _bounds(wanted: Any) -> tuple[int | None, int | None]:
    """The first and the last offset that a filter lets through."""
    match wanted:
        case EqualTo() | EqualNullSafe():
            return wanted.value, wanted.value
        case GreaterThan():
            return wanted.value + 1, None
        case GreaterThanOrEqual():
            return wanted.value, None
        case LessThan():
            return None, wanted.value - 1
        case LessThanOrEqual():
            return None, wanted.value
        case In():
            known = [value for value in wanted.value if value is not None]
            return (min(known), max(known)) if known else (None, None)
    return None, None
