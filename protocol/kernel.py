"""How a kernel is declared: a plain Python function over numpy views that numba compiles on first use.

Kernels release the GIL, check every index, and are cached beside their source (where that is not writable, in
the user's cache directory), so that a user needs no compiler and a start-up compiles nothing.
`NUMBA_DISABLE_JIT=1` runs them as Python, for the debugger and for fuzzing.

numba takes a compiled kernel for fresh as long as the kernel's own file is the same, but what the kernel
calls in other files, and the constants it takes from there, are compiled into it. The stamp that is kept with
the compiled form therefore covers those as well.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

CONSTANTS = (bool, int, float, str, bytes, tuple, type(None))

_stamps: dict[int, str] = {}  # of every kernel so far, by its id; kernels live as long as the process


def kernel(function: F) -> F:
    """Compile `function` without the GIL, with bounds checks, cached on disk where some place is writable."""
    return _compile(function, is_checked=True)


def unchecked_kernel(function: F) -> F:
    """As `kernel` without bounds checks: for few lines whose indices have been seen to be good."""
    return _compile(function, is_checked=False)


def _compile(function: F, *, is_checked: bool) -> F:
    compiled: F
    try:
        compiled = numba.njit(nogil=True, cache=True, boundscheck=is_checked)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        # Neither the source's directory nor the user's is writable: slower to start, but it starts.
        compiled = numba.njit(nogil=True, boundscheck=is_checked)(function)
    stamp = _stamp(function)
    _stamps[id(compiled)] = stamp
    file: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, stamp)
    return compiled


def _stamp(function: Callable[..., Any]) -> str:
    """A hash of the kernel's file, of the constants it names, and of all kernels it calls."""
    code: CodeType = function.__code__
    parts = [_hash_of(code.co_filename)]
    for name in sorted(set(_names(code))):
        value = function.__globals__.get(name)
        if id(value) in _stamps:
            parts.append(f"{name}={_stamps[id(value)]}")
        elif isinstance(value, ModuleType):
            parts.append(f"{name}={_hash_of(value.__file__ or '')}")
        elif isinstance(value, CONSTANTS):
            parts.append(f"{name}={value!r}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _names(code: CodeType) -> Iterator[str]:
    """The global names that a function uses, those of functions within it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@functools.cache
def _hash_of(path: str) -> str:
    """Of a source file; of its path where it cannot be read (in an archive numba looks itself)."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return path
