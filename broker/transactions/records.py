"""States of transactional ids <-> bytes of `__transaction_state`.

Kafka's schemas, the int16 before them says which. Of clients that know transactions v2 TransactionLogValue v1
is written, as by Kafka; of others v0, so that every Apache Kafka and its formatter read the topic. Both are
read.
"""

from __future__ import annotations

import struct

from broker.transactions.state import Status, TransactionState
from protocol.codegen import decode, encode
from protocol.errors import MalformedFrame
from protocol.messages.internal import TransactionLogKey, TransactionLogValue
from storage.layout import TopicPartition

_VERSION = struct.Struct(">h")
_KEY_VERSION = 0


def state_key(transactional_id: str) -> bytes:
    key = TransactionLogKey(transactional_id=transactional_id)
    return _VERSION.pack(_KEY_VERSION) + b"".join(encode(key, _KEY_VERSION))


def state_value(state: TransactionState) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(state.partitions):
        by_topic.setdefault(topic, []).append(index)
    value = TransactionLogValue(
        producer_id=state.producer_id,
        previous_producer_id=state.previous_producer_id,
        next_producer_id=state.next_producer_id,
        producer_epoch=state.epoch,
        transaction_timeout_ms=state.timeout_ms,
        transaction_status=state.status,
        transaction_partitions=None
        if state.status is Status.EMPTY
        else [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic.items()
        ],
        transaction_last_update_timestamp_ms=state.updated_ms,
        transaction_start_timestamp_ms=state.started_ms,
        client_transaction_version=state.client_version,
    )
    version = 1 if state.client_version else 0
    return _VERSION.pack(version) + b"".join(encode(value, version))


def read_key(key: bytes) -> str:
    """The transactional id; MalformedFrame or struct.error for what is no key."""
    (version,) = _VERSION.unpack_from(key)
    if version != _KEY_VERSION:
        raise MalformedFrame(f"a key of version {version}")
    return decode(TransactionLogKey, version, key, _VERSION.size).transactional_id


def read_state(value: bytes) -> TransactionState:
    """MalformedFrame, UnsupportedVersion or struct.error for what is no value."""
    (version,) = _VERSION.unpack_from(value)
    decoded = decode(TransactionLogValue, version, value, _VERSION.size)
    if decoded.transaction_status not in Status.__members__.values():
        raise MalformedFrame(f"status {decoded.transaction_status}")
    status = Status(decoded.transaction_status)
    return TransactionState(
        decoded.producer_id,
        decoded.producer_epoch,
        decoded.transaction_timeout_ms,
        Status.PREPARE_ABORT if status is Status.PREPARE_EPOCH_FENCE else status,
        frozenset(
            TopicPartition(topic.topic, index)
            for topic in decoded.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        decoded.transaction_start_timestamp_ms,
        decoded.transaction_last_update_timestamp_ms,
        previous_producer_id=decoded.previous_producer_id,
        next_producer_id=decoded.next_producer_id,
        client_version=decoded.client_transaction_version,
    )
