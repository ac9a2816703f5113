"""Goal: a flipped bit in an offset checkpoint stops no start, takes no acknowledged record out of a log and
serves no wrong one.

Method: a data directory with a trimmed and a whole log is closed or left as by a crash; bits of its
checkpoints are flipped in turn, and every log is opened and read. These files are Kafka's and have no
checksum: a digit that became another digit is believed, within what the log holds. The log starts have a
witness, by which every bit is turned back (the cleaner's offsets too: tests/cleaner). Where it is missing (a
directory from Kafka), a log start that a flip moved up within the log hides what is before it, as in Kafka;
nothing of that is removed by a start, and with the right file it is there again. One beyond the log's end is
not believed after a clean stop (Kafka drops the whole log).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage import layout
from storage.checkpoint import CheckpointWitness, OffsetCheckpoint
from storage.manager import LogManager
from storage.verify import verify_data_directory
from tests.storage.test_flipped_bits import Records, consume, flip
from tests.storage.test_manager import ORDERS, Managers
from tests.thoroughness import some_or_all

EVERY = 5
RECORDS = 10
TRIMMED = 5


class Directory:
    """One data directory again and again. `wholes` is what its logs held."""

    def __init__(self, root: Path, *, is_clean: bool) -> None:
        self.managers = Managers(root)
        self.path, self.attic = root / "data", root / "attic"
        manager = self.managers.start()
        self.wholes: dict[object, Records] = {}
        for one in ORDERS[:2]:
            log = self.managers.create(manager, one, RECORDS)
            log.flush()
        manager.logs[ORDERS[0]].delete_records(TRIMMED)
        for one in ORDERS[:2]:
            self.wholes[one] = consume(manager.logs[one])[0]
        manager.checkpoint()
        cleaner = OffsetCheckpoint(self.path / layout.CLEANER_CHECKPOINT)
        cleaner.write(dict.fromkeys(ORDERS[:2], TRIMMED))
        manager.close() if is_clean else manager.abandon()
        shutil.copytree(self.path, self.attic)

    def start_with(self, name: str, bit: int) -> LogManager:
        self.managers.made[-1].abandon()
        shutil.rmtree(self.path)
        shutil.copytree(self.attic, self.path)
        flip(self.path / name, bit)
        return self.managers.start()

    def bits(self, name: str, every: int = EVERY) -> range:
        return range(0, 8 * (self.attic / name).stat().st_size, every)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("name", [layout.RECOVERY_POINT_CHECKPOINT, layout.CLEANER_CHECKPOINT])
def test_everything_is_there(tmp_path: Path, name: str, is_clean: bool) -> None:
    directory = Directory(tmp_path, is_clean=is_clean)
    for bit in directory.bits(name):
        manager = directory.start_with(name, bit)
        manager.directories[0].cleaner_checkpoint.read()
        for one, whole in directory.wholes.items():
            log = manager.logs[one]  # type: ignore[index]
            assert log.log_end_offset == RECORDS, f"bit {bit}"
            assert consume(log) == (whole, []), f"bit {bit}"
            assert log.health.damaged_places == 0, f"bit {bit}"
    directory.managers.made[-1].abandon()


@some_or_all("step", 7, 1)
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("name", [layout.LOG_START_CHECKPOINT, layout.LOG_START_WITNESS])
def test_a_log_start_is_what_it_was(tmp_path: Path, name: str, is_clean: bool, step: int) -> None:
    directory = Directory(tmp_path, is_clean=is_clean)
    for bit in directory.bits(name, every=step):
        manager = directory.start_with(name, bit)
        assert [manager.logs[one].log_start_offset for one in ORDERS[:2]] == [TRIMMED, 0], f"bit {bit}"
        for one, whole in directory.wholes.items():
            assert consume(manager.logs[one]) == (whole, []), f"bit {bit}"  # type: ignore[index]
        manager.close()
        assert verify_data_directory(directory.path) == [], f"bit {bit}"


def test_a_log_start_that_kafka_has_written_since_is_believed(tmp_path: Path) -> None:
    directory = Directory(tmp_path, is_clean=True)
    path = directory.attic / layout.LOG_START_CHECKPOINT
    path.write_bytes(path.read_bytes().replace(b" 5\n", b" 8\n"))
    log = directory.start_with(layout.CLEANER_CHECKPOINT, 0).logs[ORDERS[0]]
    assert log.log_start_offset == 8
    directory.managers.made[-1].abandon()


@pytest.mark.parametrize("epoch", [7, -1])
@pytest.mark.parametrize("name", [layout.LOG_START_CHECKPOINT, layout.CLEANER_CHECKPOINT])
def test_what_a_kafka_has_left_is_believed_though_it_is_one_bit_off(
    tmp_path: Path, name: str, epoch: int
) -> None:
    """5 and 7, where kompakt had 5: what Kafka said last counts, and not what kompakt has kept of its own."""
    directory = Directory(tmp_path, is_clean=True)
    (directory.attic / layout.CLEAN_SHUTDOWN).write_text(f'{{"version":0,"brokerEpoch":{epoch}}}')
    path = directory.attic / name
    data = path.read_bytes()
    witness = CheckpointWitness(directory.attic / layout.WITNESS_OF[name])
    witness.write(data)
    path.write_bytes(data.replace(b" 5\n", b" 7\n", 1))
    manager = directory.start_with(layout.RECOVERY_POINT_CHECKPOINT, 0)
    found = manager.directories[0].cleaner_checkpoint.read()
    if name == layout.LOG_START_CHECKPOINT:
        found = {ORDERS[0]: manager.logs[ORDERS[0]].log_start_offset}
    assert sorted(found.values())[-1] == (7 if epoch >= 0 else TRIMMED)
    manager.abandon()


@pytest.mark.parametrize(("written", "expected"), [(b" 4\n", 4), (b" 7\n", TRIMMED)])
def test_of_two_offsets_of_the_cleaner_the_lower_one_counts_after_a_crash(
    tmp_path: Path, written: bytes, expected: int
) -> None:
    """Which of two brokers has crashed nobody knows; what is cleaned again is no harm."""
    directory = Directory(tmp_path, is_clean=False)
    path = directory.attic / layout.CLEANER_CHECKPOINT
    data = path.read_bytes()
    CheckpointWitness(directory.attic / layout.CLEANER_WITNESS).write(data)
    path.write_bytes(data.replace(b" 5\n", written, 1))
    manager = directory.start_with(layout.RECOVERY_POINT_CHECKPOINT, 0)
    found = manager.directories[0].cleaner_checkpoint.read()
    assert found == dict(zip(ORDERS[:2], (expected, TRIMMED), strict=True))
    assert manager.directories[0].cleaner_checkpoint.read() == found, "and the next time"
    manager.abandon()


def test_a_log_start_without_its_witness_hides_at_most_what_is_before_it(tmp_path: Path) -> None:
    name = layout.LOG_START_CHECKPOINT
    directory = Directory(tmp_path, is_clean=True)
    (directory.attic / layout.LOG_START_WITNESS).unlink()
    for bit in directory.bits(name):
        manager = directory.start_with(name, bit)
        for one, whole in directory.wholes.items():
            log = manager.logs[one]  # type: ignore[index]
            assert log.log_end_offset == RECORDS, f"bit {bit}"
            found, corrupt = consume(log)
            expected = range(log.log_start_offset, RECORDS)
            assert (sorted(found), corrupt) == (list(expected), []), f"bit {bit}"
            assert log.segments[0].base_offset == 0, f"bit {bit}: a start removes nothing"
            assert whole.items() <= found.items() or log.log_start_offset > min(whole), f"bit {bit}"
    directory.managers.made[-1].abandon()


def test_a_log_start_beyond_the_end_is_not_believed(tmp_path: Path) -> None:
    directory = Directory(tmp_path, is_clean=True)
    path = directory.attic / layout.LOG_START_CHECKPOINT
    path.write_bytes(path.read_bytes().replace(b" 5\n", b" 9999\n"))
    log = directory.start_with(layout.CLEANER_CHECKPOINT, 0).logs[ORDERS[0]]
    assert (log.log_start_offset, log.log_end_offset) == (0, RECORDS)
    directory.managers.made[-1].abandon()
