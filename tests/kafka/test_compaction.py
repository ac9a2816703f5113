"""Goal: kompakt's cleaner does to a partition what Apache Kafka's does, batch by batch.

Method: the same pseudo-random batches go to both brokers, with the same topic settings. A dirty ratio that is
never reached keeps both cleaners still until a round is written; one that always is lets them clean the same
range. Afterwards everything a reader gets, and everything kafka-dump-log prints of the stopped brokers'
directories, is compared. Apache Kafka is the arbiter. What may differ is left out, with the reason, in
`compare.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.compression import Codec
from storage import layout
from tests.kafka import compare, sequences
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.kafka.sides import SETTINGS, Side, clean
from tests.kafka.tools import Tools
from tests.process import BrokerProcess

HOUR_MS = 60 * 60 * 1000
ListedOffset = tuple[int, int, int, int]
NOT_FOUND: ListedOffset = (0, -1, -1, -1)

Start = Callable[..., KafkaBroker]


@dataclass
class Pair:
    """Apache Kafka and kompakt with the same topics."""

    kafka: Side
    kompakt: Side
    stop: Callable[[], None]

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.kompakt


@pytest.fixture
def pair(start_kafka: Start, tmp_path: Path) -> Iterator[Pair]:
    own = BrokerProcess(tmp_path / "data", SETTINGS).start()
    kafka = start_kafka(SETTINGS)
    sides = [Side(broker.data, Raw(broker.port)) for broker in (kafka, own)]

    def stop() -> None:
        kafka.stop()
        assert own.stop() == 0, own.log()

    yield Pair(*sides, stop)
    for side in sides:
        side.raw.close()
    log = own.log()
    own.close()
    assert "Traceback" not in log, log


def write(pair: Pair, topic: str, made: sequences.Round) -> int:
    """Send a round to both; its first offset."""
    bases = []
    for batch in made.batches:
        answers = [side.raw.produce(topic, batch) for side in pair.sides]
        assert [answer.error_code for answer in answers] == [0, 0], answers
        assert answers[0].base_offset == answers[1].base_offset
        bases.append(answers[0].base_offset)
    return int(bases[0])


def live(
    pair: Pair,
    seeds: Sequence[int],
    *,
    is_large: bool = False,
    begins_without_keys: bool = False,
    loses_its_start: bool = False,
) -> list[str]:
    """Make the seeds' topics, live their rounds; the topics."""
    old_ms = int(time.time() * 1000) - 30 * sequences.DAY_MS
    young_ms = int(time.time() * 1000) - 6 * HOUR_MS
    lives = {
        f"life-{seed}": sequences.draw(
            seed,
            is_large=is_large,
            begins_without_keys=begins_without_keys,
            loses_its_start=loses_its_start,
        )
        for seed in seeds
    }
    told = {topic: sequences.rounds(life, old_ms, young_ms) for topic, life in lives.items()}
    young: dict[str, int] = {}
    for topic, life in lives.items():
        for side in pair.sides:
            policy = {"cleanup.policy": "delete", "retention.ms": "-1"} if life.begins_without_keys else {}
            side.raw.create(topic, {**life.settings, **policy})
    for number in range(max(life.rounds for life in lives.values())):
        ends = {}
        for topic, life in lives.items():
            made = next(told[topic], None)
            if made is None:
                continue
            before = [side.cleaned_to(topic) for side in pair.sides]
            first = write(pair, topic, made)
            if made.has_keyless:
                for side in pair.sides:
                    side.raw.configure(topic, {"cleanup.policy": "compact"})
            assert before == [side.cleaned_to(topic) for side in pair.sides], "cleaned before its time"
            if made.young_from is not None:
                young[topic] = first + made.young_from
            if number == life.rounds - 1 and young.pop(topic, None) is not None:
                for side in pair.sides:
                    side.raw.configure(topic, {"min.compaction.lag.ms": "0"})
            bases = pair.kafka.segments(topic)
            assert pair.kompakt.segments(topic) == bases, f"{topic} rolled elsewhere"
            ends[topic] = max(base for base in bases if base <= young.get(topic, bases[-1]))
            if life.loses_its_start:
                delete_records(pair, topic, random.Random(f"{topic} {number}"), ends[topic])
        clean(pair.sides, ends)
    return list(lives)


def delete_records(pair: Pair, topic: str, chance: random.Random, end: int) -> None:
    """The same ones on both sides, down to somewhere before `end`."""
    start = pair.kafka.raw.list_offset(topic, -2)[2]
    if end - 1 > start and chance.random() < 0.7:
        offset = chance.randint(start, end - 1)
        answers = [side.raw.delete_records(topic, offset) for side in pair.sides]
        assert answers == [(0, offset)] * 2, answers


