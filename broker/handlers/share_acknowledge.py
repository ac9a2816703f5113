"""ShareAcknowledge (key 79), v1-v2: how deliveries to a member of a share group went (KIP-932).

What a member says comes with a ShareFetch as well, and is taken in the same way here: each partition for
itself, whole or not at all, and answered once it is durable. v2 brings the type "renew" (KIP-1222).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.api import Later, handles
from broker.context import RequestContext
from broker.security.authorizer import topics_to_read
from broker.share.delivery import Acknowledgement, AckType
from broker.share.partition import ShareKey
from broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Member, Place
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_fetch import (
    LeaderIdAndEpoch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

TopicAnswer = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
PartitionAnswer = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse.PartitionData

RENEW_VERSION = 2
LONGEST_MEMBER_ID = 36
NO_LEADER = LeaderIdAndEpoch()


class Told:
    """What became of what a member said: an error or none for each partition, final once `waits` are done."""

    def __init__(self) -> None:
        self.errors: dict[Place, KafkaError | None] = {}
        self._flushes: dict[Place, list[asyncio.Future[None]]] = {}

    @property
    def waits(self) -> list[asyncio.Future[None]]:
        return [flushed for of_place in self._flushes.values() for flushed in of_place]

    def is_written(self, place: Place, flushes: list[asyncio.Future[None]]) -> None:
        self.errors[place] = None
        self._flushes[place] = flushes

    def results(self) -> Iterable[tuple[Place, int, str | None]]:
        """The error code and message of each partition."""
        for place, error in self.errors.items():
            for flushed in self._flushes.get(place, ()):
                if flushed.exception() is not None:
                    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it could not be written down")
            yield place, *((ErrorCode.NONE, None) if error is None else (error.code, error.message or None))


def check_member(group_id: str | None, member_id: str | None) -> Member:
    """Who asks; KafkaError if that cannot be."""
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not member_id or len(member_id) > LONGEST_MEMBER_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return Member(group_id, member_id)


@handles(ShareAcknowledgeRequest)
def share_acknowledge(
    broker: Broker, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Later:
    try:
        member = check_member(request.group_id, request.member_id)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = broker.share_sessions.find(member, request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code)
    if request.share_session_epoch != FINAL_EPOCH:
        session.apply((), ())
    told = take(broker, context, member, request, is_renew=request.is_renew_ack)

    def finish() -> ShareAcknowledgeResponse:
        return _response(broker, member, told)

    if request.share_session_epoch == FINAL_EPOCH:
        broker.share_sessions.end(member)
    return Later(told.waits, finish) if told.waits else finish()


def _response(broker: Broker, member: Member, told: Told) -> ShareAcknowledgeResponse:
    topics: dict[UUID, TopicAnswer] = {}
    for (topic_id, index), code, message in told.results():
        topic = topics.setdefault(topic_id, TopicAnswer(topic_id=topic_id))
        topic.partitions.append(
            PartitionAnswer(
                partition_index=index, error_code=code, error_message=message, current_leader=NO_LEADER
            )
        )
    lock_ms = broker.group_settings.of(member.group_id).share_record_lock_duration_ms
    return ShareAcknowledgeResponse(responses=list(topics.values()), acquisition_lock_timeout_ms=lock_ms)


def take(broker: Broker, context: RequestContext, member: Member, request: Any, *, is_renew: bool) -> Told:
    """Take what a ShareAcknowledge or ShareFetch says of deliveries."""
    may_read = topics_to_read(broker.authorizer, context)
    told = Told()
    silent: list[Place] = []
    is_any_told = False
    for topic in request.topics:
        known = broker.topics.by_id(topic.topic_id)
        for asked in topic.partitions:
            place = topic.topic_id, asked.partition_index
            try:
                if known is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                batches = _checked(asked.acknowledgement_batches, context.api_version, is_renew)
                if may_read is not None and not may_read(known.name):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if broker.partition(known.name, asked.partition_index) is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if not batches:
                    silent.append(place)
                    continue
                is_any_told = True
                key = ShareKey(member.group_id, *place)
                told.is_written(place, broker.shares.acknowledge(key, member.member_id, batches))
            except KafkaError as error:
                told.errors[place] = error
    if is_any_told:  # as in Kafka, which answers nothing of partitions that nothing is said of otherwise
        told.errors.update(dict.fromkeys(silent))
    return told


def _checked(batches: Sequence[Any], version: int, is_renew: bool) -> list[Acknowledgement]:
    """Runs that can be one behind the other; INVALID_REQUEST otherwise."""
    highest = AckType.RENEW if version >= RENEW_VERSION else AckType.REJECT
    checked: list[Acknowledgement] = []
    end = -1
    for batch in batches:
        one = Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
        is_in_order = end <= one.first <= one.last
        fits = len(one.types) == 1 or len(one.types) == one.last - one.first + 1
        types = set(one.types)
        are_known = all(AckType.GAP <= ack_type <= highest for ack_type in types)
        if not (is_in_order and fits and are_known and (is_renew or AckType.RENEW not in types)):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        end = one.last
        checked.append(one)
    return checked
