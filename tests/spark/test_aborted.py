"""Goal: a committed read gives all that was committed, however an answer of the broker is cut for the scan.

Method: random transactions of several producers in one fetch answer, scanned in tables of few batches; a
model says which offsets were committed.
"""

from __future__ import annotations

import random

import pytest

from protocol.control import Marker, marker_batch
from spark_connector import fetching
from spark_connector.offsets import TopicPartition
from tests.spark.fake_broker import FakeLog
from tests.spark.test_ranges import COMMITTED, Start, batch, read


def data(offset: int, producer_id: int) -> bytes:
    return batch(offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def marker(offset: int, producer_id: int, is_commit: bool) -> bytes:
    return marker_batch(
        Marker(is_commit), producer_id=producer_id, producer_epoch=0, now_ms=1, base_offset=offset
    )


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_an_aborted_transaction_ends_in_an_earlier_table(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """It was opened again by each further table, and all that its producer committed there was dropped."""
    monkeypatch.setattr(fetching, "SCAN_ROWS", rows)
    batches = [data(0, 1), marker(1, 1, False)]
    for offset in range(2, 40, 2):
        batches += [data(offset, 1), marker(offset + 1, 1, True)]
    broker = start_broker({TopicPartition("t", 0): FakeLog(batches, aborted=[(1, 0)])})
    assert read(broker, **COMMITTED) == list(range(2, 40, 2))
    assert len(broker.fetched) == 1


@pytest.mark.parametrize("seed", range(5))
def test_random_transactions_in_small_tables(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chosen = random.Random(seed)
    monkeypatch.setattr(fetching, "SCAN_ROWS", chosen.randrange(1, 9))
    batches: list[bytes] = []
    aborted: list[tuple[int, int]] = []
    open_offsets: dict[int, list[int]] = {}
    committed: list[int] = []
    for offset in range(300):
        producer_id = chosen.randrange(1, 5)
        offsets = open_offsets.setdefault(producer_id, [])
        if offsets and chosen.random() < 0.4:
            is_commit = chosen.random() < 0.5
            batches.append(marker(offset, producer_id, is_commit))
            if is_commit:
                committed += offsets
            else:
                aborted.append((producer_id, offsets[0]))
            offsets.clear()
        else:
            batches.append(data(offset, producer_id))
            offsets.append(offset)
    stable = min((offsets[0] for offsets in open_offsets.values() if offsets), default=300)
    chosen.shuffle(aborted)
    log = FakeLog(batches, last_stable_offset=stable, aborted=[one for one in aborted if one[1] < stable])
    broker = start_broker({TopicPartition("t", 0): log})
    assert read(broker, **COMMITTED) == sorted(offset for offset in committed if offset < stable)
