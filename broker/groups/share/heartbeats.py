"""Share groups (KIP-932): a heartbeat answered, a member that leaves or is fenced, where a group begins.

Mirrors the share half of Kafka's GroupMetadataManager. A heartbeat makes a draft of the group; what is
different there is written, and the answer leaves when that is durable. In Kafka partitions begin behind the
answer, and are assigned with the next heartbeat.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from uuid import UUID

from broker.group_settings import GroupSettings
from broker.groups import kinds, records
from broker.groups.contents import Contents
from broker.groups.epoch_group import Pace
from broker.groups.epochs import JOIN_EPOCH, LEAVE_EPOCH
from broker.groups.fencing import Fencing
from broker.groups.kinds import Change
from broker.groups.share import changes
from broker.groups.share.draft import Draft, share_keys
from broker.groups.share.group import Begun, ShareGroup, ShareMember
from broker.groups.storing import Flushed, append
from broker.groups.topics import GroupTopics, Partitions, metadata_hash
from broker.node import Node
from broker.share.coordinator import ShareCoordinator
from broker.share.partition import ShareKey
from broker.state_topic import StateTopic, fits
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat; None: as before."""

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ShareBeat:
    """What a heartbeat is answered; final once all of `waits` are done."""

    member_id: str
    epoch: int
    assigned: Partitions | None
    waits: Sequence[Flushed]


