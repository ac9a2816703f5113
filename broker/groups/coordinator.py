"""The door of group coordination: every group and offset request enters here.

Mirrors Kafka's GroupCoordinator. A method finds the group, checks the request against it, hands what has to
happen to the engine of the group's protocol (classic: `rebalance.py`; consumer: `consumer/`), and returns the
result or a future of it. Errors are raised as KafkaError; handlers put them where their response has room.
Share groups have a door of their own, `shared`: they commit no offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from uuid import UUID

from broker.group_settings import GroupSettings
from broker.groups import records
from broker.groups.commits import AnyGroup, CommitRequest, Commits, Committed, Outcome
from broker.groups.consumer import changes
from broker.groups.consumer.classic_members import ClassicMembers
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.heartbeats import Beat, Heartbeat, Heartbeats, check_heartbeat
from broker.groups.contents import Contents, read_contents
from broker.groups.epochs import JOIN_EPOCH
from broker.groups.joining import Joining, JoinRequest
from broker.groups.membership import Group, JoinResult, SyncRequest, SyncResult
from broker.groups.offsets import Commit
from broker.groups.rebalance import Rebalancer
from broker.groups.restoring import Restoring
from broker.groups.share.group import ShareGroup
from broker.groups.share.heartbeats import ShareGroups
from broker.groups.state import HEARTBEAT_ANSWERS, SYNC_ANSWERS, GroupEvent, GroupState
from broker.groups.streams import changes as streams_changes
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.heartbeats import StreamsBeat, StreamsGroups, StreamsHeartbeat
from broker.groups.topics import GroupTopics
from broker.node import Node
from broker.security.authorizer import Authorizer
from broker.share.coordinator import ShareCoordinator
from broker.state_topic import StateTopic
from broker.topic import OFFSETS_TOPIC
from broker.topics import TopicRegistry
from protocol.errors import ErrorCode, KafkaError
from storage.layout import TopicPartition

logger = logging.getLogger(__name__)

COMMITS_A_STEP = 2000
"""so many are looked at in one turn of the loop: half a millisecond to one"""


class GroupCoordinator:
    """Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        registry: TopicRegistry,
        settings: GroupSettings,
        authorizer: Authorizer | None,
        shares: ShareCoordinator,
    ) -> None:
        self.groups: dict[str, AnyGroup] = {}
        self._first_topics: Mapping[str, UUID] = {}  # which there were when the groups began to be read
        self._clock = node.clock
        self._registry = registry
        self._store = StateTopic(
            node,
            registry,
            OFFSETS_TOPIC,
            node.config.offsets_topic_num_partitions,
            node.config.offsets_topic_segment_bytes,
            read_contents,
        )
        store, topics = self._store, GroupTopics(registry, authorizer)
        self._rebalancer = Rebalancer(node, store)
        self._joining = Joining(self._rebalancer, store)
        self._commits = Commits(node, registry, store, self._rebalancer)
        self._heartbeats = Heartbeats(node, topics, settings, store, self.groups, self._rebalancer)
        self._classic_members = ClassicMembers(self._heartbeats)
        self.shared = ShareGroups(node, topics, settings, shares, store, self.groups.__contains__)
        self._streams = StreamsGroups(node, topics, settings, store, self.groups)
        self._restoring = Restoring(
            node,
            self.groups,
            self._rebalancer,
            self._commits,
            self._heartbeats,
            self.shared,
            self._streams,
        )

    # life

    async def load(self) -> None:
        """Read `__consumer_offsets`; until a partition is read its groups answer
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._first_topics = {topic.name: topic.topic_id for topic in self._registry.all()}
        await self._store.load(self._restore)
        self._forget_lost_shares()

    async def load_again(self, topic_partition: TopicPartition) -> None:
        """The log of a partition was opened anew: if its groups could not be read, they are now."""
        if topic_partition.topic == OFFSETS_TOPIC:
            await self._store.load_again(topic_partition.partition, self._restore)
            self._forget_lost_shares()

    def _restore(self, contents: Contents) -> None:
        self._forget_lost_topics(self._restoring.apply(contents))

    async def stop(self) -> None:
        """Answer everybody who waits, accept nothing more."""
        self._store.close()
        for group in self.groups.values():
            if isinstance(group, Group):
                group.answer_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            group.stop_timers()
        self.shared.stop()

    @property
    def has_offsets_topic(self) -> bool:
        return self._store.exists

    async def ensure_offsets_topic(self) -> None:
        """Bring `__consumer_offsets` into being: the first group that looks for its coordinator needs it."""
        await self._store.ensure()

    def place_of(self, group_id: str) -> TopicPartition:
        """Where the group's records lie."""
        return self._store.place_of(group_id)

    def _forget_lost_topics(self, groups: Iterable[AnyGroup]) -> None:
        """Of what was just read: a crash may come between a topic's deletion and that of its offsets, or one
        be deleted before they are read. Finish it, or a new topic of the same name would be read from the old
        one's positions. Of a commit that does not say which topic it is of, it is the one that was there at
        the start: here nobody has committed anything since.
        """
        lost: set[str] = set()
        for group in groups:
            doomed = group.offsets.of_others(self._registry.id_of, self._first_topics.get)
            self._forget(group, doomed)
            lost.update(place.topic for place in doomed)
        if lost:
            logger.warning("offsets of topics that are gone are removed: %s", ", ".join(sorted(lost)))

    def _forget_lost_shares(self) -> None:
        for _ in self.shared.forget_lost_topics():
            pass

    # membership

    def join(self, request: JoinRequest) -> JoinResult | asyncio.Future[JoinResult]:
        """JoinGroup: the future resolves when the generation is formed."""
        self._joining.check_limits(request)
        self._store.check_available(request.group_id)
        group = self.groups.get(request.group_id)
        if request.group_id in self.shared.groups or (isinstance(group, StreamsGroup) and not group.is_empty):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "it is a share or a streams group")
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._classic_members.join(group, request)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            group = self._emptied(group)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no group {request.group_id}")
            group = Group(request.group_id, self._clock.now_ms())
        answer = self._joining.join(group, request)
        self.groups[request.group_id] = group
        return answer

    def sync(self, request: SyncRequest) -> SyncResult | asyncio.Future[SyncResult]:
        """SyncGroup: the future resolves when the leader's assignment is durable."""
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            protocol = (request.protocol_type, request.protocol_name)
            return self._classic_members.sync(
                group, request.member_id, request.group_instance_id, request.generation, protocol
            )
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation is {group.generation}")
        if request.protocol_type not in (None, group.protocol_type) or (
            request.protocol_name not in (None, group.protocol_name)
        ):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group.protocol_type} {group.protocol_name}"
            )
        answer = SYNC_ANSWERS[group.state]
        if answer is not ErrorCode.NONE:
            raise KafkaError(answer, f"the group is {group.state.value}")
        if group.state is GroupState.STABLE:
            group.pending_sync.discard(member.member_id)
            return self._rebalancer.assignment_result(group, member)
        # An older SyncGroup of the same member came over a connection that its client gave up.
        group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_waiter = waiter = asyncio.get_running_loop().create_future()
        self._rebalancer.sync(group, member, request.assignments)
        return waiter

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, group_instance_id: str | None
    ) -> ErrorCode:
        """NONE or REBALANCE_IN_PROGRESS, both signs of life; anything else is raised (T189).

        As in Kafka NONE while the group is being loaded: aiokafka's consumer ends by any other answer.
        """
        try:
            group = self._group_of_member(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE
            raise
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(group, member_id, group_instance_id, generation)
        member = group.check_member(member_id, group_instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation is {group.generation}")
        answer = HEARTBEAT_ANSWERS[group.state]
        if answer in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._rebalancer.touch(member, group)
        return answer

    def leave(self, group_id: str, leaving: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Take members out by (member id, instance id); the answer to each, in order."""
        group = self._group_of_member(group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(group, leaving)
        answers: list[ErrorCode] = []
        for member_id, group_instance_id in leaving:
            try:
                self._leave_one(group, member_id, group_instance_id)
                answers.append(ErrorCode.NONE)
            except KafkaError as error:
                answers.append(error.code)
        gone = answers.count(ErrorCode.NONE)
        if gone and not group.is_empty:  # also of those who were only about to join, as in Kafka
            self._rebalancer.after_leaving(group, f"{gone} members leave")
        return answers

    def _leave_one(self, group: Group, member_id: str, group_instance_id: str | None) -> None:
        if group_instance_id is not None and not member_id:
            # The admin client removes static members by their instance alone.
            member_id = group.static_members.get(group_instance_id, "")
        if member_id in group.pending_members:
            group.forget_pending(member_id)
        else:
            self._rebalancer.discard(group, group.check_member(member_id, group_instance_id))

    # the consumer protocol

    def beat(self, request: Heartbeat, *, api_version: int) -> Beat:
        """ConsumerGroupHeartbeat: a group comes into being, or changes its protocol, with who joins."""
        assignors = self._heartbeats.config.group_consumer_assignors
        check_heartbeat(request, api_version, assignors)
        self._store.check_available(request.group_id)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._heartbeats.beat(group, request)
        is_other = request.group_id in self.shared.groups or isinstance(group, StreamsGroup)
        if request.epoch != JOIN_EPOCH or is_other:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"{'Group' if request.epoch < JOIN_EPOCH else 'Consumer group'} {request.group_id} not found."
                if group is None and not is_other
                else f"Group {request.group_id} is not a consumer group.",
            )
        if not isinstance(group, Group):
            made = ConsumerGroup(request.group_id, assignors)
            beat = self._heartbeats.beat(made, request)
            self.groups[request.group_id] = made
            return beat
        return self._heartbeats.beat_anew(group, request)

    def beat_streams(self, request: StreamsHeartbeat) -> StreamsBeat:
        """StreamsGroupHeartbeat: a group comes into being, or becomes a streams group, with who joins."""
        return self._streams.beat(request, is_share_group=request.group_id in self.shared.groups)

    def _emptied(self, group: ConsumerGroup | StreamsGroup) -> Group:
        """A classic group with the offsets of a group that has no members, which is forgotten."""
        made = Group(group.group_id, self._clock.now_ms())
        made.offsets = group.offsets
        self._commits.forget(group, [], _record_keys(group))
        group.stop_timers()
        self.groups[group.group_id] = made
        return made

    # groups

    def find(self, group_id: str) -> AnyGroup | ShareGroup | None:
        """The group for who describes it; None when there is none. KafkaError: nothing is known of it. One
        without a name there is as well, of who commits offsets without one.
        """
        self._store.check_available(group_id)
        return self.groups.get(group_id) or self.shared.groups.get(group_id)

    def find_named(self, group_id: str) -> AnyGroup | ShareGroup | None:
        """As `find`; of the newer protocols none is without a name."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.find(group_id)

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[AnyGroup | ShareGroup]:
        """Groups in any of `states` and of any of `types` (names in any case; none given = all)."""
        if self._store.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        wanted = {state.lower() for state in states}
        kinds = {kind.lower() for kind in types}
        return [
            group
            for group in (*self.groups.values(), *self.shared.groups.values())
            if (not wanted or group.state.value.lower() in wanted) and (not kinds or group.kind in kinds)
        ]

    def delete_group(self, group_id: str) -> list[asyncio.Future[None]]:
        """Delete an empty group with its offsets; the futures of its tombstones' flushes (T197)."""
        if group_id in self.shared.groups:
            return self.shared.delete(group_id)
        group = self._existing(group_id)
        if not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group is {group.state.value}")
        flushed = self._remove(group)
        return [] if flushed is None else [flushed]

    def _remove(self, group: AnyGroup) -> asyncio.Future[None] | None:
        flushed = self._commits.forget(group, list(group.offsets.known()), _record_keys(group))
        group.stop_timers()
        if isinstance(group, Group):
            group.move(GroupEvent.REMOVED, self._clock.now_ms())
        del self.groups[group.group_id]
        return flushed

    # offsets

    def commit(self, request: CommitRequest, *, api_version: int) -> Outcome:
        """OffsetCommit: by a member of the current generation, or by anybody while the group is empty."""
        records.check_group_id(request.group_id)
        self._check_commits_offsets(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                code = ErrorCode.GROUP_ID_NOT_FOUND if api_version >= 9 else ErrorCode.ILLEGAL_GENERATION
                raise KafkaError(code, f"no group {request.group_id}")
            group = Group(request.group_id, self._clock.now_ms())
        self._commits.check_commit(group, request, api_version)
        outcome = self._commits.commit(group, request)
        if not group.offsets.is_empty:
            self.groups[request.group_id] = group
        return outcome

    def refused_commit(self, request: CommitRequest, code: ErrorCode) -> Outcome:
        """The answer to an OffsetCommit that `commit` refused with `code`."""
        return self._commits.refused(request, code)

    def fetch_offsets(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> Mapping[TopicPartition, Commit]:
        """OffsetFetch: the durable commits of a group; nothing for a group that is not there (T194), or that
        is a share group. Who says that it is a member of a consumer or streams group has to be one.
        """
        self._store.check_available(group_id)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            group.check_fetch(member_id, member_epoch)
        return group.offsets.committed if group is not None else {}

    def undecided_offsets(self, group_id: str) -> Set[TopicPartition]:
        """Where a transaction that goes on commits offsets of the group (T195)."""
        group = self.groups.get(group_id)
        return group.offsets.undecided() if group is not None else frozenset()

    def end_transaction(self, topic_partition: TopicPartition, producer_id: int, *, is_commit: bool) -> None:
        """A marker is durable; it concerns groups where it lies in `__consumer_offsets`."""
        if topic_partition.topic == OFFSETS_TOPIC:
            self._commits.end_transaction(topic_partition.partition, producer_id, is_commit=is_commit)

    def delete_offsets(self, group_id: str, topic_partitions: Iterable[TopicPartition]) -> Outcome:
        """OffsetDelete."""
        return self._commits.delete(self._existing(group_id), topic_partitions)

    def expire_offsets(self, now_ms: int) -> Iterator[None]:
        """Remove what `offsets.retention.minutes` lets go, and empty groups without offsets (T196).

        A step a group that loses something, or some thousand commits that stay: clients have their turn
        between.
        """
        looked_at = 0
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is not group:
                continue
            looked_at += 1 + len(group.offsets.committed)
            if self._expire(group, now_ms) or looked_at >= COMMITS_A_STEP:
                looked_at = 0
                yield

    def _expire(self, group: AnyGroup, now_ms: int) -> bool:
        """Whether there was anything to remove."""
        expired = self._commits.expired(group, now_ms)
        try:
            self._commits.forget(group, expired)
            is_awaited = isinstance(group, Group) and bool(group.pending_members)
            is_over = group.is_empty and group.offsets.is_empty and not is_awaited
            if is_over:
                self._remove(group)
        except KafkaError as error:
            logger.warning("group %s: expired offsets not removed: %s", group.group_id, error)
            return True
        return is_over or bool(expired)

    def on_topics_deleted(self, topics: Iterable[str]) -> Iterator[None]:
        """The topic deletion path calls this: commits for deleted topics go (T198).

        Steps as in `expire_offsets`.
        """
        names = frozenset(topics)
        looked_at = 0
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is not group:
                continue
            looked_at += 1 + len(group.offsets.committed)
            doomed = group.offsets.of_topics(names)
            self._forget(group, doomed)
            if doomed or looked_at >= COMMITS_A_STEP:
                looked_at = 0
                yield
        yield from self.shared.forget_lost_topics()

    async def flushed(self) -> None:
        """Return when what was written of groups so far is durable, or cannot be."""
        await self._store.flushed()

    def _forget(self, group: AnyGroup, doomed: Sequence[TopicPartition]) -> None:
        """What a group has committed for topics that are deleted. Where the disk takes no tombstone it is
        forgotten all the same: its record names the topic, by which the next start forgets it again.
        """
        try:
            self._commits.forget(group, doomed)
        except KafkaError as error:
            logger.warning("group %s: offsets of deleted topics stay on disk: %s", group.group_id, error)
            for topic_partition in doomed:
                group.offsets.remove(topic_partition)

    def committed(self) -> Committed:
        """The durable commits of every group as they are now, for another thread to look at (`lags`)."""
        return [
            (group.group_id, group.offsets.committed.copy())
            for group in self.groups.values()
            if group.offsets.committed
        ]

    def expires_ms(self, group: AnyGroup, topic: str, commit: Commit) -> int | None:
        """When a committed position may go by `offsets.retention.minutes`; None: it is kept."""
        return self._commits.expires_ms(group, topic, commit)

    # look-ups

    def _group_of_member(self, group_id: str) -> Group | ConsumerGroup:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group id is needed")
        self._store.check_available(group_id)
        group = self.groups.get(group_id)
        if group is None or isinstance(group, StreamsGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no group {group_id} of the classic protocol")
        return group

    def _check_commits_offsets(self, group_id: str) -> None:
        """Where a share group stands is no offset that somebody commits."""
        self._store.check_available(group_id)
        if group_id in self.shared.groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def _existing(self, group_id: str) -> AnyGroup:
        self._check_commits_offsets(group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id}")
        return group


def _record_keys(group: AnyGroup) -> list[bytes]:
    """The keys of what the log says of an empty group but its offsets."""
    if isinstance(group, ConsumerGroup):
        return [change.key.encoded() for change in changes.group_removed(group)]
    if isinstance(group, StreamsGroup):
        return [change.key.encoded() for change in streams_changes.group_removed(group)]
    # Here a group without a generation was never stored; one that Kafka stored would come back.
    has_record = group.generation > 0 or group.was_stored
    return [records.group_key(group.group_id)] if has_record else []
