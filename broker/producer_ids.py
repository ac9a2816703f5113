"""Producer ids for idempotent producers: each is given once, ever.

Ids come in blocks. The end of a block is a record in `__kompakt_metadata`, flushed before the first id of
the block is given, so that neither a restart nor a power cut can give an id twice; what is left of a block
is skipped then. Mirrors Kafka's `ProducerIdManager` and its `ProducerIdsRecord`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker.metadata_log import MetadataLog, State

BLOCK = 1000
AWAY = 1 << 40
"""so far from the ids of an Apache Kafka that it gives none of ours when it goes on with its directory"""
PRODUCER_IDS = "producer-ids"


class ProducerIds:
    """Owned by: event loop; `restore`, `keep_away` and `skip` come before the first id is given."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._next = 0
        self._end = 0
        self._used: set[int] = set()
        self._allocating = asyncio.Lock()

    def restore(self, state: State) -> None:
        """Go on behind the last block that was ever begun, as `__kompakt_metadata` has it."""
        begun = state.get((PRODUCER_IDS, ""))
        self._next = self._end = 0 if begun is None else begun["next_producer_id"]

    def keep_away(self, next_producer_id: int) -> None:
        """Give none that an Apache Kafka has given, nor one that it may give when it goes on, where it was to
        give this one next: what it knows of them is its quorum log. Durable when `metadata.flushed()`
        returns; KafkaError when it cannot be.
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
        self._write(end)
        await self._metadata.flushed()
        self._next, self._end = max(self._next, self._end), end

    def _write(self, end: int) -> None:
        """That those below `end` are given, or will be. KafkaError."""
        self._metadata.append(PRODUCER_IDS, "", {"next_producer_id": end})
