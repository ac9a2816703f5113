"""The rooms of a running broker, each given the rooms that it needs: what a handler may ask for.

Its life, and what clients come in by, is in `broker_server.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.api import Api, apis
from broker.broker_settings import BrokerSettings
from broker.busy_poll import BusyPoll
from broker.cleaning_history import CleaningHistory
from broker.clock import Clock
from broker.context import Listener
from broker.departure import Departure
from broker.fetch_session import FetchSessions
from broker.group_settings import GroupSettings
from broker.groups.coordinator import GroupCoordinator
from broker.growth import Growth
from broker.idle_segments import IdleSegments
from broker.large_frames import LargeFrames
from broker.metadata_log import MetadataLog
from broker.moves import Moves
from broker.node import Node
from broker.producer_ids import ProducerIds
from broker.purgatory import Purgatory
from broker.quotas.gate import Gate
from broker.quotas.headcount import Headcount
from broker.quotas.quotas import Quotas
from broker.read_ahead import ReadAhead
from broker.reopening import Reopening
from broker.security.authorizer import Authorizer
from broker.security.listener_tokens import ListenerTokens
from broker.security.users import Users
from broker.share.coordinator import ShareCoordinator
from broker.share.sessions import ShareSessions
from broker.topic_deletions import TopicDeletions
from broker.topics import TopicRegistry
from broker.transactions.coordinator import TransactionCoordinator
from cleaner.manager import CleanerManager
from cleaner.pool import CleanerPool
from config.broker import BrokerConfig


class Broker(Node):
    """Owned by: event loop; made inside the running one."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self.is_ready = False
        self.apis: Mapping[int, Api] = apis
        self.listeners: list[Listener] = []
        """where clients come in, as soon as the addresses are taken"""
        self.gates: list[Gate] = []
        """of all listeners"""
        self.tokens: list[ListenerTokens] = []
        """of the listeners that take tokens"""
        self._passed_at_start_ms = self.clock.passed_ms()
        self._make_rooms()
        self._make_answering()

    def _make_rooms(self) -> None:
        """What is kept in logs, and who works on them."""
        self.cleaner = CleanerManager(
            lambda: tuple(partition.log for partition in tuple(self.partitions.values())),
            self.logs,
            self.config,
            self.clock.now_ms,
            self.run_on_loop,
        )
        self.cleaner_pool = CleanerPool(self.cleaner)
        metadata = self.metadata = MetadataLog(self)
        self.topics = TopicRegistry(self, metadata)
        self.headcount = Headcount(self)
        self.settings = BrokerSettings(self, metadata, self.topics, self.cleaner_pool, self.headcount)
        self.group_settings = GroupSettings(self, metadata)
        self.producer_ids = ProducerIds(metadata)
        self.users = Users(metadata)
        self.quotas = Quotas(self, metadata)
        has_rules = bool(self.config.authorizer_class_name)
        self.authorizer = Authorizer(self.config, metadata, self.clock.passed_ms) if has_rules else None
        self.cleanings = CleaningHistory(self, metadata, self.cleaner)
        self.cleaner.on_cleaned = self.cleanings.note
        self.cleaner.on_set_aside = self.cleanings.note_failure
        self.shares = ShareCoordinator(self, self.topics, self.group_settings)
        self.groups = GroupCoordinator(self, self.topics, self.group_settings, self.authorizer, self.shares)
        self.moves = Moves(self, self.cleaner)
        self.transactions = TransactionCoordinator(
            self, self.topics, self.producer_ids, self.moves, self.groups
        )
        coordinators = (self.transactions, self.shares, self.groups)
        self.reopening = Reopening(self, self.cleaner, [one.load_again for one in coordinators])
        self.deletions = TopicDeletions(
            self,
            metadata,
            self.topics,
            self.groups,
            self.cleaner,
            self.cleanings,
            self.moves,
            self.reopening,
        )
        self.idle_segments = IdleSegments()
        self.growth = Growth()

    def _make_answering(self) -> None:
        """What requests and their answers share."""
        self.busy_poll = BusyPoll(self.config.busy_poll_us)
        self.departure = Departure()
        self.large_frames = LargeFrames(self.config.queued_max_request_bytes, self.clock)
        self.purgatory = Purgatory(self.clock, self.metrics_state)
        self.read_ahead = ReadAhead(self.run_blocking)
        self.fetch_sessions = FetchSessions(self.config, self.metrics_state)
        self.share_sessions = ShareSessions(self, self.shares)

    def load_metadata(self) -> None:
        """Blocking, before the logs are opened: read `__kompakt_metadata`, the broker's dynamic settings
        first. MetadataError.
        """
        state = self.metadata.load()
        self.settings.load(state)
        for room in (self.quotas, self.cleanings, self.producer_ids, self.users, self.group_settings):
            room.restore(state)
        if self.authorizer is not None:
            self.authorizer.restore(state)
        self.topics.load(state)

    @property
    def started_ms(self) -> int:
        """When it was made, by the time as it is set now."""
        return self.clock.now_ms() - (self.clock.passed_ms() - self._passed_at_start_ms)
