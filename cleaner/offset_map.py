"""Key -> last offset, in a fixed amount of memory (Kafka's `SkimpyOffsetMap`).

24 bytes an entry: 16 of the key's hash and 8 of offset + 1 (0: a free slot), three numbers side by side, so
that a look-up touches one cache line. Open addressing, next slot on collision. A slot is found by
multiplying the hash into the range instead of by a power of two, so the whole buffer is used; at most
`slots * load_factor` entries go in (T32). The table begins small and grows in three steps: few keys stay in
the processor's cache, and an idle broker holds no buffer. The table that is left behind while growing is at
most 24 MiB.

The hash is SipHash-1-3 with 128 bits and a secret of this process: no client can make two keys that
collide, as it could with Kafka's MD5, and chance will not (see the package's docstring).
"""

from __future__ import annotations

from typing import Any

import numpy

from config.together import OFFSET_MAP_ENTRY_BYTES
from protocol.kernel import kernel, unchecked_kernel
from protocol.siphash import SECRET

ENTRY_BYTES = OFFSET_MAP_ENTRY_BYTES
ENTRY_LONGS = 3
NOT_FOUND = -1

GROWTH_STEPS = (1 << 16, 1 << 18, 1 << 20)  # slots; the next step is the whole buffer
COMFORTABLE_LOAD = 0.5

Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]
Longs = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

U64 = numpy.uint64


class BufferTooSmall(ValueError):
    """The configured memory does not hold a single key (T30)."""


@unchecked_kernel
def find_slot(table: Any, low: Any, high: Any) -> Any:
    """Where in `table` the entry of this hash stands, or the free slot where it belongs.

    There is always a free slot, since the load factor is below 1; the index cannot leave the table.
    """
    slots = U64(table.size // 3)
    slot = ((low >> U64(32)) * slots) >> U64(32)
    while True:
        at = slot * U64(3)
        if table[at + U64(2)] == U64(0) or (table[at] == low and table[at + U64(1)] == high):
            return at
        slot += U64(1)
        if slot == slots:
            slot = U64(0)


@kernel
def put_hashed(table: Any, low: Any, high: Any, offset: int) -> int:
    """Set an entry; 1 when it is new, 0 when the key was known."""
    at = find_slot(table, low, high)
    is_new = 1 if table[at + U64(2)] == U64(0) else 0
    table[at] = low
    table[at + U64(1)] = high
    table[at + U64(2)] = U64(offset + 1)
    return is_new


@kernel
def find_hashed(table: Any, low: Any, high: Any) -> int:
    """The last offset of a key, or NOT_FOUND."""
    offset: int = numpy.int64(table[find_slot(table, low, high) + U64(2)]) - 1  # type: ignore[assignment]
    return offset


@kernel
def _move_entries(source: Any, target: Any) -> None:
    for at in range(0, source.size, 3):
        if source[at + 2] != U64(0):
            free = find_slot(target, source[at], source[at + 1])
            target[free] = source[at]
            target[free + U64(1)] = source[at + 1]
            target[free + U64(2)] = source[at + 2]


@kernel
def mark_last_offsets(table: Any, start: int, bits: Bytes) -> None:
    """Set the bit of each offset in the map that lies in [start, start + 8 * bits.size)."""
    for at in range(2, table.size, 3):
        relative = numpy.int64(table[at]) - 1 - start
        if table[at] != U64(0) and 0 <= relative < 8 * bits.size:
            bits[relative >> 3] |= numpy.uint8(1 << (relative & 7))


class OffsetMap:
    """Owned by: one cleaner thread.

    `latest_offset` is the end of what has been mapped: records behind it are none of the map's business.
    """

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self.slots = memory_bytes // ENTRY_BYTES
        # One slot stays free, whatever the load factor, or a search for an unknown key would never end.
        self.capacity = min(int(self.slots * load_factor), self.slots - 1)
        if self.slots * load_factor <= 1 or self.capacity < 1:
            raise BufferTooSmall(
                f"an offset map of {memory_bytes} bytes at load factor {load_factor:g} holds no key; "
                "enlarge log.cleaner.dedupe.buffer.size or use fewer log.cleaner.threads"
            )
        self.secret = SECRET
        self.clear()

    def clear(self) -> None:
        """Forget everything, and give the memory back."""
        self.entries = 0
        self.latest_offset = -1
        self.table = numpy.zeros(ENTRY_LONGS * min(self.slots, GROWTH_STEPS[0]), numpy.uint64)

    @property
    def utilization(self) -> float:
        """How full the buffer is, 0 to 1."""
        return self.entries / self.slots

    def reserve(self, count: int) -> None:
        """Make the table large enough for `count` more entries, as far as the buffer reaches."""
        wanted = min(self.capacity, self.entries + count)
        now = self.table.size // ENTRY_LONGS
        if now == self.slots or wanted <= now * COMFORTABLE_LOAD:
            return
        fitting = [step for step in GROWTH_STEPS if wanted <= step * COMFORTABLE_LOAD and step < self.slots]
        grown = numpy.zeros(ENTRY_LONGS * (fitting[0] if fitting else self.slots), numpy.uint64)
        _move_entries(self.table, grown)
        self.table = grown

    def update_latest_offset(self, offset: int) -> None:
        self.latest_offset = max(self.latest_offset, offset)

    def last_offset_bits(self, start: int, limit_bytes: int) -> Bytes:
        """One bit for each offset from `start` to `latest_offset`, set where the record is its key's last.

        Empty when that would take more than `limit_bytes`: then keys must be looked up.
        """
        span = self.latest_offset - start + 1
        if span <= 0 or (span + 7) // 8 > limit_bytes:
            return numpy.zeros(0, numpy.uint8)
        bits = numpy.zeros((span + 7) // 8, numpy.uint8)
        mark_last_offsets(self.table, start, bits)
        return bits
