"""How records of groups are stored, and what is answered where they cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from broker.groups.contents import Contents
from broker.state_topic import KeyValue, StateTopic
from protocol.errors import ErrorCode, KafkaError

Flushed = asyncio.Future[None]
"""done when what was written is durable"""

STORE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""the answer to a group request whose record could not be stored"""


def append(store: StateTopic[Contents], group_id: str, entries: Sequence[KeyValue]) -> Flushed | None:
    """Write records of a group; None: they are durable. KafkaError, as clients are told it: none is."""
    try:
        return store.append_all(group_id, entries)
    except KafkaError as error:
        raise KafkaError(STORE_ERRORS.get(error.code, error.code), error.message) from error
