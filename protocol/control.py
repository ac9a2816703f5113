"""Control records: what stands in a control batch instead of data.

A transaction marker (Kafka's `EndTransactionMarker`) is one record whose key says commit or abort and whose
value says which coordinator wrote it. Control batches are made by the broker alone; a client that sends one
is refused.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records import encode_batch

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class ControlType(IntEnum):
    """The kinds of control record. A reader skips a kind it does not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Marker(NamedTuple):
    """The end of a transaction."""

    is_commit: bool
    coordinator_epoch: int = 0


def control_type(key: bytes | None) -> ControlType | None:
    """What the key of a control record says, None for a kind this code does not know."""
    if key is None or len(key) < _KEY.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a control record whose key is too short")
    _, number = _KEY.unpack_from(key)
    return ControlType(number) if number in ControlType.__members__.values() else None


def encode_marker(marker: Marker) -> tuple[bytes, bytes]:
    """Key and value of the marker's record."""
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    return _KEY.pack(0, kind), _VALUE.pack(0, marker.coordinator_epoch)


def decode_marker(key: bytes | None, value: bytes | None) -> Marker | None:
    """The marker of a control record; None when it is a control record of another kind."""
    kind = control_type(key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a transaction marker whose value is too short")
    return Marker(kind == ControlType.COMMIT, _VALUE.unpack_from(value)[1])


def marker_batch(
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    now_ms: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """The control batch that ends a producer's transaction in one partition."""
    key, value = encode_marker(marker)
    return encode_batch(
        [(now_ms, key, value, ())],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )
