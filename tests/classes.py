"""Archives of loaded classes: from one a JVM of the tests starts with half the work (dynamic class data
sharing, JEP 350).

The first run of a program that ends by itself leaves its archive under `.cache/classes`; later ones map it.
A JVM believes an archive only if it is its own and the jars are the same files; else, and for programs that
were killed, all goes as without. Nothing that is measured starts from one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import subprocess
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent.parent / ".cache" / "classes"
QUIET = "-Xlog:disable"
"""a JVM says on standard output what it thinks of an archive"""
_numbers = itertools.count()


class ClassArchive:
    """The archive of one program: its `options` for the next run, and `keep` after one that ended well."""

    def __init__(self, java: str, program: str, classes: str) -> None:
        digest = hashlib.sha256(f"{_version(java)}\0{classes}".encode()).hexdigest()[:12]
        self.directory = DIRECTORY
        self.path = DIRECTORY / f"{program}-{digest}.jsa"
        self._made: Path | None = None

    @property
    def is_there(self) -> bool:
        return self.path.exists()

    def options(self) -> list[str]:
        """Start from the archive, or leave one; each run asks anew."""
        if self.is_there:
            self._made = None
            return [f"-XX:SharedArchiveFile={self.path}", QUIET]
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        self._made = self.path.with_suffix(f".{os.getpid()}-{next(_numbers)}")
        return [f"-XX:ArchiveClassesAtExit={self._made}", QUIET]

    def keep(self) -> None:
        """The run has ended: what it left is what the next ones start from, whoever was first."""
        if self._made is not None:
            with contextlib.suppress(FileNotFoundError):
                self._made.replace(self.path)
            self._made = None

    def drop(self) -> None:
        """The run was ended before it left anything that is whole."""
        if self._made is not None:
            self._made.unlink(missing_ok=True)
            self._made = None


@functools.cache
def _version(java: str) -> str:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    return answer.stderr + answer.stdout
