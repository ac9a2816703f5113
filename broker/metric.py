"""What a row of `metric_tables.py` is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from cleaner.distribution import Distribution

S = TypeVar("S")
Number = int | float


class Kind(Enum):
    """COUNTER only grows while the process lives, its exposed name ends in `_total`; HISTOGRAM is a count by
    size.
    """

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Metric(NamedTuple, Generic[S]):
    """One metric read from a subject S. `read` gives a number, None for no sample, with `label` a mapping
    of label values to numbers, for a HISTOGRAM its `Distribution`.
    """

    name: str
    kind: Kind
    words: str
    read: Callable[[S], Number | Mapping[str, Number] | Distribution | None]
    label: str = ""
