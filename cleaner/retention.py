"""What becomes of a batch before its records are looked at: a pure question that the I/O loop asks and never
decides. Mirrors `Cleaner.checkBatchRetention`. What becomes of a record is decided in `filter_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from cleaner.filter_kernels import ARM, DISCARD, KEEP_SHELL
from cleaner.offset_map import Bytes, Longs
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
