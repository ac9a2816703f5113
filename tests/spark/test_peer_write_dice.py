"""Goal: a frame as dice say, with columns and rows right or wrong, goes through `format("kompakt")` as
through Spark's own Kafka sink: the same records in the same partitions, or a refusal by both.

Method: both sinks write the same frames into topics of their own, some codecs, acks and sizes;
confluent-kafka reads back. Without key and partition any partition will do. What the two do otherwise on
purpose (`timestamp`, names in capitals) is in `test_moved_sinks.py` and left out here.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.spark.peer.topics import Options, Topics
from tests.spark.test_spark import CODECS, create_topic
from tests.spark.test_writer_spark import PAIRS, Message, read_back

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
WRITES = 20
WRONG = 0.04
TYPES = {
    "key": ("binary", "string", "int"),
    "value": ("binary", "string", "bigint"),
    "topic": ("string", "string", "binary"),
    "partition": ("int", "int", "bigint"),
    "headers": (PAIRS, PAIRS, "array<struct<key:string,value:string>>"),
    "other": ("double", "date", "date"),
}
"""Two that are taken, the last one refused (but where a record has no place for the column)."""
Frame = tuple[str, list[tuple[Any, ...]]]


class WriteDice:
    """One write: the same again from the same numbers."""

    def __init__(self, seed: int, number: int) -> None:
        self._dice = random.Random(1000 * seed + number)

    def perhaps(self, probability: float) -> bool:
        return self._dice.random() < probability

    def frame(self, names: tuple[str, str]) -> Frame:
        """A schema and its rows, which go to the topics `names`."""
        shares = {"key": 0.7, "value": 0.97, "topic": 0.4, "partition": 0.4, "headers": 0.4, "other": 0.2}
        columns = [name for name, share in shares.items() if self.perhaps(share)]
        self._dice.shuffle(columns)
        types = [TYPES[name][2 if self.perhaps(WRONG) else self._dice.randrange(2)] for name in columns]
        makers = [self._maker(name, kind, names) for name, kind in zip(columns, types, strict=True)]
        rows = [tuple(maker() for maker in makers) for _ in range(self._dice.choice((1, 5, 40, 150)))]
        return ", ".join(f"{name} {kind}" for name, kind in zip(columns, types, strict=True)), rows

    def _maker(self, name: str, kind: str, names: tuple[str, str]) -> Any:
        dice = self._dice
        nulls = 0.15 if self.perhaps(0.5) else 0.0
        wrong = 0.01 if self.perhaps(0.2) else 0.0

        def made() -> Any:
            if name == "topic" and kind == "string":
                return None if self.perhaps(wrong) else dice.choice(names)
            if self.perhaps(nulls):
                return None
            if name == "partition":
                return dice.choice((-1, 3, 99)) if self.perhaps(wrong) else dice.randrange(3)
            if name == "headers":
                return [self._header(kind, wrong) for _ in range(dice.randrange(4))]
            return self._plain(kind)

        return made

    def _header(self, kind: str, wrong: float) -> tuple[str | None, Any]:
        key = None if self.perhaps(wrong) else self._dice.choice(("", "h", "naïve", "h" * 200))
        value = None if self.perhaps(0.2) else self._plain("string" if kind != PAIRS else "binary")
        return key, value

    def _plain(self, kind: str) -> Any:
        text = self._dice.choice(
            ("", "a", "ü" * self._dice.randint(1, 9), str(self._dice.randrange(40)) * 30)
        )
        kinds = {
            "string": text,
            "binary": text.encode(),
            "int": 7,
            "bigint": 8,
            "double": 0.5,
        }
        return kinds.get(kind)

    def options(self, names: tuple[str, str]) -> Options:
        options = {}
        if self.perhaps(0.75):
            options["topic"] = names[0]
        if self.perhaps(0.5):
            options["kafka.compression.type"] = self._dice.choice(CODECS)
        if self.perhaps(0.3):
            options["kafka.acks"] = self._dice.choice(("all", "1", "-1"))
        if self.perhaps(0.3):
            options["kafka.batch.size"] = str(self._dice.choice((0, 100, 5000)))
        if self.perhaps(0.1):
            options["kafka.max.request.size"] = "400"
        if self.perhaps(0.3):
            options["includeHeaders"] = self._dice.choice(("true", "false"))
        return options


def written(topics: Topics, sink: str, frame: Any, options: Options) -> str:
    """What the write failed with, if it did."""
    writer = frame.write.format(sink).mode("append").options(**options)
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap)
    try:
        writer.option("kafka.max.block.ms", "3000").save()
    except Exception as error:
        return str(error).split("\n\n")[0]
    return ""


def records(topics: Topics, name: str, has_partition: bool) -> Counter[Any]:
    """What is in a topic, without times; without partitions where none was asked for and there is no key."""
    count = sum(end for _, end in topics.bounds(name))
    found: list[Message] = read_back(topics.bootstrap, name, count)
    return Counter(
        (partition if key is not None or has_partition else None, key, value, headers)
        for partition, key, value, headers, _ in found
    )


@pytest.mark.parametrize("seed", range(6))
def test_writes_at_random(topics: Topics, seed: int) -> None:
    refused, differences = 0, []
    for number in range(WRITES):
        told, outcomes = "", []
        for sink in (topics.peer, "kompakt"):
            dice = WriteDice(seed, number)
            names = create_topic(topics.bootstrap), create_topic(topics.bootstrap)
            options = dice.options(names)
            schema, rows = dice.frame(names)
            frame = topics.spark.createDataFrame(rows, schema).coalesce(1)
            problem = written(topics, sink, frame, options)
            has_partition = "partition" in frame.columns and all(
                row.partition is not None for row in frame.collect()
            )
            left = None if problem else [records(topics, name, has_partition) for name in names]
            outcomes.append(left)
            told += f"\n{sink}: {schema}, {options}, {len(rows)} rows\n{problem}"
        refused += outcomes[0] is None
        if outcomes[0] != outcomes[1]:
            differences.append(f"write {number} of seed {seed}{told}")
    assert not differences, "\n\n".join(differences)
    assert 0 < refused < WRITES, "some are refused, some are not"
