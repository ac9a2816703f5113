"""Goal: every task of a streams group is active at one member, its copies are at other processes, the work is
even, and nothing moves that need not.

Method: random groups, with what each member had before, whole or partly lost.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.streams.assignor import Work, assign
from broker.groups.streams.member import Assignment

MEMBERS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("PQRS"), min_size=1)
"""the process of each member"""
WORK = st.dictionaries(st.sampled_from("0123"), st.builds(Work, st.integers(1, 6), st.booleans()), min_size=1)
SOME_OF_8 = st.integers(1, 255).map(lambda bits: frozenset(one for one in range(8) if bits >> one & 1))
"""drawn at once: eight draws each made ten seconds of 200 examples"""
TASKS = st.dictionaries(st.sampled_from("01234"), SOME_OF_8)
BEFORE = st.dictionaries(st.sampled_from("abcdefgh"), st.builds(Assignment, TASKS, TASKS))
REPLICAS = st.integers(0, 2)
LIMIT_SECONDS = 2.0
"""ten times what it takes; who looks at all members for each task takes ten times that"""


def places(targets: dict[str, Assignment], which: int) -> list[tuple[str, str, int]]:
    """(member, subtopology, partition) of active or standby tasks."""
    return [
        (member, name, partition)
        for member, target in targets.items()
        for name, partitions in target[which].items()
        for partition in partitions
    ]


@settings(max_examples=150)
@given(MEMBERS, WORK, BEFORE, REPLICAS)
def test_tasks_are_active_once_and_copied_elsewhere(
    processes: dict[str, str], work: dict[str, Work], before: dict[str, Assignment], replicas: int
) -> None:
    targets = assign(processes, work, before, replicas)
    assert targets.keys() == processes.keys()
    active = sorted((name, partition) for _, name, partition in places(targets, 0))
    assert active == sorted((name, one) for name in work for one in range(work[name].tasks))
    at_process = Counter(
        (processes[member], name, partition)
        for which in (0, 1)
        for member, name, partition in places(targets, which)
    )
    assert all(count == 1 for count in at_process.values()), "a process has no two forms of a task"
    copies = Counter((name, partition) for _, name, partition in places(targets, 1))
    most = min(replicas, len(set(processes.values())) - 1)
    for name, todo in work.items():
        for partition in range(todo.tasks):
            assert copies[name, partition] == (most if todo.is_stateful else 0)


@settings(max_examples=200)
@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), WORK, BEFORE)
def test_active_tasks_are_even(
    members: set[str], work: dict[str, Work], before: dict[str, Assignment]
) -> None:
    """Where each process has one member."""
    targets = assign({member: member.upper() for member in members}, work, before, 0)
    counts = Counter(dict.fromkeys(members, 0)) + Counter(member for member, _, _ in places(targets, 0))
    assert max(counts.values()) - min(counts[member] for member in members) <= 1


@settings(max_examples=200)
@given(MEMBERS, WORK, REPLICAS)
def test_what_is_divided_already_stays(
    processes: dict[str, str], work: dict[str, Work], replicas: int
) -> None:
    first = assign(processes, work, {}, replicas)
    again = assign(processes, work, first, replicas)
    assert sorted(places(again, 0)) == sorted(places(first, 0))
    if replicas == 0 or len(set(processes.values())) == len(processes):
        assert assign(processes, work, again, replicas) == again


@settings(max_examples=200)
@given(st.sets(st.sampled_from("abcdefg"), min_size=1), WORK)
def test_who_comes_takes_only_its_share(members: set[str], work: dict[str, Work]) -> None:
    processes = {member: member.upper() for member in members}
    before = assign(processes, work, {}, 0)
    after = assign({**processes, "z": "Z"}, work, before, 0)
    moved = set(places(after, 0)) - set(places(before, 0))
    assert all(member == "z" for member, _, _ in moved)


def test_a_copy_becomes_active_where_the_process_is_gone() -> None:
    work = {"0": Work(6, True)}
    before = assign({"a": "A", "b": "B", "c": "C"}, work, {}, 1)
    after = assign({"a": "A", "b": "B"}, work, before, 1)
    lost = before["c"].active["0"]
    copied = [before[member].standby.get("0", frozenset()) & after[member].active["0"] for member in "ab"]
    assert lost & frozenset().union(*copied), "at one of the two at least, if one process had both copies"


def test_nobody_has_nothing() -> None:
    assert assign({}, {"0": Work(3, True)}, {}, 1) == {}


@pytest.mark.parametrize("threads", [1, 1_000])
def test_the_work_is_in_proportion_to_tasks_and_members(threads: int) -> None:
    """5000 tasks, each with a copy, are divided among 1000 members while nobody else is served."""
    processes = {f"member{number}": f"process{number // threads}" for number in range(1_000)}
    began = time.process_time()
    targets = assign(processes, {"0": Work(5_000, True)}, {}, 1)
    assert time.process_time() - began < LIMIT_SECONDS
    assert {len(target.active["0"]) for target in targets.values()} == {5}
