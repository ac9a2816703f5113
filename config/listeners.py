"""Listener addresses: `NAME://HOST:PORT` <-> where to listen, what is spoken there, and what to tell clients
(G33).

Mirrors Kafka's `EndPoint` and the listener checks of `KafkaConfig`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from config.definition import ConfigError

_ADDRESS = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9A-Fa-f:.%]+\]|[^:\[\]/\s]*):(\d{1,5})")
EVERY_ADDRESS = ("", "0.0.0.0", "::")
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
PLAINTEXT = "PLAINTEXT"
SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOLS = (PLAINTEXT, *SECURED)
LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
CREATION_RATE = "max.connection.creation.rate"
MOST_CONNECTIONS = "max.connections"
OF_A_LISTENER = (CREATION_RATE, MOST_CONNECTIONS)
"""of the keys that a listener may have its own value of, those that are not about security"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener. `advertised_port` 0 stands for the port that is really bound."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    protocol: str = PLAINTEXT


def address_text(host: str, port: int) -> str:
    """HOST:PORT as a client takes it: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str, key: str) -> tuple[str, str, int]:
    """Name (upper case), host and port of one address."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise ConfigError.of_value(text, key, "Not an address like PLAINTEXT://HOST:PORT")
    return match[1].upper(), match[2].strip("[]"), int(match[3])


def parse_protocols(texts: Sequence[str]) -> dict[str, str]:
    """What each listener name speaks, in upper case."""
    found = {}
    for text in texts:
        name, separator, protocol = text.partition(":")
        if not separator or protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError.of_value(
                text,
                PROTOCOL_MAP,
                f"Not NAME:PROTOCOL, with a PROTOCOL of {', '.join(PROTOCOLS)}",
            )
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def endpoints(
    listeners: Sequence[str],
    advertised: Sequence[str] | None,
    controller_names: Sequence[str],
    protocols: Sequence[str] = (),
) -> list[Endpoint]:
    """Every listener to open; those of Kafka's controller quorum are left out."""
    skipped = {name.upper() for name in controller_names}
    spoken = parse_protocols(protocols)
    told: dict[str, tuple[str, int]] = {}
    for text in advertised or ():
        name, host, port = parse_address(text, ADVERTISED)
        if host in EVERY_ADDRESS:
            raise ConfigError.of_value(text, ADVERTISED, "Clients need an address they can reach")
        if name in told:
            raise ConfigError.of_value(
                text,
                ADVERTISED,
                "Clients of a listener are told one address; give the other one a listener of its own",
            )
        told[name] = (host, port)
    found: dict[str, Endpoint] = {}
    for text in listeners:
        name, host, port = parse_address(text, LISTENERS)
        if name in skipped:
            continue
        if name in found:
            raise ConfigError.of_value(text, LISTENERS, "Each listener needs its own name")
        default_host = socket.gethostname() if host in EVERY_ADDRESS else host
        advertised_host, advertised_port = told.pop(name, (default_host, port))
        protocol = spoken.get(name, name if name in PROTOCOLS else None)
        if protocol is None:  # as in Kafka: a name misspelled in the map must not open a plain listener
            raise ConfigError.of_value(
                text,
                LISTENERS,
                f"No security protocol defined for listener {name}: say it in {PROTOCOL_MAP}, as "
                f"{name}:{PLAINTEXT} or one of {', '.join(SECURED)}",
            )
        found[name] = Endpoint(name, host, port, advertised_host, advertised_port, protocol)
    strange = sorted(told.keys() - skipped)
    if strange:
        words = f"There is no such listener; set {LISTENERS} as well, which has {', '.join(found) or 'none'}"
        raise ConfigError.of_value(strange[0], ADVERTISED, words)
    if not found:
        raise ConfigError("Invalid value for configuration listeners: No listener for clients", LISTENERS)
    return list(found.values())
