"""Options of a read as dice say: what a user may write, right or wrong, about topics of every kind."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.spark.peer.topics import Options

EARLIEST, LATEST = -2, -1
BEGIN_MS = 1_700_000_000_000
"""of the records of most topics; the last are half a second younger, those of compacted ones minutes"""
TIMES = (
    *range(BEGIN_MS - 10, BEGIN_MS + 300, 7),
    BEGIN_MS + 60_000,
    BEGIN_MS + 120_000,
    0,
    1,
    1_800_000_000_000,
)
POLL = {"kafkaConsumer.pollTimeoutMs": "3000"}
"""how long a task waits for records that never come; two minutes, if nobody says anything"""
WRONG = 0.08
"""how often something is written that may be refused, at each place where it can be"""


@dataclass(frozen=True)
class Partition:
    """Offsets of a log: the first that is there, and the one behind the last."""

    start: int
    end: int


Logs = Mapping[str, tuple[Partition, ...]]


class ReadDice:
    """One read after the other, of some of `logs`."""

    def __init__(self, seed: int, logs: Logs) -> None:
        self._dice = random.Random(seed)
        self._logs = logs

    def batch(self) -> Options:
        chosen, options = self._subscription()
        options |= self._place(chosen, "starting", ("earliest", "earliest", "latest"))
        options |= self._place(chosen, "ending", ("latest", "latest", "earliest"))
        return options | self._others()

    def beginning(self) -> Options:
        """Where a stream of all of them starts."""
        everything = {name: list(range(len(partitions))) for name, partitions in self._logs.items()}
        return self._place(everything, "starting", ("earliest", "earliest", "latest"))

    def _perhaps(self, probability: float) -> bool:
        return self._dice.random() < probability

    def _subscription(self) -> tuple[dict[str, list[int]], Options]:
        names = self._dice.sample(sorted(self._logs), self._dice.choices((1, 2, 3), (6, 3, 1))[0])
        everything = {name: list(range(len(self._logs[name]))) for name in names}
        kind = self._dice.choice(("assign", "subscribe", "subscribe", "subscribePattern"))
        if kind == "subscribe":
            return everything, {kind: ",".join(names)}
        if kind == "subscribePattern":
            return everything, {kind: f"^({'|'.join(names)})$"}
        some = {
            name: sorted(self._dice.sample(numbers, self._dice.randint(1, len(numbers))))
            for name, numbers in everything.items()
        }
        return some, {kind: json.dumps(some)}

    def _place(self, chosen: dict[str, list[int]], side: str, words: tuple[str, ...]) -> Options:
        """None, a word, offsets, a time or times: sometimes two of them, of which one counts."""
        options: Options = {}
        for kind in self._dice.choices(
            ("none", "word", "offsets", "time", "times"), k=1 + self._perhaps(0.1)
        ):
            if kind == "word":
                options[f"{side}Offsets"] = words[self._perhaps(0.5) + self._perhaps(WRONG)]
            elif kind == "offsets":
                options[f"{side}Offsets"] = self._for_each(chosen, side, self._offset)
            elif kind == "time":
                options[f"{side}Timestamp"] = str(self._time())
            elif kind == "times":
                options[f"{side}OffsetsByTimestamp"] = self._for_each(chosen, side, lambda *_: self._time())
        if side == "starting" and self._perhaps(0.4):
            options["startingOffsetsByTimestampStrategy"] = self._dice.choice(("error", "latest", "latest"))
        return options

    def _for_each(self, chosen: dict[str, list[int]], side: str, one: Callable[[str, int, str], int]) -> str:
        found = {
            name: {str(number): one(name, number, side) for number in numbers}
            for name, numbers in chosen.items()
        }
        if self._perhaps(WRONG):
            name = self._dice.choice(sorted(found))
            if self._perhaps(0.5):
                found[name].pop(self._dice.choice(sorted(found[name])))
            else:
                found[name][str(len(self._logs[name]) + self._perhaps(0.5))] = 0
        return json.dumps(found)

    def _offset(self, name: str, number: int, side: str) -> int:
        log = self._logs[name][number]
        if self._perhaps(WRONG):
            # An end below -2 is refused by ours; Spark's own reads nothing of that partition.
            return self._dice.choice((log.end + 1, log.end + 100, -3 if side == "starting" else 0))
        if self._perhaps(0.2):
            return self._dice.choice((EARLIEST, LATEST))
        middle = (log.start + log.end) // 2
        if self._perhaps(WRONG):
            return self._dice.randint(0, log.start)
        if self._perhaps(WRONG):
            return self._dice.randint(log.start, log.end)
        bounds = (log.start, middle) if side == "starting" else (middle, log.end)
        return self._dice.randint(*bounds)

    def _time(self) -> int:
        return self._dice.choice((EARLIEST, LATEST)) if self._perhaps(0.1) else self._dice.choice(TIMES)

    def _others(self) -> Options:
        dice, options = self._dice, {**POLL}
        if self._perhaps(0.4):
            options["minPartitions"] = str(dice.randint(1, 12) if not self._perhaps(WRONG) else 0)
        if self._perhaps(0.3):
            options["maxRecordsPerPartition"] = str(dice.randint(3, 90) if not self._perhaps(WRONG) else 0)
        if self._perhaps(0.5):
            options["failOnDataLoss"] = dice.choice(("true", "false"))
        if self._perhaps(0.3):
            options["includeHeaders"] = dice.choice(("true", "false", "True"))
        if self._perhaps(0.4):
            options["kafka.isolation.level"] = dice.choice(("read_committed", "read_uncommitted"))
        return options
