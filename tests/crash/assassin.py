"""Goal: a process dies in the midst of a change of its files that takes less than a millisecond.

Method: a process of its own, with nothing else to do, that the kernel wakes at each change of the directory
(inotify), counts some more changes behind the first one of the kind asked for, and sends SIGKILL. The test
itself would look too late: its other threads hold the GIL.

    python assassin.py DIRECTORY PID SUFFIX COUNT
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys

MODIFY, MOVED_TO, CREATE, DELETE = 0x2, 0x80, 0x100, 0x200
CHANGES_OF_NAMES = MOVED_TO | DELETE
TRANSIT = (".cleaned", ".swap", ".deleted")
_event = struct.Struct("iIII")  # watch, mask, cookie, length of the name


def hire(directory: str, process_id: int, suffix: str, count: int) -> subprocess.Popen[bytes]:
    """Kill at the `count`th change behind the first that gives a file a name that ends with `suffix`."""
    command = [sys.executable, "-E", "-S", __file__, directory, str(process_id), suffix, str(count)]
    return subprocess.Popen(command)


def changes(directory: str) -> int:
    """A descriptor that becomes readable with each change in `directory`."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_CLOEXEC)
    mask = MODIFY | MOVED_TO | CREATE | DELETE
    if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(directory), mask) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), directory)
    return descriptor


def main(directory: str, process_id: int, suffix: str, count: int) -> None:
    descriptor = changes(directory)
    has_begun = False
    while True:
        data = os.read(descriptor, 1 << 16)
        while data:
            _, mask, _, length = _event.unpack_from(data)
            name = data[_event.size : _event.size + length].rstrip(b"\0").decode()
            data = data[_event.size + length :]
            if not (mask & CHANGES_OF_NAMES or name.endswith(TRANSIT)):
                continue
            has_begun = has_begun or name.endswith(suffix)
            if has_begun and count == 0:
                os.kill(process_id, signal.SIGKILL)
                return
            count -= has_begun


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
