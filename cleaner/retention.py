"""What becomes of a batch, and of a record: pure questions that the I/O loop asks and never decides.

Mirrors `Cleaner.checkBatchRetention` and `shouldRetainRecord`. `keeps_record` says the rule for one record;
the kernels (`filter_kernels.py`) apply the same rule to millions, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from cleaner.filter_kernels import ARM, DISCARD, KEEP_SHELL
from cleaner.offset_map import NOT_FOUND, Bytes, Longs
from protocol.batch import CONTROL, NO_PRODUCER_ID, BatchHeader
from storage.batch_table import ATTRIBUTES, LAST_OFFSET, PRODUCER_ID
from storage.types import LastRecord


def _is_last_of_producer(batch: BatchHeader, last_record: LastRecord | None) -> bool:
    """Whether a living producer's state rests on this batch (T50, T92).

    It is the batch with its last sequence, or, when only a marker is left of it, one with its last epoch.
    """
    if last_record is None:
        return False
    if last_record.last_data_offset is not None:
        return batch.last_offset == last_record.last_data_offset
    return batch.is_control and batch.producer_epoch == last_record.producer_epoch


def judge_batch(
    batch: BatchHeader,
    *,
    is_obsolete: bool,
    last_record: LastRecord | None,
    end_of_round: int,
    now_ms: int,
) -> int:
    """DISCARD, KEEP_SHELL, ARM, or several of them, before any record is looked at.

    `is_obsolete` is the word of `CleanedTransactions`: aborted data, or a marker of which nothing is left.
    Such a marker goes only after a horizon of its own (T88). The batch at the end of the round keeps its
    end offset (T55).
    """
    verdict = 0
    if batch.is_control:
        horizon_ms = batch.delete_horizon_ms
        if is_obsolete:
            verdict |= ARM
            if horizon_ms is not None and horizon_ms <= now_ms:
                verdict |= DISCARD
    elif is_obsolete:
        verdict |= DISCARD
    is_last = batch.producer_id != NO_PRODUCER_ID and _is_last_of_producer(batch, last_record)
    if is_last or batch.last_offset + 1 == end_of_round:
        verdict |= KEEP_SHELL
    return verdict


def keeps_record(
    *,
    offset: int,
    has_key: bool,
    has_value: bool,
    mapped_offset: int,
    latest_offset: int,
    delete_horizon_ms: int | None,
    now_ms: int,
    is_versioned: bool = False,
    is_outlived: bool = False,
) -> bool:
    """Whether a record of a data batch survives (T36, T44, T46, T73-T76).

    Behind the mapped part nobody may judge. Before it, a record stays as the last of its key, and a
    tombstone only until the horizon of its batch, which the first cleaning that meets it sets. Where versions
    decide, the mapped record is its key's winner, and earlier and later ones go; a tombstone `is_outlived` by
    later ones, and stays until they have gone.
    """
    if offset > latest_offset:
        return True
    if not has_key:
        return False
    if mapped_offset != NOT_FOUND and (offset != mapped_offset if is_versioned else offset < mapped_offset):
        return False
    is_awaited = is_versioned and is_outlived
    return has_value or is_awaited or delete_horizon_ms is None or now_ms < delete_horizon_ms


def last_data_offsets(active_producers: Mapping[int, LastRecord]) -> Longs:
    """The ends of all data batches that living producers rest on, ascending."""
    offsets = [one.last_data_offset for one in active_producers.values() if one.last_data_offset is not None]
    return numpy.array(sorted(offsets), numpy.int64)


def judge_plain_batches(columns: Longs, last_offsets: Longs, end_of_round: int) -> Bytes:
    """`judge_batch` for all batches of a chunk at once, right for those that are neither transactional nor
    control.

    An offset belongs to one batch alone, so the last offset tells the producer's batch.
    """
    ends = columns[LAST_OFFSET]
    keeps = ends == end_of_round - 1
    if last_offsets.size:
        found = numpy.searchsorted(last_offsets, ends)
        found[found == last_offsets.size] = 0
        keeps |= (last_offsets[found] == ends) & (columns[PRODUCER_ID] != NO_PRODUCER_ID)
    keeps &= (columns[ATTRIBUTES] & CONTROL == 0) | (ends == end_of_round - 1)
    return numpy.where(keeps, numpy.uint8(KEEP_SHELL), numpy.uint8(0))
