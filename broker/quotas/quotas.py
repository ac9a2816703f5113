"""Every quota at work: what is answered is counted for its client, and the connection of who is beyond its
quota is not read for as long as the answer says (KIP-219).

A Produce counts with the bytes of its request, and is taken in any case. A Fetch counts with the bytes of
its answer: beyond the quota it is answered without records, and is not counted. Everything that is answered
counts with the time that it kept the event loop, of which there is 100 % each second (Kafka: 100 % for each
thread).
Mirrors Kafka's `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager` and
`ConnectionQuotas`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker.api import FETCH, PRODUCE
from broker.metadata_log import MetadataLog, State
from broker.node import Node
from broker.quotas.addresses import address_of, resolved
from broker.quotas.held import Held, HeldRates
from broker.quotas.limits import NOT_SAID
from broker.quotas.mutations import Mutations, Unbounded
from broker.quotas.rates import Rate, TokenBucket
from broker.quotas.settings import (
    ASKED,
    CHANGED,
    CLIENT_ID,
    CONNECTED,
    FETCHED,
    IP,
    KEYS,
    PRODUCED,
    USER,
    Entity,
    QuotaSettings,
)
from broker.quotas.waits import Waits
from config.definition import INT_MAX
from config.listeners import CREATION_RATE

if TYPE_CHECKING:
    from broker.context import RequestContext

logger = logging.getLogger(__name__)

NANOSECONDS_OF_A_PERCENT = 10_000_000
"""of a second"""
UNBOUNDED = Unbounded()
SHARE_FETCH = 78
KINDS_OF_ANSWERS = {PRODUCE: PRODUCED, SHARE_FETCH: FETCHED}


class Quotas:
    """Owned by: event loop; `restore` comes before the broker listens."""

    def __init__(self, node: Node, metadata: MetadataLog) -> None:
        config, self._run_blocking = node.config, node.run_blocking
        self._passed_ms, self._now_ms = node.clock.passed_ms, node.clock.now_ms
        self._counters = node.metrics_state
        self._counters.throttled = dict.fromkeys((*KEYS, CREATION_RATE), 0)
        self._counters.throttled_ms = dict.fromkeys((*KEYS, CREATION_RATE), 0)
        window_ms = 1000 * config.quota_window_size_seconds
        self.produced = HeldRates(config.quota_window_num, window_ms)
        self.fetched = HeldRates(config.quota_window_num, window_ms)
        self.asked = HeldRates(config.quota_window_num, window_ms, window_ms)
        window_of_changes_ms = 1000 * config.controller_quota_window_size_seconds
        self.changed = Held(TokenBucket, config.controller_quota_window_num, window_of_changes_ms)
        self.connected = HeldRates(config.quota_window_num, window_ms, window_ms)
        self.created = Rate(config.quota_window_num, window_ms, self._passed_ms())
        """connections to all listeners, for `gate.py`"""
        self._held: dict[str, Held[Any]] = {
            PRODUCED: self.produced,
            FETCHED: self.fetched,
            ASKED: self.asked,
            CHANGED: self.changed,
        }
        self._addresses: dict[str, str] = {}
        self._resolving = 0
        """how many look up hosts just now"""
        self._lost: set[str] = set()
        """hosts of which it is in the log that they have no address"""
        self.waits = Waits()
        self.is_active = False
        """whether any user or client id has a quota: only then requests are looked at"""
        self.settings = QuotaSettings(metadata, self._set)

    def restore(self, state: State) -> None:
        """As `__kompakt_metadata` has them. Blocking, where a quota is for a host that has only a name."""
        self.settings.restore(state)
        self._place({host: resolved(host) for host in self.settings.hosts})

    async def look_up_again(self) -> None:
        """What hosts had no address, and may have one now."""
        found = {
            host: await self._run_blocking(resolved, host)
            for host in self.settings.hosts - self._addresses.keys()
        }
        self._place({host: address for host, address in found.items() if host in self.settings.hosts})

    def _place(self, found: Mapping[str, str | None]) -> None:
        """Hosts that have a quota have these addresses."""
        for host, address in found.items():
            if address is not None:
                self._addresses[host] = address
                self._set_address(host, self.settings.values[((IP, host),)].get(CONNECTED))
            elif host not in self._lost:
                logger.error("the quota of %s is left out: it has no address", host)
        self._lost = self.settings.hosts - self._addresses.keys()

    def _set(self, entity: Entity, key: str, value: float | None) -> None:
        names = dict(entity)
        if key == CONNECTED:
            return self._set_address(names[IP], value)
        held = self._held.get(key)
        if held is None:  # of a later version
            return None
        held.set((names.get(USER, NOT_SAID), names.get(CLIENT_ID, NOT_SAID)), value)
        self.is_active = any(held.is_active for held in self._held.values())
        return None

    def held(self, key: str) -> Held[Any]:
        """What is counted for one kind of quota."""
        return self.connected if key == CONNECTED else self._held[key]

    def hosts_at(self, address: str) -> list[str]:
        """Those that have a quota of their own and this address, as they were named."""
        quotas = self.settings.values
        return [host for host, one in self._addresses.items() if one == address and ((IP, host),) in quotas]

    def _set_address(self, host: str | None, value: float | None) -> None:
        address = None if host is None else self._addresses.get(host)
        if host is None or address is not None:
            self.connected.set((address, NOT_SAID), value)

    async def resolve(self, hosts: set[str]) -> set[str]:
        """Those of the hosts that have an address, which is remembered for when they get a quota."""
        quotas = self.settings.values
        if not self._resolving:  # what others have found is of use to them until they have set their quotas
            self._addresses = {host: one for host, one in self._addresses.items() if ((IP, host),) in quotas}
        self._resolving += 1
        try:
            for host in hosts - set(self._addresses):
                address = await self._run_blocking(resolved, host)
                if address is not None:
                    self._addresses[host] = address
        finally:
            self._resolving -= 1
        return hosts & set(self._addresses)

    # what is counted

    def settle(self, context: RequestContext, answer: Any) -> int:
        """A request is answered; how long its client has to wait, ms. `answer` is the response, its bytes, or
        None.
        """
        told_ms = getattr(answer, "throttle_time_ms", 0)
        if context.api_key == FETCH:
            return told_ms  # `hold_back` has looked
        (user, client_id), now_ms = who(context), self._passed_ms()
        usage = context.usage
        assert usage is not None
        asked_ms = 0
        if answer is not None:  # with acks=0 time is not counted
            percent = usage.worked_ns() / NANOSECONDS_OF_A_PERCENT
            asked_ms = self.asked.add(user, client_id, percent, now_ms)
        if context.api_key == PRODUCE:
            told_ms = self.produced.add(user, client_id, usage.size_bytes, now_ms)
        kind = ASKED if asked_ms >= told_ms else KINDS_OF_ANSWERS.get(context.api_key, CHANGED)
        return self._told(kind, user, client_id, max(asked_ms, told_ms))

    def hold_back(self, context: RequestContext, size_bytes: int) -> int:
        """How long the client of a Fetch has to wait whose answer has so many bytes: above 0 it is answered
        without records.
        """
        usage = context.usage
        if usage is None:
            return 0
        (user, client_id), now_ms = who(context), self._passed_ms()
        percent = usage.worked_ns() / NANOSECONDS_OF_A_PERCENT
        asked_ms = self.asked.add(user, client_id, percent, now_ms)
        fetched_ms = self.fetched.add(user, client_id, size_bytes, now_ms)
        if asked_ms or fetched_ms:
            self.fetched.take_back(user, client_id, size_bytes, now_ms)
        kind = ASKED if asked_ms >= fetched_ms else FETCHED
        return self._told(kind, user, client_id, max(asked_ms, fetched_ms))

    def most_fetched(self, context: RequestContext) -> int:
        """More than so many bytes a Fetch could never be answered with."""
        most = self.fetched.most(*who(context)) if self.fetched.is_active else None
        return int(most) if most is not None and most < INT_MAX else INT_MAX

    def fetch_shared(self, context: RequestContext, size_bytes: int) -> int:
        """A member of a share group has so many bytes, and cannot give them back; how long it has to wait."""
        return self.fetched.add(*who(context), size_bytes, self._passed_ms())

    def mutations(self, context: RequestContext, strict_from: int) -> Unbounded:
        """What a request may change of topics; it is refused what is too much from that version on."""
        return self.mutations_of(*who(context), is_strict=context.api_version >= strict_from)

    def mutations_of(self, user: str, client_id: str, *, is_strict: bool) -> Unbounded:
        """The same, of whoever it is."""
        if not self.changed.is_active:
            return UNBOUNDED
        known = self.changed.of(user, client_id, self._passed_ms())
        if known is None:
            return UNBOUNDED
        return Mutations(*known, is_strict, self._passed_ms)

    def connect(self, host: str) -> int:
        """Somebody connects; if that is too often, after how many ms the connection is to be closed."""
        if not self.connected.is_active or not host:  # it is gone already, and its address with it
            return 0
        address, now_ms = address_of(host), self._passed_ms()
        wait_ms = self.connected.add(address, NOT_SAID, 1, now_ms)
        if wait_ms:
            self.connected.take_back(address, NOT_SAID, 1, now_ms)
        return self._told(CONNECTED, address, NOT_SAID, wait_ms)

    def _told(self, kind: str, user: str, client_id: str, wait_ms: int) -> int:
        if wait_ms:
            self._counters.throttled[kind] += 1
            self._counters.throttled_ms[kind] += wait_ms
            found = self.held(kind).find(user, client_id)
            place = (user, client_id) if found is None else found.place  # none: it was removed meanwhile
            self.waits.told(kind, place, wait_ms, self._now_ms(), self._passed_ms())
        return wait_ms


def who(context: RequestContext) -> tuple[str, str]:
    """A client's user and its client id, as quotas know them."""
    return context.principal.partition(":")[2], context.client_id or ""
