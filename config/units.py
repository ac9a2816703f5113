"""Where a number is wanted and somebody wrote one with a unit, 7d or 1GB: what to write instead. Pure.

Kafka's keys say their unit in their names, and take plain numbers only.
"""

from __future__ import annotations

import re
from fractions import Fraction

_MS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_WANTED = (
    (".ms", "milliseconds", _MS, 1),
    (".seconds", "seconds", _MS, 1000),
    (".minutes", "minutes", _MS, 60_000),
    (".hours", "hours", _MS, 3_600_000),
    (".bytes", "bytes", _BYTES, 1),
    (".buffer.size", "bytes", _BYTES, 1),
    (".receive.size", "bytes", _BYTES, 1),
    (".bytes.per.second", "bytes", _BYTES, 1),
)
"""what a name ends with, the unit that it stands for, those that people write, and its size in these"""
_NUMBER_AND_UNIT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]{1,12})", re.IGNORECASE)
_SPELLINGS = {
    "ms": re.compile(r"ms|msecs?|millis|milliseconds?", re.IGNORECASE),
    "s": re.compile(r"s|secs?|seconds?", re.IGNORECASE),
    "min": re.compile(r"m|mins?|minutes?", re.IGNORECASE),
    "h": re.compile(r"h|hrs?|hours?", re.IGNORECASE),
    "d": re.compile(r"d|days?", re.IGNORECASE),
    "w": re.compile(r"w|weeks?", re.IGNORECASE),
    "B": re.compile(r"b|bytes?", re.IGNORECASE),
    **{f"{letter}iB": re.compile(f"{letter}i?b?", re.IGNORECASE) for letter in "KMGT"},
}


def hint(name: str, text: str) -> str:
    """What to add where `text` is no number of the key `name`: ": it wants milliseconds, 7 d = 604800000", or
    nothing where it is none with a unit of the key. GB is taken for GiB, as people mean it.
    """
    written = _NUMBER_AND_UNIT.fullmatch(text)
    wanted = next((row for row in _WANTED if name.endswith(row[0])), None)
    if written is None or wanted is None:
        return ""
    number, spelling = written.groups()
    _, words, units, size = wanted
    unit = next((unit for unit in units if _SPELLINGS[unit].fullmatch(spelling)), None)
    if unit is None:
        return ""
    value = Fraction(number) * units[unit] / size
    return f": it wants {words}" + (f", {number} {unit} = {value}" if value.denominator == 1 else "")
