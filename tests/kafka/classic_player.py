"""A broker as the members of a classic group see it, many requests at a time: a JoinGroup or SyncGroup may be
answered only when others have asked, so each that waits has a connection of its own.

Brokers give ids to members. Here a member is known by its name and how many ids it was given before (`m.0`),
so that what two brokers say can be compared. A member's client id is its name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.kafka.group_player import NOT_YET
from tests.kafka.raw import Raw

NOBODY = "?"
"""an id that no answer has told so far"""
LATER_MS = 600_000
"""nothing of a play ends by time"""

Make = Callable[["ClassicPlayer"], Any]


class ClassicPlayer:
    """One of two brokers, and a group on it."""

    def __init__(self, port: int, group: str) -> None:
        self.group = group
        self._port = port
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._idle: dict[str, list[Raw]] = defaultdict(list)
        self._waiting: dict[int, tuple[str, Raw]] = {}
        self._abandoned: list[Raw] = []
        self._control = Raw(port)

    def close(self) -> None:
        waiting = [raw for _, raw in self._waiting.values()]
        for raw in (self._control, *chain(*self._idle.values()), *self._abandoned, *waiting):
            raw.close()

    # one request after the other is sent, the answers come in any order

    def send(self, number: int, member: str, request: Any, version: int) -> None:
        idle = self._idle[member]
        raw = idle.pop() if idle else Raw(self._port, client_id=member)
        self._waiting[number] = member, raw
        raw.send(request, version)

    def arrived(self) -> list[int]:
        """The requests that have answers, in the order in which they were sent."""
        return [number for number, (_, raw) in self._waiting.items() if raw.has_answer()]

    def take(self, number: int) -> Any:
        """The answer of a request, in a form that can be compared with another broker's."""
        member, raw = self._waiting.pop(number)
        answer = raw.answer()
        self._idle[member].append(raw)
        return self._readable(member, answer)

    def waiting(self, member: str) -> list[int]:
        """The requests of a member that have no answer yet."""
        return [number for number, (sender, _) in self._waiting.items() if sender == member]

    def give_up(self, number: int, *, hangs_up: bool) -> None:
        """Wait for the answer of a request no longer."""
        _, raw = self._waiting.pop(number)
        if hangs_up:
            raw.close()
        else:
            self._abandoned.append(raw)

    def is_coordinated(self) -> bool:
        """Whether the broker can say how the group stands."""
        return self.described()[0] not in NOT_YET

    def described(self) -> Any:
        """Where the group stands."""
        row = self._control.ask(DescribeGroupsRequest(groups=[self.group]), 6).groups[0]
        # Not from which client and host: of a member that is back from another place Kafka tells the old one.
        members = sorted(
            (
                self.name(one.member_id),
                one.group_instance_id or "",
                bytes(one.member_metadata),
                self._assignment(bytes(one.member_assignment)),
            )
            for one in row.members
        )
        return (
            row.error_code,
            row.error_message,
            row.group_state,
            row.protocol_type,
            row.protocol_data,
            members,
        )

    def _assignment(self, assignment: bytes) -> Any:
        return assignment

    # ids and names

    def id_of(self, name: str) -> str:
        return self._ids.get(name, name)

    def name(self, member_id: str) -> str:
        return self._names.get(member_id, NOBODY)

    def _told(self, member: str, member_id: str) -> str:
        """The name of an id that an answer to `member` tells."""
        if member_id in self._ids or not member_id:  # it was sent back: a name of nobody, or none
            return member_id
        if member_id not in self._names:
            count = sum(name.startswith(f"{member}.") for name in self._ids)
            name = f"{member}.{count}"
            self._names[member_id], self._ids[name] = name, member_id
        return self._names[member_id]

    def _readable(self, member: str, answer: Any) -> Any:
        if isinstance(answer, JoinGroupResponse):
            own = answer.member_id and self._told(member, answer.member_id)
            return (
                "joined", answer.error_code, answer.generation_id, answer.protocol_type, answer.protocol_name,
                answer.leader and self.name(answer.leader), answer.skip_assignment, own,
                sorted(
                    (self.name(one.member_id), one.group_instance_id or "", bytes(one.metadata))
                    for one in answer.members
                ),
            )  # fmt: skip
        if isinstance(answer, SyncGroupResponse):
            return (
                "synced", answer.error_code, answer.protocol_type, answer.protocol_name,
                bytes(answer.assignment),
            )  # fmt: skip
        if isinstance(answer, LeaveGroupResponse):
            rows = [
                (self._names.get(row.member_id, row.member_id), row.group_instance_id, row.error_code)
                for row in answer.members
            ]
            return "left", answer.error_code, rows
        if isinstance(answer, OffsetCommitResponse):
            return "committed", [row.error_code for topic in answer.topics for row in topic.partitions]
        if isinstance(answer, DeleteGroupsResponse):
            return "deleted", [row.error_code for row in answer.results]
        return "beaten", answer.error_code


def joining(
    name: str,
    protocols: Sequence[tuple[str, bytes]],
    *,
    protocol_type: str,
    instance: str | None,
    **more: Any,
) -> Make:
    own = JoinGroupRequest.JoinGroupRequestProtocol

    def make(it: ClassicPlayer) -> Any:
        return JoinGroupRequest(
            group_id=it.group,
            session_timeout_ms=more.get("session_timeout_ms", LATER_MS),
            rebalance_timeout_ms=LATER_MS,
            member_id=it.id_of(name),
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[own(name=protocol, metadata=metadata) for protocol, metadata in protocols],
        )

    return make


def syncing(
    name: str,
    generation: int,
    given: Sequence[tuple[str, bytes]],
    *,
    protocol_type: str | None,
    protocol: str | None,
    instance: str | None,
) -> Make:
    each = SyncGroupRequest.SyncGroupRequestAssignment

    def make(it: ClassicPlayer) -> Any:
        return SyncGroupRequest(
            group_id=it.group,
            generation_id=generation,
            member_id=it.id_of(name),
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[each(member_id=it.id_of(one), assignment=assignment) for one, assignment in given],
        )

    return make


def beating(name: str, generation: int, instance: str | None) -> Make:
    return lambda it: HeartbeatRequest(
        group_id=it.group, generation_id=generation, member_id=it.id_of(name), group_instance_id=instance
    )


def leaving(members: Sequence[tuple[str, str | None]]) -> Make:
    """Members by name and instance; versions before 3 take the first alone."""
    identity = LeaveGroupRequest.MemberIdentity
    return lambda it: LeaveGroupRequest(
        group_id=it.group,
        member_id=it.id_of(members[0][0]),
        members=[
            identity(member_id=it.id_of(name), group_instance_id=instance) for name, instance in members
        ],
    )


def committing(name: str, generation: int, instance: str | None) -> Make:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    return lambda it: OffsetCommitRequest(
        group_id=it.group,
        generation_id_or_member_epoch=generation,
        member_id=it.id_of(name),
        group_instance_id=instance,
        topics=[topic(name="a", partitions=[partition(partition_index=0, committed_offset=7)])],
    )


def deleting() -> Make:
    return lambda it: DeleteGroupsRequest(groups_names=[it.group])
