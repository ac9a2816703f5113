"""Goal: a deletion is readable for delete.retention.ms from the first cleaning that meets it, and then it
is gone.

Method: real logs, and a clock that tests move.
"""

from __future__ import annotations

import pytest

from protocol.records import decode_batch, encode_batch
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.world import HOUR_MS, NOW_MS, RETENTION_MS, World


def deleted(world: World, codec: int = 0) -> None:
    """One key written and deleted, in closed segments."""
    world.put(("a", "1"), codec=codec)
    world.put(("a", None), codec=codec)
    world.put(("b", "1"), codec=codec)
    world.roll()


@pytest.mark.parametrize("codec", range(5))
def test_t73_the_first_cleaning_arms_a_tombstone(world: World, codec: int) -> None:
    deleted(world, codec)
    before = world.records()[1]
    world.now_ms += HOUR_MS
    world.clean()
    header = world.headers()[0]
    assert header.delete_horizon_ms == world.now_ms + RETENTION_MS
    assert header.base_timestamp == world.now_ms + RETENTION_MS
    assert world.records()[0] == before
    assert header.max_timestamp == NOW_MS


def test_t74_the_horizon_counts_from_the_cleaning_and_not_from_the_record(world: World) -> None:
    old = encode_batch([(NOW_MS - 1000 * HOUR_MS, b"a", None, ())])
    world.log.append(old, now_ms=NOW_MS)
    world.roll()
    world.clean()
    world.now_ms += RETENTION_MS - 1
    world.clean()
    assert world.pairs() == [("a", None)]


def test_t75_before_the_horizon_nothing_changes(world: World) -> None:
    deleted(world)
    world.clean()
    before = world.batches()
    world.now_ms += RETENTION_MS - 1
    world.clean()
    assert world.batches() == before


@pytest.mark.parametrize("codec", range(5))
def test_t76_at_the_horizon_the_tombstone_goes(world: World, codec: int) -> None:
    deleted(world, codec)
    world.clean()
    world.now_ms += RETENTION_MS
    result = world.clean()
    assert world.pairs() == [("b", "1")]
    assert [header.base_offset for header in world.headers()] == [2]
    assert result.removed["tombstone"] == 1


def test_t77_a_tombstone_is_only_seen_when_the_log_is_cleaned_again(world: World) -> None:
    deleted(world)
    world.clean()
    world.now_ms += 100 * RETENTION_MS
    assert world.pairs() == [("a", None), ("b", "1")]


def test_t78_a_later_value_supersedes_a_tombstone(world: World) -> None:
    deleted(world)
    world.clean()
    world.put(("a", "again"))
    world.roll()
    result = world.clean(3)
    assert world.table() == {"a": "again", "b": "1"}
    assert (result.removed["superseded"], result.removed["tombstone"]) == (1, 0)


@pytest.mark.parametrize("codec", range(5))
def test_t79_values_beside_a_tombstone_share_its_horizon_and_stay(world: World, codec: int) -> None:
    world.put(("a", "1"), ("b", None), ("c", "1"), codec=codec)
    world.roll()
    world.clean()
    assert world.headers()[0].delete_horizon_ms == NOW_MS + RETENTION_MS
    world.put(("d", "1"))
    world.roll()
    world.now_ms += RETENTION_MS
    world.clean(3)
    assert world.pairs() == [("a", "1"), ("c", "1"), ("d", "1")]
    assert [one.timestamp for one in world.records()][:2] == [NOW_MS, NOW_MS]
    assert world.headers()[0].delete_horizon_ms == NOW_MS + RETENTION_MS


def test_t80_without_any_retention_it_takes_two_cleanings(make_world: MakeWorld) -> None:
    world = make_world(delete_retention_ms=0)
    deleted(world)
    world.clean()
    assert world.pairs() == [("a", None), ("b", "1")]
    world.clean()
    assert world.pairs() == [("b", "1")]


def test_t81_a_tombstone_behind_the_mapped_part_is_armed_already(make_world: MakeWorld) -> None:
    world = make_world(slots=4)
    world.put_each("abcd")
    world.put(("e", None))
    world.roll()
    result = world.clean()
    assert result.end_offset == 3
    assert world.headers()[-1].delete_horizon_ms == NOW_MS + RETENTION_MS
    world.now_ms += 2 * RETENTION_MS
    world.slots = 2
    assert world.clean(3).end_offset == 4
    assert ("e", None) in world.pairs()
    world.clean(4)
    assert ("e", None) not in world.pairs()


def test_t82_a_reader_of_an_armed_batch_sees_the_times_that_were_written(world: World) -> None:
    items = [(NOW_MS + step, b"%d" % step, None, ()) for step in (5, 0, 70_000, -3)]
    world.log.append(encode_batch(items), now_ms=NOW_MS)
    world.roll()
    world.clean()
    _, data = world.batches()[0]
    assert [one.timestamp for one in decode_batch(data)] == [NOW_MS + step for step in (5, 0, 70_000, -3)]


def test_t84_deleted_keys_have_no_value_left(make_world: MakeWorld) -> None:
    world = make_world(segment_bytes=1024)
    world.put_each(range(256))
    for number in range(0, 256, 2):
        world.put((str(number), None))
    world.roll()
    world.clean_all()
    assert set(world.table()) == {str(number) for number in range(1, 256, 2)}
    assert not [key for key, value in world.pairs() if value is not None and int(key or 0) % 2 == 0]
