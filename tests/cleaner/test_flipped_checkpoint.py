"""Goal: a flipped bit in `cleaner-offset-checkpoint` brings no deleted value back.

Method: a key's value is cleaned, then deleted, and not cleaned again. Were the checkpoint believed to be
beyond the tombstone, no cleaning would ever map it, and it would expire before the value that it deletes.
Bits of the checkpoint (all) and of its witness (some) are flipped in turn; the log is opened and cleaned
until every tombstone has gone. Also damage that is no flipped bit, and a checkpoint that Kafka has written
since.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage import layout
from storage.checkpoint import OffsetCheckpoint
from storage.layout import TopicPartition
from storage.verify import verify_data_directory
from tests.cleaner.house import House
from tests.cleaner.world import HOUR_MS
from tests.storage.test_flipped_bits import flip

T = TopicPartition("t", 0)
CLEAN_END = 2


@pytest.fixture
def attic(tmp_path: Path) -> Path:
    """A data directory whose log is clean up to offset 2, with a tombstone behind that."""
    house = House(tmp_path / "attic")
    house.put("t", ("deleted", "value"), ("a", "1"))
    house.manager.clean_now(T)
    house.put("t", ("deleted", None), ("b", "1"), ("c", "1"), ("d", "1"))
    assert house.checkpoints() == {T: CLEAN_END}
    house.close()
    return house.path


def cleaned_out(attic: Path, directory: Path, name: str, bit: int | None = None) -> dict[str, str]:
    """What a reader has in the end, when every tombstone had time to expire."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(attic, directory)
    if bit is not None:
        flip(directory / name, bit)
    house = House(directory)
    for number in range(3):
        house.put("t", (f"e{number}", "1"))
        house.manager.clean_now(T)
        house.now_ms += 50 * HOUR_MS
    table = house.table("t")
    house.close()
    assert verify_data_directory(directory) == []
    return {key: value for key, value in table.items() if not key.startswith("e")}


@pytest.mark.parametrize(("name", "every"), [(layout.CLEANER_CHECKPOINT, 1), (layout.CLEANER_WITNESS, 5)])
def test_every_bit(attic: Path, tmp_path: Path, name: str, every: int) -> None:
    right = {"a": "1", "b": "1", "c": "1", "d": "1"}
    assert cleaned_out(attic, tmp_path / "whole", name) == right
    for bit in range(0, 8 * (attic / name).stat().st_size, every):
        assert cleaned_out(attic, tmp_path / "flipped", name, bit) == right, f"bit {bit}"


def test_a_damaged_checkpoint_is_put_right(attic: Path) -> None:
    (attic / layout.CLEANER_CHECKPOINT).write_bytes(b"0\n1\nt 0")
    house = House(attic)
    assert house.manager.checkpoints.offset_of(attic, T) == CLEAN_END
    house.close()


def test_what_kafka_has_written_since_is_believed(attic: Path) -> None:
    """It has cleaned up to 5, which is three bits of a digit away."""
    OffsetCheckpoint(attic / layout.CLEANER_CHECKPOINT).write({T: 5})
    house = House(attic)
    assert house.manager.checkpoints.offset_of(attic, T) == 5
    house.close()


@pytest.mark.parametrize("name", [layout.CLEANER_CHECKPOINT, layout.CLEANER_WITNESS])
def test_one_that_cannot_be_read_is_one_line_and_a_fresh_start(
    attic: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """It was a traceback for each compacted log, none of which was cleaned any more."""
    (attic / name).unlink()
    (attic / name).mkdir()
    house = House(attic)
    for _ in range(2):
        assert house.manager.checkpoints.offset_of(attic, T) is None
    (line,) = [one.getMessage() for one in caplog.records if "cannot be read" in one.getMessage()]
    assert f"the cleaner checkpoint of {attic} cannot be read" in line
    (attic / name).rmdir()
    house.put("t", ("e", "1"))
    house.manager.clean_now(T)
    assert house.checkpoints()[T] > CLEAN_END
    assert house.table("t") == {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1"}
    house.close()
    assert "Traceback" not in caplog.text
