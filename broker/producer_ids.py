"""Producer ids for idempotent producers: each is given once, ever.

Ids come in blocks. The end of a block is a record in `__kompakt_metadata`, flushed before the first id of
the block is given, so that neither a restart nor a power cut can give an id twice; what is left of a block
is skipped then. Mirrors Kafka's `ProducerIdManager` and its `ProducerIdsRecord`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from broker.clock import Clock
from broker.partition import Partition
from protocol.records import decode_batch, encode_batch
from storage.log import Log
from storage.types import Origin

BLOCK = 1000
KEY = json.dumps({"type": "producer-ids"}).encode()


class ProducerIds:
    """Owned by: event loop (`read` may run on any thread, before the first id is given)."""

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock
        self._next = 0
        self._end = 0
        self._used: set[int] = set()
        self._allocating = asyncio.Lock()

    def load(self, used: Iterable[int]) -> None:
        """Blocking: go on behind the last block that was ever begun.

        Ids that logs know are not given even if that record is lost: a log would take the new producer's
        first batches for repetitions of the old one's.
        """
        self._next = self._end = read_end(self._partition.log)
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
        now_ms = self._clock.now_ms()
        batch = encode_batch(
            [(now_ms, KEY, json.dumps({"next_producer_id": end}).encode(), [])], now_ms=now_ms
        )
        appended = self._partition.append(batch, now_ms, Origin.COORDINATOR)
        flushed = self._partition.when_flushed(appended.last_offset + 1)
        if flushed is not None:
            await flushed
        self._next, self._end = max(self._next, self._end), end


def read_end(log: Log) -> int:
    """The end of the last block in the log; blocking."""
    end = 0
    for _, batch in log.scan(log.log_start_offset):
        for record in decode_batch(batch):
            if record.key == KEY and record.value is not None:
                end = max(end, json.loads(record.value)["next_producer_id"])
    return end
