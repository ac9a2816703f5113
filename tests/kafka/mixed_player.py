"""A broker as a group sees it that has members of both protocols, the classic one and KIP-848's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.groups import SyncGroupResponse
from protocol.messages.metadata import MetadataRequest
from tests.kafka.classic_player import ClassicPlayer, Make
from tests.kafka.group_player import assigned_places, by_topic

Places = Sequence[tuple[str, int]]
STAYS_MS = 1_800_000


class MixedPlayer(ClassicPlayer):
    """As ClassicPlayer; members of the newer protocol choose their ids themselves."""

    def __init__(self, port: int, group: str) -> None:
        super().__init__(port, group)
        answer = self._control.ask(MetadataRequest(topics=None), 12)
        self.topics = {topic.topic_id: topic.name for topic in answer.topics}

    def name(self, member_id: str) -> str:
        known = super().name(member_id)
        return member_id if member_id.startswith("~") else known

    def described(self) -> Any:
        """Where the group stands, as each protocol tells it."""
        row = self._control.ask(ConsumerGroupDescribeRequest(group_ids=[self.group]), 1).groups[0]
        members = sorted(
            (
                self.name(one.member_id), one.instance_id or "", one.member_epoch, one.client_id,
                sorted(one.subscribed_topic_names), self.places(one.assignment.topic_partitions),
                self.places(one.target_assignment.topic_partitions), one.member_type,
            )
            for one in row.members
        )  # fmt: skip
        told = (row.error_code, row.error_message, row.group_state, row.group_epoch, row.assignment_epoch)
        return (*super().described(), (*told, members))

    def _assignment(self, assignment: bytes) -> Any:
        return assigned_places(assignment) or []

    def places(self, rows: Iterable[Any]) -> list[tuple[str, int]]:
        return sorted((self.topics[row.topic_id], index) for row in rows for index in row.partitions)

    def _readable(self, member: str, answer: Any) -> Any:
        if isinstance(answer, ConsumerGroupHeartbeatResponse):
            given = answer.assignment and self.places(answer.assignment.topic_partitions)
            message = self._with_names(answer.error_message)
            return "beaten", answer.error_code, message, answer.member_epoch, given
        if isinstance(answer, SyncGroupResponse):
            given = assigned_places(answer.assignment)
            return "synced", answer.error_code, answer.protocol_type, answer.protocol_name, given
        return super()._readable(member, answer)

    def _with_names(self, text: str | None) -> str | None:
        for member_id, name in self._names.items() if text else ():
            text = text and text.replace(member_id, name)
        return text


def beating_anew(
    name: str,
    epoch: int,
    *,
    instance: str | None,
    topics: Sequence[str] | None,
    owned: Places | None,
) -> Make:
    row = ConsumerGroupHeartbeatRequest.TopicPartitions

    def make(it: ClassicPlayer) -> Any:
        assert isinstance(it, MixedPlayer)
        ids = {topic: topic_id for topic_id, topic in it.topics.items()}
        rows = [row(topic_id=ids[topic], partitions=found) for topic, found in by_topic(owned or ())]
        return ConsumerGroupHeartbeatRequest(
            group_id=it.group,
            member_id=it.id_of(name),
            member_epoch=epoch,
            instance_id=instance,
            rebalance_timeout_ms=STAYS_MS if epoch == 0 else -1,
            subscribed_topic_names=topics if topics is None else list(topics),
            topic_partitions=None if owned is None else rows,
        )

    return make
