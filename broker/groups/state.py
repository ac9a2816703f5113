"""The states of a classic group as tables: which event leads where, and what each state answers.

Mirrors Kafka's ClassicGroupState, turned round: instead of asking which states may precede a state, an event
in a state has exactly one successor or is a bug. Pure: no clock, no input or output.

    Empty ──REBALANCE_STARTED──> PreparingRebalance ──GENERATION_FORMED──> CompletingRebalance
      ^  <──────EMPTIED───────────┘   ^        ^                                │        │
      │                               │        └───────REBALANCE_STARTED────────┘        │
      └──REMOVED──> Dead              └──REBALANCE_STARTED── Stable <──ASSIGNMENT_STORED─┘
"""

from __future__ import annotations

from enum import Enum

from protocol.errors import ErrorCode


class GroupState(Enum):
    """Kafka's names, as DescribeGroups and ListGroups spell them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """Everything that moves a group from one state to another."""

    REBALANCE_STARTED = "a member joined, changed, left or expired"
    GENERATION_FORMED = "the join phase ended with members"
    EMPTIED = "the join phase ended without members"
    ASSIGNMENT_STORED = "the leader's assignment is durable"
    REMOVED = "an empty group was deleted or expired"


class IllegalTransition(Exception):
    """An event arrived in a state that cannot have it: a bug of ours, never a client's."""


TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState] = {
    (GroupState.EMPTY, GroupEvent.REBALANCE_STARTED): GroupState.PREPARING_REBALANCE,
    (GroupState.EMPTY, GroupEvent.REMOVED): GroupState.DEAD,
    (GroupState.PREPARING_REBALANCE, GroupEvent.GENERATION_FORMED): GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, GroupEvent.EMPTIED): GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.REBALANCE_STARTED): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.ASSIGNMENT_STORED): GroupState.STABLE,
    (GroupState.STABLE, GroupEvent.REBALANCE_STARTED): GroupState.PREPARING_REBALANCE,
}

# A valid member's heartbeat. CompletingRebalance answers NONE: the member has its generation and only waits
# for the leader's assignment.
HEARTBEAT_ANSWERS: dict[GroupState, ErrorCode] = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
    GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

# A valid member's SyncGroup. NONE means that the state has an assignment or will get one.
SYNC_ANSWERS: dict[GroupState, ErrorCode] = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
    GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

# A valid member's OffsetCommit (T192): while the assignment is under way nobody owns a partition.
COMMIT_ANSWERS: dict[GroupState, ErrorCode] = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.NONE,
    GroupState.COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.STABLE: ErrorCode.NONE,
    GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """The state after `event`; IllegalTransition when the table has none."""
    following = TRANSITIONS.get((state, event))
    if following is None:
        raise IllegalTransition(f"{event.name} in state {state.value}")
    return following


def can(state: GroupState, event: GroupEvent) -> bool:
    """Whether `event` has a meaning in `state`."""
    return (state, event) in TRANSITIONS
