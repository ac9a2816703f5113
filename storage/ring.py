"""fdatasync that no thread waits for: Linux's io_uring, as much of it as that takes.

A flush by a thread is a thread woken up, a thread that wakes up the event loop, and two rounds about the
GIL: half of the changes of context and a third of the time of a flush on a fast disk. Here the kernel's own
worker waits for the disk and makes an eventfd readable. Many machines forbid io_uring (containers,
`kernel.io_uring_disabled`); there, and where Python cannot be sure to see memory in the order in which the
kernel wrote it (everywhere but on x86-64), `open_ring` says no and threads do the work. The layout of the
shared memory is `struct io_uring_params` of linux/io_uring.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
from struct import Struct

ENTRIES = 256
"""as many flushes may be on their way; with more, `fdatasync` says no"""
SETUP, ENTER, REGISTER = 425, 426, 427  # the numbers of these system calls on every architecture
SINGLE_MMAP, NO_DROP = 1, 2  # features: since Linux 5.4, 5.5
REGISTER_EVENTFD = 4
OFFSET_OF_ENTRIES = 0x10000000  # IORING_OFF_SQES
FSYNC, DATASYNC = 3, 1
PARAMETERS = 30  # 32-bit words: 10 of numbers, 10 about the submissions, 10 about the completions
SUBMISSION_BYTES, COMPLETION_BYTES = 64, 16
WORD = 4

# Neither waits for anything: letting go of the GIL would only invite somebody else to take it.
_system_call = ctypes.PyDLL(None, use_errno=True).syscall
_system_call.restype = ctypes.c_long
_system_call.argtypes = [ctypes.c_long] * 7
# opcode, flags, priority, descriptor, offset, address, length, what to sync, token, 24 bytes of others
_submission = Struct("=BBHiQQIIQ24x").pack_into
_completion = Struct("=QiI").unpack_from  # token, result, flags


def open_ring() -> Ring | None:
    """A ring, or None where the machine has none for us."""
    if platform.machine() != "x86_64":
        return None
    try:
        return Ring()
    except OSError:
        return None


def _call(number: int, *arguments: int) -> int:
    result: int = _system_call(number, *arguments, *(0,) * (6 - len(arguments)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


class Ring:
    """Owned by: one thread, the event loop's."""

    def __init__(self) -> None:
        """Raises OSError where the kernel has no io_uring, an old one, or allows none."""
        words = (ctypes.c_uint32 * PARAMETERS)()
        self._descriptor = _call(SETUP, ENTRIES, ctypes.addressof(words))
        self._taken = contextlib.ExitStack()
        self._taken.callback(os.close, self._descriptor)
        try:
            self._map(list(words))
            self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._taken.callback(os.close, self.eventfd)
            number = ctypes.c_int32(self.eventfd)
            _call(REGISTER, self._descriptor, REGISTER_EVENTFD, ctypes.addressof(number), 1)
        except BaseException:
            self.close()
            raise
        self._in_flight = 0

    def _map(self, words: list[int]) -> None:
        submissions, completions, features = words[0], words[1], words[5]
        if features & (SINGLE_MMAP | NO_DROP) != SINGLE_MMAP | NO_DROP:
            raise OSError(errno.ENOSYS, "io_uring is older than Linux 5.5")
        to_kernel, from_kernel = words[10:20], words[20:30]  # where head and tail are, and the arrays
        array, self._completions = to_kernel[6], from_kernel[5]
        size = max(array + submissions * WORD, self._completions + completions * COMPLETION_BYTES)
        access = mmap.PROT_READ | mmap.PROT_WRITE
        take = self._taken.enter_context  # each mapping has a descriptor of its own
        self._shared = take(mmap.mmap(self._descriptor, size, mmap.MAP_SHARED, access))
        self._entries = take(
            mmap.mmap(
                self._descriptor,
                submissions * SUBMISSION_BYTES,
                mmap.MAP_SHARED,
                access,
                offset=OFFSET_OF_ENTRIES,
            )
        )
        self._words = take(memoryview(self._shared).cast("I"))
        for number in range(submissions):
            self._words[array // WORD + number] = number
        self._submission_tail, self._submission_mask = to_kernel[1] // WORD, submissions - 1
        self._completion_head, self._completion_tail = from_kernel[0] // WORD, from_kernel[1] // WORD
        self._completion_mask = completions - 1

    def fdatasync(self, descriptor: int, token: int) -> bool:
        """Begin an fdatasync; `finished` tells its end by `token`. False when it could not begin now.

        `descriptor` has to stay open until then: the kernel's worker looks up its file when it gets to it.
        """
        if self._in_flight == ENTRIES:
            return False
        words, tail = self._words, self._words[self._submission_tail]
        place = (tail & self._submission_mask) * SUBMISSION_BYTES
        _submission(self._entries, place, FSYNC, 0, 0, descriptor, 0, 0, 0, DATASYNC, token)
        words[self._submission_tail] = (tail + 1) & 0xFFFFFFFF
        if _system_call(ENTER, self._descriptor, 1, 0, 0, 0, 0) != 1:
            words[self._submission_tail] = tail  # the kernel took nothing
            return False
        self._in_flight += 1
        return True

    def finished(self) -> list[tuple[int, int]]:
        """Token and errno (0: all is on the disk) of each that ended since the last call.

        To be called when `eventfd` is readable.
        """
        try:
            os.eventfd_read(self.eventfd)
        except BlockingIOError:
            return []
        words = self._words
        head, tail = words[self._completion_head], words[self._completion_tail]
        ended = []
        while head != tail:
            place = self._completions + (head & self._completion_mask) * COMPLETION_BYTES
            token, result, _ = _completion(self._shared, place)
            ended.append((token, -result))
            head = (head + 1) & 0xFFFFFFFF
        words[self._completion_head] = head
        self._in_flight -= len(ended)
        return ended

    def close(self) -> None:
        """Give everything back; what is still on its way is not waited for."""
        self._taken.close()
