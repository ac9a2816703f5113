"""Which batches of a log belong to transactions that were aborted, and which markers still mean something.

Mirrors Kafka's `CleanedTransactionMetadata`. Batches must be told of in the order of the log, from the
first segment of a pass on; the answers are good for mapping (aborted batches are left out, T86) and for
rewriting. Pure: bytes are looked at by whoever calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.control import ControlType
from storage.types import AbortedTransaction


class CleanedTransactions:
    """Owned by: one cleaner thread, for one pass over a log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        self._seen_aborted: set[int] = set()  # producers of whose ongoing aborted transaction a batch is left
        self._seen_committed: set[int] = set()
        self._retained: list[AbortedTransaction] = []

    def on_batch(self, producer_id: int, last_offset: int) -> bool:
        """A transactional data batch: whether its records go, because they were aborted (T85)."""
        self._begin_up_to(last_offset)
        if producer_id in self._ongoing_aborted:
            self._seen_aborted.add(producer_id)
            return True
        self._seen_committed.add(producer_id)
        return False

    def on_marker(
        self, producer_id: int, last_offset: int, kind: ControlType | None, *, is_empty: bool
    ) -> bool:
        """A control batch: whether nothing of its transaction is left, so that it may go in time.

        An empty one (T91) has been cleaned before and ends nothing. A kind other than commit and abort stays.
        """
        self._begin_up_to(last_offset)
        if is_empty:
            return True
        if kind is ControlType.ABORT:
            ended = self._ongoing_aborted.pop(producer_id, None)
            if ended is not None and producer_id in self._seen_aborted:
                self._seen_aborted.discard(producer_id)
                self._retained.append(ended)
                return False
            return True
        if kind is ControlType.COMMIT:
            if producer_id in self._seen_committed:
                self._seen_committed.discard(producer_id)
                return False
            return True
        return False

    def take_retained(self) -> Sequence[AbortedTransaction]:
        """Index entries that the cleaned log still needs, since the last call, in the order of markers
        (T89).
        """
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._ongoing_aborted.setdefault(transaction.producer_id, transaction)
