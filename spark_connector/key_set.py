"""The keys that a table read has seen: a set of 128-bit hashes in bounded memory.

16 bytes a key, open addressing, next slot on collision; (0, 0) is a free slot. The hash is keyed with a
secret of the process (see `protocol/siphash.py`), so equal hashes are equal keys.

When there are more keys than fit, the set drops half of them, by a bit of the hash, and answers for the
other half only; whoever reads comes back for the dropped half later.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy

from protocol.kernel import kernel
from protocol.record_kernels import KEY_BYTES, KEY_POSITION, LOCATED_ROWS
from protocol.siphash import siphash
from spark_connector.kernels import U64, Bytes, Longs

Hashes = numpy.ndarray[Any, numpy.dtype[numpy.uint64]]
ENTRY_BYTES = 16
FIRST_SLOTS = 1 << 12
LEAST_SLOTS = 1 << 4

SECRET = numpy.frombuffer(secrets.token_bytes(16), numpy.uint64)


@kernel
def hash_rows(data: Bytes, rows: Longs, secret: Hashes, hashes: Hashes) -> None:
    """hashes[i] = both halves of the key's hash; (0, 0) for a record without key."""
    for index in range(rows.shape[0]):
        if rows[index, KEY_BYTES] < 0:
            hashes[index, 0] = U64(0)
            hashes[index, 1] = U64(0)
        else:
            low, high = siphash(data, rows[index, KEY_POSITION], rows[index, KEY_BYTES], secret[0], secret[1])
            if low == U64(0) and high == U64(0):
                high = U64(1)
            hashes[index, 0] = low
            hashes[index, 1] = high


@kernel
def add_backwards(table: Hashes, hashes: Hashes, mask: Any, prefix: Any, room: int, fresh: Bytes) -> int:
    """Put hashes with `low & mask == prefix` into the table, the last one first; how many were new.

    `fresh` becomes 1 where a key was seen for the first time. There must be `room` for all.
    """
    slots = U64(table.shape[0])
    added = 0
    for index in range(hashes.shape[0] - 1, -1, -1):
        low, high = hashes[index, 0], hashes[index, 1]
        if (low == U64(0) and high == U64(0)) or (low & mask) != prefix:
            continue
        slot = ((high >> U64(32)) * slots) >> U64(32)
        while True:
            if table[slot, 0] == U64(0) and table[slot, 1] == U64(0):
                if added == room:
                    return -1
                table[slot, 0] = low
                table[slot, 1] = high
                fresh[index] = 1
                added += 1
                break
            if table[slot, 0] == low and table[slot, 1] == high:
                break
            slot += U64(1)
            if slot == slots:
                slot = U64(0)
    return added


@kernel
def forget_others(hashes: Hashes, wanted: Hashes) -> None:
    """Make (0, 0) of every hash that is none of `wanted`."""
    for index in range(hashes.shape[0]):
        is_wanted = False
        for one in range(wanted.shape[0]):
            if hashes[index, 0] == wanted[one, 0] and hashes[index, 1] == wanted[one, 1]:
                is_wanted = True
        if not is_wanted:
            hashes[index, 0] = U64(0)
            hashes[index, 1] = U64(0)


def hashes_of(keys: Sequence[bytes]) -> Hashes:
    """The hashes of keys that a query names, each once."""
    distinct = sorted(set(keys))
    data = numpy.frombuffer(b"".join(distinct) + b"\0", numpy.uint8)
    rows = numpy.zeros((len(distinct), LOCATED_ROWS), numpy.int64)
    rows[:, KEY_BYTES] = [len(key) for key in distinct]
    rows[:, KEY_POSITION] = numpy.cumsum(rows[:, KEY_BYTES]) - rows[:, KEY_BYTES]
    hashes = numpy.empty((len(distinct), 2), numpy.uint64)
    hash_rows(data, rows, SECRET, hashes)
    return hashes


class Part(NamedTuple):
    """The keys whose hash has `prefix` under `mask`, of which no row is to be given from `below` on."""

    mask: int
    prefix: int
    below: int


class KeySet:
    """Owned by: the task that reads one partition as a table."""

    def __init__(self, memory_bytes: int, part: Part) -> None:
        self.part = part
        self.count = 0
        self._limit = max(memory_bytes // ENTRY_BYTES, LEAST_SLOTS)
        self._table: Hashes = numpy.zeros((min(FIRST_SLOTS, self._limit), 2), numpy.uint64)

    @property
    def block(self) -> int:
        """How many hashes to add at a time at most: few enough that a half-empty set has room for them."""
        return max(_capacity(self._limit) // 4, 1)

    def is_too_full_for(self, count: int) -> bool:
        """Whether `count` more keys might not fit."""
        return self.count + count > _capacity(self._limit)

    def add(self, hashes: Hashes) -> Bytes:
        """1 for each hash of the set's part that was not in it; the last one of several counts."""
        slots = self._table.shape[0]
        while _capacity(slots) < self.count + len(hashes) and slots < self._limit:
            slots = min(2 * slots, self._limit)
        if slots > self._table.shape[0]:
            self._rebuild(slots)
        fresh = numpy.zeros(len(hashes), numpy.uint8)
        self.count += self._put(hashes, fresh)
        return fresh

    def halve(self, reached: int) -> Part:
        """Keep half of the keys; the part for the others, whose rows from `reached` on have been given."""
        mask, prefix, below = self.part
        bit = mask + 1
        self.part = Part(mask | bit, prefix, below)
        # In place, by way of the half that stays: a second table beside the first would be the larger copy.
        kept = self._table[(self._table[:, 0] & U64(self.part.mask)) == U64(prefix)]
        self._table.fill(0)
        self.count = 0
        self.count = self._put(kept, numpy.zeros(len(kept), numpy.uint8))
        return Part(mask | bit, prefix | bit, min(reached, below))

    def _rebuild(self, slots: int) -> None:
        old, self._table = self._table, numpy.zeros((slots, 2), numpy.uint64)
        self.count = 0
        self.count = self._put(old, numpy.zeros(len(old), numpy.uint8))

    def _put(self, hashes: Hashes, fresh: Bytes) -> int:
        room = _capacity(len(self._table)) - self.count
        mask, prefix = U64(self.part.mask), U64(self.part.prefix)
        added = add_backwards(self._table, hashes, mask, prefix, room, fresh)
        assert added >= 0, "more keys than were made room for"
        return added


def _capacity(slots: int) -> int:
    """How many entries go into so many slots: at most three quarters, so that searches stay short."""
    return slots * 3 // 4
