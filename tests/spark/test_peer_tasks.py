"""Goal: `format("kompakt")` cuts a read into as many tasks as Spark's own Kafka source, where it is asked to.

Method: both sources plan the same reads in one session, and Spark says how many partitions the result has;
topics whose partitions differ much in size, and one that is read from behind its end.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.spark.peer.topics import Topics, rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.parametrize("topics", ["kompakt"], indirect=True),  # how a read is cut, no broker decides
]
SIZES = [(50, 50, 0), (300, 90, 60), (900, 50, 50), (10, 10, 10)]


def tasks_of(topics: Topics, **options: str) -> tuple[int, int]:
    """Of both sources: theirs, ours. Nothing is read: `test_peer_rows.py` compares rows of such reads."""
    theirs, ours = (topics.frame(source, options).rdd for source in (topics.peer, "kompakt"))
    return theirs.getNumPartitions(), ours.getNumPartitions()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_min_partitions(topics: Topics, sizes: tuple[int, ...]) -> None:
    topic = topics.filled(*sizes)
    for minimum in (4, 5, 7, 10, 20, 50):
        theirs, ours = tasks_of(topics, subscribe=topic, minPartitions=str(minimum))
        assert ours == theirs, f"minPartitions={minimum}"


def test_min_partitions_of_several_topics(topics: Topics) -> None:
    """Nine partitions, of which some have next to nothing."""
    names = [topics.filled(*sizes) for sizes in ((100, 1, 30), (5, 5, 250), (40, 0, 40))]
    for minimum in (10, 15, 40):
        theirs, ours = tasks_of(topics, subscribe=",".join(names), minPartitions=str(minimum))
        assert ours == theirs, f"minPartitions={minimum}"


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_max_records_per_partition(topics: Topics, sizes: tuple[int, ...]) -> None:
    """Of ranges that are known: Spark's own does not cut the others. Small ones share no task here."""
    topic = topics.filled(*sizes)
    known = {
        "startingOffsets": json.dumps({topic: {str(number): 0 for number in range(3)}}),
        "endingOffsets": json.dumps({topic: {str(number): size for number, size in enumerate(sizes)}}),
    }
    for cut in (
        {"maxRecordsPerPartition": "7"},
        {"maxRecordsPerPartition": "40"},
        {"maxRecordsPerPartition": "7", "minPartitions": "11"},
        {"maxRecordsPerPartition": "40", "minPartitions": "33"},
    ):
        theirs, ours = tasks_of(topics, subscribe=topic, packOffsets="0", **known, **cut)
        assert ours == theirs, cut


def begin_behind(topics: Topics, **options: str) -> dict[str, Any]:
    topic = topics.filled(10, 10, 10)
    begin = json.dumps({topic: {"0": 1000, "1": -2, "2": -2}})
    return {"subscribe": topic, "startingOffsets": begin, **options}


def test_a_start_behind_the_end_where_min_partitions_cuts(topics: Topics) -> None:
    """What is left is cut; of the partition that begins behind its end there is nothing."""
    options = begin_behind(topics, failOnDataLoss="false", minPartitions="9")
    theirs, ours = tasks_of(topics, **options)
    assert theirs == ours == 10
    found = rows(topics.frame("kompakt", options))
    assert len(found) == 20
    assert found == rows(topics.frame(topics.peer, options))


@pytest.mark.parametrize("cut", [{}, {"minPartitions": "3"}, {"maxRecordsPerPartition": "3"}], ids=str)
def test_a_start_behind_the_end_elsewhere(topics: Topics, cut: dict[str, str]) -> None:
    """Both refuse, whatever is said of lost data."""
    options = begin_behind(topics, failOnDataLoss="false", **cut)
    said = (
        "1000 is greater than the resolved end offset 10",
        r"1000(, behind its end| is behind endingOffsets) 10",
    )
    for source, words in zip((topics.peer, "kompakt"), said, strict=True):
        with pytest.raises(Exception, match=words):
            topics.frame(source, options).count()
