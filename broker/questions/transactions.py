"""Transactions: every transactional id, and what is open in partitions, whoever knows of it."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker.transactions.state import TransactionState

if TYPE_CHECKING:
    from broker.broker import Broker

MOST_IDS = 1000


def id_rows(states: Mapping[str, TransactionState]) -> dict[str, Any]:
    """On an I/O thread: the ids that changed last, at most 1,000, and how many there are."""
    latest = heapq.nlargest(MOST_IDS, states.items(), key=lambda item: item[1].updated_ms)
    return {"count": len(states), "ids": [_id_row(*item) for item in latest]}


def _id_row(transactional_id: str, state: TransactionState) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": state.producer_id,
        "producer_epoch": state.epoch,
        "state": state.status.label,
        "timeout_ms": state.timeout_ms,
        "started_ms": state.started_ms if state.started_ms >= 0 else None,
        "updated_ms": state.updated_ms if state.updated_ms >= 0 else None,
        "aborted_ms": state.due_ms,
        "partitions": [{"topic": one.topic, "partition": one.partition} for one in sorted(state.partitions)],
    }


def open_rows(broker: Broker) -> list[dict[str, Any]]:
    """On the event loop: what holds readers of committed records back, the oldest offset of each partition
    first.
    """
    found = []
    for topic_partition, partition in sorted(broker.partitions.items()):
        log = partition.log
        for producer_id, first_offset in sorted(log.producers.open_transactions().items(), key=_by_offset):
            found.append(
                {
                    "topic": topic_partition.topic,
                    "partition": topic_partition.partition,
                    "producer_id": producer_id,
                    "transactional_id": broker.transactions.taking_part(topic_partition, producer_id),
                    "first_offset": first_offset,
                    "last_stable_offset": log.last_stable_offset,
                    "high_watermark": log.high_watermark,
                    "aborted_ms": broker.transactions.due_ms(topic_partition, producer_id),
                }
            )
    return found


def _by_offset(item: tuple[int, int]) -> int:
    return item[1]
