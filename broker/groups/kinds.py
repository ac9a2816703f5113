"""Records that groups of the newer protocols write to `__consumer_offsets` <-> bytes: which kinds there are.

A key begins with its kind, an int16, and names the group and, for some kinds, which member (or regular
expression) it is of; a value begins with its version, which is 0. What the kinds say is in `changes.py` of
`consumer/`, `share/` and `streams/`. Kafka's `CoordinatorRecordType`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from protocol.codegen import decode, encode
from protocol.messages import internal_consumer_groups as consumer
from protocol.messages import internal_share_groups as share
from protocol.messages import internal_streams_groups as streams
from protocol.messages.internal import GroupPartKey, GroupRecordKey

_KIND = struct.Struct(">h")
_VALUE_VERSION = struct.Struct(">h")
_NEWEST_VALUE = 0


class Protocol(Enum):
    """Whose groups a kind is of."""

    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Kind(NamedTuple):
    """What records of a kind are."""

    protocol: Protocol
    value: type[Any] | None
    """None where records are only read over"""
    is_of_part: bool = False
    """whether it is there once a member, or a regular expression, not once a group"""


KINDS: Mapping[int, Kind] = {
    3: Kind(Protocol.CONSUMER, consumer.ConsumerGroupMetadataValue),
    4: Kind(Protocol.CONSUMER, None),  # topics, as older brokers noted them
    5: Kind(Protocol.CONSUMER, consumer.ConsumerGroupMemberMetadataValue, True),
    6: Kind(Protocol.CONSUMER, consumer.ConsumerGroupTargetAssignmentMetadataValue),
    7: Kind(Protocol.CONSUMER, consumer.ConsumerGroupTargetAssignmentMemberValue, True),
    8: Kind(Protocol.CONSUMER, consumer.ConsumerGroupCurrentMemberAssignmentValue, True),
    10: Kind(Protocol.SHARE, share.ShareGroupMemberMetadataValue, True),
    11: Kind(Protocol.SHARE, share.ShareGroupMetadataValue),
    12: Kind(Protocol.SHARE, share.ShareGroupTargetAssignmentMetadataValue),
    13: Kind(Protocol.SHARE, share.ShareGroupTargetAssignmentMemberValue, True),
    14: Kind(Protocol.SHARE, share.ShareGroupCurrentMemberAssignmentValue, True),
    15: Kind(Protocol.SHARE, share.ShareGroupStatePartitionMetadataValue),
    16: Kind(Protocol.CONSUMER, consumer.ConsumerGroupRegularExpressionValue, True),
    17: Kind(Protocol.STREAMS, streams.StreamsGroupMetadataValue),
    19: Kind(Protocol.STREAMS, streams.StreamsGroupMemberMetadataValue, True),
    20: Kind(Protocol.STREAMS, streams.StreamsGroupTargetAssignmentMetadataValue),
    21: Kind(Protocol.STREAMS, streams.StreamsGroupTargetAssignmentMemberValue, True),
    22: Kind(Protocol.STREAMS, streams.StreamsGroupCurrentMemberAssignmentValue, True),
    23: Kind(Protocol.STREAMS, streams.StreamsGroupTopologyValue),
}


class RecordKey(NamedTuple):
    """What a record is about: its kind, the group, and which member or regular expression."""

    kind: int
    group_id: str
    of: str = ""

    @property
    def protocol(self) -> Protocol:
        return KINDS[self.kind].protocol

    def encoded(self) -> bytes:
        message: object = GroupRecordKey(group_id=self.group_id)
        if KINDS[self.kind].is_of_part:
            message = GroupPartKey(group_id=self.group_id, part=self.of)
        return _KIND.pack(self.kind) + b"".join(encode(message, self.kind))


class Change(NamedTuple):
    """A record; without a value, what ends one."""

    key: RecordKey
    value: Any


def read_key(kind: int, key: bytes) -> RecordKey | None:
    """What a record is about; None where the kind is not one of these. MalformedFrame: it cannot be read."""
    if kind not in KINDS:
        return None
    if KINDS[kind].is_of_part:
        of_part = decode(GroupPartKey, kind, key, _KIND.size)
        return RecordKey(kind, of_part.group_id, of_part.part)
    return RecordKey(kind, decode(GroupRecordKey, kind, key, _KIND.size).group_id)


def read_change(key: RecordKey, value: bytes) -> Change | None:
    """The change that a record is; None for what is only read over. MalformedFrame, UnsupportedVersion: it
    cannot be read.
    """
    value_class = KINDS[key.kind].value
    if value_class is None:
        return None
    (version,) = _VALUE_VERSION.unpack_from(value)
    return Change(key, decode(value_class, version, value, _VALUE_VERSION.size))


def encoded(change: Change) -> tuple[bytes, bytes | None]:
    """The record of a change."""
    key, value = change
    if value is None:
        return key.encoded(), None
    return key.encoded(), _VALUE_VERSION.pack(_NEWEST_VALUE) + b"".join(encode(value, _NEWEST_VALUE))
