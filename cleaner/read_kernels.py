"""The kernel that brings a chunk of a segment to the other kernels: read, cut into batches, and compared with
its checksums by one call, since between two calls a thread has to ask for the GIL.
"""

from __future__ import annotations

from cleaner.offset_map import Bytes, Longs
from cleaner.pauses import PIECE_BYTES, Pauses, work_done
from protocol.kernel import kernel
from storage.batch_table import BASE_OFFSET, SIZE_BYTES, walk_batches
from storage.checksums import UNDAMAGED, Crc32c, is_damaged
from storage.stretch import read_into

IS_THERE = -1
"""in place of a descriptor: somebody else has read the bytes"""
CHECKED_AT_ONCE = 8
"""a checksum takes about as long as mapping so much less"""


@kernel
def read_bytes(descriptor: int, position: int, size: int, buffer: Bytes, pread: int, pauses: Pauses) -> int:
    """Fill buffer[:size] from a file: how many bytes there were, below 0 when a read failed."""
    done = 0
    while done < size:
        piece = min(size - done, PIECE_BYTES)
        got = read_into(descriptor, pread, buffer, done, piece, position + done)
        if got < 0:
            return got
        done += got
        work_done(got, pauses)
        if got < piece:
            break
    return done


@kernel
def read_batches(
    descriptor: int, position: int, size: int, buffer: Bytes, pread: int, batches: Longs, checked_to: int,
    crc32c: Crc32c, pauses: Pauses,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Fill buffer[:size] and list the batches there: bytes that were read, what `walk_batches` says, and the
    first of the batches up to the offset `checked_to` that fails its checksum.

    Of fewer bytes than `size` (below 0: an error) nothing more is said.
    """
    if descriptor != IS_THERE:
        got = read_bytes(descriptor, position, size, buffer, pread, pauses)
        if got < size:
            return got, 0, 0, 0, UNDAMAGED
    count, stopped, reason = walk_batches(buffer[:size], batches)
    for index in range(count):
        if batches[BASE_OFFSET, index] <= checked_to:
            if is_damaged(buffer, batches, index, crc32c):
                return size, count, stopped, reason, index
            work_done(batches[SIZE_BYTES, index] // CHECKED_AT_ONCE, pauses)
    return size, count, stopped, reason, UNDAMAGED
