"""Archives of loaded classes: from one a JVM of the tests starts with half the work (dynamic class data
sharing, JEP 350).

The first run of a program that ends by itself leaves its archive under `.cache/classes`; later ones map it.
One run at a time makes it, for that takes seconds and 50 MB: the others go without meanwhile. A JVM believes
an archive only if it is its own and the jars are the same files; else, and for programs that were killed, all
goes as without. Nothing that is measured starts from one.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent.parent / ".cache" / "classes"
QUIET = "-Xlog:disable"
"""a JVM says on standard output what it thinks of an archive"""


class ClassArchive:
    """The archive of one program: its `options` for the next run, and `keep` after one that ended well."""

    def __init__(self, java: str, program: str, classes: str) -> None:
        digest = hashlib.sha256(f"{_version(java)}\0{classes}".encode()).hexdigest()[:12]
        self.directory = DIRECTORY
        self.path = DIRECTORY / f"{program}-{digest}.jsa"
        self._made = self.path.with_suffix(".new")
        self._lock: int | None = None

    @property
    def is_there(self) -> bool:
        return self.path.exists()

    def options(self) -> list[str]:
        """Start from the archive, or leave one unless somebody else is about to; each run asks anew."""
        if self.is_there:
            return [f"-XX:SharedArchiveFile={self.path}", QUIET]
        if not self._take():
            return []
        return [f"-XX:ArchiveClassesAtExit={self._made}", QUIET]

    @property
    def is_made(self) -> bool:
        """Whether the run that asked last leaves it, if it ends by itself."""
        return self._lock is not None

    def keep(self) -> None:
        """The run has ended: what it left is what the next ones start from."""
        if self.is_made:
            if self._made.exists():
                self._made.replace(self.path)
            self._release()

    def drop(self) -> None:
        """The run was ended before it left anything that is whole."""
        if self.is_made:
            self._made.unlink(missing_ok=True)
            self._release()

    def _take(self) -> bool:
        """Be who makes it. Who dies meanwhile holds nobody up: a lock ends with its process."""
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _release(self) -> None:
        assert self._lock is not None
        os.close(self._lock)
        self._lock = None


@functools.cache
def _version(java: str) -> str:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    return answer.stderr + answer.stdout
