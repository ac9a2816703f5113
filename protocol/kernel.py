"""How a kernel is declared: a plain Python function over numpy views that numba compiles when it is needed.

Kernels release the GIL, check every index, and are cached beside their source (where that is not writable,
what lies there is read, and what is not there is kept in the user's cache directory), so that a user needs no
compiler and a start-up compiles nothing. numba itself takes longer to load than a start has use for it: until
somebody loads it, kernels that a start needs do small pieces of work in Python, within a budget.
`NUMBA_DISABLE_JIT=1` does everything so, for the debugger and for fuzzing.

numba takes a compiled kernel for fresh as long as the kernel's own file is the same, but what the kernel
calls in other files, the constants it takes from there, and the order of the fields of its named tuples, are
compiled into it. The stamp that is kept with the compiled form therefore covers those as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from threading import Lock, get_ident
from time import perf_counter_ns
from types import CodeType, ModuleType
from typing import Any, ClassVar, TypeVar, cast

import numpy

F = TypeVar("F", bound=Callable[..., Any])

CONSTANTS = (bool, int, float, str, bytes, tuple, type(None))
SMALL_BYTES = 16 * 1024
"""of all arrays of a call: Python takes 20 ms for a checksum of so many, loading numba and a kernel 200"""
BUDGET_NS = 50_000_000
"""for all calls that Python does before numba is loaded"""
IS_PLAIN_PYTHON = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
MADV_DONTNEED = 4
CACHE_LOCK = "kernels.lock"
NOT_KEPT = (
    "the kernels are compiled, but not kept: neither beside their source nor in the user's cache directory "
    "may anything be written; NUMBA_CACHE_DIR names another place"
)
_LOADER_CODE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-xp \S+ \S+ \S+ +\S*libllvm\S*")


def kernel(function: F) -> F:
    """Compile `function` without the GIL, with bounds checks, cached on disk where some place is writable.

    It may not make arrays. References to those that it is given are not counted, for its caller holds them:
    numba would count at every call between kernels and for every tuple of arrays, by atomic steps that were
    most of the time of some kernels.
    """
    return _declared(function, is_checked=True)


def unchecked_kernel(function: F) -> F:
    """As `kernel` without bounds checks: for few lines whose indices have been seen to be good."""
    return _declared(function, is_checked=False)


def allocating_kernel(function: F) -> F:
    """As `kernel`, for one that makes arrays."""
    return _declared(function, is_checked=True, is_allocating=True)


def early(declared: F) -> F:
    """Of a kernel that a start calls: until numba is loaded it may run in Python, with all that it calls.

    Tests run these both ways: numbers of numpy do not always add up as those of numba.
    """
    declared.is_early = True  # type: ignore[attr-defined]
    return declared


def _declared(function: F, *, is_checked: bool, is_allocating: bool = False) -> F:
    if IS_PLAIN_PYTHON:
        return function
    return cast(F, Kernel(function, {"nogil": True, "boundscheck": is_checked, "_nrt": is_allocating}))


NOBODY = -1
_python_turn = Lock()
"""held while a kernel runs in Python: none that it calls may be compiled meanwhile, its numbers are others"""


class Kernel:
    """A function that numba compiles at its first call, or when another kernel that calls it is compiled."""

    python_ns_left = BUDGET_NS
    """of all kernels; none once numba is loaded"""
    is_early = False
    python_thread = NOBODY
    """whose turn it is to run in Python"""
    is_numba_loaded = False
    has_loader = False
    """whether one was loaded since `drop_loader`"""
    is_kept = True
    """whether all that was compiled here is in a cache, for the next process"""
    why_not_kept = NOT_KEPT
    made: ClassVar[list[Any]] = []
    """numba's dispatchers of this process"""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, bool]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._compiled: Any = None
        self._run: Callable[..., Any] = self._run_first

    # A function in its place, which packs and unpacks the arguments, costs 130 ns a call instead of 40.
    __call__ = property(attrgetter("_run"))

    @property
    def _numba_type_(self) -> Any:
        """Asked by numba when it compiles a kernel that calls this one."""
        return load_numba().core.types.Dispatcher(self.compiled())

    def compiled(self) -> Any:
        """numba's dispatcher. Two threads may each make one; they find the same code."""
        if self._compiled is None:
            self._compiled = self._run = self._compile()
        return self._compiled

    def _compile(self) -> Any:
        numba = load_numba()
        Kernel.has_loader = True
        try:
            made = numba.njit(cache=True, **self._options)(self._function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            made = numba.njit(**self._options)(self._function)
        Kernel.made.append(made)
        self._stamp_cache(made._cache)
        if not _is_of_the_installation(made._cache):
            self._read_installed_first(made)
        return made

    def _read_installed_first(self, made: Any) -> None:
        from numba.core.caching import NullCache

        try:
            made._cache = _cache_to_read(self._function, made._cache)
        except RuntimeError:  # nothing is installed: of an archive there is the user's cache, or none
            Kernel.is_kept = Kernel.is_kept and not isinstance(made._cache, NullCache)
        else:
            self._stamp_cache(made._cache)

    def _stamp_cache(self, cache: Any) -> None:
        file: Any = getattr(cache, "_cache_file", None)
        if hasattr(file, "_source_stamp"):
            file._source_stamp = (file._source_stamp, self.stamp())
            _forgive(file)

    def _run_first(self, *arguments: Any) -> Any:
        if Kernel.python_thread == get_ident():
            return self._function(*arguments)  # called by a kernel that runs in Python
        if not self.is_early:
            return self.compiled()(*arguments)
        with _python_turn:
            if Kernel.python_ns_left > 0 and _bytes_of(arguments) <= SMALL_BYTES:
                return self._run_in_python(arguments)
        return self.compiled()(*arguments)

    def _run_in_python(self, arguments: tuple[Any, ...]) -> Any:
        """With results as numba gives them, and as silent where numbers wrap around."""
        began = perf_counter_ns()
        Kernel.python_thread = get_ident()
        try:
            with numpy.errstate(over="ignore"):
                return _plain(self._function(*arguments))
        finally:
            Kernel.python_thread = NOBODY
            Kernel.python_ns_left -= perf_counter_ns() - began

    @functools.cache  # noqa: B019  # kernels live as long as the process
    def stamp(self) -> str:
        """A hash of the kernel's options and file, the constants and tuples it names, kernels it calls."""
        return _stamp(self._function, self._options)


def has_compiled() -> bool:
    """Whether a kernel was in no cache, so that this process compiles it or has done so."""
    return any(made._cache_misses for made in Kernel.made)


def load_numba() -> Any:
    """The module; from now on no kernel is run in Python."""
    import numba

    with _python_turn:
        Kernel.python_ns_left = 0
    Kernel.is_numba_loaded = True
    return numba


def _places_of_the_installation() -> tuple[Any, ...]:
    """Of numba's places: what NUMBA_CACHE_DIR names, and beside the source."""
    from numba.core.caching import FunctionCache

    original: Any = FunctionCache
    return tuple(original._impl_class._locator_classes[:2])


def _is_of_the_installation(cache: Any) -> bool:
    implementation = getattr(cache, "_impl", None)
    return isinstance(getattr(implementation, "locator", None), _places_of_the_installation())


def _cache_to_read(function: Callable[..., Any], own: Any) -> Any:
    """numba's cache of `function` where the installation may not be written: in a read-only container, or for
    a user other than who installed it. numba itself would not look there, and compile anew into the user's
    directory, `own`, which is for what is not there. That keeps nothing where no place is writable.
    """
    from numba.core.caching import FunctionCache, NullCache

    original: Any = FunctionCache

    class Implementation(original._impl_class):  # type: ignore[misc]
        _locator_classes = tuple(
            type("ToRead", (place,), {"ensure_cache_path": lambda self: None})
            for place in _places_of_the_installation()
        )

    class ToRead(original):  # type: ignore[misc]
        _impl_class = Implementation

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            found = None
            with contextlib.suppress(OSError):  # nor may it be read
                found = super().load_overload(sig, target_context)
            return found if found is not None else own.load_overload(sig, target_context)

        def save_overload(self, sig: Any, data: Any) -> None:
            Kernel.is_kept = Kernel.is_kept and not isinstance(own, NullCache)
            own.save_overload(sig, data)

    return ToRead(function)


def _forgive(file: Any) -> None:
    """Files of numba's cache that a power cut or a full disk left as no files of it are made anew, and what
    cannot be written is compiled by the next process as well: neither keeps a broker from starting.

    One process saves at a time: two would give one number to two forms of a kernel. And what an older source
    left under that number goes before the index names it: who is killed in between leaves none there.
    """
    load, save, save_index = file.load, file.save, file._save_index

    def load_or_forget(key: Any) -> Any:
        try:
            return load(key)
        except OSError:
            raise
        except Exception:  # whatever is read out of bytes that are not what was written
            with contextlib.suppress(OSError):
                file.flush()  # an index without entries
            return None

    def save_or_not(key: Any, data: Any) -> None:
        try:
            with _locked(Path(file._cache_path) / CACHE_LOCK):
                save(key, data)
        except OSError as error:
            Kernel.is_kept = False
            Kernel.why_not_kept = f"the kernels cannot be kept: {error.strerror}"

    def save_clean_index(overloads: Mapping[Any, str]) -> None:
        for newest in [*overloads.values()][-1:]:
            Path(file._data_path(newest)).unlink(missing_ok=True)
        save_index(overloads)

    file.load, file.save, file._save_index = load_or_forget, save_or_not, save_clean_index


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among processes, where the file system knows locks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def would_load_numba() -> bool:
    """Whether a kernel that is not `early` would have to wait for numba now: half a second, once."""
    return not (IS_PLAIN_PYTHON or Kernel.is_numba_loaded)


def drop_loader() -> None:
    """After kernels have run for the first time: give back the memory that only loading them needed.

    A kernel comes from numba's cache, and loading one maps tens of megabytes of LLVM's code that are not run
    again afterwards. Dropping those pages is safe (they are the library's own file, unchanged), and brings
    them back if something is loaded after all. Costs nothing where nothing was loaded.
    """
    if not Kernel.has_loader:
        return
    Kernel.has_loader = False
    try:
        mappings = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for match in map(_LOADER_CODE.match, mappings):
        if match is not None:
            start, end = int(match[1], 16), int(match[2], 16)
            madvise(start, end - start, MADV_DONTNEED)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, numpy.generic) else value


def _bytes_of(arguments: Iterable[Any]) -> int:
    return sum(getattr(argument, "nbytes", 0) for argument in arguments)


def _stamp(function: Callable[..., Any], options: Mapping[str, bool]) -> str:
    code: CodeType = function.__code__
    parts = [repr(options), _hash_of(code.co_filename)]
    for name in sorted(set(_names(code))):
        value = function.__globals__.get(name)
        if isinstance(value, Kernel):
            parts.append(f"{name}={value.stamp()}")
        elif hasattr(type(value), "_numba_type_"):  # something else that is compiled into it, see `native.py`
            parts.append(f"{name}={_hash_of(sys.modules[type(value).__module__].__file__ or '')}")
        elif isinstance(value, ModuleType):
            parts.append(f"{name}={_hash_of(value.__file__ or '')}")
        elif isinstance(value, CONSTANTS):
            parts.append(f"{name}={value!r}")
    for annotation in function.__annotations__.values():  # of a tuple numba takes fields by their places
        named = function.__globals__.get(annotation) if isinstance(annotation, str) else annotation
        fields = getattr(named, "_fields", None)
        if fields is not None:
            parts.append(f"{annotation}={fields!r}")
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