def check_heartbeat(beat: ShareHeartbeat) -> None:
    """What is wrong with a request whatever the group's state is (GroupCoordinatorService)."""
    for name, value in (
        ("MemberId", beat.member_id),
        ("GroupId", beat.group_id),
        ("RackId", beat.rack_id),
    ):
        if value == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if beat.epoch == JOIN_EPOCH and not beat.topic_names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if beat.epoch < LEAVE_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    records.check_group_id(beat.group_id)
    if not fits(beat.member_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId is too long.")


class ShareGroups:
    """All of them. Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        topics: GroupTopics,
        settings: GroupSettings,
        shares: ShareCoordinator,
        store: StateTopic[Contents],
        is_other: Callable[[str], bool],
    ) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self._node = node
        self._topics = topics
        self._settings = settings
        self._shares = shares
        self._store = store
        self._is_other = is_other
        """whether an id is that of a group of another kind"""
        self._fencing = Fencing(node.clock, self._session_ms, self._take_out)

    def restore(self, group_id: str, made: Iterable[Change]) -> None:
        """A group as it was read at start: its members have their whole time again."""
        group = ShareGroup(group_id)
        changes.apply(group, made)
        self.groups[group_id] = group
        for member_id in group.members:
            self._fencing.expect_beat(group, member_id)

    def _session_ms(self, group: ShareGroup) -> int:
        return self._settings.of(group.group_id).share_session_timeout_ms

    def stop(self) -> None:
        for group in self.groups.values():
            group.stop_timers()

    def find(self, group_id: str) -> ShareGroup | None:
        """The group for who describes it; None when there is none."""
        self._store.check_available(group_id)
        return self.groups.get(group_id)

    def existing(self, group_id: str) -> ShareGroup:
        """The group; KafkaError if there is none."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self.find(group_id)
        if group is None:
            raise self._not_found(group_id, "Group")
        return group

    def _not_found(self, group_id: str, what: str) -> KafkaError:
        is_other = self._is_other(group_id)
        message = f"Group {group_id} is not a share group." if is_other else f"{what} {group_id} not found."
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    # a heartbeat

    def beat(self, request: ShareHeartbeat) -> ShareBeat:
        """ShareGroupHeartbeat: a group comes into being with who joins."""
        check_heartbeat(request)
        self._store.check_available(request.group_id)
        if self._shares.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "share groups are being loaded")
        if request.epoch == LEAVE_EPOCH:
            group = self.existing(request.group_id)
            group.member(request.member_id)
            waits = self._take_out(group, request.member_id)
            logger.info("share group %s: %s left", group.group_id, request.member_id)
            return ShareBeat(request.member_id, LEAVE_EPOCH, None, waits)
        group = self._group_for(request)
        member = self._member_for(group, request)
        draft = self._draft(group)
        now = draft.bring_up_to_date(member, _as_told(member, request))
        waits = self._store_changes(draft)
        self.groups[group.group_id] = group
        self._fencing.expect_beat(group, request.member_id)
        is_told = request.topic_names is not None or now.assigned != member.assigned
        return ShareBeat(now.member_id, now.epoch, now.assigned if is_told else None, waits)

    def _group_for(self, request: ShareHeartbeat) -> ShareGroup:
        group = self.groups.get(request.group_id)
        if group is not None:
            group.check_room(self._node.config.group_share_max_size, request.member_id)
            return group
        if request.epoch != JOIN_EPOCH or self._is_other(request.group_id):
            raise self._not_found(request.group_id, "Share group")
        return ShareGroup(request.group_id)

    def _member_for(self, group: ShareGroup, request: ShareHeartbeat) -> ShareMember:
        """Who beats, as it was before; one that is new has no epoch yet."""
        if request.epoch == JOIN_EPOCH:
            return group.members.get(request.member_id) or ShareMember(request.member_id)
        member = group.member(request.member_id)
        if request.epoch > member.epoch:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a greater member epoch ({request.epoch}) than the one known by "
                f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
                "rejoin.",
            )
        if request.epoch not in (member.epoch, member.previous_epoch):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a smaller member epoch ({request.epoch}) than the one known by "
                f"the group coordinator ({member.epoch}), and it does not match the previous member epoch "
                f"({member.previous_epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def _draft(self, group: ShareGroup) -> Draft:
        interval_ms = self._settings.of(group.group_id).share_assignment_interval_ms
        pace = Pace(now_ms=self._node.clock.now_ms(), interval_ms=interval_ms)
        return Draft(group, self._topics, self._shares, pace)

    def _store_changes(self, draft: Draft) -> list[Flushed]:
        """Write down what the draft changed, and do it to the group. KafkaError: it has not changed."""
        group = draft.group
        if not draft.changes:
            group.seen_topics = draft.seen_topics
            return []
        waits = self._shares.begin(draft.begins, draft.drafted.epoch, {})
        waits += self._append(group, draft.changes)
        group.seen_topics = draft.seen_topics
        return waits

    def _append(self, group: ShareGroup, made: Sequence[Change]) -> list[Flushed]:
        flushed = append(self._store, group.group_id, [kinds.encoded(change) for change in made])
        changes.apply(group, made)
        return [] if flushed is None else [flushed]

    # ways out

    def _take_out(self, group: ShareGroup, member_id: str) -> list[Flushed]:
        draft = group.drafted()
        draft.detach()
        made = changes.member_removed(group.group_id, member_id)
        changes.apply(draft, made)
        digest = metadata_hash(self._topics.sizes(draft.subscribed_topics()))
        waits = self._append(group, [*made, changes.epoch_changed(group.group_id, group.epoch + 1, digest)])
        group.forget_gone()
        return waits

    # where groups stand

    def delete(self, group_id: str) -> list[Flushed]:
        """Delete an empty group, and where it stands; the futures of the tombstones' flushes."""
        group = self._empty(group_id)
        self._shares.check_known(share_keys(group_id, group.begun))
        waits = self._shares.forget(share_keys(group_id, group.begun))
        waits += self._append(group, changes.group_removed(group))
        del self.groups[group_id]
        return waits

    def alter_offsets(self, group_id: str, start_offsets: Mapping[ShareKey, int]) -> list[Flushed]:
        """Let an empty group begin elsewhere in partitions that exist; it comes into being if it has to."""
        records.check_group_id(group_id)
        is_new = self.find(group_id) is None and not self._is_other(group_id)
        group = ShareGroup(group_id) if is_new else self._empty(group_id)
        if not start_offsets:
            return []
        self._shares.check_known(start_offsets)
        begun = dict(group.begun)
        for key in start_offsets:
            topic = self._topics.registry.by_id(key.topic_id)
            assert topic is not None
            known = begun.get(key.topic_id, Begun(topic.name, frozenset()))
            begun[key.topic_id] = known._replace(partitions=known.partitions | {key.partition})
        made = [changes.begun_changed(group_id, begun)]
        if is_new:
            made.append(changes.epoch_changed(group_id, group.epoch, 0))
        waits = self._shares.begin(start_offsets, group.epoch, start_offsets)
        waits += self._append(group, made)
        self.groups[group_id] = group
        return waits

    def delete_offsets(self, group_id: str, topic_ids: Set[UUID]) -> list[Flushed]:
        """Let an empty group forget topics."""
        group = self._empty(group_id)
        doomed = {topic_id: group.begun[topic_id] for topic_id in topic_ids if topic_id in group.begun}
        self._shares.check_known(share_keys(group_id, doomed))
        return self._forget(group, doomed)

    def _forget(self, group: ShareGroup, doomed: Mapping[UUID, Begun]) -> list[Flushed]:
        waits = self._shares.forget(share_keys(group.group_id, doomed))
        kept = {topic_id: one for topic_id, one in group.begun.items() if topic_id not in doomed}
        return waits + self._append(group, [changes.begun_changed(group.group_id, kept)])

    def _empty(self, group_id: str) -> ShareGroup:
        group = self.existing(group_id)
        if not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    def forget_lost_topics(self) -> Iterator[None]:
        """Topics that exist no more are nobody's: at start, and when one is deleted. A step a group."""
        for group in list(self.groups.values()):
            doomed = {
                topic_id: one
                for topic_id, one in group.begun.items()
                if self._topics.registry.by_id(topic_id) is None
            }
            if doomed and self.groups.get(group.group_id) is group:
                try:
                    self._forget(group, doomed)
                except KafkaError as error:
                    logger.warning("share group %s: deleted topics not removed: %s", group.group_id, error)
                yield


def _as_told(member: ShareMember, request: ShareHeartbeat) -> ShareMember:
    """The member as its client says it is; what it does not say stays."""
    return dataclasses.replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
    )
