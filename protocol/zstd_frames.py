"""zstd with a context kept by every thread: making one anew takes as long as a small batch does.

Imported on first use, as it loads the library.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy
import zstandard

Buffer = bytes | bytearray | memoryview
Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]

DEFAULT_LEVEL = 3  # Kafka's, and zstd's own


class _Contexts(threading.local):
    """The library's objects must not be shared. Owned by: each thread has its own."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self.level = DEFAULT_LEVEL
        self.compressor = zstandard.ZstdCompressor(level=DEFAULT_LEVEL)

    def set_level(self, level: int) -> None:
        if level != self.level:
            self.compressor = zstandard.ZstdCompressor(level=level)
            self.level = level


_contexts = _Contexts()


def compress(data: Buffer, level: int | None) -> bytes:
    """One frame that says its size."""
    _contexts.set_level(DEFAULT_LEVEL if level is None else level)
    return _contexts.compressor.compress(data)


def decompress_one(data: Buffer, guess_bytes: int, limit_bytes: int) -> Bytes | None:
    """What `data` holds, if it is a single whole frame of the size that it announces or at most
    `guess_bytes`, and of at most `limit_bytes`; None otherwise.
    """
    try:
        announced = zstandard.frame_content_size(data)
        room = guess_bytes if announced < 0 else announced
        if room > limit_bytes:
            return None
        section = _contexts.decompressor.decompress(data, max_output_size=room, allow_extra_data=False)
    except zstandard.ZstdError:
        return None
    return numpy.frombuffer(section, numpy.uint8)
