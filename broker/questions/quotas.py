"""What quotas there are, which of them holds for a client and why, and who is held back.

An entity is told as Kafka's tools and `__kompakt_metadata` have it: kinds with their names, where null is the
default, for each that has no quota of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from broker.questions.words import QUOTA_UNITS, amount, duration, entity, quota
from broker.quotas.limits import NOT_SAID, Place, by_rank
from broker.quotas.settings import CLIENT_ID, CONNECTED, IP, USER, Entity, entity_of
from config.definition import INT_MAX
from config.listeners import CREATION_RATE

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.quotas.limits import Entity as Ranked

Names = dict[str, str | None]
"""of an entity: its kinds with their names"""
KINDS_OF_CLIENTS = tuple(key for key in QUOTA_UNITS if key != CONNECTED)


def quota_rows(settings: Mapping[Entity, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Every quota that was set; on any thread."""
    rows = [quota_row(whose, values) for whose, values in settings.items()]
    return sorted(rows, key=lambda row: entity(row["entity"]))


def quota_row(whose: Entity, values: Mapping[str, float]) -> dict[str, Any]:
    """The quotas of an entity."""
    told = {key: _finite(value) for key, value in sorted(values.items())}
    return {"entity": dict(whose), "values": told}


def waiting_rows(broker: Broker) -> list[dict[str, Any]]:
    """Who was told to wait lately; those first who still do."""
    quotas, passed_ms = broker.quotas, broker.clock.passed_ms()
    rows = []
    for key, place, waited in quotas.waits.all():
        found = quotas.held(key).find(*place)
        limit = found.limit if found is not None and found.place == place else None
        rows.append(
            {
                "quota": key,
                "counted": _counted(key, place),
                "limit": None if limit is None else _finite(limit),
                **_figures(broker, key, place, limit),
                "waits_ms": max(0, waited.ends_ms - passed_ms),
                "times": waited.times,
                "told_ms": waited.told_ms,
                "last_ms": waited.last_ms,
            }
        )
    return sorted(rows, key=lambda row: row["waits_ms"] == 0)


def creation_rows(broker: Broker) -> list[dict[str, Any]]:
    """How fast connections are taken (`max.connection.creation.rate`): by all listeners together, whose row
    has no name, and by each.
    """
    waiting = sum(gate.waiting for gate in broker.gates)
    taken = broker.quotas.created.per_second(broker.clock.passed_ms())
    rows: list[tuple[str | None, int, float, int]] = [
        (None, broker.config.max_connection_creation_rate, taken, waiting)
    ]
    rows += [
        (gate.listener, broker.config.limit_of(gate.listener, CREATION_RATE), gate.rate, gate.waiting)
        for gate in broker.gates
    ]
    return [
        {"listener": name, "limit": limit if limit < INT_MAX else None, "rate": rate, "waiting": count}
        for name, limit, rate, count in rows
    ]


def explained(
    broker: Broker, client: tuple[str, str] | None = None, address: str | None = None
) -> list[dict[str, Any]]:
    """Each quota that there is for a client (its user and its client id), and for an address: what holds,
    whose it is, and all that could be for it, of which the first that is set holds.
    """
    rows = []
    if client is not None:
        rules = [dict(_client_entity(ranked)) for ranked in by_rank(*client)]
        rows += [_explained(broker, key, client, rules) for key in KINDS_OF_CLIENTS]
    if address is not None:
        hosts = broker.quotas.hosts_at(address) or [address]
        of_address: list[Names] = [{IP: host} for host in (*hosts, None)]
        rows.append(_explained(broker, CONNECTED, (address, NOT_SAID), of_address))
    return rows


def _client_entity(ranked: Ranked) -> Iterable[tuple[str, str | None]]:
    parts = zip((USER, CLIENT_ID), ranked, strict=True)
    return ((kind, name) for kind, name in parts if name != NOT_SAID)


def _explained(broker: Broker, key: str, who: tuple[str, str], entities: list[Names]) -> dict[str, Any]:
    settings, held = broker.quotas.settings.values, broker.quotas.held(key)
    set_values = [settings.get(entity_of(one.items()), {}).get(key) for one in entities]
    found = held.find(*who)
    holds = None if found is None else _first(set_values, found.limit)
    row: dict[str, Any] = {
        "quota": key,
        "limit": None if found is None else _finite(found.limit),
        "entity": None if holds is None else entities[holds],
        "counted": None if found is None else _counted(key, found.place),
        "waits_ms": 0,
    }
    if found is not None:
        row |= _figures(broker, key, found.place, found.limit)
        row["waits_ms"] = broker.quotas.waits.left_ms(key, found.place, broker.clock.passed_ms())
    row["sentence"] = _sentence(row)
    row["rules"] = [
        {"entity": one, "value": None if value is None else _finite(value), "holds": number == holds}
        for number, (one, value) in enumerate(zip(entities, set_values, strict=True))
    ]
    return row


def _first(values: list[float | None], limit: float) -> int | None:
    """Which of them holds: the first that is set; of two hosts at one address the one that was set last."""
    alike = (one for one, value in enumerate(values) if value is limit or value == limit)
    return next(alike, None)


def _figures(broker: Broker, key: str, place: Place, limit: float | None) -> dict[str, Any]:
    """How much it is now: a second, or in tokens that are left."""
    if limit is None:
        return {}
    figures = broker.quotas.held(key).figures(place, limit, broker.clock.passed_ms())
    return {name: _finite(value) for name, value in figures.items()}


def _counted(key: str, place: Place) -> dict[str, str]:
    """Whose doings are counted together: a kind that is not named may have any name."""
    user, client_id = place
    if key == CONNECTED:
        return {IP: user}
    return {kind: name for kind, name in ((USER, user), (CLIENT_ID, client_id)) if name != NOT_SAID}


def _finite(value: float) -> float | str:
    """JSON knows no other numbers; Kafka lets clients set them."""
    if math.isfinite(value):
        return int(value) if value == int(value) else value
    return "NaN" if math.isnan(value) else "Infinity"


def _sentence(row: dict[str, Any]) -> str:
    if row["limit"] is None:
        return "No quota holds: as much as it likes."
    words = quota(row["quota"], row["limit"])
    if row["entity"] is not None:
        words += f", of {entity(row['entity'])}"
    if row["entity"] != row["counted"]:
        words += f"; counted for {entity(row['counted'])}"
    if "rate" in row:
        words += f"; {quota(row['quota'], row['rate'])} now"
    if "tokens" in row:
        words += f"; {amount(row['tokens'])} may be changed at once"
    if row["waits_ms"]:
        words += f"; held back for {duration(row['waits_ms'])}"
    return f"{words}."
