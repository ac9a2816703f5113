"""Goal: what one call says of a stretch of a file is what `walk_stretch` says of it, in Python.

Method: both are asked wherever a stretch is checked, of logs with small and large batches, holes, several
leader epochs and witnesses, of which bits are flipped, files are cut and knowledge is wrong.
"""

from __future__ import annotations

import ctypes
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from protocol.batch import iterate_headers
from protocol.kernel import load_numba
from protocol.native import MISSING, libc_address
from storage import stretch
from storage.file import Disk
from storage.integrity import NO_ANCHORS, Anchors, Place, walk_stretch
from storage.leader_epochs import LeaderEpochs
from storage.segment import Segment
from storage.stretch import PIECE_BYTES, is_good, read_into
from tests.storage.builders import LogBuilder
from tests.storage.conftest import MakeLog
from tests.storage.test_flipped_bits import Damaged, consume
from tests.storage.test_flipped_prefixes import cleaned_log
from tests.thoroughness import some_or_all

SEED = 7
SIZES = (10, PIECE_BYTES - 80, PIECE_BYTES, 3 * PIECE_BYTES, 500, 20)
PREAD = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64)

Check = tuple[Place, int, int, int | None, Anchors]


class Both:
    """Asks both, and remembers what was asked and said."""

    def __init__(self) -> None:
        self.said: Counter[bool] = Counter()
        self.asked: list[Check] = []

    def __call__(self, file: Any, *check: Any) -> bool:
        fast = is_good(file, *check)
        place, *rest = check
        assert fast == walk_stretch(lambda position, size: file.read(size, position), place, *rest).is_intact
        self.said[fast] += 1
        self.asked.append(check)  # type: ignore[arg-type]
        return fast


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    load_numba()
    made = Both()
    monkeypatch.setattr("storage.trust.is_good", made)
    return made


def mixed_log(make_log: MakeLog) -> LogBuilder:
    builder = make_log(index_interval_bytes=200)
    for number in range(18):
        builder.append(b"%d" % (number % 10) * SIZES[number % len(SIZES)])
    builder.log.roll(builder.now_ms)
    builder.append(b"active")
    builder.log.flush()
    return builder


@some_or_all("flips", 4, 12)
@pytest.mark.parametrize("make", [mixed_log, cleaned_log])
def test_of_flipped_bits_both_say_the_same(
    make_log: MakeLog, tmp_path: Path, both: Both, make: Callable[[MakeLog], LogBuilder], flips: int
) -> None:
    builder = make(make_log)
    damaged = Damaged(builder, tmp_path / "attic", is_clean=False)
    chance = random.Random(SEED)
    for name, position, size, _ in damaged.batches():
        for bit in (*chance.sample(range(61 * 8), flips), chance.randrange(size * 8)):
            consume(damaged.open_with(name, position * 8 + bit))
    assert both.said[True] > flips
    assert both.said[False] > flips


def closed(builder: LogBuilder) -> Segment:
    return builder.log.segments[0]


def checks_of(builder: LogBuilder, both: Both) -> list[Check]:
    """What is asked when the whole of a closed segment is checked, a part at a time."""
    segment = closed(builder)
    for start in range(0, segment.size_bytes, 50_000):
        assert segment.check_again(start, min(start + 60_000, segment.size_bytes))
    asked = [check for check in both.asked if len(check[4].positions)]
    assert len(asked) > 3
    return asked


def moved(numbers: Any, by: int) -> Any:
    changed = numbers.copy()
    changed[-1] += by
    return changed


WRONG: dict[str, Callable[[Check], Check]] = {
    "first offset": lambda c: (c[0]._replace(base_offset=10_000), *c[1:]),
    "offset behind": lambda c: (*c[:3], c[0].base_offset, c[4]),
    "end within a batch": lambda c: (*c[:2], c[2] - 1, *c[3:]),
    "start within a batch": lambda c: (c[0], c[1] + 1, *c[2:4], NO_ANCHORS),
    "index position": lambda c: (*c[:4], c[4]._replace(positions=moved(c[4].positions, 1))),
    "index offset": lambda c: (*c[:4], c[4]._replace(offsets=moved(c[4].offsets, -1))),
    "leader epoch": lambda c: (c[0]._replace(epochs=epochs_of((3, 0))), *c[1:]),
}


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs.__new__(LeaderEpochs)
    epochs._entries = list(entries)
    return epochs


