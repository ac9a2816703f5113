"""Goal: the figures of the cleaner's bench mean what they say.

Method: log lines of both brokers as they write them, figures judged by hand, batches sent twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import cleaner_goals as goals
from benchmarks.cleaner import PARTS, cuts, table_bytes, used
from benchmarks.cleaning import _KAFKA_PASS, _OUR_PASS, Spool, keyed_batches
from benchmarks.goals import KAFKA, KOMPAKT
from benchmarks.results import RESULTS, Results, Section
from cleaner.offset_map import ENTRY_BYTES

OURS = (
    "cleaned-7-0: cleaned up to 1573: 200000 of 4999000 records, 21000000 of 500000000 bytes stay, "
    "16 segments became 1, 0.81 s"
)
THEIRS = (
    "[kafka-log-cleaner-thread-0]: Log cleaner thread 0 cleaned log cleaned-7-0 (dirty section = [0, 1573])\n"
    "\t1,016.3 MB of log processed in 3.7 seconds (274.7 MB/sec).\n"
)


def test_the_log_lines_of_both_are_read() -> None:
    ours, theirs = _OUR_PASS.search(OURS), _KAFKA_PASS.search(THEIRS)
    assert ours is not None and theirs is not None
    expected = {
        "log": "cleaned-7",
        "end": "1573",
        "written": "21000000",
        "read": "500000000",
        "seconds": "0.81",
    }
    assert ours.groupdict() == expected
    assert theirs.groupdict() == {"log": "cleaned-7", "end": "1573", "seconds": "3.7"}


def test_batches_come_out_of_the_spool_as_they_went_in(tmp_path: Path) -> None:
    batches = list(keyed_batches(1500, 10, 100, 3))
    spool = Spool(tmp_path / "spool", batches)
    assert list(spool) == list(spool) == batches


def test_a_goal_is_judged_by_its_worst_case() -> None:
    section = Section("full", {})
    for case, ours in (("a", 500.0), ("b", 300.0)):
        section.add(goals.speed_line("none"), case, "records/s", KOMPAKT, ours)
        section.add(goals.speed_line("none"), case, "records/s", KAFKA, 100.0)
    section.add(goals.MEMORY, "small", "MiB", KOMPAKT, 70.0)
    section.add(goals.MEMORY, "large", "MiB", KOMPAKT, 20.0)
    rows = {cells[0]: cells for cells in goals.table(Results({"speed": section}))}
    assert rows[f"{goals.speed_line('none')}, {KOMPAKT} / {KAFKA}"][2] == "3.00"
    assert rows[f"{goals.speed_line('none')}, {KOMPAKT} / {KAFKA}"][3].startswith("falls short by 25%")
    assert rows[f"{goals.MEMORY}, {KOMPAKT}"][3] == "falls short by 9% (small; 1 of 2 cases ok)"
    assert rows[goals.THREADS][3] == "not measured"


def test_the_table_shows_the_figures_that_are_kept() -> None:
    results = Results.read(RESULTS / f"{goals.NAME}.json")
    assert (RESULTS / f"{goals.NAME}.md").read_text() == goals.markdown(results)


def test_every_part_can_be_asked_for() -> None:
    assert set(PARTS) == {"speed", "latency", "producer", "footprint", "threads", "throttle"}
    assert cuts([float(number) for number in range(1, 101)]) == (50.5, 99.99)


def test_the_map_takes_of_the_buffer_what_its_keys_need() -> None:
    assert table_bytes(128 << 20, 30_000) == (1 << 16) * ENTRY_BYTES
    assert table_bytes(8 << 20, 200_000) == pytest.approx(8 << 20, rel=1e-5), "the whole of it"
    assert table_bytes(128 << 20, 5_000_000) == pytest.approx(128 << 20, rel=1e-5)


def test_deleted_files_do_not_count_as_used(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"abc")
    (tmp_path / "0.log.deleted").write_bytes(b"abcdef")
    assert used(tmp_path) == 3
