"""Goal: what a client could not do is an error of the benchmark, and never a figure of it.

Method: summaries as Kafka's perf tools print them, of a tool that ends well though records were refused.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks import perf_tools
from benchmarks.perf_tools import Load
from benchmarks.systems import System
from tests.kafka.tools import Tools

QUANTILES = "1 ms 50th, 2 ms 95th, 3 ms 99th, 4 ms 99.9th."


class Telling:
    """Tools that print what they are told to, and a broker."""

    bootstrap = "127.0.0.1:1"

    def __init__(self, output: str) -> None:
        self.output = output

    def run(self, *_: object, **__: Any) -> str:
        return self.output


def produced(output: str, records: int) -> float:
    told = Telling(output)
    return perf_tools.produce(cast(Tools, told), cast(System, told), "topic", Load(records, 100))


def summary(count: int, rate: float, words: str = "") -> str:
    return (
        f"{count} {words}records sent, {rate:f} records/sec (0.17 MB/sec), 8.86 ms avg latency, {QUANTILES}\n"
    )


def test_the_rate_is_that_of_the_warm_client() -> None:
    progress = summary(120, 24.0)
    assert produced(progress + summary(300, 45.5) + summary(225, 169.7, "steady state "), 300) == 169.7
    assert produced(progress + summary(300, 45.5), 300) == 45.5


@pytest.mark.parametrize("count", [0, 299])
def test_records_that_were_refused_are_no_figure(count: int) -> None:
    refused = summary(count, 45.5) + summary(max(0, count - 75), 169.7, "steady state ")
    with pytest.raises(RuntimeError, match=f"sent {count} of 300 records"):
        produced(refused, 300)


def test_no_summary_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="no summary"):
        produced("Warmup first 75 records.\n", 300)
