"""Times in JSON texts, as Spark's `from_json` reads them: without a zone they are of the session's.

The JSON parser takes every time without a zone for UTC and refuses more than six digits of a second, so it
reads times as text, and they are made here.
"""

from __future__ import annotations

import pyarrow
import pyarrow.compute

from spark_connector.errors import ConnectorError
from spark_connector.formats import parse_time_zone

SESSION_ZONE = "spark.sql.session.timeZone"
LOCAL = pyarrow.timestamp("us")
INSTANT = pyarrow.timestamp("us", "UTC")
DAY = pyarrow.scalar(86_400_000_000, pyarrow.duration("us"))

_ZONE = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
_SURPLUS_DIGITS = r"(\.\d{6})\d+"


def zone_of_task(option: str) -> str:
    """The zone of times without one: the option's, else the session's if the task was told it, else UTC.

    Spark sends along what was set in the session, and nothing of what it took from the machine.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    zone = option or parse_time_zone((task and task.getLocalProperty(SESSION_ZONE)) or "UTC", SESSION_ZONE)
    try:
        pyarrow.compute.assume_timezone(pyarrow.scalar(0, LOCAL), zone)
    except pyarrow.ArrowInvalid as problem:
        raise ConnectorError(f"the time zone {zone} is not known on this machine: {problem}") from None
    return zone


def has_times(kind: pyarrow.DataType) -> bool:
    """Whether there are timestamps in values of this type."""
    if pyarrow.types.is_struct(kind):
        return any(has_times(field.type) for field in kind)
    if pyarrow.types.is_list(kind):
        return has_times(kind.value_type)
    return bool(pyarrow.types.is_timestamp(kind))


def with_times(read: pyarrow.Array, kind: pyarrow.DataType, zone: str) -> pyarrow.Array:
    """What the parser has made, as `kind`; ArrowInvalid where a text is no time."""
    if not has_times(kind):
        return read.cast(kind)
    if pyarrow.types.is_timestamp(kind):
        return _times(read, kind, zone)
    nulls = read.is_null()
    if pyarrow.types.is_struct(kind):
        parts = [with_times(part, field.type, zone) for part, field in zip(read.flatten(), kind, strict=True)]
        return pyarrow.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    values = with_times(read.values, kind.value_type, zone)
    return pyarrow.ListArray.from_arrays(read.offsets, values, type=kind, mask=nulls)


def _times(texts: pyarrow.Array, kind: pyarrow.DataType, zone: str) -> pyarrow.Array:
    try:
        return _parsed(texts, kind, zone)
    except pyarrow.ArrowInvalid:  # most texts have not so many digits, and to look for them takes long
        cut = pyarrow.compute.replace_substring_regex(texts, _SURPLUS_DIGITS, r"\1")
        return _parsed(cut, kind, zone)


def _parsed(texts: pyarrow.Array, kind: pyarrow.DataType, zone: str) -> pyarrow.Array:
    if kind.tz is None:
        return texts.cast(LOCAL)
    has_zone = pyarrow.compute.match_substring_regex(texts, _ZONE)
    zoned = pyarrow.compute.if_else(has_zone, texts, None).cast(INSTANT)
    local = pyarrow.compute.if_else(has_zone, None, texts).cast(LOCAL)
    return pyarrow.compute.coalesce(zoned, _instants(local, zone))


def _instants(local: pyarrow.Array, zone: str) -> pyarrow.Array:
    """As Java has it: the earlier of two, and where clocks skip a time, as if they were not put on yet."""
    if zone == "UTC" or local.null_count == len(local):
        return local.cast(INSTANT)
    before, after = (
        pyarrow.compute.assume_timezone(local, zone, ambiguous="earliest", nonexistent=side)
        for side in ("earliest", "latest")
    )
    if not before.equals(after):
        day_before = pyarrow.compute.assume_timezone(
            pyarrow.compute.subtract(local, DAY), zone, ambiguous="earliest", nonexistent="earliest"
        )
        skipped = pyarrow.compute.not_equal(before, after)
        after = pyarrow.compute.if_else(skipped, pyarrow.compute.add(day_before, DAY), after)
    return after.cast(INSTANT)
