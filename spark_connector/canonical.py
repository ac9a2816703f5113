"""Offsets in the very characters of Spark's own Kafka source: a checkpoint of one resumes under the other.

Spark compares offsets as strings: the same offsets in another order, or with a blank more, are an empty extra
micro-batch. Two things stand in the way. Spark's own source lists topics in the order of Scala's mutable
HashMap, which is computed here. And PySpark writes what a reader returns by `json.dumps`, with blanks that no
return value can prevent, so the `json` of that one module is replaced in the planning process, which runs
nothing else; should a later PySpark have no such module, the cost is that empty micro-batch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
FIRST_TABLE_SIZE = 16


def compact_json(value: Any) -> str:
    """Without blanks, as Java's JSON libraries write."""
    return json.dumps(value, separators=(",", ":"))


class CompactJson:
    """Stands in for the module `json` in PySpark's planning process."""

    loads = staticmethod(json.loads)
    dumps = staticmethod(compact_json)


def write_offsets_compactly() -> bool:
    """Whether this is PySpark's planning process; it then leaves out the blanks."""
    runner = sys.modules.get(RUNNER)
    if runner is None:
        main = sys.modules["__main__"]
        runner = main if getattr(main.__spec__, "name", "") == RUNNER else None
    if runner is None or not hasattr(runner, "json"):
        return False
    runner.json = CompactJson  # type: ignore[attr-defined]
    return True


# --- the order of scala.collection.mutable.HashMap (2.13)


def in_order_of_scala(keys: Sequence[T], hash_of: Callable[[T], int], checks: int) -> list[T]:
    """`keys`, put into an empty map one after another, in the order in which the map lists them.

    The table doubles when one key more would fill three quarters of it, which is looked at before each put;
    `checks` is how full it was, that key included, at the last of them.
    """
    size = FIRST_TABLE_SIZE
    while checks >= size * 3 // 4:
        size *= 2

    def place(key: T) -> tuple[int, int]:
        spread = hash_of(key) & 0xFFFFFFFF
        spread ^= spread >> 16
        return spread & (size - 1), spread - (1 << 32) if spread >> 31 else spread

    return sorted(keys, key=place)


def java_hash(text: str) -> int:
    """`String.hashCode`."""
    value = 0
    units = text.encode("utf-16-be")
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    return value
