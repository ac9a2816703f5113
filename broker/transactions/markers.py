"""The ends of transactions that are decided, written where their records are (KIP-98).

Mirrors what of Kafka's `TransactionMarkerChannelManager` is left when all partitions are at hand.
"""

from __future__ import annotations

import asyncio
import logging

from broker.groups.coordinator import GroupCoordinator
from broker.moves import Moves
from broker.node import Node
from broker.transactions.state import Status, TransactionState
from protocol.errors import ErrorCode, KafkaError
from storage.layout import TopicPartition

logger = logging.getLogger(__name__)

MARKERS_A_TURN = 200
"""so many are written in one turn of the loop: a millisecond to two"""
# A log that knows a later epoch, or a later coordinator, has no transaction of this one any more.
_IS_LATE = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Markers:
    """Owned by: event loop."""

    def __init__(self, node: Node, moves: Moves, groups: GroupCoordinator) -> None:
        self._node = node
        self._moves = moves
        self._groups = groups

    async def write(
        self, transactional_id: str, state: TransactionState, unmarked: set[TopicPartition]
    ) -> None:
        """A marker into each of the partitions, all flushed at once; those that have theirs are taken out of
        `unmarked`.
        """
        is_commit = state.status is Status.PREPARE_COMMIT
        flushes: list[tuple[TopicPartition, asyncio.Future[None] | None]] = []
        for number, place in enumerate(sorted(unmarked), 1):
            await self._moves.settled(place)
            partition = self._node.partitions.get(place)
            if partition is None:  # deleted, and its part of the transaction with it
                unmarked.discard(place)
                continue
            now_ms = self._node.clock.now_ms()
            try:
                flushed = partition.end_transaction_of(*state.producer, now_ms, is_commit=is_commit)
            except KafkaError as error:
                level = logging.ERROR
                if error.code in _IS_LATE:  # an administrator has ended it before
                    unmarked.discard(place)
                    level = logging.WARNING
                logger.log(level, "the transaction of %r, in %s: %s", transactional_id, place, error)
            else:
                flushes.append((place, flushed))
            if number % MARKERS_A_TURN == 0:
                await asyncio.sleep(0)
        for place, flushed in flushes:
            try:
                if flushed is not None:
                    await flushed
            except KafkaError as error:
                logger.error("the transaction of %r, in %s: %s", transactional_id, place, error)
                continue
            unmarked.discard(place)
            self._groups.end_transaction(place, state.producer_id, is_commit=is_commit)
