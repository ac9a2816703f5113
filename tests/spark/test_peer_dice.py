"""Goal: whatever a user writes into the options of a read, as dice say, `format("kompakt")` brings the rows
of Spark's own Kafka source, or refuses where that refuses.

Method: both sources in one session read topics of every kind (all codecs, a deleted head, holes of a cleaner
and of transactions, no timestamps, nothing at all) with options that dice choose, some of them wrong.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.spark.peer.dice import POLL, Logs, Partition, ReadDice
from tests.spark.peer.story import Story
from tests.spark.peer.topics import Options, Topics, left_after_compaction, rows
from tests.spark.test_checkpoints import logged
from tests.spark.test_peer_holes import offsets_in
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
READS = 25


@pytest.fixture(scope="module")
def logs(topics: Topics) -> Logs:
    """Every topic there is, and where its partitions begin and end."""
    names = [*topics.all, topics.compacted, topics.transactional, topics.filled(200, 0, 7)]
    wait_for(lambda: offsets_in(topics, topics.compacted) == left_after_compaction(), "the cleaner")
    return {name: tuple(Partition(*bounds) for bounds in topics.bounds(name)) for name in names}


def outcome(topics: Topics, source: str, options: Options) -> tuple[list[str] | None, str]:
    """The rows, or None and what was said."""
    try:
        return rows(topics.frame(source, options)), ""
    except Exception as error:
        return None, str(error).split("\n\n")[0]


BEHIND = re.compile(r"The resolved start offset (\d+) is greater .* for topic (\S+) partition (\d+)\.")


def is_known(logs: Logs, options: Options, their_words: str, our_words: str) -> bool:
    """Two differences are meant (spark_connector/README, "What differs"). Where minPartitions cuts, Spark's
    own passes over a start behind the end of its log, and ours refuses it unless told to go on; from the
    earliest offset to one that is gone Spark's own never reads, and ours does if told to go on.
    """
    is_strict = options.get("failOnDataLoss", "true") == "true"
    if is_strict and "minPartitions" in options and not their_words:
        return "startingOffsets" in our_words and "is behind endingOffsets" in our_words
    found = BEHIND.search(their_words)
    if is_strict or our_words or found is None:
        return False
    return int(found[1]) == logs[found[2]][int(found[3])].start


@pytest.mark.parametrize("seed", range(8))
def test_reads_at_random(topics: Topics, logs: Logs, seed: int) -> None:
    dice = ReadDice(seed, logs)
    refused, differences = 0, []
    for number in range(READS):
        options = dice.batch()
        (theirs, their_words), (ours, our_words) = (
            outcome(topics, source, options) for source in (topics.peer, "kompakt")
        )
        refused += ours is None
        if ours != theirs and not is_known(logs, options, their_words, our_words):
            counts = [found and len(found) for found in (theirs, ours)]
            differences.append(
                f"read {number} of seed {seed}: {options}\n{their_words=}\n{our_words=}\n{counts}"
            )
    assert not differences, "\n\n".join(differences)
    assert 0 < refused < READS, "there is something to be read, and something to be refused"


def run_to_its_end(topics: Topics, source: str, directory: Path, trigger: str, options: Options) -> str:
    """What the stream failed with, if it did."""
    try:
        topics.run(source, directory, trigger, options)
    except Exception as error:
        return str(error).split("\n\n")[0]
    return ""


def left_behind(topics: Topics, directory: Path) -> tuple[list[str], list[str]]:
    """The ends of the batches in the checkpoint, and the rows."""
    has_rows = any((directory / "rows").glob("**/*.parquet"))
    ends = logged(directory) if (directory / "checkpoint" / "offsets").exists() else []
    return ends, rows(topics.spark.read.parquet(str(directory / "rows"))) if has_rows else []


@pytest.mark.usefixtures("queries")
@pytest.mark.parametrize("seed", range(12))
def test_streams_at_random(topics: Topics, tmp_path: Path, seed: int) -> None:
    """Two checkpoints, one led by each source; with odd seeds they change places between the runs."""
    dice = random.Random(seed)
    story = Story(topics, dice)
    story.goes_on()
    kind = dice.choice(("subscribe", "subscribe", "subscribePattern", "assign"))
    begin = ReadDice(seed, story.logs()).beginning()
    sources = [topics.peer, "kompakt"]
    strict = True
    for number in range(6):
        options = {**story.subscription(kind), **begin, **POLL, "includeHeaders": "true"}
        options["failOnDataLoss"] = str(strict and dice.random() < 0.6).lower()
        if dice.random() < 0.6:
            options["maxOffsetsPerTrigger"] = str(dice.randint(5, 60))
        if dice.random() < 0.3:
            options["minPartitions"] = str(dice.randint(1, 12))
        if dice.random() < 0.5:
            options["kafka.isolation.level"] = "read_committed"
        trigger = dice.choice(("availableNow", "availableNow", "once"))
        said = {
            source: run_to_its_end(topics, source, tmp_path / place, trigger, options)
            for source, place in zip(sources, ("a", "b"), strict=True)
        }
        told = f"run {number} of seed {seed}, {trigger}: {options}\n{story.told}\n{said}"
        left: list[Any] = [left_behind(topics, tmp_path / place) for place in ("a", "b")]
        assert left[0] == left[1], told
        assert bool(said[topics.peer]) == bool(said["kompakt"]), told
        strict = not any(said.values())
        if seed % 2:
            sources.reverse()
        story.goes_on()