@pytest.mark.parametrize("what", WRONG)
def test_of_wrong_knowledge_both_say_the_same(make_log: MakeLog, both: Both, what: str) -> None:
    builder = mixed_log(make_log)
    for check in checks_of(builder, both):
        assert not both(closed(builder).file, *WRONG[what](check))


def test_epochs_of_other_offsets_say_nothing(make_log: MakeLog, both: Both) -> None:
    builder = mixed_log(make_log)
    for check in checks_of(builder, both):
        for entries in ([(0, 0)], [(9, 10_000)], [(0, 0), (9, 10_000)], [(0, 3)]):
            place = check[0]._replace(epochs=epochs_of(*entries))
            assert both(closed(builder).file, place, *check[1:])


def test_a_witness_is_heard(make_log: MakeLog, both: Both) -> None:
    builder = cleaned_log(make_log)
    segment = closed(builder)
    assert segment.check_again(0, segment.size_bytes)
    place, *rest = both.asked[-1]
    assert place.witness is not None
    assert both(segment.file, place, *rest)
    wrong = [one ^ 1 for one in place.witness.checksums]
    assert not both(segment.file, place._replace(witness=place.witness._replace(checksums=wrong)), *rest)


def test_a_file_that_ends_early(make_log: MakeLog, both: Both) -> None:
    builder = mixed_log(make_log)
    builder.is_damaged = True  # type: ignore[attr-defined]
    segment = closed(builder)
    headers = list(iterate_headers(segment.read_at(0, segment.size_bytes)))
    check = (Place(0, segment.size_bytes, None, None), 0, segment.size_bytes, None, NO_ANCHORS)
    assert both(segment.file, *check)
    for position, header in headers[::-1]:
        for size in (position + header.size_bytes - 1, position + 61, position + 60, position):
            os.truncate(segment.file.path, size)
            assert not both(segment.file, *check)


@pytest.mark.parametrize("at_once", [1000, -1, 0])
def test_reads_that_bring_less(
    make_log: MakeLog, both: Both, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """A few bytes at a time are enough; where a read fails nothing is called good."""
    builder = mixed_log(make_log)
    checks = checks_of(builder, both)

    @PREAD
    def pread(descriptor: int, address: int, size: int, position: int) -> int:
        if at_once <= 0:
            return at_once
        data = os.pread(descriptor, min(size, at_once), position)
        ctypes.memmove(address, data, len(data))
        return len(data)

    found = ctypes.cast(pread, ctypes.c_void_p).value
    monkeypatch.setattr(stretch, "libc_address", lambda name: found)
    for check in checks:
        assert is_good(closed(builder).file, *check) == (at_once > 0)


def test_where_it_cannot_be_told(make_log: MakeLog, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then Python finds out: as long as numba is not loaded, without C functions, on a test's disk."""
    builder = mixed_log(make_log)
    check = checks_of(builder, both)[0]
    file = closed(builder).file
    for name, value in (("crc32c_address", lambda: MISSING), ("would_load_numba", lambda: True)):
        with monkeypatch.context() as patch:
            patch.setattr(stretch, name, value)
            patch.setattr("storage.trust.is_good", is_good)
            assert not is_good(file, *check)
            assert closed(builder).check_again(0, 100)
    assert is_good(file, *check)
    monkeypatch.setattr(file, "disk", Disk())
    assert not is_good(file, *check)


def test_no_byte_is_written_behind_a_buffer() -> None:
    buffer = numpy.empty(10, numpy.uint8)
    for at, size in ((0, 11), (1, 10), (-1, 2), (0, -1)):
        with pytest.raises(IndexError):
            read_into(0, libc_address("pread"), buffer, at, size, 0)
