"""Goal: offsets are exchanged, split and limited as Spark's own Kafka source does it.

Method: pure functions with examples, and properties: splits cover the ranges exactly, limits are kept.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.errors import ConnectorError
from spark_connector.offsets import (
    OffsetRange,
    TopicPartition,
    backlogs,
    from_json_object,
    limit_offsets,
    parse_assignment,
    parse_offsets,
    require_same_partitions,
    split_ranges,
    to_json_object,
)

A0, A1, A10, B0 = (TopicPartition(*pair) for pair in (("a", 0), ("a", 1), ("a", 10), ("b", 0)))
ranges = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=6).map(
    lambda pairs: [
        OffsetRange(TopicPartition("t", number), start, start + size)
        for number, (start, size) in enumerate(pairs)
    ]
)


def test_the_json_form_is_canonical() -> None:
    """The same offsets are the same string, whatever order they came in: Spark compares strings."""
    offsets = {B0: 4, A10: 3, A0: 1, A1: 2}
    assert json.dumps(to_json_object(offsets)) == '{"a": {"0": 1, "1": 2, "10": 3}, "b": {"0": 4}}'
    assert from_json_object(to_json_object(offsets)) == offsets


@pytest.mark.parametrize(
    "text",
    ["earlyest", "[]", '{"t":1}', '{"t":{"x":1}}', '{"t":{"0":"1"}}', '{"t":{"0":true}}', '{"t":{"-1":0}}'],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ConnectorError, match="startingOffsets"):
        parse_offsets(text, "startingOffsets")


def test_assignments() -> None:
    assert parse_assignment('{"b":[0],"a":[1,0]}') == (A0, A1, B0)
    for text in ("{}", '{"a":0}', '{"a":[-1]}', '{"a":["0"]}', "a"):
        with pytest.raises(ConnectorError, match="assign"):
            parse_assignment(text)


def test_partitions_must_be_the_same() -> None:
    require_same_partitions([A0, A1], [A1, A0], "startingOffsets")
    with pytest.raises(ConnectorError, match=r"missing: a-1; not among the partitions to read: b-0"):
        require_same_partitions([A0, B0], [A0, A1], "startingOffsets")


@given(ranges, st.none() | st.integers(1, 20), st.none() | st.integers(1, 400))
def test_splits_cover_what_was_there(given_ranges: list[OffsetRange], minimum: int, maximum: int) -> None:
    pieces = split_ranges(given_ranges, minimum, maximum)
    for whole in given_ranges:
        parts = [piece for piece in pieces if piece.topic_partition == whole.topic_partition]
        covered = [offset for part in parts for offset in range(part.start, part.end)]
        assert covered == list(range(whole.start, whole.end))
    assert all(piece.size > 0 for piece in pieces)
    if maximum:
        assert all(piece.size <= maximum for piece in pieces)


def test_large_ranges_are_split_and_small_ones_left_alone() -> None:
    small, large = OffsetRange(A0, 0, 10), OffsetRange(A1, 100, 190)
    assert split_ranges([small, large]) == [small, large]
    assert split_ranges([small, large], 2) == [small, large]
    split = split_ranges([small, large], 4)
    assert [(piece.start, piece.end) for piece in split] == [(0, 10), (100, 130), (130, 160), (160, 190)]


@pytest.mark.parametrize(
    ("sizes", "minimum", "tasks"),
    [
        ([50, 50], 5, 6),
        ([10, 10, 10, 10], 10, 12),
        ([900, 50, 50], 50, 51),
        ([5, 2, 5, 2], 9, 10),
        ([99, 5, 5, 2], 30, 30),
    ],
)
def test_as_many_tasks_as_with_sparks_own_source(sizes: list[int], minimum: int, tasks: int) -> None:
    """The numbers are those of its KafkaOffsetRangeCalculator (4.2.0), which rounds a half up."""
    given_ranges = [OffsetRange(TopicPartition("t", number), 0, size) for number, size in enumerate(sizes)]
    assert len(split_ranges(given_ranges, minimum)) == tasks


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 9), st.integers(0, 500)), min_size=1),
    st.integers(1, 600),
)
def test_limits_are_shared(backlog: dict[int, tuple[int, int]], limit: int) -> None:
    start = {TopicPartition("t", number): begin for number, (begin, _) in backlog.items()}
    end = {TopicPartition("t", number): begin + size for number, (begin, size) in backlog.items()}
    limited = limit_offsets(start, end, limit)
    assert limited.keys() == end.keys()
    assert all(start[tp] <= limited[tp] <= end[tp] for tp in end)
    assert all(limited[tp] > start[tp] for tp in end if end[tp] > start[tp])
    assert sum(backlogs(start, limited).values()) <= max(limit, 0) + len(end)


def test_limits_are_proportional() -> None:
    assert limit_offsets({A0: 0, A1: 0}, {A0: 300, A1: 100}, 40) == {A0: 30, A1: 10}
    assert limit_offsets({A0: 0, A1: 7}, {A0: 300, A1: 7}, 40) == {A0: 40, A1: 7}


def test_as_many_partitions_as_tasks_are_asked_for_stay_whole() -> None:
    """However unequal they are, as with Spark's own source."""
    sizes = [40, 10, *[1] * 48]
    given_ranges = [OffsetRange(TopicPartition("t", index), 0, size) for index, size in enumerate(sizes)]
    assert split_ranges(given_ranges, 50) == given_ranges
