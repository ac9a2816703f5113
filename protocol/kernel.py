"""How a kernel is declared: a plain Python function over numpy views that numba compiles on first use.

Kernels release the GIL, check every index, and are cached beside their source, so that a user needs no
compiler and a start-up compiles nothing. `NUMBA_DISABLE_JIT=1` runs them as Python, for the debugger and for
fuzzing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` without the GIL, with bounds checks, cached on disk where some place is writable."""
    compiled: F
    try:
        compiled = numba.njit(nogil=True, cache=True, boundscheck=True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        # Neither the source's directory nor the user's is writable: slower to start, but it starts.
        compiled = numba.njit(nogil=True, boundscheck=True)(function)
    return compiled


def unchecked_kernel(function: F) -> F:
    """As `kernel` without bounds checks: for few lines whose indices have been seen to be good."""
    compiled: F
    try:
        compiled = numba.njit(nogil=True, cache=True, boundscheck=False)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        compiled = numba.njit(nogil=True, boundscheck=False)(function)
    return compiled
