"""Goal: of a segment nothing counts as checked that nobody has looked at.

Method: stretches of real segments, of which one is damaged that lies between two others.
"""

from __future__ import annotations

from storage.trust import Trust
from tests.storage.builders import LogBuilder
from tests.storage.conftest import MakeLog


def many_stretches(make_log: MakeLog) -> LogBuilder:
    """A log whose first segment, which is closed, is checked in many pieces."""
    builder = make_log(index_interval_bytes=200)
    for number in range(40):
        builder.append(b"%d" % (number % 10) * 100)
    builder.log.roll(builder.now_ms)
    builder.log.flush()
    return builder


def test_what_lies_between_two_checked_stretches_is_checked_when_it_is_asked_for(make_log: MakeLog) -> None:
    builder = many_stretches(make_log)
    segment = builder.log.segments[0]
    size, middle = segment.size_bytes, segment.size_bytes // 2
    trust = Trust.of(segment)
    assert trust.check(segment, 0, 10)
    assert trust.check(segment, size - 10, size)
    assert trust.covers(0, 10)
    assert trust.covers(size - 10, size)
    assert not trust.covers(middle, middle + 1)
    assert not trust.is_surveyed
    builder.is_damaged = True  # type: ignore[attr-defined]
    content = bytearray(segment.file.path.read_bytes())
    content[middle] ^= 1
    segment.file.path.write_bytes(content)
    assert not trust.check(segment, middle, middle + 1)
    assert [damage.position <= middle < damage.end for damage in segment.damages] == [True]
    assert trust.covers(0, size)


def test_stretches_side_by_side_are_the_whole_segment(make_log: MakeLog) -> None:
    builder = many_stretches(make_log)
    segment = builder.log.segments[0]
    trust = segment.trust = Trust.of(segment)
    assert not trust.covers(0, segment.size_bytes)
    for position in range(0, segment.size_bytes, 100):
        assert trust.check(segment, position, position + 1)
    assert trust.is_surveyed
    assert segment.trust is None, "it is like one that this process wrote"
