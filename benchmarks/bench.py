"""What the sections share: both brokers, whose turn it is, and where figures go."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from benchmarks import perf_tools, wire
from benchmarks.goals import FLUSHING, KAFKA, KOMPAKT, RELAXED
from benchmarks.results import Section
from benchmarks.systems import System, make_systems
from tests.kafka.tools import Tools

NEVER = str(2**63 - 1)
# Shipped defaults, but that deleted topics give their disk back soon.
SETTINGS = {"log.segment.delete.delay.ms": "1000"}
# Whose broker a side is, and what its topics are given.
SIDES: dict[str, tuple[str, dict[str, str]]] = {
    KOMPAKT: (KOMPAKT, {}),
    RELAXED: (KOMPAKT, {"flush.messages": NEVER}),
    KAFKA: (KAFKA, {}),
    FLUSHING: (KAFKA, {"flush.messages": "1"}),
}


@dataclass(frozen=True)
class Size:
    """How much work a form of the run does."""

    rounds: int
    produce_seconds: float
    """about so long is one run of producer-perf-test"""
    consumed_bytes: int
    round_trips: int
    pipelined: int
    probes: int
    idle_seconds: float
    heaviness: float
    """what the heavy sections write, as a part of what their goal says"""

    def with_rounds(self, rounds: int) -> Size:
        return replace(self, rounds=rounds)


QUICK = Size(1, 1.0, 100 << 20, 3_000, 40_000, 1_000, 4, 0.05)
FULL = Size(2, 2.5, 300 << 20, 15_000, 80_000, 4_000, 10, 1.0)


@dataclass(frozen=True)
class Side:
    """One broker with the durability that its topics are given here."""

    name: str
    system: System
    settings: Mapping[str, str]

    def create_topic(
        self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        self.system.create_topic(topic, partitions, {**self.settings, **(settings or {})})


class Bench:
    """Owned by: the thread that measures. One pair of brokers runs at a time."""

    def __init__(self, tools: Tools, directory: Path, size: Size, form: str, only: str | None = None) -> None:
        self.tools = tools
        self.size = size
        self.form = form
        self.section = Section(form, {})
        self.directory = directory
        """where both brokers have their data"""
        self._only = only
        self._numbers = count(1)
        self._shared: list[System] = []

    def add(self, line: str, case: str, unit: str, side: Side, value: float) -> None:
        """Keep one value and show it at once."""
        self.section.add(line, case, unit, side.name, value)
        print(f"  {line}: {case}: {side.name}: {value:,.4g} {unit}", flush=True)

    def topic(self, purpose: str) -> str:
        """A name that was not used before."""
        return f"{purpose}-{next(self._numbers)}"

    def shared(self) -> list[System]:
        """The brokers that most sections use one after the other, warmed up."""
        if not self._shared:
            self._shared = self._make({})
            for system in self._shared:
                system.start()
                self._warm_up(system)
        return self._shared

    def close(self) -> None:
        for system in self._shared:
            system.close()
        self._shared = []

    @contextmanager
    def fresh(self, settings: Mapping[str, str] | None = None) -> Iterator[list[System]]:
        """Brokers of their own with empty directories, not started; gone at the end."""
        with self.own(lambda _: self._make(settings or {})) as systems:
            yield systems

    @contextmanager
    def own(self, make: Callable[[Path], list[System]]) -> Iterator[list[System]]:
        """As `fresh`: those of `make(directory)` that are measured."""
        self.close()
        made = make(self.directory / f"own-{next(self._numbers)}")
        systems = [system for system in made if self._only in (None, system.name)]
        try:
            yield systems
        finally:
            for system in systems:
                system.close()

    def _make(self, settings: Mapping[str, str]) -> list[System]:
        directory = self.directory / f"pair-{next(self._numbers)}"
        return make_systems(directory, self.tools, self._only, {**SETTINGS, **settings})

    def sides(self, names: Sequence[str], systems: Sequence[System]) -> list[Side]:
        """Those of `names` whose broker is measured."""
        by_name = {system.name: system for system in systems}
        return [
            Side(name, by_name[SIDES[name][0]], SIDES[name][1]) for name in names if SIDES[name][0] in by_name
        ]

    def rounds(
        self,
        names: Sequence[str],
        measure: Callable[[Side], None],
        rounds: int = 0,
        systems: Sequence[System] = (),
    ) -> None:
        """`measure(side)` of each side in turn, as often as the form says; who begins changes."""
        sides = self.sides(names, systems or self.shared())
        for number in range(rounds or self.size.rounds):
            for side in sides[:: -1 if number % 2 else 1]:
                measure(side)

    def _warm_up(self, system: System) -> None:
        """Work that does not count: a JVM is fast only once it has compiled what it does."""
        topic = self.topic("warm")
        system.create_topic(topic)
        records = int(150_000 * self.size.produce_seconds)
        perf_tools.produce(self.tools, system, topic, perf_tools.Load(records, 100, acks="1"))
        perf_tools.consume(self.tools, system, topic, records)
        wire.round_trips(system.port, topic, 1, 0, self.size.round_trips, 100)
        wire.many_connections(system.port, topic, 1, 16, self.size.pipelined // 4, 100)
        system.delete_topic(topic)


def shuffled(offsets: Sequence[int], number: int) -> list[int]:
    """`number` of `offsets` by chance, in every run the same."""
    return random.Random(1).sample(list(offsets), min(number, len(offsets)))


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Seconds since it was made."""
    began = time.perf_counter()
    yield lambda: time.perf_counter() - began
