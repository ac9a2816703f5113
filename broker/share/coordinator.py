"""All partitions that share groups read: where each group stands there, who has what, how it went.

What is known of a partition lies in `__share_group_state`, in the partition that Kafka would look in: all of
it once in a while, what has changed in between. A delivery is over, or given back, once that is appended, and
answered once it is durable; who has what is not written down: what a broker knew of that when it stopped is
available again. Mirrors Kafka's SharePartitionManager, ShareCoordinatorService and ShareCoordinatorShard.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.group_settings import GroupSettings
from broker.node import Node
from broker.share.delivery import Acknowledgement, InFlight, Transition
from broker.share.partition import NO_COUNT, NO_OFFSET, ShareKey, SharePartition, Stored
from broker.share.records import (
    SNAPSHOT,
    UPDATE,
    Contents,
    read_contents,
    snapshot_value,
    state_key,
    update_value,
)
from broker.share.state_batches import StateBatch
from broker.state_topic import KeyValue, StateTopic
from broker.topic import KEEP_EVERYTHING, SHARE_STATE_TOPIC
from broker.topics import TopicRegistry
from config.group import EARLIEST, GroupConfig, reset_age_ms
from protocol.errors import NOT_HOSTED, ErrorCode, KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.partition import Partition

logger = logging.getLogger(__name__)

Flushed = asyncio.Future[None]
SNAPSHOTS_A_BATCH = 1_000

# What a client is told when something could not be written down: that it looks for the coordinator.
_STORE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class ShareCoordinator:
    """Owned by: event loop."""

    def __init__(self, node: Node, topics: TopicRegistry, group_settings: GroupSettings) -> None:
        self._node = node
        self._topics = topics
        self._group_settings = group_settings
        config = node.config
        self.partitions: dict[ShareKey, SharePartition] = {}
        self._topic: StateTopic[Contents] = StateTopic(
            node,
            topics,
            SHARE_STATE_TOPIC,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_segment_bytes,
            read_contents,
            # All changes since all was written count: no later record of a key replaces an earlier one.
            {"cleanup.policy": "delete", **KEEP_EVERYTHING},
        )

    # life

    async def load(self) -> None:
        """Read `__share_group_state`; until a partition is read what lies there is not served."""
        await self._topic.load(self._apply)

    async def load_again(self, topic_partition: TopicPartition) -> None:
        """The log of a partition was opened anew: if it could not be read, it is now."""
        if topic_partition.topic == SHARE_STATE_TOPIC:
            await self._topic.load_again(topic_partition.partition, self._apply)

    def stop(self) -> None:
        """Accept nothing more."""
        self._topic.close()
        for share in self.partitions.values():
            share.close()

    @property
    def is_loading(self) -> bool:
        return self._topic.is_loading

    @property
    def has_topic(self) -> bool:
        return self._topic.exists

    async def ensure_topic(self) -> None:
        """Bring `__share_group_state` into being: the first member of a share group needs it."""
        await self._topic.ensure()

    def _apply(self, contents: Contents) -> None:
        for key, stored in contents.items():
            if self._topics.by_id(key.topic_id) is not None:
                self.partitions[key] = SharePartition(key, stored)

    # beginning and forgetting

    def begin(
        self, keys: Iterable[ShareKey], state_epoch: int, start_offsets: Mapping[ShareKey, int]
    ) -> list[Flushed]:
        """Let a group begin in partitions, by share.auto.offset.reset where no start offset is given. The
        futures of what makes it durable; KafkaError: not all of it could be written.
        """
        now_ms = self._node.clock.now_ms()
        begun: dict[ShareKey, Stored] = {}
        for key in keys:
            known = self.partitions.get(key)
            start_offset = start_offsets.get(key, NO_OFFSET)
            begun[key] = Stored(
                snapshot_epoch=0 if known is None else known.stored.snapshot_epoch + 1,
                state_epoch=state_epoch,
                leader_epoch=0,
                start_offset=start_offset,
                complete_count=NO_COUNT if start_offset == NO_OFFSET else 0,
                created_ms=now_ms,
            )
        waits = self._append_all(
            {key: snapshot_value(stored, (), now_ms) for key, stored in begun.items()}, begun
        )
        for key, stored in begun.items():
            self._close(key)
            self.partitions[key] = SharePartition(key, stored)
            self._wake(key)
        return waits

    def forget(self, keys: Iterable[ShareKey]) -> list[Flushed]:
        """Nothing is known of these partitions any more. KafkaError: not all of it could be written."""
        known = [key for key in keys if key in self.partitions]
        waits = self._append_all(dict.fromkeys(known), {})
        for key in known:
            self._close(key)
            del self.partitions[key]
            self._wake(key)
        return waits

    def _close(self, key: ShareKey) -> None:
        known = self.partitions.get(key)
        if known is not None:
            known.close()

    # reading

    def find(self, key: ShareKey) -> SharePartition | None:
        """What is known of a group in a partition. KafkaError while it cannot be known."""
        self._topic.check_available(key.state_id)
        return self.partitions.get(key)

    def check_known(self, keys: Iterable[ShareKey]) -> None:
        """KafkaError while it cannot be known where a group stands in any of these: what a reading finds is
        laid over whatever is done meanwhile.
        """
        for key in keys:
            self._topic.check_available(key.state_id)

    def is_lost(self, key: ShareKey) -> bool:
        """Whether nothing is known of a partition that the group has begun in: of two logs a power cut may
        keep one. False as well while it cannot be known.
        """
        if key in self.partitions:
            return False
        return self._topic.is_known(self._topic.place_of(key.state_id).partition)

    async def open(self, share: SharePartition, partition: Partition) -> InFlight:
        """Where the group reads: where it stands, else where it wants to begin; that is written down at once,
        so that it does not begin elsewhere behind a crash. KafkaError: it cannot be, or it is not the
        group's any more.
        """
        start_offset = share.stored.start_offset
        if start_offset == NO_OFFSET:
            start_offset = await self._first_offset(share.key.group_id, partition)
            if self.partitions.get(share.key) is not share:  # the group begins elsewhere now, or nowhere
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if share.in_flight is not None:  # somebody else was faster
            return share.in_flight
        stored, epoch = share.stored, partition.log.leader_epoch
        before = stored.batches, stored.leader_epoch
        in_flight = share.open_at(start_offset)
        stored.leader_epoch = epoch
        if stored.start_offset == NO_OFFSET or epoch != before[1]:
            try:
                self._write(share, ())
            except KafkaError:
                share.in_flight = None
                stored.batches, stored.leader_epoch = before
                raise
        return in_flight

    async def _first_offset(self, group_id: str, partition: Partition) -> int:
        log = partition.log
        reset = self._config_of(group_id).share_auto_offset_reset
        if reset == EARLIEST:
            return log.log_start_offset
        age_ms = reset_age_ms(reset)
        if age_ms is not None:
            since_ms = self._node.clock.now_ms() - age_ms
            found = await self._node.run_blocking(log.offset_for_timestamp, since_ms)
            if found is not None:
                return found.offset
        return log.high_watermark

    def note_acquired(self, share: SharePartition, lock_duration_ms: int) -> None:
        """A member has something now: in time it is given to others."""
        due_ms = self._node.clock.passed_ms() + lock_duration_ms
        if share.expiry is None or due_ms < share.expires_ms:  # the group may have got a shorter one
            self._expect_expiry(share, due_ms)

    def _expect_expiry(self, share: SharePartition, due_ms: int) -> None:
        share.close()
        clock = self._node.clock
        share.expires_ms = due_ms
        share.expiry = clock.call_later(max(1, due_ms - clock.passed_ms()), self._expire, share)

    def _expire(self, share: SharePartition) -> None:
        share.expiry = None
        in_flight = share.in_flight
        if in_flight is None:
            return
        now_ms = self._node.clock.passed_ms()
        transition = in_flight.expire(now_ms, self._config_of(share.key.group_id).share_delivery_count_limit)
        try:
            self._write_transition(share, transition, may_undo=False)
        except KafkaError as error:
            logger.warning(
                "share group %s: a lock that ended is not written down: %s", share.key.group_id, error
            )
        next_ms = in_flight.next_expiry_ms()
        if next_ms is not None:
            self._expect_expiry(share, next_ms)

    # what members say

    def acknowledge(self, key: ShareKey, member_id: str, told: Sequence[Acknowledgement]) -> list[Flushed]:
        """How deliveries went; the futures of what makes it durable. KafkaError: nothing has changed."""
        share = self.find(key)
        if share is None or share.in_flight is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        config = self._config_of(key.group_id)
        renewed_until_ms = self._node.clock.passed_ms() + config.share_record_lock_duration_ms
        transition = share.in_flight.acknowledge(
            member_id,
            told,
            count_limit=config.share_delivery_count_limit,
            renewed_until_ms=renewed_until_ms if config.share_renew_acknowledge_enable else None,
        )
        return self._write_transition(share, transition)

    def release(self, key: ShareKey, member_id: str) -> None:
        """The member is gone: what it has is for others, whether or not that can be written down."""
        share = self.partitions.get(key)
        if share is None or share.in_flight is None:
            return
        limit = self._config_of(key.group_id).share_delivery_count_limit
        try:
            self._write_transition(share, share.in_flight.release(member_id, limit), may_undo=False)
        except KafkaError as error:
            logger.warning(
                "share group %s: what %s had is not written down: %s", key.group_id, member_id, error
            )

    def _write_transition(
        self, share: SharePartition, transition: Transition, *, may_undo: bool = True
    ) -> list[Flushed]:
        batches = transition.batches
        if not batches:
            return []
        assert share.in_flight is not None
        try:
            waits = self._write(share, batches)
        except KafkaError:
            if may_undo:
                transition.undo()
            raise
        else:
            share.in_flight.advance()
            return waits
        finally:  # behind the advance: it makes room for more records on their way
            self._wake(share.key)

    async def prune(self) -> None:
        """Delete what newer records of `__share_group_state` replace: what lies before the oldest of the last
        records that say all. Not where these are not known: all would be taken for replaced.
        """
        by_place: dict[TopicPartition, list[SharePartition]] = defaultdict(list)
        for key, share in self.partitions.items():
            by_place[self._topic.place_of(key.state_id)].append(share)
        topic = self._topics.get(SHARE_STATE_TOPIC)
        # Where not all is read yet all may be needed, and so may be what is written from here on.
        known = [
            (partition, partition.log.log_end_offset)
            for place in (topic.partitions() if topic is not None else ())
            if (partition := self._node.partitions.get(place)) is not None
            and self._topic.is_known(place.partition)
        ]
        for partition, end_offset in known:
            if partition.log.offline_reason is None:
                await self._prune(partition, by_place[partition.topic_partition], end_offset)

    async def _prune(self, partition: Partition, shares: Sequence[SharePartition], end_offset: int) -> None:
        """`shares` are all that the records before `end_offset` speak of; some may be forgotten by now."""
        log = partition.log
        # One that nobody reads would keep all that is written of the others. It is written anew when there
        # is more of that than of what is needed: where nothing happens nothing is written.
        oldest = min((share.stored.snapshot_at for share in shares), default=end_offset)
        is_long = end_offset - oldest > 2 * len(shares)
        try:
            for share in shares:
                is_due = share.stored.updates or (is_long and share.stored.snapshot_at < end_offset)
                if is_due and self.partitions.get(share.key) is share:
                    self._snapshot(share)
            needed_from = min([end_offset, *(share.stored.snapshot_at for share in shares)])
            await partition.all_flushed()
            if needed_from > log.log_start_offset:
                log.delete_records(needed_from)
        except KafkaError as error:
            logger.warning("%s is not pruned: %s", partition.topic_partition, error)

    # records

    def _config_of(self, group_id: str) -> GroupConfig:
        return self._group_settings.of(group_id)

    def _write(self, share: SharePartition, batches: Sequence[StateBatch]) -> list[Flushed]:
        """What has changed, or all of it when that is due."""
        stored = share.stored
        before = stored.start_offset, stored.complete_count
        try:
            if stored.updates >= self._node.config.share_coordinator_snapshot_update_records_per_snapshot:
                stored.created_ms = self._node.clock.now_ms()
                return self._snapshot(share)
            share.follow()
            _, waits = self._append(
                share.key, [(state_key(share.key, UPDATE), update_value(stored, batches))]
            )
        except KafkaError:
            stored.start_offset, stored.complete_count = before
            raise
        stored.updates += 1
        return waits

    def _snapshot(self, share: SharePartition) -> list[Flushed]:
        share.follow()  # its batches go from where the group stands now, not from where it stood last
        share.stored.snapshot_epoch += 1
        value = snapshot_value(share.stored, share.batches(), self._node.clock.now_ms())
        return self._append_all({share.key: value}, {share.key: share.stored})

    def _append_all(
        self, values: Mapping[ShareKey, bytes | None], stored: Mapping[ShareKey, Stored]
    ) -> list[Flushed]:
        """Append snapshots of many partitions, or their ends: those that lie together in batches together."""
        together: dict[TopicPartition, list[ShareKey]] = defaultdict(list)
        for key in values:
            together[self._topic.place_of(key.state_id)].append(key)
        waits = []
        for keys in together.values():
            for start in range(0, len(keys), SNAPSHOTS_A_BATCH):
                some = keys[start : start + SNAPSHOTS_A_BATCH]
                base_offset, flushed = self._append(
                    some[0], [(state_key(key, SNAPSHOT), values[key]) for key in some]
                )
                waits += flushed
                for place, key in enumerate(some):
                    if key in stored:
                        stored[key].snapshot_at, stored[key].updates = base_offset + place, 0
        return waits

    def _append(self, key: ShareKey, records: Sequence[KeyValue]) -> tuple[int, list[Flushed]]:
        try:
            written = self._topic.append(key.state_id, records)
        except KafkaError as error:
            raise KafkaError(_STORE_ERRORS.get(error.code, error.code), error.message) from error
        return written.base_offset, [] if written.flushed is None else [written.flushed]

    def _wake(self, key: ShareKey) -> None:
        """Members may wait for what is available now."""
        topic = self._topics.by_id(key.topic_id)
        partition = self._node.partition(topic.name, key.partition) if topic is not None else None
        if partition is not None:
            partition.wake()
