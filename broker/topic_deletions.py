"""How a topic goes: at once for clients; then groups forget where they stood in it, and its files are taken
away from whoever works on them.

What a disk does not let go of, or a crash interrupts, the next start ends (`TopicRegistry.reconcile`).
Mirrors Kafka's `TopicDeletionManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.cleaning_history import CleaningHistory
from broker.groups.coordinator import GroupCoordinator
from broker.metadata_log import MetadataLog
from broker.moves import Moves
from broker.node import Node
from broker.reopening import Reopening
from broker.topic import Topic
from broker.topics import TopicRegistry
from cleaner.manager import CleanerManager
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class TopicDeletions:
    """Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        metadata: MetadataLog,
        topics: TopicRegistry,
        groups: GroupCoordinator,
        cleaner: CleanerManager,
        cleanings: CleaningHistory,
        moves: Moves,
        reopening: Reopening,
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._topics = topics
        self._groups = groups
        self._cleaner = cleaner
        self._cleanings = cleanings
        self._moves = moves
        self._reopening = reopening

    async def delete(self, name: str) -> None:
        """Remove a topic: it is gone for clients at once, and for good when this returns. KafkaError when the
        next start has to end it.
        """
        topic = self._topics.begin_deletion(name)
        self._node.metrics_state.topics.pop(name, None)
        for topic_partition in topic.partitions():
            self._node.forget(topic_partition)
        await self._node.changes.to_the_end(f"delete {name}", self._finish(topic))

    async def _finish(self, topic: Topic) -> None:
        node, name = self._node, topic.name
        await self._metadata.flushed()
        for _ in self._groups.on_topics_deleted([name]):
            await asyncio.sleep(0)
        try:
            await self._delete_logs(topic)
        except OSError as error:
            logger.error("%s is not wholly deleted, the next start ends it: %s", name, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the next start ends the deletion of {name}: {error}"
            ) from error
        await self._or_later("checkpoints", name, node.logs.checkpoint)
        # A power cut would else bring back where groups stood, for a new topic of the name.
        await self._groups.flushed()
        self._cleanings.forget(name, topic.partition_count)
        self._topics.end_deletion(topic)
        await self._metadata.flushed()
        # A large topic takes its time to give its room back, and nobody has to wait for that.
        node.changes.begin(f"files of {name}", self._or_later("files", name, node.logs.deleted.remove))

    async def _delete_logs(self, topic: Topic) -> None:
        logs, run_blocking, directories = self._node.logs, self._node.run_blocking, set()
        for topic_partition in topic.partitions():
            await self._moves.give_up(topic_partition)
            await run_blocking(self._cleaner.abort_and_pause, topic_partition)
            await self._reopening.settled(topic_partition)
            if topic_partition in logs.logs:
                directories.add(logs.delete(topic_partition))
        await run_blocking(logs.deleted.sync, directories)

    async def _or_later(self, what: str, name: str, job: Callable[[], object]) -> None:
        """What the next turn, or the next topic of this name, does as well: the topic is gone without it."""
        try:
            await self._node.run_blocking(job)
        except OSError as error:
            logger.warning("%s of %s stay for now: %s", what, name, error)
