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
    """Compile `function` without the GIL, with bounds checks, cached on disk."""
    compiled: F = numba.njit(nogil=True, cache=True, boundscheck=True)(function)
    return compiled
