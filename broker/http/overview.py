"""The broker, its topics and transactions as they are now: what the console shows, and nothing that reads
records.
"""

from __future__ import annotations

from aiohttp import web

from broker.http.access import SEE_BROKER, SEE_TOPIC
from broker.http.asking import Asking
from broker.questions.overview import (
    broker_head,
    broker_rest,
    cleanings_of,
    commits_in,
    topic_head,
    topic_rows,
)
from broker.questions.transactions import id_rows, open_rows
from broker.security.acls import Operation, Resource


class Overview:
    """Owned by: event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._broker = asking.broker

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        answering = self._asking.answering
        router.add_get("/api/broker", answering(self.broker, SEE_BROKER))
        router.add_get("/api/topics", answering(self.topics))
        router.add_get("/api/topics/{topic}", answering(self.topic, SEE_TOPIC))
        router.add_get("/api/transactions", answering(self.transactions, SEE_BROKER))

    async def broker(self, request: web.Request) -> web.StreamResponse:
        """What this broker is, its disks, its cleaner, and what the cleaner did last."""
        logs = [partition.log for partition in self._broker.partitions.values()]
        head, cleanings = broker_head(self._broker), cleanings_of(self._broker)
        rest = await self._asking.reading(broker_rest, self._broker, logs, cleanings)
        return await self._asking.respond(head | rest)

    async def topics(self, request: web.Request) -> web.StreamResponse:
        """Every topic that may be known, in one line."""
        logs = {place: partition.log for place, partition in self._broker.partitions.items()}
        may = self._asking.access.may
        there = self._broker.topics.all()
        topics = [one for one in there if may(request, Operation.DESCRIBE, Resource.TOPIC, one.name)]
        if there and not topics:
            self._asking.access.ask_who(request)
        return await self._asking.respond(
            {"topics": await self._asking.reading(topic_rows, self._broker, topics, logs)}
        )

    async def topic(self, request: web.Request) -> web.StreamResponse:
        """One topic: its partitions, its settings and whence they are, and which groups stand where."""
        topic = self._asking.topic(request)
        may = self._asking.access.may
        head = topic_head(self._broker, topic)
        if not may(request, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name):
            head["configs"] = None
        committed = [
            (group_id, commits)
            for group_id, commits in self._broker.groups.committed()
            if may(request, Operation.DESCRIBE, Resource.GROUP, group_id)
        ]
        return await self._asking.respond(
            {**head, "groups": await self._broker.run_blocking(commits_in, topic.name, committed)}
        )

    async def transactions(self, request: web.Request) -> web.StreamResponse:
        """Transactional ids, and the transactions that are open."""
        open_ones, states = open_rows(self._broker), dict(self._broker.transactions.states)
        ids = await self._broker.run_blocking(id_rows, states)
        return await self._asking.respond({**ids, "open": open_ones})
