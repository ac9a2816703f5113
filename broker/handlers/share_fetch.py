"""ShareFetch (key 78), v1-v2: a member of a share group takes records (KIP-932).

A session says which partitions it fetches (`broker/share/sessions.py`); what it says of earlier deliveries is
taken first. Of each partition it is read from the first offset that is available on, and what the member
acquires of that is answered: whole batches, of which it has those offsets that are named. With nothing to
acquire the fetch waits until `min_bytes` are there, somebody gives something back, or `max_wait_ms` is over.
v2 brings `max_records` as a limit (KIP-1206), and requests that only renew (KIP-1222).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from broker.api import handles
from broker.context import RequestContext
from broker.handlers.share_acknowledge import NO_LEADER, RENEW_VERSION, Told, check_member, take
from broker.partition import Partition
from broker.security.authorizer import topics_to_read
from broker.share.acquiring import Run, Wish, acquire, without
from broker.share.batches import ACQUIRED
from broker.share.delivery import InFlight
from broker.share.partition import ShareKey, SharePartition
from broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Member, PartitionAnswer, Place, ShareSession
from config.group import READ_COMMITTED
from protocol.batch import BatchHeader, iterate_headers
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from broker.broker import Broker
    from storage.log import Log
    from storage.types import AbortedTransaction

TopicAnswer = ShareFetchResponse.ShareFetchableTopicResponse
Acquired = PartitionAnswer.AcquiredRecords
NO_LIMIT, RECORD_LIMIT = 0, 1
"""the modes: whether `max_records` is a limit"""
READ_BYTES = 1 << 20
"""so much is read of a partition at a time: who wants few records shall not wait for many"""

# What a member cannot be told of a partition, for KafkaShareConsumer ends with an exception: it shall look up
# the leader, and fetch again.
_UNTOLD = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)

Located = tuple[int, BatchHeader]
"""a batch, and where it lies in what was read"""


class Read(NamedTuple):
    """What was read of a partition."""

    data: memoryview
    batches: Sequence[Located]
    aborted: Sequence[AbortedTransaction]


class Served(NamedTuple):
    """A partition that the member fetches."""

    place: Place
    partition: Partition
    share: SharePartition
    in_flight: InFlight


@handles(ShareFetchRequest)
def share_fetch(
    broker: Broker, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
    try:
        member = check_member(request.group_id, request.member_id)
        is_renew = context.api_version >= RENEW_VERSION and request.is_renew_ack
        if is_renew:
            _check_renewal(request)
        session = _session(broker, context, member, request)
    except KafkaError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _refuse_later(broker, error, request.max_wait_ms)
        return ShareFetchResponse(error_code=error.code)
    told = Told()
    if _tells(request):
        told = take(broker, context, member, request, is_renew=is_renew)
    if request.share_session_epoch == FINAL_EPOCH:
        broker.share_sessions.end(member)
    return ShareFetch(broker, context, member, request, None if is_renew else session, told).answer()


def _check_renewal(request: ShareFetchRequest) -> None:
    """Who only renews asks for nothing."""
    wanted = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    if any(wanted):
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _tells(request: ShareFetchRequest) -> bool:
    return any(asked.acknowledgement_batches for topic in request.topics for asked in topic.partitions)


def _session(
    broker: Broker, context: RequestContext, member: Member, request: ShareFetchRequest
) -> ShareSession | None:
    """The member's session, brought up to date; None for one that ends with this."""
    places = [
        (topic.topic_id, asked.partition_index) for topic in request.topics for asked in topic.partitions
    ]
    sessions = broker.share_sessions
    if request.share_session_epoch == INITIAL_EPOCH:
        if _tells(request):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return sessions.begin(member, places, context.connection)
    session = sessions.find(member, request.share_session_epoch)
    if request.share_session_epoch == FINAL_EPOCH:
        return None
    forgotten = [
        (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    session.apply(places, forgotten)
    return session


async def _refuse_later(broker: Broker, error: KafkaError, wait_ms: int) -> ShareFetchResponse:
    """A client asks again at once."""
    await broker.clock.sleep(wait_ms)
    return ShareFetchResponse(error_code=error.code)


class ShareFetch:
    """One ShareFetch on its way. Owned by: event loop."""

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        member: Member,
        request: ShareFetchRequest,
        session: ShareSession | None,
        told: Told,
    ) -> None:
        self._broker = broker
        self._context = context
        self._member = member
        self._request = request
        self._session = session
        self._told = told
        self._config = broker.group_settings.of(member.group_id)
        self._mode = request.share_acquire_mode if context.api_version >= RENEW_VERSION else NO_LIMIT
        self._is_committed_only = self._config.share_isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        if context.usage is not None:
            self._max_bytes = min(self._max_bytes, broker.quotas.most_fetched(context))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._may_read = topics_to_read(broker.authorizer, context)
        self._answers: dict[Place, PartitionAnswer] = {}

    async def answer(self) -> ShareFetchResponse:
        if self._session is not None:
            places = self._in_turn(self._session)
            if self._mode not in (NO_LIMIT, RECORD_LIMIT) and any(map(self._is_there, places)):
                # As in Kafka, which breaks off here; what was said of deliveries holds.
                return ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            served = await self._open(places)
            if served and self._request.max_records and self._request.max_bytes:
                await self._wait(served)
                await self._acquire(served)
        if self._told.waits:
            await asyncio.wait(set(self._told.waits))
        return self._response()

    # which partitions

    def _in_turn(self, session: ShareSession) -> list[Place]:
        """Each fetch begins with another partition."""
        places = list(session.places)
        first = self._request.share_session_epoch % len(places) if places else 0
        return places[first:] + places[:first]

    async def _open(self, places: Iterable[Place]) -> list[Served]:
        served = []
        for place in places:
            try:
                served.append(await self._open_one(place))
            except KafkaError as error:
                self._refuse(place, error)
        return served

    def _is_there(self, place: Place) -> bool:
        try:
            self._partition(place)
        except KafkaError:
            return False
        return True

    def _partition(self, place: Place) -> Partition:
        """KafkaError: there is none for this client."""
        broker = self._broker
        topic_id, index = place
        topic = broker.topics.by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._is_allowed(topic.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = broker.partition(topic.name, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def _is_allowed(self, topic: str) -> bool:
        """Whether the client may read it now: rules may change while it waits."""
        return self._may_read is None or self._may_read(topic)

    async def _open_one(self, place: Place) -> Served:
        partition = self._partition(place)
        if partition.log.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.offline_reason)
        broker = self._broker
        share = broker.shares.find(ShareKey(self._member.group_id, *place))
        if share is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has no beginning in this partition.")
        in_flight = share.in_flight
        if in_flight is None:
            in_flight = await broker.shares.open(share, partition)
        return Served(place, partition, share, in_flight)

    def _refuse(self, place: Place, error: KafkaError) -> None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _UNTOLD else error.code
        self._answers[place] = PartitionAnswer(
            partition_index=place[1],
            error_code=code,
            error_message=error.message or None,
            current_leader=NO_LEADER,
            records=b"",
        )

    # waiting

    async def _wait(self, served: Sequence[Served]) -> None:
        """Return when there is enough to acquire, or the time is up."""
        if self._request.max_wait_ms <= 0 or self._request.max_bytes < 0 or self._has_enough(served):
            return
        delayed = self._broker.purgatory.delay(
            tuple({one.partition for one in served}),
            lambda _: self._has_enough(served),
            self._request.max_wait_ms,
        )
        try:
            await delayed.done
        finally:
            delayed.complete()

    def _has_enough(self, served: Sequence[Served]) -> bool:
        found_bytes = 0
        for one in served:
            log = one.partition.log
            if log.offline_reason is not None or not self._is_current(one):
                return True  # the answer says it
            if not self._is_allowed(log.topic_partition.topic):
                return True
            if not self._has_room(one):
                continue
            offset, upper_offset = one.in_flight.next_fetch_offset(), self._upper_offset(log)
            if offset < log.log_start_offset or offset > log.log_end_offset:
                return True
            if offset >= upper_offset:
                continue
            if self._min_bytes <= 1:
                return True
            try:
                found = log.read(offset, self._max_bytes, upper_offset=upper_offset)
            except (KafkaError, OSError):
                return True  # the answer says that too
            found_bytes += found.counted_bytes
        return found_bytes >= self._min_bytes

    def _upper_offset(self, log: Log) -> int:
        return log.last_stable_offset if self._is_committed_only else log.high_watermark

    def _is_current(self, one: Served) -> bool:
        """Whether the group has not begun elsewhere, or forgotten the partition, and that is still there."""
        known = self._broker.shares.partitions.get(one.share.key)
        return known is one.share and not one.partition.is_forgotten

    # acquiring

    def _has_room(self, one: Served) -> bool:
        """Whether a member could get anything. If not, what is over at the beginning is forgotten: of what
        the broker gave up itself (it was aborted, or is in the log no more) no member says anything, behind
        which that would happen, and the group would get nothing any more. In Kafka it does not.
        """
        limit = self._config.share_partition_max_record_locks
        if not one.in_flight.can_acquire(limit):
            one.in_flight.advance()
        return one.in_flight.can_acquire(limit)

    async def _acquire(self, served: Sequence[Served]) -> None:
        """Read, and let the member have what it asks for of that."""
        served = [one for one in served if self._has_room(one)]
        room = self._request.max_records
        for one in served:
            answer = PartitionAnswer(partition_index=one.place[1], current_leader=NO_LEADER, records=b"")
            self._answers[one.place] = answer
            if self._max_bytes < 0:
                answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            if room <= 0 or self._max_bytes < 0:
                continue
            try:
                acquired = await self._acquire_of(one, answer, room, self._max_bytes // len(served))
            except KafkaError as error:
                self._refuse(one.place, error)
                continue
            room -= sum(run.size for run in acquired)
            answer.acquired_records = [
                Acquired(first_offset=run.first, last_offset=run.last, delivery_count=run.deliveries)
                for run in acquired
            ]

    async def _acquire_of(self, one: Served, answer: PartitionAnswer, room: int, max_bytes: int) -> list[Run]:
        log, in_flight = one.partition.log, one.in_flight
        offset = in_flight.next_fetch_offset()
        try:
            data, batches, aborted = await self._read(log, offset, min(max_bytes, READ_BYTES))
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            in_flight.start_at(log.log_start_offset)
            return []
        if not self._is_current(one):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not self._is_allowed(log.topic_partition.topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        lock_ms = self._config.share_record_lock_duration_ms
        wish = Wish(
            member_id=self._member.member_id,
            max_records=room,
            batch_size=self._request.batch_size,
            is_limit=self._mode == RECORD_LIMIT,
            record_limit=self._config.share_partition_max_record_locks,
            count_limit=self._config.share_delivery_count_limit,
            lock_until_ms=self._broker.clock.passed_ms() + lock_ms,
        )
        read = [Run(header.base_offset, header.last_offset) for _, header in batches]
        acquired = acquire(in_flight, wish, read, offset)
        gone = aborted_batches(batches, aborted)
        for run in gone:
            in_flight.archive(run.first, run.last, ACQUIRED)
        acquired = without(acquired, gone)
        if acquired:
            self._broker.shares.note_acquired(one.share, lock_ms)
            answer.records = _slice(data, batches, acquired[0].first, acquired[-1].last)
            one.partition.counters.bytes_out += len(answer.records)
        elif gone and self._has_room(one):
            one.partition.wake()
        return acquired

    async def _read(self, log: Log, offset: int, max_bytes: int) -> Read:
        """Whole batches from `offset` on, at least one, and which transactions among them were aborted."""
        upper_offset = self._upper_offset(log)
        if log.log_start_offset <= offset and upper_offset <= offset <= log.log_end_offset:
            return Read(memoryview(b""), (), ())
        found = log.read(offset, max(1, max_bytes), upper_offset=upper_offset)
        aborted: Sequence[AbortedTransaction] | None = None
        data = found.read_now()
        if data is None:
            if self._is_committed_only:  # now: retention may take it out of the log with its segment
                aborted = log.aborted_transactions(offset, upper_offset)
            data = await self._broker.run_blocking(found.read)
        batches = list(iterate_headers(data))
        if aborted is None and self._is_committed_only and batches:
            aborted = log.aborted_transactions(offset, batches[-1][1].next_offset)
        return Read(memoryview(data), batches, aborted or ())

    # answering

    def _response(self) -> ShareFetchResponse:
        session, epoch = self._session, self._request.share_session_epoch
        answers = self._answers
        if session is not None and epoch != INITIAL_EPOCH:
            answers = {place: one for place, one in answers.items() if session.has_news(place, one)}
        for place, code, message in self._told.results():
            answer = answers.get(place)
            if answer is None:
                answer = answers[place] = PartitionAnswer(
                    partition_index=place[1], current_leader=NO_LEADER, records=b""
                )
            answer.acknowledge_error_code, answer.acknowledge_error_message = code, message
        topics: dict[UUID, TopicAnswer] = {}
        for (topic_id, _), answer in answers.items():
            topics.setdefault(topic_id, TopicAnswer(topic_id=topic_id)).partitions.append(answer)
        return ShareFetchResponse(
            throttle_time_ms=self._throttle_time_ms(),
            acquisition_lock_timeout_ms=self._config.share_record_lock_duration_ms,
            responses=list(topics.values()),
        )

    def _throttle_time_ms(self) -> int:
        """What the member has is its own by now, and counts. Apache Kafka answers a member beyond its quota
        without the records, which nobody has then until their locks are over.
        """
        if self._context.usage is None:
            return 0
        size_bytes = sum(len(answer.records or b"") for answer in self._answers.values())
        return self._broker.quotas.fetch_shared(self._context, size_bytes)


def aborted_batches(batches: Sequence[Located], aborted: Sequence[AbortedTransaction]) -> list[Run]:
    """The batches of transactions that were aborted."""
    of_producer: dict[int, list[AbortedTransaction]] = {}
    for one in aborted:  # of one producer each comes behind the one before
        of_producer.setdefault(one.producer_id, []).append(one)
    found = []
    for _, header in batches:
        ended = of_producer.get(header.producer_id)
        if ended is not None and header.is_transactional and not header.is_control:
            index = bisect_right(ended, header.base_offset, key=_first_of)
            if index and header.base_offset <= ended[index - 1].last_offset:
                found.append(Run(header.base_offset, header.last_offset))
    return found


def _first_of(one: AbortedTransaction) -> int:
    return one.first_offset


def _slice(data: memoryview, batches: Sequence[Located], first: int, last: int) -> memoryview:
    """The batches that hold `first` to `last`."""
    kept = [
        (position, position + header.size_bytes)
        for position, header in batches
        if header.last_offset >= first and header.base_offset <= last
    ]
    return data[kept[0][0] : kept[-1][1]] if kept else data[:0]
