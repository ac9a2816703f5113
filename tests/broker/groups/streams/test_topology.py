"""Goal: how many tasks there are, which internal topics they need, and what stands in the way, follows from
the topology and the topics; what can never be run is refused in words.

Method: topologies of all shapes on topics of given sizes; as Apache Kafka answers them is in
tests/kafka/test_streams_groups.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from broker.groups.streams.topology import (
    Status,
    StatusCode,
    check_names,
    check_topology,
    configured,
    topics_of,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue
from protocol.messages.streams_groups import CopartitionGroup, Subtopology, TopicInfo

SIZES = {"two": 2, "four": 4, "four-too": 4}
MANY = 3_000
LIMIT_SECONDS = 1.0
"""ten times what it takes; who goes through all of them for each of them takes ten times that"""


def sub(name: str, *sources: str, **more: Any) -> Subtopology:
    return Subtopology(subtopology_id=name, source_topics=list(sources), **more)


def topology(*subtopologies: Subtopology, epoch: int = 0) -> StreamsGroupTopologyValue:
    return StreamsGroupTopologyValue(epoch=epoch, subtopologies=list(subtopologies))


def infos(*names: str, partitions: int = 0) -> list[TopicInfo]:
    return [TopicInfo(name=name, partitions=partitions) for name in names]


def together(sources: list[int], repartition: list[int]) -> list[CopartitionGroup]:
    return [CopartitionGroup(source_topics=sources, repartition_source_topics=repartition)]


def on(runs: StreamsGroupTopologyValue, sizes: Mapping[str, int] = SIZES) -> Any:
    return configured(runs, sizes.get)


def refusal(runs: StreamsGroupTopologyValue, check: Any = on) -> str:
    with pytest.raises(KafkaError) as caught:
        check(runs)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    return caught.value.message


def test_a_subtopology_has_as_many_tasks_as_its_widest_source() -> None:
    found = on(topology(sub("0", "two", "four"), sub("1", "two")))
    assert (found.problem, found.tasks) == (None, {"0": 4, "1": 2})


def test_sizes_go_through_repartition_topics_to_changelogs() -> None:
    runs = topology(
        sub("2", repartition_source_topics=infos("second"), state_changelog_topics=infos("log")),
        sub("1", repartition_source_topics=infos("first"), repartition_sink_topics=["second"]),
        sub("0", "four", repartition_sink_topics=["first"]),
    )
    found = on(runs)
    assert found.tasks == {"0": 4, "1": 4, "2": 4}
    assert found.sizes == {"first": 4, "second": 4, "log": 4}
    assert sorted(info.name for info in found.missing) == ["first", "log", "second"]
    assert found.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert on(runs, {**SIZES, **found.sizes}).problem is None
    assert topics_of(runs) == {"four", "first", "second", "log"}


def test_a_fixed_size_counts_before_that_of_the_source() -> None:
    runs = topology(
        sub("0", "four", repartition_sink_topics=["r"]),
        sub("1", repartition_source_topics=infos("r", partitions=7), state_changelog_topics=infos("log")),
    )
    assert on(runs).sizes == {"r": 7, "log": 7}


def test_a_repartition_topic_is_as_wide_as_the_widest_source_of_who_writes_it() -> None:
    """Whether that is a plain topic or a repartition topic (Kafka's `RepartitionTopics`)."""
    runs = topology(
        sub("0", "two", "four", repartition_sink_topics=["r"]),
        sub("1", "two", repartition_source_topics=infos("r"), repartition_sink_topics=["s"]),
        sub("2", repartition_source_topics=infos("s")),
    )
    assert on(runs).sizes == {"r": 4, "s": 4}


def test_copartitioned_repartition_topics_follow_the_plain_topic() -> None:
    runs = topology(
        sub("0", "four", repartition_sink_topics=["r"]),
        sub("1", "two", repartition_source_topics=infos("r"), copartition_groups=together([0], [0])),
    )
    assert on(runs).sizes == {"r": 2}


def test_copartitioned_repartition_topics_take_the_widest() -> None:
    runs = topology(
        sub("0", "four", repartition_sink_topics=["r"]),
        sub("1", "two", repartition_sink_topics=["s"]),
        sub("2", repartition_source_topics=infos("r", "s"), copartition_groups=together([], [0, 1])),
    )
    assert on(runs).sizes == {"r": 4, "s": 4}


def test_what_stands_in_the_way_is_told() -> None:
    assert on(topology(sub("0", "z", "two"), sub("1", "y", "z"))).problem == Status(
        StatusCode.MISSING_SOURCE_TOPICS, "Source topics y, z are missing."
    )
    found = on(topology(sub("0", "two", "four", copartition_groups=together([0, 1], []))))
    assert (found.problem, found.tasks) == (
        Status(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            "Following topics do not have the same number of partitions: [{four=4, two=2}]",
        ),
        None,
    )
    there = on(topology(sub("0", "four", state_changelog_topics=infos("two"))))
    assert there.problem == Status(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic two has different number of partitions: expected 4, found 2",
    )
    fixed = topology(
        sub("0", "four", repartition_sink_topics=["r"]),
        sub(
            "1",
            "two",
            repartition_source_topics=infos("r", partitions=3),
            copartition_groups=together([0], [0]),
        ),
    )
    assert on(fixed).problem == Status(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [3] of repartition topic [r] doesn't match number of partitions [2] of the "
        "source topic.",
    )
    other = topology(
        sub(
            "0",
            repartition_source_topics=[*infos("r", partitions=3), *infos("s", partitions=5)],
            copartition_groups=together([], [0, 1]),
        )
    )
    assert on(other).problem == Status(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{r=3, s=5}]",
    )