def compare_readers(pair: Pair, topic: str) -> list[compare.Batch]:
    """What a reader gets, and where times are found; the batches."""
    (expected, _), (found, _) = (side.raw.read(topic) for side in pair.sides)
    kafkas, ours = compare.batches(expected), compare.batches(found)
    difference = compare.differences(kafkas, ours)
    assert not difference, f"{topic} {difference}"
    times = sorted({record.timestamp for batch in kafkas for record in batch.records})
    for timestamp in (-1, -2, -3, *times[:: max(1, len(times) // 8)], times[-1] + 1):
        expected_offset, found_offset = (side.raw.list_offset(topic, timestamp) for side in pair.sides)
        if expected_offset == NOT_FOUND != found_offset:
            assert_kafka_stopped_at_an_empty_segment(pair, topic, kafkas, timestamp, found_offset)
        else:
            assert expected_offset == found_offset, f"{topic} at {timestamp}"
    return kafkas


def assert_kafka_stopped_at_an_empty_segment(
    pair: Pair, topic: str, batches: Sequence[compare.Batch], timestamp: int, found: ListedOffset
) -> None:
    """The one difference in searching by time, and ours is on purpose.

    A segment that a cleaning has emptied has no times; Kafka then takes the time at which its file was last
    written for its largest one (`LogSegment.largestTimestamp`), looks into it, finds nothing and says that
    there is nothing. kompakt passes over it to the record that is there: a client that is told "nothing"
    goes to the end of the log and misses all of it.
    """
    records = [record for batch in batches for record in batch.records]
    first = next(record for record in records if record.timestamp >= timestamp)
    assert found[:3] == (0, first.timestamp, first.offset), f"{topic} at {timestamp}"
    emptied = [base for base in pair.kafka.segments(topic) if not pair.kafka.segment_bytes(topic, base)]
    assert any(base < first.offset for base in emptied), f"{topic} at {timestamp}: {emptied}"


def compare_directories(pair: Pair, topics: Sequence[str], tools: Tools) -> None:
    """The files of the stopped brokers, but those that wait for their removal, and our own: statistics, and
    how far a log is compacted.
    """
    for topic in topics:
        names = [
            {
                path.name
                for path in (side.data / f"{topic}-0").iterdir()
                if path.suffix not in (".deleted", ".stats") and path.name != layout.COMPACTED_TO
            }
            for side in pair.sides
        ]
        assert names[0] == names[1], topic
    shown = [
        compare.dumped(
            tools,
            [
                path
                for topic in topics
                for path in sorted((side.data / f"{topic}-0").iterdir())
                if path.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
            ],
        )
        for side in pair.sides
    ]
    assert shown[0].keys() == shown[1].keys()
    assert any(len(lines) > 1 for name, lines in shown[0].items() if name.endswith(".index")), (
        "no entries met"
    )
    for name, lines in shown[0].items():
        difference = compare.differences(lines, shown[1][name])
        assert not difference, f"{name} {difference}"


def run(
    pair: Pair,
    seeds: Sequence[int],
    tools: Tools,
    *,
    is_large: bool = False,
    begins_without_keys: bool = False,
    loses_its_start: bool = False,
) -> None:
    topics = live(
        pair,
        seeds,
        is_large=is_large,
        begins_without_keys=begins_without_keys,
        loses_its_start=loses_its_start,
    )
    met = [batch for topic in topics for batch in compare_readers(pair, topic)]
    assert any(batch.base_timestamp == "horizon" for batch in met)
    assert any(batch.record_count == 0 for batch in met)
    assert any(0 < batch.record_count <= batch.last_offset_delta for batch in met)
    assert {batch.attributes & 7 for batch in met} == set(Codec)
    if begins_without_keys:
        assert_no_keyless_is_left_behind(met)
    pair.stop()
    compare_directories(pair, topics, tools)
    own = [path for topic in topics for path in sorted((pair.kompakt.data / f"{topic}-0").iterdir())]
    tools.assert_sane_indexes([path for path in own if path.suffix in (".index", ".timeindex")])


def assert_no_keyless_is_left_behind(met: Sequence[compare.Batch]) -> None:
    """All rounds were cleaned but for their active segments, and the first one's was closed by the next."""
    keyless = [record for batch in met for record in batch.records if record.key is None]
    assert not keyless, keyless[:3]


@pytest.mark.java
def test_random_lives_are_cleaned_alike(pair: Pair, kafka_tools: Tools) -> None:
    run(pair, (*range(12), 405, 424, 426), kafka_tools)  # the last three without a codec


@pytest.mark.java
def test_t46_topics_that_become_compacted_lose_their_keyless_records_alike(
    pair: Pair, kafka_tools: Tools
) -> None:
    """T29, T46: written under cleanup.policy=delete, a third without keys, then switched to compact."""
    run(pair, (403, 405, 410, 411, 417, 418), kafka_tools, begins_without_keys=True)


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("start", [100, 140, 180])
def test_many_random_lives_are_cleaned_alike(pair: Pair, kafka_tools: Tools, start: int) -> None:
    run(pair, range(start, start + 40), kafka_tools)


@pytest.mark.java
@pytest.mark.slow
def test_lives_of_several_groups_of_segments_are_cleaned_alike(pair: Pair, kafka_tools: Tools) -> None:
    """Segments near their size limit: what the cleaner joins, and where, is the same."""
    run(pair, range(300, 310), kafka_tools, is_large=True)


@pytest.mark.java
@pytest.mark.slow
def test_lives_that_lose_their_start_are_cleaned_alike(pair: Pair, kafka_tools: Tools) -> None:
    """DeleteRecords between what is written and its cleaning, under cleanup.policy=compact,delete."""
    run(pair, range(500, 540), kafka_tools, loses_its_start=True)
