"""Producer ids for idempotent producers: each is given once, ever.

Ids come in blocks. The end of a block is a record in `__kompakt_metadata`, flushed before the first id of
the block is given, so that neither a restart nor a power cut can give an id twice; what is left of a block
is skipped then. Mirrors Kafka's `ProducerIdManager` and its `ProducerIdsRecord`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from broker.topics import METADATA_PARTITION
from protocol.records import encode_batch
from storage.types import Origin

if TYPE_CHECKING:
    from broker.broker import Broker

BLOCK = 1000
AWAY = 1 << 40
"""so far from the ids of an Apache Kafka that it gives none of ours when it goes on with its directory"""
PRODUCER_IDS = "producer-ids"
KEY = json.dumps({"type": PRODUCER_IDS}).encode()


class ProducerIds:
    """Owned by: event loop; `restore`, `keep_away` and `skip` come before the first id is given."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next = 0
        self._end = 0
        self._used: set[int] = set()
        self._allocating = asyncio.Lock()

    def restore(self, state: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """Go on behind the last block that was ever begun, as `__kompakt_metadata` has it."""
        begun = state.get((PRODUCER_IDS, ""))
        self._next = self._end = 0 if begun is None else begun["next_producer_id"]

    def keep_away(self, next_producer_id: int) -> None:
        """Give none that an Apache Kafka has given, nor one that it may give when it goes on, where it was to
        give this one next: what it knows of them is its quorum log. Durable when `topics.flushed()` returns;
        KafkaError when it cannot be.
        """
        begin = next_producer_id + AWAY
        if begin > self._end:
            self._write(begin)
            self._next = self._end = begin

    def skip(self, used: Iterable[int]) -> None:
        """Ids that logs know are not given even if that record is lost: a log would take the new producer's
        first batches for repetitions of the old one's.
        """
        self._used = {producer_id for producer_id in used if producer_id >= self._next}

    def next_now(self) -> int | None:
        """An id of the block at hand; None when a new block is needed."""
        while self._next in self._used:
            self._next += 1
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """An id; KafkaError when a new block cannot be made durable."""
        async with self._allocating:
            while (producer_id := self.next_now()) is None:
                await self._allocate()
            return producer_id

    async def _allocate(self) -> None:
        end = self._end + BLOCK
        flushed = self._write(end)
        if flushed is not None:
            await flushed
        self._next, self._end = max(self._next, self._end), end

    def _write(self, end: int) -> asyncio.Future[None] | None:
        """That those below `end` are given, or will be; the future of its flush. KafkaError."""
        now_ms, partition = self._broker.clock.now_ms(), self._broker.partitions[METADATA_PARTITION]
        batch = encode_batch(
            [(now_ms, KEY, json.dumps({"next_producer_id": end}).encode(), [])], now_ms=now_ms
        )
        appended = partition.append(batch, now_ms, Origin.COORDINATOR)
        return partition.when_flushed(appended.last_offset + 1)
