"""The keys about how many connections there may be, of whom, and how fast they may come.

Of two of them a listener may have its own values.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from config.coordination import CoordinationConfig
from config.definition import INT_MAX, MINUTE_MS, Row, Type, key, rows_of
from config.listeners import OF_A_LISTENER
from config.security import LISTENER_PREFIX

_OVERRIDE = re.compile(r"([0-9A-Za-z._%:-]+)\s*:\s*(\d{1,10})")


def limits_of_hosts(text: str) -> dict[str, int]:
    """How many connections single hosts may have, as `max.connections.per.ip.overrides` tells them.

    ValueError names the first part that cannot be taken.
    """
    limits: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        found = _OVERRIDE.fullmatch(part)
        if found is None or int(found[2]) > INT_MAX:
            raise ValueError(part)
        limits[found[1]] = int(found[2])
    return limits


def _problem_of_overrides(text: str) -> str | None:
    try:
        limits_of_hosts(text)
    except ValueError as problem:
        return f"{problem} is not the address or the name of a host, a colon, and a number"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsConfig(CoordinationConfig):
    """The values that hold for connections. Owned by: any thread (immutable)."""

    max_connections: int = key(
        Type.INT, 10_000,
        "How many connections may be open, to all listeners together; more are refused (Kafka: no limit, and "
        "more wait). A listener may have fewer: listener.name.<listener>.max.connections",
        at_least=1, dynamic=True,
    )  # fmt: skip
    max_connections_per_ip: int = key(
        Type.INT, INT_MAX,
        "How many connections one address may have open, to all listeners together; 0 where only those of "
        "max.connections.per.ip.overrides may come",
        at_least=0, dynamic=True,
    )  # fmt: skip
    max_connections_per_ip_overrides: str = key(
        Type.STRING, "",
        "How many connections single hosts may have open instead: 10.0.0.7:100,localhost:5",
        dynamic=True, check=_problem_of_overrides,
    )  # fmt: skip
    max_connection_creation_rate: int = key(
        Type.INT, INT_MAX,
        "How many connections a second are taken; those beyond it wait, one behind the other, for at most "
        "quota.window.size.seconds each. It holds for all listeners together (Kafka: without that of other "
        "brokers), and for each, unless it has listener.name.<listener>.max.connection.creation.rate",
        at_least=0, client_at_least=1, dynamic=True,
    )  # fmt: skip
    connections_max_idle_ms: int = key(
        Type.LONG, 10 * MINUTE_MS, "A connection without traffic for so long is closed; -1 never", at_least=-1
    )

    limits_of_listeners: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """what is set of `OF_A_LISTENER` for single listeners, by key with its prefix, the name in lower case"""

    def limit_of(self, listener: str, key: str) -> int:
        """What holds for a listener of one of `OF_A_LISTENER`."""
        default: int = getattr(self, _rows()[key].attribute)
        return self.limits_of_listeners.get(f"{LISTENER_PREFIX}{listener.lower()}.{key}", default)

    def value_of(self, row: Row) -> Any:
        """Of a key, or of a listener's own."""
        base = _base(row.name)
        if base is None:
            return getattr(self, row.attribute)
        return self.limits_of_listeners.get(row.name, getattr(self, _rows()[base].attribute))


def listener_row(name: str) -> Row | None:
    """The row of a listener's own key, its name in lower case; None for any other key."""
    own = name.lower()
    base = _base(own)
    return None if base is None else dataclasses.replace(_rows()[base], name=own)


def base_of(row: Row) -> str:
    """Which of `OF_A_LISTENER` stands behind a listener's own."""
    base = _base(row.name)
    assert base is not None, row.name
    return base


def _base(name: str) -> str | None:
    """Which key of `OF_A_LISTENER` a listener's own is, if it is one."""
    for base in OF_A_LISTENER:
        listener = name.removeprefix(LISTENER_PREFIX).removesuffix(f".{base}")
        if listener and name == f"{LISTENER_PREFIX}{listener}.{base}":
            return base
    return None


@cache
def _rows() -> dict[str, Row]:
    return rows_of(ConnectionsConfig)
