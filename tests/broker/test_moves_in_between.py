"""Goal: what comes while a copy is made, or before its turn, ends no move and moves nothing else.

Method: the copying is held up by a limit of one byte a second.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from broker.moves import LAST_BYTES
from broker.partition import Partition
from config.definition import HOUR_MS
from protocol.records import encode_batch
from storage.checkpoint import write_topic_id
from storage.file import SYSTEM_DISK
from tests.broker.test_moves import KEY, Disks, MakeWorld


@pytest.fixture
async def disks(make_world: MakeWorld, tmp_path: Path) -> Disks:
    paths = [tmp_path / "a", tmp_path / "b"]
    world = await make_world(log_dirs=",".join(map(str, paths)))
    world.topic("t", segment_bytes="1000000")
    return Disks(world, paths, await world.connect())


async def test_segments_that_expire_before_they_are_copied_do_not_end_the_move(disks: Disks) -> None:
    await disks.fill(3 * LAST_BYTES)
    target = await disks.begin_and_stand_still()
    log = disks.broker.partitions[KEY].log
    before = log.log_end_offset
    log.delete_records(before - 3)
    await disks.broker.background.expire_segments()
    assert log.segments[0].base_offset > 2
    await disks.moved()
    assert disks.place() == target
    log = disks.broker.partitions[KEY].log
    assert (log.log_start_offset, log.log_end_offset) == (before - 3, before)
    assert {int(path.stem) for path in log.directory.glob("*.log")} == {
        one.base_offset for one in log.segments
    }


async def test_what_is_left_of_a_move_of_an_earlier_topic_of_the_name_moves_nothing(disks: Disks) -> None:
    """The directory that it went to was not named when that topic was deleted."""
    await disks.fill(2 * LAST_BYTES)
    source, target = disks.place(), await disks.begin_and_stand_still()
    await disks.world.stop()
    (left,) = target.glob("*-future")
    write_topic_id(SYSTEM_DISK, left, uuid.uuid4())
    await disks.world.start()
    assert disks.broker.moves.all() == ()
    assert disks.place() == source


async def test_a_partition_is_never_seen_gone(disks: Disks) -> None:
    """Whoever waits for it is told in the moment of the exchange: a cleaner that looks then would forget how
    far the log is clean, if it were not served.
    """
    await disks.fill(LAST_BYTES)
    await disks.begin_and_stand_still()
    partition, seen = disks.broker.partitions[KEY], []

    class Waiter:
        def partition_moved(self, moved: Partition) -> None:
            seen.append((moved.is_forgotten, disks.broker.partitions[KEY] is not partition))

    partition.high_watermark_waiters.add(Waiter())
    await disks.moved()
    assert seen == [(True, True)]


async def test_producers_are_not_forgotten_while_a_move_reads_them(disks: Disks) -> None:
    old_ms = disks.world.clock.now_ms() - 48 * HOUR_MS
    batch = encode_batch([(old_ms, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await disks.world.produce(disks.client, batch)).error_code == 0
    log = disks.broker.partitions[KEY].log
    log.hold()
    await disks.broker.background.expire_producers()
    assert set(log.producers.producers) == {7}
    log.hold(False)
    await disks.broker.background.expire_producers()
    assert not log.producers.producers
