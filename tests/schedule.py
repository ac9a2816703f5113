"""What one of the tests' processes runs one after the other: a file; and files that share a session of Spark.

Each process that runs one of those files has a session of its own, whose first queries cost twenty seconds of
CPU: two sessions serve all but LONG ones.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from zlib import crc32

from xdist.scheduler import LoadFileScheduling

SPARK = "spark"
SESSIONS = 2
LONG = ("test_pipeline_commands.py", "test_wheel.py")
"""files that take minutes, most of it in programs that they start: each is a scope of its own"""


def rank(file: str) -> int:
    """In this order they begin: no process is left alone with what takes minutes at the end."""
    path = PurePosixPath(file)
    if path.parent.name != SPARK:
        return 2
    return 0 if path.name in LONG else 1


def scope(file: str) -> str:
    """Files of one scope go to one process."""
    return f"{SPARK} {crc32(file.encode()) % SESSIONS}" if rank(file) == 1 else file


class Schedule(LoadFileScheduling):
    """`--dist loadfile`, for which `scope` counts."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(super()._split_scope(nodeid))
