"""JSON that Arrow's parser refuses, written anew as far as it fits the types, by the rules of `from_json`.

The parser takes a batch of rows whole or not at all, and knows no row that is right in part. So the rows of a
refused batch are read by Python, and go back to the parser as lines with what does not fit left out, and with
what Spark would convert (a number for a text column, seconds for a time) converted. Slow, beside the parser,
and only for rows near a refused one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow

from spark_connector.times import MARK, days_of, micros_of, with_times

BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
INFINITY = "Infinity"
WORDS_OF_FLOATS = {
    "NaN": "NaN",
    **dict.fromkeys(("INF", "+INF", INFINITY, "+Infinity"), INFINITY),
    **dict.fromkeys(("-INF", "-Infinity"), "-Infinity"),
}
DIGITS = Context(prec=100)  # more than any decimal column has: what does not fit is refused, never cut

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_LONE_DIGIT = re.compile(r"(?<![\d.])\d(?!\d)", re.ASCII)


class Number(str):
    """A number as it stands in the text."""


class Pairs(list[tuple[str, Any]]):
    """An object; a name may be there twice."""


_read = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=Number
).decode


class Repair:
    """Writes lines anew for the fields of one schema. Owned by: the task that reads one partition."""

    def __init__(self, fields: pyarrow.Schema, zone: str) -> None:
        self._fields = {field.name: field.type for field in fields}
        self._zone = zone
        self._is_whole = True

    def line(self, value: bytes) -> tuple[bytes, bool]:
        """The object of a line as the parser takes it, and whether all of it fits; ValueError for no JSON.

        What is left out is null: a field that does not fit, or the whole of an array with such an element.
        """
        self._is_whole = True
        found = _read(value.decode(errors="surrogateescape"))  # the parser keeps what is no UTF-8, too
        text = self._object(found, self._fields)
        try:
            return text.encode(errors="surrogateescape"), self._is_whole
        except UnicodeEncodeError:  # half a pair of surrogates, escaped
            return text.encode(errors="replace"), self._is_whole

    def _object(self, value: Any, kinds: dict[str, pyarrow.DataType]) -> str:
        if not isinstance(value, Pairs):
            raise ValueError("not an object")
        made: dict[str, str] = {}
        for name, part in value:
            if name not in kinds:
                continue
            try:
                made[name] = self._text(part, kinds[name])
            except (ValueError, ArithmeticError):
                self._is_whole = False
        return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in made.items()) + "}"

    def _text(self, value: Any, kind: pyarrow.DataType) -> str:
        """The value in JSON, as the parser takes it for `kind`; else ValueError or ArithmeticError."""
        if value is None:
            return "null"
        types = pyarrow.types
        if types.is_struct(kind):
            return self._object(value, {field.name: field.type for field in kind})
        if types.is_list(kind):
            if not isinstance(value, list) or isinstance(value, Pairs):
                raise _does_not_fit(value, kind)
            return "[" + ",".join(self._text(part, kind.value_type) for part in value) + "]"
        if types.is_string(kind):
            return _quoted(value if type(value) is str else _compact(value))
        if types.is_boolean(kind) and isinstance(value, bool):
            return _compact(value)
        if types.is_timestamp(kind):
            return self._time(value, kind)
        convert = _converter(kind)
        if convert is None or not isinstance(value, str):
            raise _does_not_fit(value, kind)
        return convert(value, kind)

    def _time(self, value: Any, kind: pyarrow.DataType) -> str:
        if isinstance(value, Number) and kind.tz is not None and _is_integer(value):
            micros = int(value) * 1_000_000
            if not -(1 << 63) <= micros < 1 << 63:
                raise _does_not_fit(value, kind)
            return _quoted(f"{MARK}{micros}")
        if type(value) is not str:
            raise _does_not_fit(value, kind)
        plain = _PLAIN_TIME.fullmatch(value)
        is_plain = plain is not None and (kind.tz is not None or not plain[1])
        try:
            if is_plain:
                datetime.fromisoformat(value)
                return _quoted(value)
            # whatever else is a time to the parser; to ask it takes a hundred times as long
            text = _LONE_DIGIT.sub(r"0\g<0>", value)
            with_times(pyarrow.array([text], pyarrow.string()), kind, self._zone)
            return _quoted(text)
        except ValueError:
            return _quoted(f"{MARK}{micros_of(value, self._zone if kind.tz is not None else '')}")


def _converter(kind: pyarrow.DataType) -> Callable[[str, pyarrow.DataType], str] | None:
    types = pyarrow.types
    if types.is_integer(kind):
        return _integer
    if types.is_floating(kind):
        return _float
    if types.is_decimal(kind):
        return _decimal
    return _date if types.is_date(kind) else None


def _integer(value: str, kind: pyarrow.DataType) -> str:
    if not isinstance(value, Number) or not _is_integer(value):
        raise _does_not_fit(value, kind)
    limit = 1 << BITS[str(kind)]
    if not -limit <= int(value) < limit:
        raise _does_not_fit(value, kind)
    return value


def _float(value: str, kind: pyarrow.DataType) -> str:
    word = WORDS_OF_FLOATS.get(value)
    if word is not None:
        return word
    if not isinstance(value, Number):
        raise _does_not_fit(value, kind)
    if math.isinf(float(value)):  # which the parser does not make of digits
        return f"-{INFINITY}" if value.startswith("-") else INFINITY
    return value


def _decimal(value: str, kind: pyarrow.DataType) -> str:
    if not _DECIMAL.fullmatch(value):
        raise _does_not_fit(value, kind)
    unit = Decimal(1).scaleb(-kind.scale, DIGITS)
    number = Decimal(value).quantize(unit, "ROUND_HALF_UP", DIGITS)
    if len(number.as_tuple().digits) > kind.precision:
        raise _does_not_fit(value, kind)
    return f"{number:f}"


def _date(value: str, kind: pyarrow.DataType) -> str:
    if isinstance(value, Number):
        raise _does_not_fit(value, kind)
    try:
        pyarrow.scalar(value, pyarrow.string()).cast(kind)
        return _quoted(value)
    except pyarrow.ArrowInvalid:
        return _quoted(f"{MARK}{days_of(value)}")


def _does_not_fit(value: Any, kind: pyarrow.DataType) -> ValueError:
    return ValueError(f"{type(value).__name__} is no {kind}")


def _is_integer(value: Number) -> bool:
    return value.removeprefix("-").isdecimal() and len(value) <= 20  # those of 64 bits have no more


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _compact(value: Any) -> str:
    """JSON without blanks; numbers as they stood in the text."""
    if isinstance(value, Number):
        return value
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{_quoted(name)}:{_compact(part)}" for name, part in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
