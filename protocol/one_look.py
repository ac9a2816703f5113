"""A producer's batch seen by one kernel: its checksum and its records, those of an lz4 frame unpacked first.

The steps between two kernels or libraries are Python's, and the broker has mostly slept before a batch comes:
with nothing of them in the caches they cost more than the work (benchmarks/NOTES.md). Only what is usual is
seen here; of everything else the answer is `UNUSUAL`, and who asked looks the longer way.
"""

from __future__ import annotations

from typing import Any

import numpy

from protocol.batch import ATTRIBUTES_POSITION, HEADER_BYTES
from protocol.compression import Codec
from protocol.kernel import Kernel, allocating_kernel, early, kernel
from protocol.lz4_frames import OTHER_FORM, unpack, unpacked_room
from protocol.native import ALL_ONES, MISSING, crc32c_address, crc32c_call, lz4_addresses
from protocol.record_kernels import BAD_CHECKSUM, OK, Bytes, validate_records
from protocol.records import as_array, encode_batch

UNUSUAL = -1
"""instead of a fault"""
COVERED_BYTES = HEADER_BYTES - ATTRIBUTES_POSITION
"""of a batch's header, which its checksum covers with the records behind it"""
UNPACKED_BYTES = 1 << 20
"""larger ones are unusual"""
_unpacked = numpy.empty(UNPACKED_BYTES, numpy.uint8)  # Owned by: event loop
_unpacked_view = _unpacked.view()
_unpacked_view.flags.writeable = False  # kernels that read are compiled for this type only


@kernel
def _is_intact(section: Bytes, crc: int, crc32c: int) -> bool:
    start = section.ctypes.data - COVERED_BYTES
    found = numpy.int64(crc32c_call(crc32c, ALL_ONES, start, section.size + COVERED_BYTES))
    return found ^ ALL_ONES == crc  # type: ignore[no-any-return]


@early
@allocating_kernel
def validate_batch(
    section: Bytes, record_count: int, require_keys: bool, crc: int, crc32c: int
) -> tuple[int, int, int]:
    """The checksum, then `validate_records`: BAD_CHECKSUM where it is not `crc`.

    `section` are the records of a batch that is not compressed, where they lie behind their header: what the
    checksum covers begins COVERED_BYTES before them. `crc32c` is an address, of `native.crc32c_address`.
    """
    if not _is_intact(section, crc, crc32c):
        return BAD_CHECKSUM, 0, 0
    return validate_records(section, record_count, require_keys)


@allocating_kernel
def _validate_lz4(
    section: Bytes,
    record_count: int,
    require_keys: bool,
    crc: int,
    crc32c: int,
    lz4: int,
    unpacked: Bytes,
    view: Bytes,
) -> tuple[int, int]:
    if not _is_intact(section, crc, crc32c):
        return UNUSUAL, 0  # rare enough to be found out twice: what is said of it is said in one place
    room = unpacked_room(section, 0, section.size)
    if room == OTHER_FORM or room > unpacked.size:
        return UNUSUAL, 0
    size = unpack(section, 0, section.size, unpacked, unpacked.size, lz4)
    if size < 0:
        return UNUSUAL, 0
    fault, _, max_timestamp_delta = validate_records(view[:size], record_count, require_keys)
    return (OK if fault == OK else UNUSUAL), max_timestamp_delta


def validate_lz4_batch(
    section: Bytes, record_count: int, require_keys: bool, crc: int, crc32c: int
) -> tuple[int, int]:
    """(OK or UNUSUAL, max timestamp delta) of a batch whose `section` is a frame of lz4. On the event loop
    only.
    """
    lz4 = lz4_addresses().decompress
    if lz4 == MISSING or not Kernel.is_numba_loaded:  # which takes longer to load than many batches
        return UNUSUAL, 0
    return _validate_lz4(section, record_count, require_keys, crc, crc32c, lz4, _unpacked, _unpacked_view)


def compile_kernels() -> None:
    """Call the kernels once as a produce does, so that they are in the cache beside their source. On any
    thread: the checksum is a wrong one, so that nothing is unpacked.
    """
    crc32c = crc32c_address()
    if crc32c == MISSING:
        return
    records: list[Any] = [(0, b"key", b"value", ())]
    validate_batch(as_array(encode_batch(records), HEADER_BYTES), 1, True, 0, crc32c)
    validate_lz4_batch(as_array(encode_batch(records, codec=Codec.LZ4), HEADER_BYTES), 1, True, 0, crc32c)
