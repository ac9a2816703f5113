"""What a partition of `__consumer_offsets` says of its groups, read on a thread at start."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, NamedTuple

from broker.groups.records import Key, OffsetKey, read_key
from broker.latest_values import read_latest_values
from protocol.errors import MalformedFrame

if TYPE_CHECKING:
    from storage.log import Log

logger = logging.getLogger(__name__)


class Contents(NamedTuple):
    """The records of groups, of whatever kind is known here."""

    latest: dict[Key, tuple[int, bytes]]
    """of every key its last record's offset and value; what a tombstone ended is not there"""
    undecided: dict[int, list[tuple[OffsetKey, int, bytes]]]
    """by producer id, the offsets that a transaction which has not ended commits: key, offset, value"""


def read_contents(log: Log) -> Contents:
    """Read a whole partition, waiting for the disk; a transaction's records count from its marker on."""
    values, undecided = read_latest_values(log)
    latest: dict[Key, tuple[int, bytes]] = {}
    for raw_key, (offset, value) in values.items():
        key = _key_at(offset, raw_key)
        # The two versions of an offset's key mean the same key.
        if key is not None and (key not in latest or latest[key][0] < offset):
            latest[key] = (offset, value)
    open_ones: dict[int, list[tuple[OffsetKey, int, bytes]]] = {}
    for producer_id, entries in undecided.items():
        for raw_key, offset, pending in entries:
            key = _key_at(offset, raw_key)
            if isinstance(key, OffsetKey) and pending is not None:
                open_ones.setdefault(producer_id, []).append((key, offset, pending))
    return Contents(latest, open_ones)


def _key_at(offset: int, raw_key: bytes) -> Key | None:
    try:
        return read_key(raw_key)
    except (MalformedFrame, struct.error):
        logger.warning("unreadable key of a group record at offset %d, skipped", offset)
        return None
