"""How many connections there are, of all listeners together and of each address, and whether one more may
stay: `max.connections` of the broker and of a listener, `max.connections.per.ip` and what hosts have instead.

Mirrors Kafka's `ConnectionQuotas`, where who comes when all places are taken waits; here that one is refused.
"""

from __future__ import annotations

import logging
import resource
from collections import Counter
from typing import TYPE_CHECKING

from broker.quotas.addresses import address_of, resolved
from config.connections import limits_of_hosts
from config.definition import INT_MAX
from config.listeners import MOST_CONNECTIONS

if TYPE_CHECKING:
    from broker.node import Node

logger = logging.getLogger(__name__)


def affordable_connections() -> int:
    """A quarter of the files that the process may open: half are for segments (`storage/file.py`), the rest
    for everything else.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if soft == resource.RLIM_INFINITY else soft // 4


class Headcount:
    """Owned by: event loop, but for `resolve`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._affordable = affordable_connections()
        self._of_listener: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        """of each listener as well, until they are let in"""
        self._of_host: Counter[str] = Counter()
        self._resolved = ""
        self._limits: dict[str, int] = {}
        """of single addresses"""
        self._lost: set[str] = set()
        """hosts that had no address when they were looked up"""

    def resolve(self) -> None:
        """Take up `max.connections.per.ip.overrides`, and hosts among them that had no address before.
        Blocking: it may have to ask a name server.
        """
        text = self._node.config.max_connections_per_ip_overrides
        if text == self._resolved and not self._lost:
            return
        limits: dict[str, int] = {}
        lost: set[str] = set()
        for host, limit in limits_of_hosts(text).items():
            address = resolved(host)
            if address is not None:
                limits[address] = limit
                continue
            lost.add(host)
            if host not in self._lost:
                logger.error("the number of connections of %s is left out: it has no address", host)
        self._resolved, self._limits, self._lost = text, limits, lost

    def _has_place(self, listener: str) -> bool:
        """Whether one more may come to a listener, of whatever address. Who waits has a place already."""
        config = self._node.config
        there, waiting = self._of_listener, self._waiting
        most = min(config.max_connections, self._affordable)
        return there.total() + waiting.total() < most and (
            there[listener] + waiting[listener] < config.limit_of(listener, MOST_CONNECTIONS)
        )

    def wait(self, listener: str) -> bool:
        """Whether somebody who came too soon may wait to be let in, which is counted until `wait_no_more`."""
        has_place = self._has_place(listener)
        self._waiting[listener] += has_place
        return has_place

    def wait_no_more(self, listener: str) -> None:
        """Who waited has its turn, or has left."""
        self._waiting[listener] -= 1

    def enter(self, listener: str, host: str) -> bool:
        """Somebody has come, and is counted until `leave`; whether there was a place."""
        has_place = self._has_place(listener) and self._of_host[host] < self._limit(host)
        self._of_listener[listener] += 1
        self._of_host[host] += 1
        return has_place

    def _limit(self, host: str) -> int:
        default = self._node.config.max_connections_per_ip
        if not self._limits or not host:  # it is gone already, and its address with it
            return default
        return self._limits.get(address_of(host), default)

    def leave(self, listener: str, host: str) -> None:
        """Who entered has gone."""
        self._of_listener[listener] -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
