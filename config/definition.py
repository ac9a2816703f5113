"""What one configuration key is, and how its text becomes a value. Mirrors Kafka's `ConfigDef`.

A table of keys is a frozen dataclass whose fields are made by `key(...)`. The field `segment_bytes` is the
key `segment.bytes`: Kafka separates words by dots only, so that the name is written once.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Any

from config import units

SMALLEST_PLAIN, SMALLEST_LARGE = 1e-3, 1e7
LONG_MAX = 2**63 - 1
MINUTE_MS = 60_000
LONGEST_MISSPELT = 200
"""letters of a name that is looked for among those there are"""
HOUR_MS = 3_600_000
MIB = 1 << 20
INT_MAX = 2**31 - 1
LONGEST_VALUE_BYTES = 2**15 - 1
"""what a string of the older versions of DescribeConfigs holds"""


class ConfigError(Exception):
    """A key or value that cannot be taken; one line for the person who set it.

    `key` is its name as that person wrote it, empty where it is about no key. Several of them together are
    one whose `parts` are the single ones.
    """

    def __init__(self, message: str, key: str = "", parts: Sequence[ConfigError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.parts = tuple(parts) or (self,)

    @classmethod
    def of_value(cls, value: object, key: str, problem: str) -> ConfigError:
        """In Kafka's words: the value of a key that cannot be one."""
        return cls(f"Invalid value {value} for configuration {key}: {problem}", key)

    @classmethod
    def together(cls, parts: Iterable[ConfigError]) -> ConfigError:
        """All of these, a line each."""
        singles = [single for part in parts for single in part.parts]
        return cls("\n".join(single.message for single in singles), parts=singles)


def closest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that somebody who wrote `name` may have meant.

    A client may send megabytes for a name, and looking for the closest takes longer with each letter.
    """
    found = difflib.get_close_matches(name, names, 1) if len(name) <= LONGEST_MISSPELT else ()
    return found[0] if found else None


def meant(name: str, names: Iterable[str]) -> str:
    """What to add to a refusal of `name`, which is none of `names`: ": did you mean ...?", or nothing."""
    found = closest(name, names)
    return "" if found is None else f": did you mean {found}?"


class Type(IntEnum):
    """Kafka's types, with their codes in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGER_RANGES = {
    Type.SHORT: (-(2**15), 2**15 - 1),
    Type.INT: (-(2**31), INT_MAX),
    Type.LONG: (-(2**63), LONG_MAX),
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that gives a topic key its value where the topic does not; `factor` converts its unit."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One key. Values of a nullable key (default None) are None while nobody sets them."""

    type: Type
    default: Any
    words: str
    name: str = ""
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()
    """the only values of a STRING, or members of a LIST"""
    allows_empty: bool = True
    """whether a LIST may have no member"""
    is_loose: bool = False
    """whether members of a LIST may be empty or repeated, and stay so"""
    client_at_least: float | None = None
    """a floor that holds for clients only (KIP-1030): files and tests may go below it"""
    is_dynamic: bool = False
    """may be changed while the broker runs"""
    is_internal: bool = False
    """taken, but listed by DescribeConfigs only where it is set"""
    aliases: tuple[str, ...] = ()
    """other names of the same key, with the same unit"""
    synonyms: tuple[Synonym, ...] = ()
    """where the value comes from when this key is not set, in order"""
    check: Callable[[Any], str | None] | None = None
    """a further rule: what is wrong with the value, or None"""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def is_sensitive(self) -> bool:
        return self.type is Type.PASSWORD


def key(
    type: Type,
    default: Any,
    words: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] = (),
    allows_empty: bool = True,
    is_loose: bool = False,
    client_at_least: float | None = None,
    dynamic: bool = False,
    internal: bool = False,
    aliases: tuple[str, ...] = (),
    synonyms: tuple[Synonym | str, ...] = (),
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    """Declare one key as a dataclass field."""
    row = Row(
        type=type,
        default=default,
        words=words,
        at_least=at_least,
        at_most=at_most,
        one_of=one_of,
        allows_empty=allows_empty,
        is_loose=is_loose,
        client_at_least=client_at_least,
        is_dynamic=dynamic,
        is_internal=internal,
        aliases=aliases,
        synonyms=tuple(Synonym(name) if isinstance(name, str) else name for name in synonyms),
        check=check,
    )
    return dataclasses.field(default=default, repr=not row.is_sensitive, metadata={"row": row})


def like(row: Row) -> Any:
    """Declare a dynamic broker key that is the default of a topic key: same type, default, range, words."""
    copied = dataclasses.replace(
        row,
        name="",
        is_dynamic=True,
        synonyms=(),
        words=f"{row.words} (default of topics)",
    )
    return dataclasses.field(default=row.default, metadata={"row": copied})


def rows_of(table: type) -> dict[str, Row]:
    """Every row of a table by its key, in declared order."""
    rows = {}
    for field in dataclasses.fields(table):
        row = field.metadata.get("row")
        if row is not None:
            name = field.name.replace("_", ".")
            rows[name] = dataclasses.replace(row, name=name)
    return rows


