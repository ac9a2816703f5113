"""Times in JSON texts, as Spark's `from_json` reads them: without a zone they are of the session's.

The JSON parser takes every time without a zone for UTC and refuses more than six digits of a second, so it
reads times as text, and they are made here. What Arrow does not know as a time or a date `repair.py` makes a
number of, and writes that, marked, into the line that the parser reads again.
"""

from __future__ import annotations

import re
import zoneinfo
from datetime import date, datetime, time, timedelta

import pyarrow
import pyarrow.compute

from spark_connector.errors import ConnectorError
from spark_connector.formats import parse_time_zone

SESSION_ZONE = "spark.sql.session.timeZone"
LOCAL = pyarrow.timestamp("us")
INSTANT = pyarrow.timestamp("us", "UTC")
DAY = pyarrow.scalar(86_400_000_000, pyarrow.duration("us"))
FAR = pyarrow.scalar(datetime(2037, 1, 1), LOCAL)
"""a little later Arrow knows no summer time: it reads the changes that are listed, not the rule behind"""

_ZONE = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
_SURPLUS_DIGITS = r"(\.\d{6})\d+"
_TIME = re.compile(
    r"([+-]?\d{4,6})(?:-(\d\d?)(?:-(\d\d?)"
    r"(?:[T ](\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.(\d*))?(\D.*)?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d\d?)(?:-(\d\d?)(?:[T ].*)?)?)?", re.ASCII | re.DOTALL)
_OFFSET = re.compile(r"[+-](\d\d):(\d\d)")
_ODD_DIGITS = re.compile(r"[+-](\d{3}|\d{5})(?!\d)", re.ASCII)
_BLANKS = "".join(map(chr, (*range(0x21), 0x7F)))  # what Spark trims

MARK = "#"
"""before the number of a time or date in a repaired line; a text that begins so is neither, and left out"""


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


def with_times(
    read: pyarrow.Array, kind: pyarrow.DataType, zone: str, *, is_repaired: bool = False
) -> pyarrow.Array:
    """What the parser has made, as `kind`; ArrowInvalid where a text is no time.

    Only in repaired lines a text with MARK is one.
    """
    types = pyarrow.types
    if is_repaired and types.is_date(kind):
        plain, marked = _apart(read, kind)
        return pyarrow.compute.coalesce(plain.cast(kind), marked)
    if types.is_timestamp(kind):
        return _times(read, kind, zone, is_repaired)
    if not (types.is_struct(kind) or types.is_list(kind)) or not (is_repaired or has_times(kind)):
        return read.cast(kind)
    nulls = read.is_null()
    if types.is_struct(kind):
        parts = [
            with_times(part, field.type, zone, is_repaired=is_repaired)
            for part, field in zip(read.flatten(), kind, strict=True)
        ]
        return pyarrow.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    values = with_times(read.values, kind.value_type, zone, is_repaired=is_repaired)
    return pyarrow.ListArray.from_arrays(read.offsets, values, type=kind, mask=nulls)


def micros_of(text: str, zone: str) -> int:
    """The microseconds since 1970 of a time by Spark's grammar; ValueError for what is none.

    `zone` is that of a time without one; where it is empty there must be none, and the time is local.
    """
    match = _TIME.fullmatch(text.strip(_BLANKS))
    if match is None or (match[8] and not zone):
        raise ValueError(f"{text} is no time")
    hour, minute, second = (int(part or 0) for part in match.group(4, 5, 6))
    at = time(hour, minute, second, int((match[7] or "")[:6].ljust(6, "0")))
    days, days_off = _days(*match.group(1, 2, 3))
    micros = ((days * 24 + at.hour) * 60 + at.minute) * 60 + at.second
    micros = micros * 1_000_000 + at.microsecond
    if zone:
        (instant,) = _instants(pyarrow.array([micros], LOCAL), _zone(match[8]) if match[8] else zone)
        micros = instant.value
    micros += days_off * DAY.value
    if not -(1 << 63) <= micros < 1 << 63:
        raise ValueError(f"{text} is too far away")
    return int(micros)


def days_of(text: str) -> int:
    """The days since 1970 of a date by Spark's grammar; ValueError for what is none."""
    match = _DATE.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise ValueError(f"{text} is no date")
    days = sum(_days(*match.group(1, 2, 3)))
    if not -(1 << 31) <= days < 1 << 31:
        raise ValueError(f"{text} is too far away")
    return days


def _days(year: str, month: str | None, day: str | None) -> tuple[int, int]:
    """The days since 1970 of such a date within the years 1 to 9999, and those from there to the date.

    The calendar, and with it the rules of zones, come again every 400 years; Python and Arrow end there.
    """
    number = int(year)
    cycles = 0 if 1 <= number <= 9999 else (number - 1 if number < 1 else number - 9600) // 400
    near = date(number - 400 * cycles, int(month or 1), int(day or 1))
    return near.toordinal() - date(1970, 1, 1).toordinal(), cycles * 146_097


def _zone(text: str) -> str:
    """The zone behind a time, as Arrow knows it; ValueError for none that Java has."""
    text = text.strip(_BLANKS)
    try:
        zone = parse_time_zone(text, "the zone")
    except ConnectorError as problem:
        raise ValueError(str(problem)) from None
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        minutes = int(offset[1]) * 60 + int(offset[2])
        if _ODD_DIGITS.search(text) or int(offset[2]) > 59 or minutes > 18 * 60:
            raise ValueError(f"{text} is no zone")
    return zone


def _apart(texts: pyarrow.Array, kind: pyarrow.DataType) -> tuple[pyarrow.Array, pyarrow.Array]:
    """The texts without MARK, and the values of those with it; null where it is the other."""
    is_marked = pyarrow.compute.starts_with(texts, MARK)
    digits = pyarrow.compute.utf8_slice_codeunits(pyarrow.compute.if_else(is_marked, texts, None), 1)
    number = pyarrow.int32() if pyarrow.types.is_date(kind) else pyarrow.int64()
    return pyarrow.compute.if_else(is_marked, None, texts), digits.cast(number).cast(kind)


def _times(texts: pyarrow.Array, kind: pyarrow.DataType, zone: str, is_repaired: bool) -> pyarrow.Array:
    if is_repaired:
        plain, marked = _apart(texts, kind)
        return pyarrow.compute.coalesce(_times(plain, kind, zone, False), marked)
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
    if zone[0] not in "+-":
        is_far = pyarrow.compute.greater_equal(local, FAR)
        if pyarrow.compute.any(is_far).as_py():
            region = zoneinfo.ZoneInfo(zone)
            chosen = pyarrow.compute.if_else(is_far, local, None).cast(pyarrow.int64()).to_pylist()
            far = [None if micros is None else _far_instant(micros, region) for micros in chosen]
            near = _instants(pyarrow.compute.if_else(is_far, None, local), zone)
            return pyarrow.compute.coalesce(pyarrow.array(far, pyarrow.int64()).cast(INSTANT), near)
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


def _far_instant(micros: int, region: zoneinfo.ZoneInfo) -> int:
    """Python takes one of two, and what is skipped, as Java does."""
    at = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    return micros - (region.utcoffset(at) or timedelta()) // timedelta(microseconds=1)
