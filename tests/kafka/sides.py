"""A broker as the comparisons see it, Apache Kafka or kompakt: its directory, a connection, its cleaner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from storage.layout import LOG_SUFFIX, segment_file_name
from tests.kafka.raw import Raw
from tests.kafka.sequences import DIRTY_ALWAYS, DIRTY_NEVER
from tests.waiting import wait_for

# The cleaner looks all the time: what it may clean is steered by the topics' dirty ratio.
SETTINGS = {"log.cleaner.backoff.ms": "50", "log.cleaner.threads": "1", "log.initial.task.delay.ms": "0"}


@dataclass
class Side:
    """One of the two brokers."""

    data: Path
    raw: Raw

    def segments(self, topic: str) -> list[int]:
        return sorted(int(path.stem) for path in (self.data / f"{topic}-0").glob("*.log"))

    def segment_bytes(self, topic: str, base_offset: int) -> int:
        return (self.data / f"{topic}-0" / segment_file_name(base_offset, LOG_SUFFIX)).stat().st_size

    def cleaned_to(self, topic: str) -> int:
        path = self.data / "cleaner-offset-checkpoint"
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        places = {name: int(offset) for name, _, offset in map(str.split, lines)}
        return places.get(topic, 0)

    def wait_until_cleaned(self, topic: str, end: int) -> None:
        wait_for(lambda: self.cleaned_to(topic) >= end, f"{topic} clean up to {end} in {self.data}")


def clean(sides: Iterable[Side], ends: Mapping[str, int]) -> None:
    """Let each of `sides` clean each topic up to its offset, and no further."""
    for topic in ends:
        for side in sides:
            side.raw.configure(topic, DIRTY_ALWAYS)
    for topic, end in ends.items():
        for side in sides:
            side.wait_until_cleaned(topic, end)
            assert side.cleaned_to(topic) == end, f"{topic} in {side.data}"
    for topic in ends:
        for side in sides:
            side.raw.configure(topic, DIRTY_NEVER)