def by_any_name(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Rows by their key and by their aliases."""
    named = dict(rows)
    for row in rows.values():
        named.update((alias, row) for alias in row.aliases)
    return named


def parse(row: Row, text: str, *, name: str | None = None) -> Any:
    """The value that `text` stands for; ConfigError when it is not one of this key."""
    name = name or row.name
    if len(text.encode(errors="replace")) > LONGEST_VALUE_BYTES:
        raise ConfigError(
            f"Invalid value for configuration {name}: It is longer than {LONGEST_VALUE_BYTES} bytes", name
        )
    value = _read(row, text.strip(), name)
    problem = _problem(row, value)
    if problem is None:
        return value
    is_number = row.type is Type.DOUBLE and math.isfinite(value)
    raise ConfigError.of_value(text_of_double(value) if is_number else text.strip(), name, problem)


def check_client_floor(row: Row, value: Any) -> None:
    """Refuse what Kafka refuses to clients although the engine could do it."""
    if row.client_at_least is not None and value < row.client_at_least:
        raise ConfigError.of_value(value, row.name, f"Value must be at least {row.client_at_least}")


def text_of(row: Row, value: Any) -> str | None:
    """The text of a value as DescribeConfigs gives it; None for a value nobody set."""
    if value is None:
        return None
    if row.type is Type.BOOLEAN:
        return "true" if value else "false"
    if row.type is Type.LIST:
        return ",".join(sorted(value) if isinstance(value, frozenset) else value)
    return text_of_double(value) if row.type is Type.DOUBLE else str(value)


def text_of_double(value: float) -> str:
    """As Java writes a double: 0.5, but 1.0E-5 below a thousandth and 1.0E7 from ten millions on."""
    value = float(value)
    if value == 0 or SMALLEST_PLAIN <= abs(value) < SMALLEST_LARGE:
        return repr(value)
    digits, _, exponent = f"{Decimal(repr(value)):E}".partition("E")
    fraction = digits.partition(".")[2].rstrip("0") or "0"
    return f"{digits.partition('.')[0]}.{fraction}E{int(exponent)}"


def split_list(text: str) -> list[str]:
    """The members of a LIST: separated by commas, spaces around them do not count."""
    return [member.strip() for member in text.split(",")] if text.strip() else []


def members_of(row: Row, text: str) -> list[str]:
    """The members of a LIST as its row reads them: a repeated one counts once, as since Kafka 4.2."""
    members = split_list(text)
    return members if row.is_loose else list(dict.fromkeys(members))


def _read(row: Row, text: str, name: str) -> Any:
    if row.type is Type.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ConfigError.of_value(text, name, "Expected value to be either true or false")
        return lowered == "true"
    if row.type in _INTEGER_RANGES:
        try:
            return int(_java_number(text))
        except ValueError:
            problem = f"Not a number of type {row.type.name}{units.hint(name, text)}"
            raise ConfigError.of_value(text, name, problem) from None
    if row.type is Type.DOUBLE:
        try:
            # Java's literals may end with their type: 0.5f, 0.5d
            return float(_java_number(text[:-1] if text.endswith(("f", "F", "d", "D")) else text))
        except ValueError:
            problem = f"Not a number of type DOUBLE{units.hint(name, text)}"
            raise ConfigError.of_value(text, name, problem) from None
    if row.type is Type.LIST:
        members = members_of(row, text)
        return frozenset(members) if isinstance(row.default, frozenset) else tuple(members)
    return text


def _java_number(text: str) -> str:
    """ValueError for what Python takes for a number and Java does not: 1_000."""
    if "_" in text:
        raise ValueError(text)
    return text


def _problem(row: Row, value: Any) -> str | None:
    """What is wrong with a value of the right type."""
    problem: str | None = None
    if row.type in _INTEGER_RANGES:
        lowest, highest = _INTEGER_RANGES[row.type]
        if not lowest <= value <= highest:
            problem = f"Not a number of type {row.type.name}"
    if row.type is Type.DOUBLE and not math.isfinite(value):
        problem = "Not a finite number"
    if row.type is Type.LIST:
        problem = _problem_of_list(row, value)
    if problem is None and row.type is Type.STRING and row.one_of and value not in row.one_of:
        problem = f"String must be one of: {', '.join(row.one_of)}"
    if problem is None and row.at_least is not None and value < row.at_least:
        problem = f"Value must be at least {row.at_least}"
    if problem is None and row.at_most is not None and value > row.at_most:
        problem = f"Value must be no more than {row.at_most}"
    if problem is None and row.check is not None:
        problem = row.check(value)
    return problem


def _problem_of_list(row: Row, members: frozenset[str] | tuple[str, ...]) -> str | None:
    if not members and not row.allows_empty:
        return f"Configuration '{row.name}' must not be empty."
    if "" in members and not row.is_loose:
        return f"Configuration '{row.name}' values must not be empty."
    strange = [member for member in members if row.one_of and member not in row.one_of]
    if strange:
        return f"String must be one of: {', '.join(row.one_of)}"
    return None
