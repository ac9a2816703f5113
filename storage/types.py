"""The values that cross the door of storage/: what an append and a read give back, and what limits them.

Plain data; what threads are given to do is in jobs.py, a log at one moment in snapshot.py.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from storage.key_hashes import KeyHashes

NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Origin(Enum):
    """Who appends: a client is not trusted with control batches and has its sequences checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class Appended(NamedTuple):
    """Where a batch went; `log_append_time_ms` is -1 unless the topic stamps LogAppendTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class TimestampOffset(NamedTuple):
    """The answer of a search by time."""

    timestamp: int
    offset: int
    leader_epoch: int


class AbortedTransaction(NamedTuple):
    """One entry of a transaction index (KIP-98): the offsets of an aborted transaction and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LastRecord(NamedTuple):
    """What the cleaner must keep of a living producer; `last_data_offset` is None when only a marker is
    left.
    """

    last_data_offset: int | None
    producer_epoch: int


@dataclass(slots=True)
class LogLimits:
    """What no client can make a log exceed, and what all logs of a broker share: who changes it in place,
    changes it for all of them.
    """

    producer_expiration_ms: int = 86_400_000
    max_producers: int = 100_000
    max_decompressed_bytes: int = 128 * 1024 * 1024
    key_hashes: KeyHashes = field(default_factory=lambda: KeyHashes(0))  # remembers nothing
