"""Goal: what is no regular file where one is expected holds nobody up and fills no memory: an index is made
anew, anything else is an error that names it. Nor does an index that cannot be read fail a read.

Method: each file of a log in turn is replaced by a FIFO that nobody writes to, by a link to a device without
end, by a directory; its index is struck with the errors that a disk or wrong rights give.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import layout, statistics
from storage.checkpoint import encode_offsets
from storage.file import Disk
from storage.verify import verify_log
from tests.storage.builders import NOW_MS, LogBuilder, batch
from tests.storage.conftest import MakeLog

SIZE = len(batch())
REPLACEMENTS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": Path.mkdir,
}
FAR_SECONDS = 60
"""of a command that must end by itself"""


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def filled(builder: LogBuilder) -> LogBuilder:
    """Segments of 10 records from 0, 10 and 20 on, 25 records in all."""
    builder.fill(25, step_ms=5)
    statistics.ensure(builder.log.segments[1])
    builder.log.close()
    builder.recovery_point = 25
    return builder


@pytest.fixture
def three(make_log: MakeLog) -> LogBuilder:
    return filled(make_log(segment_bytes=10 * SIZE, index_interval_bytes=2 * SIZE))


def put(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    REPLACEMENTS[kind](path)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("kind", REPLACEMENTS)
@pytest.mark.parametrize("suffix", [layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX])
@pytest.mark.parametrize("base", [10, 20], ids=["closed", "active"])
def test_an_index_is_made_anew(three: LogBuilder, base: int, suffix: str, kind: str, is_clean: bool) -> None:
    path = three.directory / name(base, suffix)
    put(path, kind)
    assert any(f"{path.name} cannot be read" in line for line in verify_log(three.directory))
    log = three.open(is_clean=is_clean)
    assert three.offsets() == list(range(25))
    found = [log.offset_for_timestamp(NOW_MS + time_ms) for time_ms in (60, 110)]
    assert [one.offset for one in found if one] == [12, 22]
    log.roll(three.now_ms)
    three.restart()
    assert path.is_file()
    assert not path.is_symlink()


@pytest.mark.parametrize("kind", REPLACEMENTS)
@pytest.mark.parametrize(
    "file",
    [name(10, ".log"), name(20, ".log"), name(10, ".txnindex"), name(25, ".snapshot"),
     layout.LEADER_EPOCH_CHECKPOINT, layout.PARTITION_METADATA],
)  # fmt: skip
def test_any_other_is_an_error_that_names_it(three: LogBuilder, file: str, kind: str) -> None:
    put(three.directory / file, kind)
    assert any(
        f"{file} cannot be read: it is no regular file" in line for line in verify_log(three.directory)
    )
    with pytest.raises(OSError, match=file):
        three.open(is_clean=True)
    three.is_damaged = True  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_statistics_are_done_without(three: LogBuilder, kind: str) -> None:
    put(three.directory / name(10, layout.STATISTICS_SUFFIX), kind)
    assert len(verify_log(three.directory)) == 1
    three.open(is_clean=True)
    assert three.offsets() == list(range(25))
    three.is_damaged = True  # type: ignore[attr-defined]


def test_a_directory_with_something_in_it_stays(three: LogBuilder) -> None:
    """A read that needs the index fails and says why; what is in there may be somebody's."""
    path = three.directory / name(10, ".index")
    put(path, "directory")
    (path / "kept").touch()
    three.open(is_clean=True)
    with pytest.raises(OSError, match="not empty"):
        three.offsets()
    assert three.offsets(20) == list(range(20, 25))
    assert (path / "kept").exists()
    three.is_damaged = True  # type: ignore[attr-defined]


class StruckDisk(Disk):
    """Opening a file whose name ends so fails for who reads."""

    def __init__(self, ending: str, number: int) -> None:
        self.ending, self.number = ending, number

    def open(self, path: Path, flags: int) -> int:
        if path.name.endswith(self.ending) and not flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(self.number, os.strerror(self.number), str(path))
        return super().open(path, flags)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_one_that_must_not_be_read_is_made_anew(three: LogBuilder, suffix: str, number: int) -> None:
    log = three.open(is_clean=True, disk=StruckDisk(name(10, suffix), number))
    assert three.offsets() == list(range(25))
    found = log.offset_for_timestamp(NOW_MS + 60)
    assert found is not None
    assert found.offset == 12


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_where_that_is_no_fault_of_the_file_it_stays(three: LogBuilder, number: int) -> None:
    three.open(is_clean=True, disk=StruckDisk(name(10, ".index"), number))
    before = (three.directory / name(10, ".index")).stat().st_ino
    with pytest.raises(OSError, match=os.strerror(number)):
        three.offsets()
    assert (three.directory / name(10, ".index")).stat().st_ino == before


@pytest.mark.parametrize(
    "file",
    [layout.RECOVERY_POINT_CHECKPOINT, layout.LOG_START_CHECKPOINT, layout.CLEANER_CHECKPOINT,
     layout.CLEANER_WITNESS, layout.META_PROPERTIES, layout.CLEAN_SHUTDOWN, layout.LOCK],
)  # fmt: skip
def test_verify_ends_beside_fifos(three: LogBuilder, file: str) -> None:
    """As a process: one that hangs is ended, and fails the test."""
    data = three.directory.parent
    (data / layout.META_PROPERTIES).write_text("cluster.id=c\n")
    (data / layout.RECOVERY_POINT_CHECKPOINT).write_bytes(encode_offsets({}))
    put(data / file, "fifo")
    command = [str(Path(sys.executable).with_name("kompakt")), "verify", str(data)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FAR_SECONDS, check=False
    )
    assert done.stderr == ""
    if file == layout.LOCK:
        assert done.returncode == 0
    else:
        assert file in done.stdout
        assert "it is no regular file" in done.stdout
        assert done.returncode == 1
