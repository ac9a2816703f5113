"""Goal: kernels compile wherever they are installed, and again when anything they are made of has changed.
Method: a package directory and a home that nobody may write; a package of two files, one of which is changed.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

import pytest

from protocol.kernel import CACHE_LOCK
from tests.thoroughness import slow
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []  # what numba finds where neither the source nor the home is writable
from protocol.kernel import Kernel, kernel

@kernel
def twice(number):
    return 2 * number

print(twice(21), Kernel.is_kept)
"""


def test_a_kernel_compiles_where_no_cache_can_be_written(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("42 False\n", 0), done.stderr


ALL_ROOMS = """
import re
import sys
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
from numba.core.dispatcher import Dispatcher
import cleaner.warm_up, protocol.one_look, protocol.records
import storage.batch_table, storage.integrity, storage.statistics_kernels
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
from storage.batch_table import BROKEN, find_batch

def find(size):
    return find_batch(numpy.zeros(size, numpy.uint8), 0)[2] == BROKEN, "numba" in sys.modules

Kernel.python_ns_left = kernel.BUDGET_NS = 10**15  # however long others have the core
for _ in range(100):
    assert find(SMALL_BYTES) == (True, False)
assert Kernel.python_ns_left < kernel.BUDGET_NS
{how}
assert find({size}) == (True, True)
assert find(SMALL_BYTES) == (True, True)
assert Kernel.python_ns_left == 0
"""


@pytest.mark.parametrize(
    ("how", "size"),
    [
        ("", "SMALL_BYTES + 1"),
        ("Kernel.python_ns_left = 1; find(100)", "100"),
        ("kernel.load_numba()", "100"),
        ("from storage.batch_table import read_int32; read_int32(numpy.zeros(4, numpy.uint8), 0)", "100"),
    ],
    ids=["more than a little", "the budget used up", "loaded", "a kernel that is not early"],
)
def test_a_little_work_of_a_start_does_not_load_numba(how: str, size: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = LAZY.format(how=how, size=size)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


BOTH_WAYS = """
import random, sys, warnings
import numpy
from protocol import record_kernels
from protocol.batch import HEADER_BYTES
from protocol.compression import Codec
from protocol.kernel import Kernel, load_numba
from protocol.records import as_array, encode_batch
from storage import batch_table, checksums
from protocol.native import MISSING
from storage.checksums import crc32c, first_damaged

warnings.simplefilter("error")
random.seed(7)
Kernel.python_ns_left = 10**15
kernels = {name: one for room in (record_kernels, batch_table, checksums)
           for name, one in vars(room).items() if isinstance(one, Kernel)}
early = {name for name, one in kernels.items() if one.is_early}
seen = set()

def row(n):
    return 10 + n, (b"key %d" % n) * (n % 2) or None, bytes(n) or None, [("h", b"x")] * (n % 3)

def rows(count):
    return [row(n) for n in range(count)]

batches = [encode_batch(rows(n), codec=Codec.NONE) for n in (1, 5, 9)]
good = b"".join(batches)
files = [good, good[:-1], bytes(200), random.randbytes(200), b""]
for _ in range(250):
    damaged = bytearray(good)
    damaged[random.randrange(len(good))] ^= 1 << random.randrange(8)
    files.append(bytes(damaged))

def call(name, room, *arguments):
    seen.add(name)
    try:
        made = getattr(room, name)(*arguments)
    except IndexError:
        return IndexError
    types = [type(one) for one in made] if isinstance(made, tuple) else type(made)
    return made.tolist() if isinstance(made, numpy.ndarray) else made, types

def results():
    for data in files:
        chunk = as_array(data)
        table = numpy.zeros((batch_table.TABLE_ROWS, 8), numpy.int64)
        walked = call("walk_batches", batch_table, chunk, table)
        yield walked, table.tolist()
        for offset in (0, 4, 99):
            yield call("find_batch", batch_table, chunk, offset)
        yield call("whole_batches", batch_table, chunk, 0)
        found = table[:, : walked[0][0]]
        entries = numpy.zeros((4, 8), numpy.int64)
        state = numpy.zeros(4, numpy.int64)
        yield call("choose_entries", batch_table, found, state, 50, entries), entries.tolist(), state.tolist()
        seen.add("first_damaged")
        for way in (crc32c(), crc32c()._replace(address=MISSING)):
            yield first_damaged(chunk, found, found.shape[1], way)
        first, last = data[HEADER_BYTES : len(batches[0])], data[HEADER_BYTES - len(batches[2]) :]
        for section, count in ((as_array(first), 1), (as_array(last), 9)):
            yield call("validate_records", record_kernels, section, count, True)
            yield call("locate_records", record_kernels, section, count)
            if call("validate_records", record_kernels, section, count, False)[0][0] == record_kernels.OK:
                yield call("keyless_records", record_kernels, section, count)

in_python = list(results())
assert seen == early, seen ^ early
assert "numba" not in sys.modules
load_numba()
compiled = list(results())
different = [(one, other) for one, other in zip(in_python, compiled, strict=True) if one != other]
print(len(in_python) > 2000, different[:1])
"""


def test_what_python_computes_is_what_numba_computes() -> None:
    """Of every kernel that a start calls: of whole batches and of damaged ones, without a warning."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", BOTH_WAYS], capture_output=True, text=True, env=environment)
    assert done.stdout == "True []\n", done.stdout + done.stderr


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


def run_outer(directory: Path, *, cache: Path | None = None, before: str = "") -> str:
    """What a new process gets from the kernel, and how often it found it compiled."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if cache is not None:
        environment["XDG_CACHE_HOME"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", f"{before}import outer"], capture_output=True, text=True, env=environment
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


KNOWS = """
from protocol.kernel import has_compiled
known = has_compiled()
import outer
print(known, has_compiled())
"""


def test_a_process_knows_whether_it_has_compiled_anything(tmp_path: Path) -> None:
    """And not merely loaded what is in the cache."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    assert run_outer(tmp_path, before=KNOWS) == "2014 0\nFalse True"
    assert run_outer(tmp_path, before=KNOWS) == "2014 1\nFalse False"


TUPLES = """
from typing import NamedTuple

class Two(NamedTuple):
    first: int
    {fields}
"""
TAKER = """
from __future__ import annotations
from protocol.kernel import kernel, load_numba
from tuples import Two

load_numba()

@kernel
def tens(two: Two) -> int:
    return 10 * two.second + two.third

if __name__ != "__main__":
    print(tens(Two(first=1, second=2, third=3)), sum(tens.compiled().stats.cache_hits.values()))
"""


def test_other_fields_of_a_tuple_make_a_kernel_be_compiled_anew(tmp_path: Path) -> None:
    """numba compiles the places of fields into it, and goes by their types alone."""
    (tmp_path / "outer.py").write_text(TAKER)
    (tmp_path / "tuples.py").write_text(TUPLES.format(fields="second: int\n    third: int"))
    assert run_outer(tmp_path) == "23 0"
    assert run_outer(tmp_path) == "23 1"
    (tmp_path / "tuples.py").write_text(TUPLES.format(fields="third: int\n    second: int"))
    assert run_outer(tmp_path) == "23 0"


def test_the_users_cache_serves_where_the_package_cannot_be_written(tmp_path: Path) -> None:
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.mkdir()
    (package / "outer.py").write_text(OUTER)
    (package / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    (package / "__pycache__").write_bytes(b"")  # no directory: even root cannot write into it
    assert run_outer(package, cache=cache) == "2014 0"
    assert run_outer(package, cache=cache) == "2014 1"
    assert list(cache.rglob("*.nbi"))


READ_ONLY = """
import tempfile
def refuse(*_, **__):
    raise PermissionError
tempfile.TemporaryFile = refuse  # by which numba tries whether it may write
"""


READ_ONLY_BUT_FOR_THE_HOME = """
import os, tempfile
anywhere = tempfile.TemporaryFile
def refuse(*arguments, dir, **more):
    if not dir.startswith(os.environ["XDG_CACHE_HOME"]):
        raise PermissionError
    return anywhere(*arguments, dir=dir, **more)
tempfile.TemporaryFile = refuse
"""


TELLING = """
import atexit
from protocol.kernel import Kernel
atexit.register(lambda: print("kept:", Kernel.is_kept))
"""


def test_what_is_compiled_serves_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A container with a read-only file system, a service that runs as somebody without a home."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    assert run_outer(tmp_path, before=READ_ONLY + TELLING) == "2014 0\nkept: False"
    assert not list(tmp_path.rglob("*.nbi"))
    assert run_outer(tmp_path, before=TELLING) == "2014 0\nkept: True"
    assert run_outer(tmp_path, before=READ_ONLY + TELLING) == "2014 1\nkept: True"
    (tmp_path / "inner.py").write_text(INNER.format(factor=3, expression="2 * number"))
    assert run_outer(tmp_path, before=READ_ONLY) == "3014 0"


def test_what_was_installed_serves_users_with_a_cache_of_their_own(tmp_path: Path) -> None:
    """The image with `--read-only`, whose home is its volume, compiled all kernels anew: a minute or two."""
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.mkdir()
    (package / "outer.py").write_text(OUTER)
    (package / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    before = READ_ONLY_BUT_FOR_THE_HOME + TELLING
    assert run_outer(package, before=TELLING) == "2014 0\nkept: True"
    assert run_outer(package, cache=cache, before=before) == "2014 1\nkept: True"
    assert not list(cache.rglob("*.nbi"))
    (package / "inner.py").write_text(INNER.format(factor=3, expression="2 * number"))
    assert run_outer(package, cache=cache, before=before) == "3014 0\nkept: True"
    assert list(cache.rglob("*.nbi"))
    assert run_outer(package, cache=cache, before=before) == "3014 1\nkept: True"


def test_what_is_compiled_of_an_archive_is_kept_in_the_users_cache(tmp_path: Path) -> None:
    """A wheel that travels with a job (`--py-files`)."""
    package, cache = tmp_path / "package.zip", tmp_path / "cache"
    with ZipFile(package, "w") as archive:
        archive.writestr("outer.py", OUTER)
        archive.writestr("inner.py", INNER.format(factor=2, expression="2 * number"))
    assert run_outer(package, cache=cache, before=TELLING) == "2014 0\nkept: True"
    assert run_outer(package, cache=cache, before=TELLING) == "2014 1\nkept: True"


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("nbi", "empty"), ("nbc", "half"), slow("nbi", "zeros"), slow("nbi", "half"), slow("nbc", "empty"),
        slow("nbc", "zeros"),
    ],
)  # fmt: skip
def test_a_damaged_cache_is_made_anew(tmp_path: Path, kind: str, damage: str) -> None:
    """Nobody syncs it: a power cut shortly after the first start leaves files without content."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    assert run_outer(tmp_path) == "2014 0"
    (path,) = tmp_path.rglob(f"outer.outer-*.{kind}")
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "zeros": bytes(len(data)), "half": data[: len(data) // 2]}[damage])
    assert run_outer(tmp_path, before=TELLING) == "2014 0\nkept: True"
    assert run_outer(tmp_path) == "2014 1"


FULL = """
import errno
from numba.core.caching import IndexDataCacheFile

def meet_a_full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")

IndexDataCacheFile._save_index = meet_a_full_disk
"""


def test_a_full_disk_keeps_nothing_from_being_compiled(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    telling = TELLING.replace("Kernel.is_kept", "Kernel.is_kept, Kernel.why_not_kept")
    said = run_outer(tmp_path, before=FULL + telling)
    assert said == "2014 0\nkept: False the kernels cannot be kept: No space left on device"


KILLED = """
import os
from numba.core.caching import IndexDataCacheFile

IndexDataCacheFile._save_data = lambda *_: os._exit(0)
"""


def test_who_is_killed_while_saving_leaves_no_old_form_under_a_new_name(tmp_path: Path) -> None:
    """The index was new, what it named was compiled from an older source, and served for good."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    assert run_outer(tmp_path) == "2014 0"
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="3 * number"))
    assert run_outer(tmp_path, before=KILLED) == ""
    assert run_outer(tmp_path) == "2021 0"
    assert run_outer(tmp_path) == "2021 1"


def test_one_process_saves_at_a_time(tmp_path: Path) -> None:
    """Two at once gave one number to two forms of a kernel, and each took what the last had left there."""
    (tmp_path / "outer.py").write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER.format(factor=2, expression="2 * number"))
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    with ThreadPoolExecutor(1) as pool, (cache / CACHE_LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        inode = f":{os.fstat(held.fileno()).st_ino} "
        running = pool.submit(run_outer, tmp_path)
        wait_for(
            lambda: any(
                "->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()
            ),
            "somebody who waits for the lock",
        )
        assert not list(cache.glob("*.nb?"))
        fcntl.flock(held, fcntl.LOCK_UN)
        assert running.result() == "2014 0"
    assert list(cache.glob("*.nbc"))


LOADER = """
import re
from pathlib import Path
from protocol.kernel import Kernel, drop_loader, kernel

@kernel
def twice(number):
    return 2 * number

@kernel
def thrice(number):
    return 3 * number

def loader_kb():
    mappings = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    code = [text for text in mappings if "libllvm" in text and " r-xp " in text.splitlines()[0]]
    return sum(int(re.search(r"Rss: +([0-9]+) kB", text)[1]) for text in code)

drop_loader()
assert loader_kb() == 0  # nothing was loaded
for one, expected in ((twice, 42), (thrice, 63)):
    assert one(21) == expected
    before = loader_kb()
    drop_loader()
    assert not Kernel.has_loader
    after = loader_kb()
    assert after < before / 4, (before, after)
    assert one(21) == expected
drop_loader()
print("dropped")
"""


def test_the_memory_of_the_loader_is_given_back_and_had_again(tmp_path: Path) -> None:
    """It is a quarter of what a worker of Spark takes that writes."""
    script = tmp_path / "script.py"
    script.write_text(LOADER)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("dropped\n", 0), done.stderr
