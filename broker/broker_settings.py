"""The broker's own settings that clients change while it runs: records of `__kompakt_metadata`.

    {"name": "1", "type": "broker"}  {"configs": {"log.cleaner.threads": "2"}}

The name is the broker's number; without one the settings are for all brokers, and give way to its own.
Mirrors Kafka's `DynamicBrokerConfig`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.metadata_log import MetadataLog, State
from broker.node import Node
from broker.quotas.headcount import Headcount
from broker.topics import TopicRegistry
from cleaner.pool import CleanerPool
from config.definition import ConfigError
from config.dynamic import with_what_is_understood
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from config.broker import BrokerConfig

logger = logging.getLogger(__name__)

BROKER = "broker"
EVERY_BROKER = ""


class BrokerSettings:
    """Owned by: event loop; `load` may run on any thread before the broker listens."""

    def __init__(
        self,
        node: Node,
        metadata: MetadataLog,
        topics: TopicRegistry,
        cleaner_pool: CleanerPool,
        headcount: Headcount,
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._topics = topics
        self._cleaner_pool = cleaner_pool
        self._headcount = headcount
        self._taking_up = asyncio.Lock()
        self._unapplied: deque[BrokerConfig] = deque()
        """what the threads do not work by yet, oldest first"""

    def load(self, state: State) -> None:
        """Set the node's `config` as the metadata log has it; what is no longer understood is left out with a
        line.
        """
        node = self._node
        defaults, own = (
            state.get((BROKER, name), {}).get("configs", {}) for name in (EVERY_BROKER, str(node.node_id))
        )
        node.config, problems = with_what_is_understood(node.config, defaults, own)
        for problem in problems:
            logger.error("a dynamic setting of the broker is left out: %s", problem)
        if node.config.dynamic or node.config.dynamic_defaults:
            self._cleaner_pool.reconfigure(node.config)
            node.logs.follow(node.config)
        self._headcount.resolve()

    def set(self, is_default: bool, overrides: Mapping[str, str]) -> None:
        """Replace the broker's dynamic settings, or those for all brokers. Logs follow at once, all else
        with `taken_up`; durable when `metadata.flushed()` returns. KafkaError: they cannot be.
        """
        node = self._node
        defaults = overrides if is_default else node.config.dynamic_defaults
        own = node.config.dynamic if is_default else overrides
        try:
            changed = node.config.with_dynamic(defaults, own)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
        name = EVERY_BROKER if is_default else str(node.node_id)
        self._metadata.append(BROKER, name, {"configs": dict(overrides)})
        node.config = changed
        self._unapplied.append(changed)
        self._topics.follow_broker()
        node.logs.follow(changed)

    async def taken_up(self) -> None:
        """Return when all works by the broker's settings: the cleaner's threads may have to end first, names
        of hosts to be looked up.
        """
        await self._node.changes.to_the_end("new settings of the broker", self._take_up())

    async def _take_up(self) -> None:
        """One change after the other: each was allowed beside the one before it, of how many threads there
        may be, and all of them together may be more.
        """
        async with self._taking_up:
            while self._unapplied:
                await self._node.run_blocking(self._cleaner_pool.reconfigure, self._unapplied.popleft())
            await self._node.run_blocking(self._headcount.resolve)
