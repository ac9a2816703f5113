"""Goal: kernels compile wherever they are installed, and again when anything they are made of has changed.
Method: a package directory and a home that nobody may write; a package of two files, one of which is changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []  # what numba finds where neither the source nor the home is writable
from protocol.kernel import kernel

@kernel
def twice(number):
    return 2 * number

print(twice(21))
"""


def test_a_kernel_compiles_where_no_cache_can_be_written(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr


ALL_ROOMS = """
import re
import sys
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
from numba.core.dispatcher import Dispatcher
import cleaner.warm_up, protocol.records, storage.batch_table, storage.integrity, storage.statistics_kernels
from protocol.kernel import Kernel

rooms = ("cleaner", "protocol", "storage")
modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in rooms]
values = [one for module in modules for one in vars(module).values()]
kernels = {f"{one.__module__}.{one.__name__}": one for one in values if isinstance(one, Kernel)}
for one in kernels.values():
    one.compiled()
    assert len(one.stamp()) == 64
    makes_arrays = re.search("Bytes|Longs|Table|Bits", str(one._function.__annotations__.get("return")))
    assert one._options["_nrt"] or not makes_arrays, f"{one.__name__} is no allocating_kernel"
assert "cleaner.offset_map.find_slot" in kernels
print([one for one in values if isinstance(one, Dispatcher)])
"""


def test_all_kernels_of_the_broker_load_without_a_cache_and_know_what_they_are_made_of() -> None:
    """One that is declared past `kernel` would keep the broker from starting, or stay old in the cache."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", ALL_ROOMS], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


LAZY = """
import sys
import numpy
from protocol import kernel
from protocol.kernel import SMALL_BYTES, Kernel
from storage.batch_table import read_int32

def read(size):
    return read_int32(numpy.full(size, 1, numpy.uint8), 0), "numba" in sys.modules

for _ in range(100):
    assert read(SMALL_BYTES) == (0x01010101, False)
assert Kernel.python_ns_left < kernel.BUDGET_NS
{how}
assert read({size}) == (0x01010101, True)
assert read(SMALL_BYTES) == (0x01010101, True)
assert Kernel.python_ns_left == 0
"""


@pytest.mark.parametrize(
    ("how", "size"),
    [("", "SMALL_BYTES + 1"), ("Kernel.python_ns_left = 1; read(4)", "4"), ("kernel.load_numba()", "4")],
    ids=["more than a little", "the budget used up", "loaded"],
)
def test_a_little_work_does_not_load_numba(how: str, size: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = LAZY.format(how=how, size=size)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


PLAIN = """
import sys, warnings
import numpy
warnings.simplefilter("error")
from protocol.kernel import kernel, load_numba
from protocol.siphash import siphash
from storage.batch_table import read_int32
from storage.statistics_kernels import hash_key

@kernel
def results(data):
    return read_int32(data, 0), data[0] > 1, (data[0] / 2, numpy.int64(data[1]) << 4)

data = numpy.arange(200, 255).astype(numpy.uint8)
keys = numpy.uint64(2**64 - 1), numpy.uint64(2**63)
def all_results():
    return results(data), hash_key(data, 0, 40), siphash(data, 0, 40, *keys)

def types_of(value):
    return tuple(map(types_of, value)) if isinstance(value, tuple) else type(value)

in_python = all_results()
assert "numba" not in sys.modules
load_numba()
compiled = all_results()
print(in_python == compiled, types_of(in_python) == types_of(compiled))
"""


def test_what_python_computes_is_what_numba_computes() -> None:
    """Numbers that wrap around and types of results included, without a warning."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, env=environment)
    assert done.stdout == "True True\n", done.stderr


INNER = """
from protocol.kernel import kernel
FACTOR = {factor}

@kernel
def times(number):
    return {expression}
"""
OUTER = """
from inner import FACTOR, times
from protocol.kernel import kernel, load_numba

load_numba()

@kernel
def outer(number):
    return times(number) + 1000 * FACTOR

if __name__ != "__main__":
    print(outer(7), sum(outer.compiled().stats.cache_hits.values()))
"""


def run_outer(directory: Path, *, cache: Path | None = None) -> str:
    """What a new process gets from the kernel, and how often it found it compiled."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if cache is not None:
        environment["XDG_CACHE_HOME"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", "import outer"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_change_in_another_file_makes_a_kernel_be_compiled_anew(tmp_path: Path) -> None:
    """What a kernel calls, and the constants it takes from elsewhere, are compiled into it."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    assert run_outer(tmp_path) == "2014 0"
    assert run_outer(tmp_path) == "2014 1"
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="3 * number"))
    assert run_outer(tmp_path) == "2021 0"
    (tmp_path / "inner.py").write_text(INNER.format(factor=3, expression="3 * number"))
    assert run_outer(tmp_path) == "3021 0"
    assert run_outer(tmp_path) == "3021 1"


def test_the_users_cache_serves_where_the_package_cannot_be_written(tmp_path: Path) -> None:
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.mkdir()
    (package / "outer.py").write_text(OUTER)
    (package / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    (package / "__pycache__").write_bytes(b"")  # no directory: even root cannot write into it
    assert run_outer(package, cache=cache) == "2014 0"
    assert run_outer(package, cache=cache) == "2014 1"
    assert list(cache.rglob("*.nbi"))
