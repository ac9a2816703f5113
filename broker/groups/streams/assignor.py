"""Who of a streams group shall have which task: the assignor `sticky`. Pure.

As Kafka's StickyTaskAssignor seen from outside: active tasks are balanced over members, and stay where they
were as far as that allows, else go where a standby copy was, else to the process that has least for each of
its members. A standby copy goes to where the task was active, then to where a copy was, then to who has
least; never to the process of the task or of another copy of it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.groups.streams.member import Assignment, Tasks


class TaskId(NamedTuple):
    """A partition of a subtopology's source topics."""

    subtopology: str
    partition: int


class Work(NamedTuple):
    """What a subtopology has to do: its number of tasks, and whether they have state that can be copied."""

    tasks: int
    is_stateful: bool


def assign(
    processes: Mapping[str, str],
    work: Mapping[str, Work],
    before: Mapping[str, Assignment],
    standby_replicas: int,
) -> dict[str, Assignment]:
    """What each member shall have; `processes` has the process of each, by member id, `work` is by
    subtopology, `before` what the members should have until now.
    """
    if not processes:
        return {}
    active = [TaskId(name, one) for name in work for one in range(work[name].tasks)]
    stateful = [task for task in active if work[task.subtopology].is_stateful]
    plan = _Plan(processes, before, len(active), len(stateful) * standby_replicas)
    plan.place_active(active)
    plan.place_standby(stateful, standby_replicas)
    return {
        member_id: Assignment(
            _by_subtopology(plan.active[member_id]), _by_subtopology(plan.standby[member_id])
        )
        for member_id in processes
    }


def _by_subtopology(tasks: Iterable[TaskId]) -> Tasks:
    found: dict[str, set[int]] = defaultdict(set)
    for name, partition in tasks:
        found[name].add(partition)
    return {name: frozenset(partitions) for name, partitions in found.items()}


class _Quota:
    """How many tasks a member may have so that all can be placed and nobody has two more than another.

    Who reaches it is out; what is left is divided among the others.
    """

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.most = -(-tasks // members) if members else 0

    def count(self, tasks_of_member: int) -> None:
        """A member has so many now."""
        if tasks_of_member == self.most:
            self._members -= 1
            self._tasks -= tasks_of_member
            self.most = -(-self._tasks // self._members) if self._members else 0


class _Ranking:
    """Who has least, found without a look at everybody: an entry tells a load that can only have grown."""

    def __init__(self, names: Iterable[str], load: Callable[[str], float]) -> None:
        self._load = load
        self._heap = [(load(name), place, name) for place, name in enumerate(names)]
        heapq.heapify(self._heap)

    def least(self, is_out: Callable[[str], bool]) -> str | None:
        """Of those who are not out who has least, the first of equals; None where all are."""
        heap, out = self._heap, []
        found = None
        while heap and found is None:
            told, place, name = heap[0]
            load = self._load(name)
            if load > told:
                heapq.heapreplace(heap, (load, place, name))
            elif is_out(name):
                out.append(heapq.heappop(heap))
            else:
                found = name
        for entry in out:
            heapq.heappush(heap, entry)
        return found


class _Plan:
    def __init__(
        self, processes: Mapping[str, str], before: Mapping[str, Assignment], actives: int, standbys: int
    ) -> None:
        self.active: dict[str, list[TaskId]] = {member_id: [] for member_id in processes}
        self.standby: dict[str, list[TaskId]] = {member_id: [] for member_id in processes}
        self._processes = processes
        self._members: dict[str, list[str]] = defaultdict(list)
        for member_id in sorted(processes):
            self._members[processes[member_id]].append(member_id)
        self._tasks: dict[str, set[TaskId]] = {process: set() for process in self._members}
        self._processes_by_load = _Ranking(self._members, self._load)
        self._members_by_count = {
            process: _Ranking(members, self._count) for process, members in self._members.items()
        }
        self._quota = _Quota(actives, len(processes))
        self._whole_quota = _Quota(actives + standbys, len(processes))
        kept = {member_id: before.get(member_id, Assignment()) for member_id in processes}
        self._was_active = _holders({member_id: one.active for member_id, one in kept.items()})
        self._was_standby = _holders({member_id: one.standby for member_id, one in kept.items()})

    def place_active(self, tasks: Sequence[TaskId]) -> None:
        # Partition by partition, so that each member keeps something of every subtopology.
        left = sorted(tasks, key=_by_partition)
        for holders in (self._was_active, self._was_standby):
            left = [task for task in left if not self._keep(task, holders.get(task, ()))]
        for task in sorted(left):
            self._put_at_least(self.active, task)

    def _keep(self, task: TaskId, holders: Sequence[str]) -> bool:
        """Whether the task can be active where it was."""
        if not holders:
            return False
        member_id = self._least_of(holders)
        if self._count(member_id) >= self._quota.most:
            return False
        self._put(self.active, task, member_id)
        self._quota.count(self._count(member_id))
        return True

    def place_standby(self, tasks: Sequence[TaskId], replicas: int) -> None:
        left: list[TaskId] = []
        replicas = min(replicas, len(self._members) - 1)
        for task in sorted(tasks, key=_by_partition, reverse=True):
            for number in range(replicas):
                if not self._keep_copy(task):
                    left += [task] * (replicas - number)
                    break
        for task in sorted(left, reverse=True):
            self._put_at_least(self.standby, task)

    def _keep_copy(self, task: TaskId) -> bool:
        """Whether there can be a copy where the task was active, or where a copy was."""
        for holders in (self._was_active.get(task, ()), self._was_standby.get(task, ())):
            without = [one for one in holders if task not in self._tasks[self._processes[one]]]
            if without:
                member_id = self._least_of(without)
                if self._count(member_id) < self._whole_quota.most:
                    self._put(self.standby, task, member_id)
                    return True
        return False

    def _put_at_least(self, kind: dict[str, list[TaskId]], task: TaskId) -> None:
        """At the member with least of the process with least that has not the task in any form, if any; of
        equal ones at who had it.
        """
        process = self._processes_by_load.least(lambda one: task in self._tasks[one])
        if process is None:
            return
        former = [*self._was_active.get(task, ()), *self._was_standby.get(task, ())]
        for home in (self._processes[one] for one in former):
            if task not in self._tasks[home] and self._load(home) == self._load(process):
                process = home
                break
        member_id = self._members_by_count[process].least(lambda one: False)
        assert member_id is not None
        for one in former:
            if self._processes[one] == process and self._count(one) == self._count(member_id):
                member_id = one
                break
        self._put(kind, task, member_id)

    def _put(self, kind: dict[str, list[TaskId]], task: TaskId, member_id: str) -> None:
        kind[member_id].append(task)
        self._tasks[self._processes[member_id]].add(task)
        self._whole_quota.count(self._count(member_id))

    def _least_of(self, members: Sequence[str]) -> str:
        return min(members, key=lambda one: (self._load(self._processes[one]), self._count(one)))

    def _count(self, member_id: str) -> int:
        return len(self.active[member_id]) + len(self.standby[member_id])

    def _load(self, process: str) -> float:
        """Tasks for each member of a process."""
        return len(self._tasks[process]) / len(self._members[process])


def _holders(tasks: Mapping[str, Tasks]) -> dict[TaskId, list[str]]:
    """Who has each task, by member id."""
    found: dict[TaskId, list[str]] = defaultdict(list)
    for member_id, by_subtopology in tasks.items():
        for name, partitions in by_subtopology.items():
            for partition in partitions:
                found[TaskId(name, partition)].append(member_id)
    return found


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology
