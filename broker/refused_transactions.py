"""Who asked for transactions, which are not here: told in the log, once for each transactional id.

A Java client shows its user the refusal and ends. librdkafka tries again until its own timeout, and an
operator who looks for the reason finds it here.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

NO_TRANSACTIONS = "kompakt has no transactions: transactional.id and exactly_once_v2 need an Apache Kafka"
MAX_TOLD = 1000
"""transactional ids that are told of; further ones are refused without a line"""


class RefusedTransactions:
    """Owned by: event loop."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, transactional_id: str, client_id: str | None) -> None:
        """Log that `transactional_id` was refused, unless it was told before."""
        if transactional_id in self._told or len(self._told) >= MAX_TOLD:
            return
        self._told.add(transactional_id)
        logger.warning(
            "refused the transactional.id %r of client %r: %s", transactional_id, client_id, NO_TRANSACTIONS
        )
