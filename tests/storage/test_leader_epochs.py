"""Goal: a log knows of every offset in which leader epoch it was written, as Kafka's
`LeaderEpochFileCache` does, so that a client that comes back learns where its records were cut off.

Method: epochs are assigned and cut, and asked for; nothing is on disk.
"""

from __future__ import annotations

import pytest

from storage.leader_epochs import LeaderEpochs

KNOWN = [(2, 10), (3, 20), (7, 50)]


def assigned(*entries: tuple[int, int]) -> list[tuple[int, int]]:
    """What is left of KNOWN and these."""
    epochs = LeaderEpochs(KNOWN)
    for entry in entries:
        epochs.assign(*entry)
    assert epochs.latest == epochs.entries[-1][0]
    return epochs.entries


def test_an_epoch_begins_once() -> None:
    epochs = LeaderEpochs()
    assert epochs.assign(0, 5)
    assert not epochs.assign(0, 5)
    assert not epochs.assign(0, 6), "its later records begin nothing"
    assert epochs.assign(1, 6)
    assert (epochs.entries, epochs.latest) == ([(0, 5), (1, 6)], 1)


def test_no_epoch_begins_nothing() -> None:
    epochs = LeaderEpochs()
    assert not epochs.assign(-1, 5)
    assert (epochs.entries, epochs.latest) == ([], -1)


def test_what_contradicts_a_new_epoch_goes() -> None:
    assert assigned((8, 60)) == [*KNOWN, (8, 60)]
    assert assigned((5, 60)) == [(2, 10), (3, 20), (5, 60)], "a later epoch had begun before"
    assert assigned((3, 60)) == [(2, 10), (3, 60)]
    assert assigned((8, 50)) == [(2, 10), (3, 20), (8, 50)], "at one offset begins one epoch"
    assert assigned((8, 15)) == [(2, 10), (8, 15)]
    assert assigned((7, 40)) == [(2, 10), (3, 20), (7, 40)], "it began earlier than was known"
    assert assigned((1, 5)) == [(1, 5)]
    assert LeaderEpochs([(5, 100)]).entries == [(5, 100)]


@pytest.mark.parametrize(("end", "left"), [(51, 3), (50, 2), (21, 2), (20, 1), (10, 0), (0, 0)])
def test_a_shorter_log_forgets_the_epochs_that_began_behind_its_end(end: int, left: int) -> None:
    epochs = LeaderEpochs(KNOWN)
    epochs.truncate_from_end(end)
    assert epochs.entries == KNOWN[:left]
    assert epochs.latest == (KNOWN[left - 1][0] if left else -1)


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (9, KNOWN),
        (10, KNOWN),
        (11, [(2, 11), (3, 20), (7, 50)]),
        (20, [(3, 20), (7, 50)]),
        (49, [(3, 49), (7, 50)]),
        (60, [(7, 60)]),
    ],
)
def test_the_epoch_at_a_later_start_begins_there(start: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(KNOWN)
    epochs.truncate_from_start(start)
    assert (epochs.entries, epochs.latest) == (left, 7)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (3, 50)),
        (5, (3, 50)),
        (7, (7, 90)),
        (8, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(epoch: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs(KNOWN).end_offset_for(epoch, 90, 7) == answer


def test_the_current_epoch_ends_at_the_log_end_even_without_a_record() -> None:
    assert LeaderEpochs(KNOWN).end_offset_for(8, 90, 8) == (8, 90)
    assert LeaderEpochs().end_offset_for(0, 0, 0) == (0, 0)
    assert LeaderEpochs().end_offset_for(1, 0, 0) == (-1, -1)


def test_the_epoch_of_an_offset() -> None:
    epochs = LeaderEpochs(KNOWN)
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 49, 50, 1000)] == [-1, 2, 2, 3, 3, 7, 7]
