"""Goal: a group is never in a state, and never answers, where the classic protocol has none.
Method: the transition and answer tables are walked whole; what is missing must be missing on purpose."""

from __future__ import annotations

import itertools

import pytest

from broker.groups.state import (
    COMMIT_ANSWERS,
    HEARTBEAT_ANSWERS,
    SYNC_ANSWERS,
    TRANSITIONS,
    GroupEvent,
    GroupState,
    IllegalTransition,
    can,
    next_state,
)
from protocol.errors import ErrorCode

# Kafka's ClassicGroupState: which states may come before a state.
VALID_PREVIOUS = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: {GroupState.EMPTY},
}


def test_the_table_allows_exactly_kafkas_predecessors() -> None:
    predecessors: dict[GroupState, set[GroupState]] = {state: set() for state in GroupState}
    for (state, _event), following in TRANSITIONS.items():
        predecessors[following].add(state)
    assert predecessors == VALID_PREVIOUS


def test_every_state_can_be_reached_and_nothing_leaves_dead() -> None:
    """A group enters the broker empty, or stable when `__consumer_offsets` says it had members."""
    reached = {GroupState.EMPTY, GroupState.STABLE}
    while True:
        further = {following for (state, _), following in TRANSITIONS.items() if state in reached} - reached
        if not further:
            break
        reached |= further
    assert reached == set(GroupState)
    assert not any(can(GroupState.DEAD, event) for event in GroupEvent)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(GroupState, GroupEvent)))
def test_an_event_that_a_state_does_not_have_is_a_bug(state: GroupState, event: GroupEvent) -> None:
    if can(state, event):
        assert next_state(state, event) in GroupState
    else:
        with pytest.raises(IllegalTransition):
            next_state(state, event)


def test_every_event_happens_somewhere() -> None:
    assert {event for _, event in TRANSITIONS} == set(GroupEvent)


@pytest.mark.parametrize("answers", [HEARTBEAT_ANSWERS, SYNC_ANSWERS, COMMIT_ANSWERS])
def test_every_state_has_an_answer(answers: dict[GroupState, ErrorCode]) -> None:
    assert set(answers) == set(GroupState)
    assert answers[GroupState.STABLE] is ErrorCode.NONE


def test_t189_t192_answers_while_rebalancing() -> None:
    preparing, completing = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
    assert HEARTBEAT_ANSWERS[preparing] is ErrorCode.REBALANCE_IN_PROGRESS
    assert HEARTBEAT_ANSWERS[completing] is ErrorCode.NONE
    assert SYNC_ANSWERS[preparing] is ErrorCode.REBALANCE_IN_PROGRESS
    assert COMMIT_ANSWERS[preparing] is ErrorCode.NONE
    assert COMMIT_ANSWERS[completing] is ErrorCode.REBALANCE_IN_PROGRESS
