"""Batches of lz4, unpacked within the kernels of a cleaning.

lz4 is what most who compress take, and the one codec whose functions a kernel can call. Batches of the other
codecs go through the library's Python functions one by one, as do those of lz4 that are larger than the
scratch, of another form than producers write, or damaged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from cleaner.offset_map import Bytes, Longs
from protocol.batch import CODEC_MASK, CONTROL, HEADER_BYTES
from protocol.compression import Codec
from protocol.kernel import kernel
from protocol.lz4_frames import OTHER_FORM, unpack, unpacked_room
from protocol.native import MISSING, lz4_addresses
from storage.batch_table import ATTRIBUTES, POSITION, SIZE_BYTES

SCRATCH_BYTES = 2 << 20
"""of the records of one batch"""
LZ4_BEST_RATIO = 255
"""no byte of lz4 stands for more"""

_LZ4 = int(Codec.LZ4)


class Lz4Scratch(NamedTuple):
    """Where batches are unpacked, and written anew before they are packed; the addresses are those of
    `native.py`.
    """

    unpacked: Any
    rewritten: Any
    decompress: int
    compress: int


def new_scratch() -> Lz4Scratch:
    """Owned by: one cleaner thread. It takes memory only where it is written to."""
    return Lz4Scratch(
        numpy.empty(SCRATCH_BYTES, numpy.uint8), numpy.empty(SCRATCH_BYTES, numpy.uint8), *lz4_addresses()
    )


@kernel
def lz4_room(chunk: Bytes, batches: Longs, index: int, lz4: Lz4Scratch) -> int:
    """As many bytes as the records of a batch may take, or `OTHER_FORM` where it cannot be unpacked here."""
    attributes = batches[ATTRIBUTES, index]
    if lz4.decompress == MISSING or attributes & CODEC_MASK != _LZ4 or attributes & CONTROL:
        return OTHER_FORM
    position = batches[POSITION, index]
    room = unpacked_room(chunk, position + HEADER_BYTES, position + batches[SIZE_BYTES, index])
    return OTHER_FORM if room > lz4.unpacked.size else room


@kernel
def unpack_lz4(chunk: Bytes, batches: Longs, index: int, lz4: Lz4Scratch) -> int:
    """Unpack a batch of which `lz4_room` is known: how many bytes, below 0 when it is damaged."""
    position = batches[POSITION, index]
    end = position + batches[SIZE_BYTES, index]
    return unpack(chunk, position + HEADER_BYTES, end, lz4.unpacked, lz4.unpacked.size, lz4.decompress)
