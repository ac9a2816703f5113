"""Goal: a producer id that a Python worker keeps for its next task is used only where it was given.

Method: two processes' ids played by one, with `FakeLeader`: what is kept is put away and brought back, while
the broker is wiped and gives the same ids anew.
"""

from __future__ import annotations

import uuid

import pytest

from spark_connector import producer
from tests.spark.fake_leader import FakeLeader
from tests.spark.test_writer import check_written, rows, write


@pytest.fixture
def kept(leader: FakeLeader) -> list[producer.Identity]:
    """What this worker keeps after a task; the list is empty while another worker is played."""
    leader.topic_ids["t"] = uuid.uuid4()
    write(leader, rows(10))
    (idle,) = producer._idle.values()
    return idle


@pytest.mark.parametrize("is_set_by_hand", [False, True])
def test_a_broker_that_was_wiped_writes_the_rows_of_two_workers(
    leader: FakeLeader, kept: list[producer.Identity], is_set_by_hand: bool
) -> None:
    """Both had the same id, and the rows of one were taken for those of the other, and lost.

    Whether the broker calls its cluster by another id, or always by that of its settings.
    """
    mine = list(kept)
    leader.wipe()
    if is_set_by_hand:
        leader.topic_ids["t"] = uuid.uuid4()
    else:
        leader.cluster_id = "second"
    kept.clear()
    write(leader, rows(10))  # the other worker: the first id of the new broker
    others, kept[:] = list(kept), mine
    write(leader, rows(10, first=10))
    kept[:] = others
    write(leader, rows(10, first=20))
    check_written(leader, 30)


def test_a_kept_id_goes_on(leader: FakeLeader, kept: list[producer.Identity]) -> None:
    for first in (10, 20):
        write(leader, rows(10, first=first))
    check_written(leader, 30)
    assert leader.producer_ids == 1
    assert len(kept) == 1


def test_an_id_is_not_kept_for_a_topic_that_was_made_again(
    leader: FakeLeader, kept: list[producer.Identity]
) -> None:
    leader.recreate_topic()
    leader.topic_ids["t"] = uuid.uuid4()
    write(leader, rows(10))
    check_written(leader, 10)
    assert leader.producer_ids == 2
