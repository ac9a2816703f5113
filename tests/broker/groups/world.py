"""A coordinator with everything around it replaced: a manual clock, and partitions that live in memory.

What is real: the coordinator, its engine, its records and their batches. A test decides when time passes
(`advance`) and when a flush ends (`hold_flushes`, `flush`, `fail_flush`), so nothing sleeps.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from broker.clock import ManualClock
from broker.group_settings import GroupSettings
from broker.groups import kinds
from broker.groups.commits import CommitRequest, Outcome, Position
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.heartbeats import Beat, Heartbeat
from broker.groups.coordinator import GroupCoordinator
from broker.groups.epochs import JOIN_EPOCH
from broker.groups.joining import JoinRequest
from broker.groups.membership import Group, JoinResult, SyncRequest, SyncResult
from broker.groups.state import GroupState
from broker.groups.topics import Partitions
from broker.state_topic import Producer
from broker.topic import OFFSETS_TOPIC
from config.broker import BrokerConfig
from protocol.batch import BatchHeader, parse_header
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, decode_batch
from storage.layout import TopicPartition
from storage.types import Appended, Origin

if TYPE_CHECKING:
    from broker.metadata_log import MetadataLog
    from broker.node import Node
    from broker.share.coordinator import ShareCoordinator
    from broker.topics import TopicRegistry

RANGE = [("range", b"\x00\x01\x00\x00\x00\x01\x00\x04rows\xff\xff\xff\xff")]
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 10_000
ROWS_0 = TopicPartition("rows", 0)
ROWS_1 = TopicPartition("rows", 1)


class MemoryLog:
    """A log of whole batches in memory."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.topic_partition = TopicPartition(OFFSETS_TOPIC, 0)
        self.log_end_offset = 0
        self.high_watermark = 0
        self.offline_reason: str | None = None

    def scan(self, start: int, end: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        for data in self.batches:
            header = parse_header(data)
            if header.last_offset >= start:
                yield header, memoryview(data)

    def records(self) -> list[Record]:
        return [record for data in self.batches for record in decode_batch(data)]


class MemoryPartition:
    """A partition whose flushes end when the test says so."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.holds_flushes = False
        self.refusal: KafkaError | None = None
        self._flushed: asyncio.Future[None] | None = None

    def append(self, records: bytes, now_ms: int, origin: Origin = Origin.CLIENT) -> Appended:
        assert origin is Origin.COORDINATOR
        if self.refusal is not None:
            raise self.refusal
        log = self.log
        base_offset = log.log_end_offset
        log.batches.append(base_offset.to_bytes(8, "big") + records[8:])
        log.log_end_offset += parse_header(records).record_count
        if not self.holds_flushes:
            log.high_watermark = log.log_end_offset
        return Appended(base_offset, log.log_end_offset - 1, -1, 0)

    def wake(self) -> None:
        """Nobody waits for records."""

    def when_flushed(self, offset_exclusive: int) -> asyncio.Future[None] | None:
        if offset_exclusive <= self.log.high_watermark:
            return None
        if self._flushed is None:
            self._flushed = asyncio.get_running_loop().create_future()
        return self._flushed

    def end_flush(self, error: KafkaError | None = None) -> None:
        flushed, self._flushed = self._flushed, None
        if error is None:
            self.log.high_watermark = self.log.log_end_offset
        if flushed is not None and error is None:
            flushed.set_result(None)
        elif flushed is not None and error is not None:
            flushed.set_exception(error)


class Topics:
    """The part of the topic registry that groups look at."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.created: dict[str, SimpleNamespace] = {}
        self.refusal: KafkaError | None = None
        self.version = 0

    def get(self, name: str) -> SimpleNamespace | None:
        return self.created.get(name)

    def id_of(self, name: str) -> uuid.UUID | None:
        topic = self.created.get(name)
        return topic and topic.topic_id

    def all(self) -> list[SimpleNamespace]:
        return list(self.created.values())

    def by_id(self, topic_id: uuid.UUID) -> SimpleNamespace | None:
        return next((topic for topic in self.all() if topic.topic_id == topic_id), None)

    async def create_durably(self, name: str, partitions: int, overrides: Mapping[str, str]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.create(name, partitions, overrides)

    def create(self, name: str, partitions: int, overrides: Mapping[str, str]) -> None:
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        self.created[name] = SimpleNamespace(
            name=name, topic_id=topic_id, partition_count=partitions, overrides=dict(overrides)
        )
        self.version += 1
        for index in range(partitions):
            self._world.partitions[TopicPartition(name, index)] = MemoryPartition()


class World:
    """One coordinator and the disk under it; `restart` keeps only the disk."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.config = dataclasses.replace(BrokerConfig(), offsets_topic_num_partitions=3, **settings)
        self.partitions: dict[TopicPartition, MemoryPartition] = {}
        self.authorizer = None
        self.group_settings = GroupSettings(cast("Node", self), cast("MetadataLog", None))
        self.topics = Topics(self)
        self.topics.create("rows", 2, {})
        self.topics.create("columns", 1, {})
        self.topics.create(OFFSETS_TOPIC, 3, {})
        self.node_id = 1
        self.groups = self._coordinator()

    def _coordinator(self) -> GroupCoordinator:
        topics, shares = cast("TopicRegistry", self.topics), cast("ShareCoordinator", None)
        return GroupCoordinator(cast("Node", self), topics, self.group_settings, None, shares)

    def partition(self, topic: str, index: int) -> MemoryPartition | None:
        return self.partitions.get(TopicPartition(topic, index))

    def run_blocking(self, function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(function(*arguments))
        return done

    async def restart(self) -> None:
        await self.groups.stop()
        self.clock = ManualClock(self.clock.now_ms())
        self.groups = self._coordinator()
        await self.groups.load()

    # the disk

    def offsets_partitions(self) -> list[MemoryPartition]:
        return [partition for place, partition in self.partitions.items() if place.topic == OFFSETS_TOPIC]

    def stored(self) -> list[Record]:
        return [record for partition in self.offsets_partitions() for record in partition.log.records()]

    def stored_values(self, kind: int) -> list[Any]:
        """What the records of a kind say, in their order; None for a tombstone."""
        prefix = kind.to_bytes(2, "big")
        values = []
        for record in self.stored():
            if record.key is not None and record.key.startswith(prefix):
                key = kinds.read_key(kind, record.key)
                assert key is not None
                change = kinds.read_change(key, record.value) if record.value is not None else None
                values.append(change and change.value)
        return values

    def hold_flushes(self) -> None:
        for partition in self.offsets_partitions():
            partition.holds_flushes = True

    async def flush(self, error: KafkaError | None = None) -> None:
        for partition in self.offsets_partitions():
            partition.end_flush(error)
        await settle()

    def refuse_appends(self, code: ErrorCode | None) -> None:
        for partition in self.offsets_partitions():
            partition.refusal = None if code is None else KafkaError(code, "refused by the test")

    # requests

    def group(self, group_id: str = "g") -> Group:
        group = self.groups.find(group_id)
        assert isinstance(group, Group)
        return group

    def state(self, group_id: str = "g") -> GroupState:
        return self.group(group_id).state

    def join(self, member_id: str = "", **changes: Any) -> JoinResult | asyncio.Future[JoinResult]:
        """A JoinGroup as version 9 would make it, but for an id that is not asked for twice."""
        request = JoinRequest(
            group_id="g",
            member_id=member_id,
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=RANGE,
            requires_known_member_id=False,
            can_skip_assignment=True,
        )
        return self.groups.join(dataclasses.replace(request, **changes))

    def joining(self, member_id: str = "", **changes: Any) -> asyncio.Future[JoinResult]:
        """A JoinGroup that has to wait."""
        answer = self.join(member_id, **changes)
        assert isinstance(answer, asyncio.Future)
        return answer

    def sync(
        self, result: JoinResult, assignments: Mapping[str, bytes] | None = None, **changes: Any
    ) -> SyncResult | asyncio.Future[SyncResult]:
        request = SyncRequest(
            group_id="g",
            generation=result.generation,
            member_id=result.member_id,
            group_instance_id=None,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignments=assignments or {},
        )
        return self.groups.sync(dataclasses.replace(request, **changes))

    def heartbeat(self, result: JoinResult, instance_id: str | None = None, group_id: str = "g") -> ErrorCode:
        return self.groups.heartbeat(group_id, result.generation, result.member_id, instance_id)

    async def form(self, *instances: str | None, group_id: str = "g") -> list[JoinResult]:
        """A stable group with one member for each of `instances`; the leader first."""
        waiting = [self.joining(group_instance_id=instance, group_id=group_id) for instance in instances]
        self.clock.advance(2 * self.config.group_initial_rebalance_delay_ms)
        results = [waiter.result() for waiter in waiting]
        results.sort(key=lambda result: result.member_id != result.leader_id)
        await self.assign(results, group_id=group_id)
        return results

    async def assign(self, results: list[JoinResult], group_id: str = "g") -> list[SyncResult]:
        """All sync, the leader last; everybody is assigned its own member id."""
        assignments = {result.member_id: result.member_id.encode() for result in results}
        answers: list[SyncResult] = []
        waits = []
        for result in sorted(results, key=lambda result: result.member_id == result.leader_id):
            member = self.group(group_id).members[result.member_id]
            given = assignments if result.member_id == result.leader_id else {}
            waits.append(
                self.sync(result, given, group_id=group_id, group_instance_id=member.group_instance_id)
            )
        await settle()
        for wait in waits:
            answers.append(wait if isinstance(wait, SyncResult) else wait.result())
        assert self.state(group_id) is GroupState.STABLE
        return answers

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        by: JoinResult | None = None,
        metadata: str = "",
        group_id: str = "g",
        version: int = 9,
        retention_ms: int = -1,
        producer: Producer | None = None,
        instance_id: str | None = None,
    ) -> Outcome:
        request = CommitRequest(
            group_id=group_id,
            member_id=by.member_id if by else "",
            group_instance_id=instance_id,
            generation=by.generation if by else -1,
            retention_ms=retention_ms,
            positions=[Position(place, offset, 0, metadata) for place, offset in offsets.items()],
            producer=producer,
        )
        return self.groups.commit(request, api_version=version)

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Sequence[str] | None = None,
        owned: Partitions | None = None,
        group_id: str = "g",
        **changes: Any,
    ) -> Beat:
        """A ConsumerGroupHeartbeat as version 1 would make it; joining, it says all that it has to."""
        joins = epoch == JOIN_EPOCH
        request = Heartbeat(
            group_id=group_id,
            member_id=member_id,
            epoch=epoch,
            instance_id=None,
            rack_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else None,
            topic_names=frozenset(("rows",) if joins and topics is None else topics) if joins or topics
            else None,
            topic_regex=None,
            server_assignor=None,
            owned={} if joins else owned,
        )  # fmt: skip
        return self.groups.beat(dataclasses.replace(request, **changes), api_version=1)

    def consumer_group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.groups.find(group_id)
        assert isinstance(group, ConsumerGroup)
        return group

    def rows(self, *partitions: int) -> Partitions:
        """Partitions of the topic rows, by its id."""
        return {self.topics.created["rows"].topic_id: frozenset(partitions)} if partitions else {}

    def expire(self, now_ms: int) -> int:
        """Expire as if it were `now_ms`; how many offsets went."""
        before = self._offset_count()
        for _ in self.groups.expire_offsets(now_ms):
            pass
        return before - self._offset_count()

    def _offset_count(self) -> int:
        return sum(len(group.offsets.committed) for group in self.groups.groups.values())

    def committed(self, group_id: str = "g") -> dict[TopicPartition, int]:
        return {place: commit.offset for place, commit in self.groups.fetch_offsets(group_id).items()}


async def settle() -> None:
    """Let the callbacks of finished futures run."""
    for _ in range(5):
        await asyncio.sleep(0)


def refused(call: Callable[[], Any]) -> ErrorCode:
    """The code that `call` is refused with."""
    try:
        answer = call()
    except KafkaError as error:
        return error.code
    raise AssertionError(f"was not refused but answered {answer}")
