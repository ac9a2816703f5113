"""What is known of a partition that a share group reads <-> bytes of `__share_group_state`.

Kafka's schemas: now and then all of it (ShareSnapshot), in between what has changed (ShareUpdate).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.share.partition import ShareKey, Stored
from broker.share.state_batches import DeliveryState, StateBatch
from protocol.batch import is_intact
from protocol.codegen import decode, encode
from protocol.errors import KafkaError, MalformedFrame
from protocol.messages.internal_share_groups import ShareSnapshotValue, ShareStateKey, ShareUpdateValue
from protocol.messages.internal_share_groups import StateBatch as WrittenBatch
from protocol.records import decode_batch

if TYPE_CHECKING:
    from storage.log import Log

logger = logging.getLogger(__name__)

_VERSION = struct.Struct(">h")
SNAPSHOT, UPDATE = 0, 1
Contents = dict[ShareKey, Stored]


def state_key(key: ShareKey, kind: int) -> bytes:
    """The key of a record of this kind."""
    message = ShareStateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _VERSION.pack(kind) + b"".join(encode(message, kind))


def snapshot_value(stored: Stored, batches: Sequence[StateBatch], now_ms: int) -> bytes:
    """All that is known."""
    value = ShareSnapshotValue(
        snapshot_epoch=stored.snapshot_epoch,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        delivery_complete_count=stored.complete_count,
        create_timestamp=stored.created_ms,
        write_timestamp=now_ms,
        state_batches=_written(batches),
    )
    return _VERSION.pack(0) + b"".join(encode(value, 0))


def update_value(stored: Stored, batches: Sequence[StateBatch]) -> bytes:
    """What has changed: these batches, and where the group stands."""
    value = ShareUpdateValue(
        snapshot_epoch=stored.snapshot_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        delivery_complete_count=stored.complete_count,
        state_batches=_written(batches),
    )
    return _VERSION.pack(0) + b"".join(encode(value, 0))


def read_contents(log: Log) -> Contents:
    """Read a whole partition of `__share_group_state`, waiting for the disk."""
    contents: Contents = {}
    for header, data in log.scan(log.log_start_offset):
        if not is_intact(data, 0, header):
            logger.error("batch at offset %d of %s skipped", header.base_offset, log.topic_partition)
            continue
        if header.is_control:
            continue
        for record in decode_batch(data):
            try:
                if record.key is not None:
                    _read(contents, record.key, record.value, record.offset)
            except (MalformedFrame, KafkaError, ValueError, struct.error) as error:
                logger.warning(
                    "unreadable record at offset %d of %s, skipped: %s",
                    record.offset, log.topic_partition, error,
                )  # fmt: skip
    return contents


def _read(contents: Contents, raw_key: bytes, value: bytes | None, offset: int) -> None:
    (kind,) = _VERSION.unpack_from(raw_key)
    if kind not in (SNAPSHOT, UPDATE):
        return
    read_key = decode(ShareStateKey, kind, bytes(raw_key), _VERSION.size)
    key = ShareKey(read_key.group_id, read_key.topic_id, read_key.partition)
    if value is None:
        contents.pop(key, None)
    elif kind == SNAPSHOT:
        all_of_it = decode(ShareSnapshotValue, 0, bytes(value), _VERSION.size)
        contents[key] = Stored(
            snapshot_epoch=all_of_it.snapshot_epoch,
            state_epoch=all_of_it.state_epoch,
            leader_epoch=all_of_it.leader_epoch,
            start_offset=all_of_it.start_offset,
            complete_count=all_of_it.delivery_complete_count,
            created_ms=all_of_it.create_timestamp,
            batches=_batches(all_of_it.state_batches),
            snapshot_at=offset,
        )
    elif key in contents:
        change = decode(ShareUpdateValue, 0, bytes(value), _VERSION.size)
        contents[key].update(
            change.start_offset,
            change.delivery_complete_count,
            change.leader_epoch,
            _batches(change.state_batches),
        )


def _written(batches: Sequence[StateBatch]) -> list[WrittenBatch]:
    return [
        WrittenBatch(
            first_offset=one.first,
            last_offset=one.last,
            delivery_state=one.state,
            delivery_count=one.deliveries,
        )
        for one in batches
    ]


def _batches(written: Sequence[WrittenBatch]) -> list[StateBatch]:
    return [
        StateBatch(one.first_offset, one.last_offset, DeliveryState(one.delivery_state), one.delivery_count)
        for one in written
    ]
