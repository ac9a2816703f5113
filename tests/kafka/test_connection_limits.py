"""Goal: how many connections an address may have is set, told and kept as in Apache Kafka.

Method: the same steps are taken on both brokers, and what each was told, and who could stay, is compared.
Each step comes from an address of its own, since a broker learns a moment later that somebody has left. Who
comes when all places are taken waits in Kafka and is refused by kompakt, and `max.connections` has another
default: of a listener's own only the error is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.test_quotas import Step, play

Start = Callable[..., KafkaBroker]
OVERRIDES = "max.connections.per.ip.overrides"
OF_LISTENER = "listener.name.plaintext.max.connections"
WATCHED = (OVERRIDES, "max.connections.per.ip")
US = "127.0.0.1:1000"
"""who asks, and Kafka itself"""


def limits() -> Iterator[Step]:
    yield "nothing is set", lambda it: it.set_broker("1")
    yield "all may come", lambda it: it.come("127.0.0.11", 4)
    yield "two of an address", lambda it: it.set_broker("", max_connections_per_ip="2")
    yield "two may stay", lambda it: it.come("127.0.0.12", 4)
    yield "one has more", lambda it: it.set_broker("1", **{OVERRIDES: f"127.0.0.13:3, {US}"})
    yield "three may stay", lambda it: it.come("127.0.0.13", 4)
    yield "of others two", lambda it: it.come("127.0.0.14", 4)
    yield "one has none", lambda it: it.set_broker("1", **{OVERRIDES: "127.0.0.15 :0,127.0.0.16:1"})
    yield "it may not come", lambda it: it.come("127.0.0.15", 1)
    yield "another one may", lambda it: it.come("127.0.0.16", 2)
    yield "one that had more", lambda it: it.come("127.0.0.13", 3)
    yield "none at all", lambda it: it.set_broker("1", **{OVERRIDES: None, "max.connections.per.ip": "0"})
    yield (
        "but these",
        lambda it: it.set_broker(
            "1", **{OVERRIDES: "localhost:1000,127.0.0.17:1", "max.connections.per.ip": "0"}
        ),
    )
    yield "who has a name", lambda it: it.come("127.0.0.1", 2)
    yield "who is named", lambda it: it.come("127.0.0.17", 2)
    yield "who is not", lambda it: it.come("127.0.0.18", 1)
    yield "nowhere", lambda it: it.set_broker("1", **{OVERRIDES: f"{US},no.such.host.invalid:1,127.0.0.19:1"})
    yield (
        "all is as it was",
        lambda it: it.set_broker("1", **{OVERRIDES: None, "max.connections.per.ip": None}),
    )
    for text in ("127.0.0.1", "127.0.0.1:x", "a b:1", "[::1]:5", "a$b:3", "127.0.0.1:99999999999"):
        yield text, lambda it, text=text: it.set_broker("1", **{OVERRIDES: text})
    for text in (
        "",
        ",",
        "::1:5",
        "127.0.0.1:1000,",
        f"127.0.0.1:2,{US}",
        " a_b:3 ",
        "h-1.de : 4 ,10.0.0.1:3",
    ):
        yield f"{text!r} as well", lambda it, text=text: it.set_broker("", **{OVERRIDES: text})
    yield "of a listener", lambda it: it.set_broker("", **{OF_LISTENER: "500"})[0]
    yield "none of a listener", lambda it: it.set_broker("1", **{OF_LISTENER: "0"})[0]
    yield "another one", lambda it: it.set_broker("1", **{OF_LISTENER: "600"})[0]


@pytest.mark.java
def test_the_connections_of_an_address_are_limited_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, limits(), {}, WATCHED)


@pytest.mark.java
def test_limits_of_a_file_hold_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    def steps() -> Iterator[Step]:
        yield "they are told", lambda it: it.set_broker("1")
        yield "who is named", lambda it: it.come("127.0.0.11", 3)
        yield "who is not", lambda it: it.come("127.0.0.12", 1)

    settings = {"max.connections.per.ip": "0", OVERRIDES: f"127.0.0.11:2,{US}", OF_LISTENER: "77"}
    play(start_kafka, tmp_path, steps(), settings, WATCHED)
