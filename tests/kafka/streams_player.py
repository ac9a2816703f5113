"""A broker as the members of a streams group see it: one request at a time, the answers in a form that can be
compared with another broker's. Which of several equal members gets which task is the broker's affair: what a
member has is told by numbers, and owned as it was told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.messages.metadata import MetadataRequest
from protocol.messages.streams_groups import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
)
from tests.kafka.group_player import NOT_YET, Player
from tests.waiting import wait_for

Topology = StreamsGroupHeartbeatRequest.Topology
Tasks = Mapping[str, Sequence[int]]
Held = tuple[Tasks, Tasks, Tasks]
"""active, standby, warmup"""
NOTHING: Held = ({}, {}, {})
TOLD = "told"


def info(name: str, partitions: int = 0, **settings: str) -> TopicInfo:
    configs = [KeyValue(key=key.replace("_", "."), value=value) for key, value in settings.items()]
    return TopicInfo(name=name, partitions=partitions, topic_configs=configs)


def sub(
    name: str, *sources: str, copartition: Sequence[tuple[list[int], list[int]]] = (), **more: Any
) -> Any:
    """A subtopology; a group of `copartition` names sources and repartition sources by their places."""
    groups = [
        CopartitionGroup(source_topics=plain, repartition_source_topics=repartition)
        for plain, repartition in copartition
    ]
    return Subtopology(subtopology_id=name, source_topics=list(sources), copartition_groups=groups, **more)


def topology(*subtopologies: Any, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


class StreamsPlayer(Player):
    """One of the two brokers, and the members that speak to it."""

    epochs: dict[str, int]
    held: dict[str, Held]

    def use(self, group: str) -> None:
        super().use(group)
        self.epochs, self.held = {}, {}

    def joins(self, member: str, runs: Topology | None, **more: Any) -> Any:
        """With a process of its own if nothing else is said."""
        self.held[member] = NOTHING
        given = {"rebalance_timeout_ms": 60_000, "process_id": f"process-{member}", "endpoint_epoch": -1}
        return self.beats(member, 0, topology=runs, owned=NOTHING, **{**given, **more})

    def beats(
        self,
        member: str,
        epoch: int | None = None,
        *,
        owned: Held | str | None = None,
        group: str | None = None,
        endpoint: tuple[str, int] | None = None,
        endpoint_epoch: int = 0,
        tags: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Any:
        """(error, message) or (epoch, interval, statuses, numbers of tasks, endpoint epoch, endpoints)."""
        tasks = self.held[member] if isinstance(owned, str) else owned
        active, standby, warmup = (None, None, None) if tasks is None else map(_rows, tasks)
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group if group is None else group,
            member_id=member,
            member_epoch=self.epochs[member] if epoch is None else epoch,
            endpoint_information_epoch=endpoint_epoch,
            user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
            client_tags=None if tags is None else [KeyValue(key=key, value=tags[key]) for key in tags],
            **{"active_tasks": active, "standby_tasks": standby, "warmup_tasks": warmup, **more},
        )
        answers: list[Any] = []

        def is_ready() -> bool:
            answers.append(self.raw.ask(request, 0))
            return answers[-1].error_code not in NOT_YET

        wait_for(is_ready, f"an answer to {request}")
        answer = answers[-1]
        if answer.error_code:
            return answer.error_code, answer.error_message
        self.epochs[member] = answer.member_epoch
        if answer.active_tasks is not None:
            told = (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)
            self.held[member] = tuple(map(_tasks, told))  # type: ignore[assignment]
        endpoints = answer.partitions_by_user_endpoint
        return (
            answer.member_id == member, answer.member_epoch, answer.heartbeat_interval_ms,
            answer.acceptable_recovery_lag, answer.task_offset_interval_ms,
            [(one.status_code, _sorted_names(one.status_detail)) for one in answer.status or ()],
            None if answer.active_tasks is None else [_numbers(held) for held in self.held[member]],
            answer.endpoint_information_epoch,
            None if endpoints is None else sorted(_endpoint(one) for one in endpoints),
        )  # fmt: skip

    def settles(self, *members: str) -> Any:
        """Let members beat, and own what they are told, until nothing changes and nothing is in the way."""
        seen: list[Any] = []

        def is_settled() -> bool:
            answers = {member: self.beats(member, owned=TOLD) for member in members}
            assert all(len(answer) > 2 for answer in answers.values()), answers
            seen[:] = self.describes()[0]
            return seen[3] == "Stable" and not any(answer[5] for answer in answers.values())

        wait_for(is_settled, f"{members} to settle")
        return seen

    def describes(self, *groups: str) -> Any:
        request = StreamsGroupDescribeRequest(group_ids=list(groups or (self.group,)))
        answer = self.raw.ask(request, 0)
        return [
            (
                row.error_code, row.error_message, row.group_id, row.group_state, row.group_epoch,
                row.assignment_epoch, row.authorized_operations, _described_topology(row.topology),
                sorted(map(_described_member, row.members)),
            )
            for row in answer.groups
        ]  # fmt: skip

    def topics(self, *names: str) -> Any:
        """Wait for topics that the broker makes; the number of partitions of each."""
        found: dict[str, int] = {}

        def are_there() -> bool:
            rows = self.raw.ask(MetadataRequest(topics=None), 12).topics
            found.update({row.name: len(row.partitions) for row in rows if row.name in names})
            self._topics.update({row.topic_id: row.name for row in rows})
            return len(found) == len(names)

        wait_for(are_there, f"topics {names}")
        return found


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=list(tasks[name])) for name in tasks]


def _tasks(rows: Sequence[Any]) -> Tasks:
    return {row.subtopology_id: sorted(row.partitions) for row in rows}


def _numbers(tasks: Tasks) -> dict[str, int]:
    return {name: len(tasks[name]) for name in sorted(tasks)}


def _sorted_names(detail: str) -> str:
    """Kafka tells topics in no order that one could know."""
    head, colon, names = detail.partition(": ")
    more = names.partition(" and ")
    if head != "Internal topics are missing":
        return detail
    return (
        head
        + colon
        + (str(len(more[0].split(", "))) if more[1] else str(sorted(names.split(", "))))
        + more[2]
    )


def _endpoint(row: Any) -> Any:
    def places(rows: Sequence[Any]) -> list[tuple[str, int]]:
        return sorted((one.topic, len(one.partitions)) for one in rows)

    endpoint = row.user_endpoint
    return endpoint.host, endpoint.port, places(row.active_partitions), places(row.standby_partitions)


def _described_topology(row: Any) -> Any:
    if row is None:
        return None

    def topics(infos: Sequence[Any]) -> Any:
        return [
            (
                one.name,
                one.partitions,
                one.replication_factor,
                sorted((c.key, c.value) for c in one.topic_configs),
            )
            for one in infos
        ]

    return row.epoch, [
        (
            one.subtopology_id, one.source_topics, one.repartition_sink_topics,
            topics(one.state_changelog_topics), topics(one.repartition_source_topics),
        )
        for one in row.subtopologies
    ]  # fmt: skip


def _described_member(row: Any) -> Any:
    def assignment(told: Any) -> Any:
        return [_numbers(_tasks(rows)) for rows in (told.active_tasks, told.standby_tasks, told.warmup_tasks)]

    endpoint = row.user_endpoint
    return (
        row.member_id, row.member_epoch, row.instance_id or "", row.rack_id or "", row.client_id,
        row.client_host, row.topology_epoch, row.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        sorted((tag.key, tag.value) for tag in row.client_tags), len(row.task_offsets),
        len(row.task_end_offsets), str(assignment(row.assignment)), str(assignment(row.target_assignment)),
        row.is_classic,
    )  # fmt: skip
