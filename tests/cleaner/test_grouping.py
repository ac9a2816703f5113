"""Goal: cleaning leaves segments of a sensible size, and none that its indexes cannot address.

Method: sizes and offsets in, groups out; nothing is on disk.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cleaner.grouping import MAX_RELATIVE_OFFSET, MOST_SEGMENTS, SegmentSize, group_segments

MANY = 10**12


def segments(*sizes: int, step: int = 10, index: int = 0, time_index: int = 0) -> list[SegmentSize]:
    return [SegmentSize(number * step, size, index, time_index) for number, size in enumerate(sizes)]


def group(
    found: list[SegmentSize], *, log: int = MANY, index: int = MANY, end: int = 1000
) -> list[list[int]]:
    groups = group_segments(found, max_log_bytes=log, max_index_bytes=index, first_uncleanable_offset=end)
    return [list(one) for one in groups]


def test_t105_segments_are_joined_up_to_the_size_of_one() -> None:
    assert group(segments(40, 40, 40, 40), log=100) == [[0, 1], [2, 3]]
    assert group(segments(40, 60, 1), log=100) == [[0, 1], [2]]


def test_t105_a_segment_larger_than_the_limit_stays_alone() -> None:
    assert group(segments(500, 10, 10), log=100) == [[0], [1, 2]]


def test_t105_index_bytes_limit_a_group() -> None:
    assert group(segments(1, 1, 1, 1, index=30), index=60) == [[0, 1], [2, 3]]


def test_t105_time_index_bytes_limit_a_group() -> None:
    assert group(segments(1, 1, 1, time_index=30), index=59) == [[0], [1], [2]]


def test_t105_everything_fits_into_one() -> None:
    assert group(segments(*[1] * 30)) == [list(range(30))]


def test_a_group_has_an_end_for_its_files_are_renamed_while_nobody_is_served() -> None:
    found = group(segments(*[1] * (2 * MOST_SEGMENTS + 1)))
    assert [len(one) for one in found] == [MOST_SEGMENTS, MOST_SEGMENTS, 1]
    assert [index for one in found for index in one] == list(range(2 * MOST_SEGMENTS + 1))


def test_t106_a_span_of_more_than_31_bits_is_split() -> None:
    far = [SegmentSize(0, 10, 0, 0), SegmentSize(100, 10, 0, 0)]
    assert group(far, end=MAX_RELATIVE_OFFSET + 2) == [[0], [1]]


def test_t107_a_span_of_just_31_bits_is_one_group() -> None:
    far = [SegmentSize(0, 10, 0, 0), SegmentSize(100, 10, 0, 0)]
    assert group(far, end=MAX_RELATIVE_OFFSET + 1) == [[0, 1]]


def test_t106_the_next_base_offset_bounds_a_segment_that_is_not_the_last() -> None:
    far = [SegmentSize(base, 10, 0, 0) for base in (0, 5, MAX_RELATIVE_OFFSET + 2, MAX_RELATIVE_OFFSET + 9)]
    assert group(far, end=MAX_RELATIVE_OFFSET + 20) == [[0], [1], [2, 3]]


def test_t108_empty_segments_join_whatever_their_offsets() -> None:
    far = [SegmentSize(number * MAX_RELATIVE_OFFSET, 0, 0, 0) for number in range(5)]
    assert group(far, end=10 * MAX_RELATIVE_OFFSET) == [[0, 1, 2, 3, 4]]


def test_t109_an_empty_index_does_not_hide_the_span() -> None:
    far = [SegmentSize(0, 10, 0, 0), SegmentSize(MAX_RELATIVE_OFFSET, 10, 0, 0), SegmentSize(2**32, 10, 0, 0)]
    assert group(far, end=2**33) == [[0], [1], [2]]


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 200))
def test_t105_every_segment_is_in_one_group_and_in_order(sizes: list[int], limit: int) -> None:
    groups = group(segments(*sizes), log=limit)
    assert [index for one in groups for index in one] == list(range(len(sizes)))
    assert all(len(one) == 1 or sum(sizes[index] for index in one) <= limit for one in groups)
