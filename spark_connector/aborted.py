"""Aborted transactions within one answer to a fetch: whose batches a committed read leaves out.

A broker tells where each of them begins, and its marker in the log where it ends, so that the batches of the
answer must be looked at in order, from the first to the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from protocol.batch import CONTROL, TRANSACTIONAL
from protocol.control import ControlType, control_type
from protocol.records import decode_batch
from spark_connector import kernels
from spark_connector.kernels import Bytes, Longs


class AbortedTransactions:
    """Owned by: the `Fetcher` that judges one answer.

    One for the whole answer, whatever pieces it is scanned in: a transaction that ended in an earlier piece
    must not be opened again by the next one.
    """

    def __init__(self, data: Bytes, aborted: Sequence[Any]) -> None:
        self._data = data
        self._starts = sorted((transaction.first_offset, transaction.producer_id) for transaction in aborted)
        self._position = 0  # of the first start that no batch has reached
        self._open_producers: set[int] = set()

    def committed(self, batches: Longs) -> numpy.ndarray[Any, Any]:
        """False for what was aborted, found as a consumer does: by producer, until its marker.

        `batches` are those that follow the ones of the call before.
        """
        result = numpy.ones(len(batches), bool)
        if not self._starts:
            return result
        for index, batch in enumerate(batches.tolist()):
            self._open(batch[kernels.NEXT_OFFSET])
            producer_id = batch[kernels.PRODUCER_ID]
            if batch[kernels.ATTRIBUTES] & CONTROL:
                if producer_id in self._open_producers and self._is_abort_marker(batch[kernels.POSITION]):
                    self._open_producers.discard(producer_id)
            elif batch[kernels.ATTRIBUTES] & TRANSACTIONAL and producer_id in self._open_producers:
                result[index] = False
        return result

    def _open(self, next_offset: int) -> None:
        """Transactions that begin before `next_offset` are open until their markers come."""
        while self._position < len(self._starts) and self._starts[self._position][0] < next_offset:
            self._open_producers.add(self._starts[self._position][1])
            self._position += 1

    def _is_abort_marker(self, position: int) -> bool:
        records = decode_batch(self._data.data, position)
        return bool(records) and control_type(records[0].key) == ControlType.ABORT
