"""Goal: the data that the benchmark of the cleaner makes is what it says.

Method: it is decoded and counted.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.cleaning import BATCH_RECORDS, checkpoint_of, keyed_batches
from protocol.records import decode_all


def test_keyed_batches_are_the_same_each_time_and_hold_what_they_say() -> None:
    batches = list(keyed_batches(2 * BATCH_RECORDS, 50, 100))
    assert batches == list(keyed_batches(2 * BATCH_RECORDS, 50, 100))
    found = list(decode_all(batches[1]))
    assert len(found) == BATCH_RECORDS
    assert {len(record.key or b"") for record in found} == {16}
    assert len({record.key for record in found}) == 50
    assert 95 * BATCH_RECORDS < len(batches[1]) < 105 * BATCH_RECORDS


def test_checkpoint_is_read_as_kafka_writes_it(tmp_path: Path) -> None:
    assert checkpoint_of(tmp_path, "a") == -1
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\nb 0 7\na 0 1573\n")
    assert (checkpoint_of(tmp_path, "a"), checkpoint_of(tmp_path, "c")) == (1573, -1)