def test_many_missing_topics_are_counted() -> None:
    found = on(topology(sub("0", "two", state_changelog_topics=infos(*(f"log-{one}" for one in range(5))))))
    assert found.problem.detail == (
        "Internal topics are missing: log-0, log-1, log-2 and 2 additional topics"
    )


def test_what_can_never_be_run_is_refused() -> None:
    loop = topology(sub("0", repartition_source_topics=infos("x"), repartition_sink_topics=["x"]))
    assert "There may be loops" in refusal(loop)
    unwritten = topology(sub("0", "two", repartition_source_topics=infos("x")))
    assert "never used as a sink topic" in refusal(unwritten)
    assert refusal(topology(sub("0"))) == "No source topics found for subtopology 0"


@pytest.mark.parametrize(
    ("runs", "word"),
    [
        (topology(sub("0", "two"), epoch=-1), "non-negative"),
        (topology(sub("0", "two"), sub("0", "four")), "twice"),
        (topology(sub("0", "two", state_changelog_topics=infos("log", partitions=2))), "undefined partition"),
        (topology(sub("0", repartition_source_topics=infos("r", partitions=-2))), "-2 partitions"),
        (topology(sub("0", "two", copartition_groups=together([0, 1], []))), "not there"),
        (topology(sub("0", "two", copartition_groups=together([-1], []))), "not there"),
        (topology(sub("0", "two", copartition_groups=together([0], [0]))), "not there"),
    ],
)
def test_what_makes_no_sense_is_refused(runs: StreamsGroupTopologyValue, word: str) -> None:
    assert word in refusal(runs, check_topology)


def test_topics_that_are_divided_alike_are_named_by_their_places() -> None:
    both = [CopartitionGroup(source_topics=[0, 1], repartition_source_topics=[0])]
    check_topology(
        topology(sub("0", "four", "four-too", repartition_source_topics=infos("r"), copartition_groups=both))
    )


def test_names_that_cannot_be_are_refused() -> None:
    internal = topology(sub("0", "two", state_changelog_topics=infos("__transaction_state")))
    assert "Use of Kafka internal topics __transaction_state in" in refusal(internal, check_names)
    bad = topology(sub("0", "a b"), sub("1", "two", repartition_sink_topics=["c/d"]))
    assert refusal(bad, check_names) == "Topic names a b,c/d are not valid topic names."
    check_names(topology(sub("0", "two")))


def test_a_topic_that_two_subtopologies_write_is_as_wide_as_the_first_says() -> None:
    runs = topology(
        sub("0", "two", repartition_sink_topics=["r"]),
        sub("1", "four", repartition_sink_topics=["r"]),
        sub("2", repartition_source_topics=infos("r")),
    )
    assert on(runs).sizes == {"r": 2}


CHAIN = topology(
    *(
        sub(
            str(number),
            repartition_source_topics=infos(f"r{number}"),
            repartition_sink_topics=[f"r{number - 1}"],
        )
        for number in range(1, MANY)
    ),
    sub("first", "four", repartition_sink_topics=[f"r{MANY - 1}"]),
    sub("last", repartition_source_topics=infos("r0")),
)
"""each is fed by the next one"""
PAIRS = topology(
    sub("0", "four", repartition_sink_topics=[f"r{number}" for number in range(MANY)]),
    sub(
        "1",
        repartition_source_topics=infos(*(f"r{number}" for number in range(MANY)), partitions=4),
        copartition_groups=[one for number in range(MANY) for one in together([], [number])],
    ),
)


@pytest.mark.parametrize("runs", [CHAIN, PAIRS], ids=["chain", "copartition groups"])
def test_the_work_is_in_proportion_to_the_topology(runs: StreamsGroupTopologyValue) -> None:
    """Nobody else is served meanwhile, and it is a client that says what is in it."""
    began = time.process_time()
    assert set(on(runs).sizes.values()) == {4}
    assert time.process_time() - began < LIMIT_SECONDS
