"""What a partition of `__consumer_offsets` says of its groups, read on a thread at start.

Offsets, of which there may be a million, are made of their records there: the event loop, on which clients
are answered already, has one step a group left.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, NamedTuple

from broker.groups.kinds import RecordKey
from broker.groups.offsets import Commit
from broker.groups.records import GroupKey, Key, OffsetKey, read_commit, read_key
from broker.latest_values import read_latest_values
from protocol.errors import MalformedFrame, UnsupportedVersion
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from storage.log import Log

logger = logging.getLogger(__name__)


UNREADABLE = (MalformedFrame, UnsupportedVersion, struct.error)
"""what is wrong with a record that is skipped; a newer broker may have written it"""
SKIPPED = "unreadable record of %s, skipped: %s"


class Contents(NamedTuple):
    """The records of groups, of whatever kind is known here."""

    groups: dict[GroupKey | RecordKey, bytes]
    """of every key its last record's value; what a tombstone ended is not there"""
    committed: dict[str, dict[TopicPartition, Commit]]
    """by group id, where it stands"""
    undecided: dict[int, list[tuple[OffsetKey, Commit]]]
    """by producer id, the offsets that a transaction which has not ended commits"""


def read_contents(log: Log) -> Contents:
    """Read a whole partition, waiting for the disk; a transaction's records count from its marker on."""
    values, undecided = read_latest_values(log)
    latest: dict[Key, tuple[int, bytes]] = {}
    for raw_key, (offset, value) in values.items():
        key = _key_at(offset, raw_key)
        # The two versions of an offset's key mean the same key.
        if key is not None and (key not in latest or latest[key][0] < offset):
            latest[key] = (offset, value)
    contents = Contents({}, {}, {})
    for key, (offset, value) in latest.items():
        if not isinstance(key, OffsetKey):
            contents.groups[key] = value
        elif (commit := _commit_at(offset, key, value)) is not None:
            contents.committed.setdefault(key.group_id, {})[key.topic_partition] = commit
    for producer_id, entries in undecided.items():
        for raw_key, offset, pending in entries:
            key = _key_at(offset, raw_key)
            if isinstance(key, OffsetKey) and pending is not None:
                commit = _commit_at(offset, key, pending)
                if commit is not None:
                    contents.undecided.setdefault(producer_id, []).append((key, commit))
    return contents


def _commit_at(offset: int, key: OffsetKey, value: bytes) -> Commit | None:
    try:
        return read_commit(value, offset)
    except UNREADABLE as error:
        logger.warning(SKIPPED, key, error)
        return None


def _key_at(offset: int, raw_key: bytes) -> Key | None:
    try:
        return read_key(raw_key)
    except (MalformedFrame, struct.error):
        logger.warning("unreadable key of a group record at offset %d, skipped", offset)
        return None
