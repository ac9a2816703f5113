"""Quotas: what was set, what holds for a client and why, who is held back; to set and to remove them.

What is refused is what Apache Kafka refuses, in its words; the rights are those that its clients need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from broker.http.access import ALTER_QUOTAS, SEE_QUOTAS
from broker.http.asking import SHOWN_LETTERS, Asking, Refused, body_of
from broker.questions.quotas import creation_rows, explained, quota_row, quota_rows, waiting_rows
from broker.questions.words import entity as entity_words
from broker.quotas.addresses import address_of
from broker.quotas.settings import (
    CLIENT_ID,
    CONNECTED,
    IP,
    KEYS,
    USER,
    Entity,
    check_entity,
    check_value,
    entity_of,
)
from broker.security.principal import ANONYMOUS
from protocol.errors import KafkaError

SET_FIELDS = {"entity": dict, "values": dict}
REMOVE_FIELDS = {"entity": dict, "quotas": list}


class Quotas:
    """Owned by: event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._broker = asking.broker

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        answering = self._asking.answering
        router.add_get("/api/quotas", answering(self.quotas, SEE_QUOTAS))
        router.add_get("/api/quotas/explain", answering(self.explain, SEE_QUOTAS))
        router.add_post("/api/quotas/set", answering(self.set, ALTER_QUOTAS))
        router.add_post("/api/quotas/remove", answering(self.remove, ALTER_QUOTAS))

    async def quotas(self, request: web.Request) -> web.StreamResponse:
        """Every quota that was set, who was told to wait lately, and how fast connections are taken."""
        settings = dict(self._broker.quotas.settings.values)
        return await self._asking.respond(
            {
                "quotas": await self._asking.reading(quota_rows, settings),
                "waiting": waiting_rows(self._broker),
                "listeners": creation_rows(self._broker),
                "connections_throttled": self._broker.metrics_state.connections_throttled,
            }
        )

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """What holds for a user, a client id, an address, and why. Without a user it is ANONYMOUS, without a
        client id a client that says none.
        """
        query = request.query
        user, client_id, ip = (query.get(name) for name in (USER, CLIENT_ID, IP))
        if user is None and client_id is None and ip is None:
            raise Refused(400, f"ask for one at least: ?{USER}=NAME, ?{CLIENT_ID}=NAME, ?{IP}=ADDRESS")
        client, address = None, None
        if user is not None or client_id is not None:
            client = user or ANONYMOUS.partition(":")[2], client_id or ""
        if ip is not None:
            try:
                address = address_of(ip)
            except ValueError as error:
                raise Refused(400, f"{ip!r} is no address") from error
        told = {} if client is None else {USER: client[0], CLIENT_ID: client[1]}
        told |= {} if address is None else {IP: address}
        return await self._asking.respond({**told, "quotas": explained(self._broker, client, address)})

    async def set(self, request: web.Request) -> web.StreamResponse:
        """Quotas of an entity, beside those that it has; it is answered with all of them."""
        body = await body_of(request, SET_FIELDS)
        entity, values = await self._entity(body), body.get("values", {})
        if not values:
            raise Refused(400, "field 'values' is needed: quotas with their values")
        try:
            wanted = {key: _number(_known_key(entity, key), value) for key, value in values.items()}
            for key, value in wanted.items():
                check_value(entity, key, value)
        except KafkaError as error:
            raise Refused(400, error.message) from error
        return await self._change(entity, {**self._known(entity), **wanted})

    async def remove(self, request: web.Request) -> web.StreamResponse:
        """Some quotas of an entity, or all; it is answered with those that are left."""
        body = await body_of(request, REMOVE_FIELDS)
        entity = await self._entity(body)
        known = self._known(entity)
        if not known:
            raise Refused(404, f"{entity_words(dict(entity))} has no quotas")
        unwanted = body.get("quotas", list(known))
        if not all(isinstance(key, str) for key in unwanted):
            raise Refused(400, "field 'quotas' has the names of quotas, which are strings")
        for key in unwanted:
            if key not in known:
                raise Refused(404, f"{entity_words(dict(entity))} has no {key}; it has {', '.join(known)}")
        return await self._change(entity, {key: value for key, value in known.items() if key not in unwanted})

    def _known(self, entity: Entity) -> Mapping[str, float]:
        return self._broker.quotas.settings.values.get(entity, {})

    async def _entity(self, body: Mapping[str, Any]) -> Entity:
        """Whom the quotas are for; Refused."""
        names = body.get("entity")
        if names is None:
            raise Refused(400, f"field 'entity' is needed: {USER}, {CLIENT_ID} or {IP} with a name or null")
        if not all(name is None or isinstance(name, str) for name in names.values()):
            raise Refused(400, "the names of an entity are strings, or null for the default")
        try:
            "".join(name for name in names.values() if name is not None).encode()
        except UnicodeEncodeError as error:
            raise Refused(400, str(error)) from error
        entity, host = entity_of(names.items()), names.get(IP)
        # One that has quotas stays what it is, even where its name has no address any more.
        has_quotas = bool(self._known(entity))
        addresses = await self._broker.quotas.resolve({host} if host else set())
        try:
            check_entity(entity, lambda one: has_quotas or one in addresses)
        except KafkaError as error:
            raise Refused(400, error.message) from error
        return entity

    async def _change(self, entity: Entity, values: Mapping[str, float]) -> web.StreamResponse:
        if values != self._known(entity):
            self._broker.quotas.settings.set(entity, values)
        await self._broker.metadata.flushed()
        return await self._asking.respond(quota_row(entity, values))


def _known_key(entity: Entity, key: str) -> str:
    """A quota that such an entity may have; Refused, with those that it may."""
    is_address = IP in dict(entity)
    known = [one for one in KEYS if (one == CONNECTED) == is_address]
    if key not in known:
        kind = "an address" if is_address else "a user or a client id"
        raise Refused(400, f"{key[:SHOWN_LETTERS]!r} is no quota of {kind}; there are {', '.join(known)}")
    return key


def _number(key: str, value: object) -> float:
    if type(value) in (int, float):
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise Refused(400, f"{str(value)[:SHOWN_LETTERS]!r} is no value of {key}: it takes a number")
