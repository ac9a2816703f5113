"""An offset map that can be asked for keys: the kernels fill it by the block, and read it by hashes."""

from __future__ import annotations

import numpy

from cleaner.offset_map import OffsetMap, find_hashed, put_hashed
from protocol.records import as_array
from protocol.siphash import siphash


class MapByHand(OffsetMap):
    """Takes keys one by one."""

    def put(self, key: bytes, offset: int) -> None:
        assert self.entries < self.capacity
        self.reserve(1)
        self.entries += put_hashed(self.table, *self._hash(key), offset)
        self.update_latest_offset(offset)

    def get(self, key: bytes) -> int:
        """The last offset of `key`, or NOT_FOUND."""
        return int(find_hashed(self.table, *self._hash(key)))

    def _hash(self, key: bytes) -> tuple[numpy.uint64, numpy.uint64]:
        data = as_array(key or b"-")
        low, high = siphash(data, 0, len(key), self.secret[0], self.secret[1])
        return numpy.uint64(low), numpy.uint64(high)
