"""Every kernel of the cleaner called once, so that a set-up leaves nothing to compile for the first
cleaning.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path

from cleaner.cleaner import Cleaner
from cleaner.offset_map import GROWTH_STEPS, OffsetMap
from cleaner.results import Range
from config.topic import TIMESTAMP, TopicConfig
from protocol.compression import Codec
from protocol.records import encode_batch
from storage.layout import TopicPartition
from storage.opening import open_log

LARGE_VALUE_BYTES = 600
LATER_MS = 1_000_000
MEMORY = "/dev/shm"
"""where temporary files wait for no disk, and may be made in a container whose file system is read-only"""


def compile_kernels() -> None:
    """Clean a small log that has something of everything. OSError where no temporary file can be made."""
    OffsetMap(1 << 26).reserve(GROWTH_STEPS[0])  # a map of a small log does not grow
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as directory:
        config = dataclasses.replace(TopicConfig(), cleanup_policy=frozenset({"compact"}))
        versioned = dataclasses.replace(config, compaction_strategy=TIMESTAMP)
        log = open_log(Path(directory) / "warm-up-0", TopicPartition("warm-up", 0), config)
        cleaner = Cleaner(map_bytes=1 << 16, load_factor=0.9, run_on_owner=lambda function: function())
        for clean_end in (0, 2):
            large = bytes(LARGE_VALUE_BYTES)
            log.append(encode_batch([(1, b"a", large, ()), (2, b"b", None, ())]), now_ms=1)
            log.append(encode_batch([(1, b"a", b"", ()), (2, b"c", b"", ())], codec=Codec.GZIP), now_ms=1)
            log.roll(1)
            cleaner.clean(log, Range(clean_end, log.log_end_offset), LATER_MS, is_dry=True, config=versioned)
            cleaner.clean(log, Range(clean_end, log.log_end_offset), LATER_MS)
        log.close()
