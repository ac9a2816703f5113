"""The hashes of the keys of compressed batches, kept from the append until a cleaning has taken them in.

An append unpacks a compressed batch to look at its records; the first step of a cleaning would unpack all of
them a second time, only to hash their keys. So the append hashes them, and the cleaner asks here first. All
logs share one limit of memory: beyond it the log that holds most forgets its oldest batches, which are
unpacked as ever. (Were it the oldest batches of all, a log that is filled behind another would leave nothing
of it, and of two that are cleaned at once one would take half as long again.)
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import Any

import numpy

from protocol.kernel import kernel
from protocol.record_kernels import KEY_BYTES, KEY_POSITION, LOCATED_ROWS, OK, RECORD_BYTES, locate_record
from protocol.records import as_array, encode_record
from protocol.siphash import SECRET, siphash
from storage.batch_table import Bytes, Longs

DEFAULT_LIMIT_BYTES = 32 << 20
HASH_BYTES = 16
ENTRY_BYTES = 400
"""of a batch beside its hashes, by Python: two dictionaries' and a queue's places, numbers, the array"""
LOOK_EVERY_BYTES = 128 * 1024
"""forgotten until it is looked anew who holds most: among thousands of logs a look takes 0.1 ms"""
LONG_MAX = 2**63 - 1

Hashes = numpy.ndarray[Any, numpy.dtype[numpy.uint64]]
"""row 0 and 1 are the halves of a key's hash, a column for each record"""


@kernel
def hash_records(section: Bytes, row: Longs, secret: Any, hashes: Any) -> bool:
    """Fill `hashes` with those of all keys of a records section; False where a record is broken or has no
    key.
    """
    position = 0
    for index in range(hashes.shape[1]):
        if locate_record(section, position, row) != OK or row[KEY_BYTES] < 0:
            return False
        low, high = siphash(section, row[KEY_POSITION], row[KEY_BYTES], secret[0], secret[1])
        hashes[0, index] = low
        hashes[1, index] = high
        position += row[RECORD_BYTES]
    return position == section.size


class KeyHashes:
    """What all logs remember. Owned by: event loop, and at the end by the threads that close the logs, when
    nothing is added any more; any thread may call `LogKeyHashes.find`.
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self._row = numpy.empty(LOCATED_ROWS, numpy.int64)
        self._batches: dict[tuple[LogKeyHashes, int], tuple[int, Hashes]] = {}
        self._logs: set[LogKeyHashes] = set()  # those of which there is any
        self._largest: LogKeyHashes | None = None
        self._until_look = 0  # bytes

    def _size(self, records: int) -> int:
        return ENTRY_BYTES + HASH_BYTES * records

    def add(self, log: LogKeyHashes, base_offset: int, checksum: int, section: Bytes, records: int) -> None:
        size = self._size(records)
        if size > self._limit_bytes:
            return
        hashes = numpy.empty((2, records), numpy.uint64)
        if not hash_records(section, self._row, SECRET, hashes):
            return
        while self.used_bytes + size > self._limit_bytes:
            self.remove_first(self._giver(log))
        self._batches[log, base_offset] = checksum, hashes
        self._logs.add(log)
        log.offsets.append(base_offset)
        log.used_bytes += size
        self.used_bytes += size

    def _giver(self, log: LogKeyHashes) -> LogKeyHashes:
        """Whose oldest batch makes room for one of `log`; there is one."""
        if self._until_look <= 0 or self._largest not in self._logs:
            self._largest = max(self._logs, key=attrgetter("used_bytes"))
            self._until_look = LOOK_EVERY_BYTES
        assert self._largest is not None
        return self._largest if self._largest.used_bytes > log.used_bytes else log

    def find(self, log: LogKeyHashes, base_offset: int) -> tuple[int, Hashes] | None:
        return self._batches.get((log, base_offset))

    def remove_first(self, log: LogKeyHashes) -> None:
        """The oldest batch of `log`."""
        _, hashes = self._batches.pop((log, log.offsets.popleft()))
        size = self._size(hashes.shape[1])
        self._until_look -= size
        log.used_bytes -= size
        self.used_bytes -= size
        if not log.offsets:
            self._logs.remove(log)


class LogKeyHashes:
    """Those of one log, in the order of their batches. Owned by: the log."""

    def __init__(self, shared: KeyHashes) -> None:
        self._shared = shared
        self.offsets: deque[int] = deque()
        self.used_bytes = 0

    def add(self, base_offset: int, checksum: int, section: Bytes, records: int) -> None:
        """A batch was appended: the checksum in its header, its records section unpacked."""
        self._shared.add(self, base_offset, checksum, section, records)

    def find(self, base_offset: int, checksum: int, records: int) -> Hashes | None:
        """The hashes of the keys of a stored batch, if it is one that was remembered. Any thread."""
        found = self._shared.find(self, base_offset)
        if found is None or found[0] != checksum or found[1].shape[1] != records:
            return None
        return found[1]

    def forget(self, before: int = LONG_MAX) -> None:
        """All that begin below `before`."""
        while self.offsets and self.offsets[0] < before:
            self._shared.remove_first(self)


def compile_kernels() -> None:
    """Call the kernel once, so that it is in the cache beside its source."""
    LogKeyHashes(KeyHashes()).add(0, 0, as_array(encode_record(0, 0, b"key", b"value")), 1)
