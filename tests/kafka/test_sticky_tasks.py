"""Goal: tasks of streams groups are divided as well as by Apache Kafka's own assignor: as many copies, no
more active tasks moved, and the work as even.

Method: Kafka's StickyTaskAssignor, run by `StickyTasks.java`, and ours divide the same 2,000 random groups.
Which of several equal members gets a task follows in Kafka from the order of hashes.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from broker.groups.streams.assignor import Work, assign
from broker.groups.streams.member import Assignment, Tasks
from tests.kafka.jars import HERE, environment
from tests.kafka.tools import Tools

pytestmark = pytest.mark.java
GROUPS = 2_000
LIMIT_SECONDS = 300
Divided = dict[str, tuple[set[str], set[str]]]
"""active and standby tasks by member"""


class Group(NamedTuple):
    replicas: int
    work: dict[str, Work]
    processes: dict[str, str]
    before: dict[str, Assignment]

    def line(self) -> str:
        work = "|".join(f"{name}:{one.tasks}:{int(one.is_stateful)}" for name, one in self.work.items())
        members = "|".join(
            ":".join((member, process, *(",".join(sorted(names(tasks))) for tasks in self.held(member))))
            for member, process in self.processes.items()
        )
        return f"{self.replicas};{work};{members}"

    def held(self, member: str) -> tuple[Tasks, Tasks]:
        held = self.before.get(member, Assignment())
        return held.active, held.standby


def names(tasks: Tasks) -> set[str]:
    return {f"{name}_{partition}" for name in tasks for partition in tasks[name]}


def groups(seed: int) -> Iterator[Group]:
    """New ones, and such as were divided before by others, or over something else."""
    dice = random.Random(seed)
    for _ in range(GROUPS):
        work = {
            str(number): Work(dice.randint(1, 8), dice.random() < 0.6) for number in range(dice.randint(1, 4))
        }
        spread = dice.choice((0, 3, 9))
        processes = {f"m{number}": f"P{dice.randint(0, spread)}" for number in range(dice.randint(1, 7))}
        replicas = dice.choice((0, 0, 1, 2))
        before: dict[str, Assignment] = {}
        if dice.random() < 0.7:
            old = {member: process for member, process in processes.items() if dice.random() < 0.8}
            before = assign({**old, "gone": "other"}, work, {}, replicas)
            del before["gone"]
        if dice.random() < 0.3:
            work[str(len(work))] = Work(dice.randint(1, 5), True)
        yield Group(replicas, work, processes, before)


def of_kafka(tools: Tools, asked: list[Group]) -> list[Divided]:
    command = tools.jvm(str(HERE / "StickyTasks.java"), "-Xmx256m", "-XX:+UseSerialGC")
    answer = subprocess.run(
        command,
        input="".join(f"{group.line()}\n" for group in asked),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=environment(),
    )
    assert answer.returncode == 0, answer.stderr
    return [
        {
            member: (set(filter(None, active.split(","))), set(filter(None, standby.split(","))))
            for member, active, standby in (one.split(":") for one in line.split("|"))
        }
        for line in answer.stdout.splitlines()
    ]


def stayed(group: Group, divided: Divided, which: int) -> int:
    """How many tasks are where they were, as active ones or as copies."""
    return sum(len(divided[member][which] & names(group.held(member)[which])) for member in group.processes)


def spread(numbers: Mapping[str, int]) -> int:
    return max(numbers.values()) - min(numbers.values())


def test_tasks_are_divided_as_well_as_by_kafkas_assignor(kafka_tools: Tools) -> None:
    asked = list(groups(seed=1))
    kafkas = of_kafka(kafka_tools.with_compiler(), asked)
    assert len(kafkas) == len(asked)
    worse = better = 0
    for group, expected in zip(asked, kafkas, strict=True):
        targets = assign(group.processes, group.work, group.before, group.replicas)
        found = {member: (names(one.active), names(one.standby)) for member, one in targets.items()}
        copies = [sum(len(standby) for _, standby in one.values()) for one in (expected, found)]
        assert copies[0] == copies[1], (group, expected, found)
        assert stayed(group, found, 0) >= stayed(group, expected, 0), (group, expected, found)
        theirs, ours = (
            spread({member: len(active) for member, (active, _) in one.items()}) for one in (expected, found)
        )
        worse += ours > theirs
        better += ours < theirs
    assert worse <= better, f"less even in {worse}, more even in {better}"
