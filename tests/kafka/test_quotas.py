"""Goal: quotas go as in Apache Kafka: what may be set, what is told of it, for whom it holds, how long who
has done too much has to wait, and what that one is answered.

Method: the same steps are taken on both brokers, and what each was told is compared. Windows are an hour
long, so that it does not matter how fast the steps follow each other; waits are compared roughly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from config.listeners import CREATION_RATE
from tests.kafka.broker import KafkaBroker
from tests.kafka.quota_player import TOPIC, QuotaPlayer, is_alike
from tests.process import BrokerProcess

Start = Callable[..., KafkaBroker]
Step = tuple[str, Callable[[QuotaPlayer], Any]]
SETTINGS = {"quota.window.size.seconds": "3600", "num.partitions": "1"}
WRITTEN, READ, ASKED, CHANGED = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
)  # fmt: skip
CONNECTED = "connection_creation_rate"
EXACT, DEFAULT, ANY = range(3)
USER, CLIENT, IP = "user", "client-id", "ip"
ME = "ANONYMOUS"
SMALLEST = 100_072
"""bytes of the batches that the log begins with"""


def settings() -> Iterator[Step]:
    """In an order that must be kept."""
    yield "nothing", lambda it: it.described()
    yield "a client", lambda it: it.alter(([(CLIENT, "c")], [(WRITTEN, 1000), (READ, 2000)]))
    yield "version 0", lambda it: it.alter(([(CLIENT, "v0")], [(WRITTEN, 1000)]), version=0)
    yield "a user", lambda it: it.alter(([(USER, "u")], [(ASKED, 12.5), (CHANGED, 0.25)]))
    yield "both", lambda it: it.alter(([(CLIENT, "c"), (USER, "u")], [(WRITTEN, 1)]))
    yield "the other way round", lambda it: it.alter(([(USER, "u"), (CLIENT, "c")], [(READ, 2)]))
    yield "default user", lambda it: it.alter(([(USER, None)], [(WRITTEN, 3)]))
    yield "default client", lambda it: it.alter(([(CLIENT, None)], [(WRITTEN, 4)]))
    yield "default both", lambda it: it.alter(([(USER, None), (CLIENT, None)], [(WRITTEN, 5)]))
    yield "user of default", lambda it: it.alter(([(USER, "u"), (CLIENT, None)], [(WRITTEN, 6)]))
    yield "an address", lambda it: it.alter(([(IP, "10.1.2.3")], [(CONNECTED, 7)]))
    yield "a name", lambda it: it.alter(([(IP, "localhost")], [(CONNECTED, 7)]))
    yield "default address", lambda it: it.alter(([(IP, None)], [(CONNECTED, 8)]))
    yield "odd names", lambda it: it.alter(([(USER, "CN=a,O=b c/%20<default>")], [(WRITTEN, 9)]))
    yield (
        "several",
        lambda it: it.alter(
            ([(CLIENT, "a")], [(WRITTEN, 1)]), ([(CLIENT, "b")], [("no", 1)]), ([(USER, "b")], [(READ, 1)])
        ),
    )
    yield "only a check", lambda it: it.alter(([(CLIENT, "x")], [(WRITTEN, 1)]), validate_only=True)
    yield "only a bad check", lambda it: it.alter(([(CLIENT, "x")], [(WRITTEN, -1)]), validate_only=True)
    yield "all: settled", lambda it: it.settle()
    yield "all", lambda it: it.described()
    yield "all, version 0", lambda it: it.described(version=0)
    yield from refusals()
    yield from filters()
    yield "another value", lambda it: it.alter(([(CLIENT, "c")], [(WRITTEN, 1001)]))
    yield "one less", lambda it: it.alter(([(CLIENT, "c")], [(READ, None)]))
    yield "it is so: settled", lambda it: it.settle()
    yield "it is so", lambda it: it.described((CLIENT, EXACT, "c"), strict=True)
    yield "none left", lambda it: it.alter(([(CLIENT, "c")], [(WRITTEN, None)]))
    yield "it is gone: settled", lambda it: it.settle()
    yield "it is gone", lambda it: it.described((CLIENT, EXACT, "c"))
    yield "none to lose", lambda it: it.alter(([(CLIENT, "c")], [(WRITTEN, None)]))
    yield "no such key to lose", lambda it: it.alter(([(CLIENT, "c")], [("no", None)]))
    yield "no name to lose", lambda it: it.alter(([(IP, None)], [(CONNECTED, None)]))
    yield "all in the end: settled", lambda it: it.settle()
    yield "all in the end", lambda it: it.described()


def refusals() -> Iterator[Step]:
    def refused(name: str, names: Any, *values: Any) -> Step:
        return name, lambda it: it.alter((names, values or [(WRITTEN, 1)]))

    yield refused("no key", [(CLIENT, "r")], ("no", 1))
    yield refused("key of topics", [(CLIENT, "r")], ("retention.ms", 1))
    yield refused("zero", [(CLIENT, "r")], (WRITTEN, 0.0))
    yield refused("negative", [(CLIENT, "r")], (READ, -1))
    yield refused("broken", [(CLIENT, "r")], (WRITTEN, 1.5))
    yield refused("hardly broken", [(CLIENT, "r1")], (WRITTEN, 1.0000001))
    yield refused("broken time", [(CLIENT, "r2")], (ASKED, 0.5))
    yield refused("too large", [(CLIENT, "r")], (WRITTEN, 1e19))
    yield refused("the largest", [(CLIENT, "r3")], (WRITTEN, 9.223372036854775807e18))
    yield refused("too many", [(IP, "10.0.0.1")], (CONNECTED, 2147483648))
    yield refused("endless", [(CLIENT, "r4")], (ASKED, float("inf")))
    yield refused("endless bytes", [(CLIENT, "r")], (READ, float("inf")))
    yield refused("address writes", [(IP, "10.0.0.1")], (WRITTEN, 1))
    yield refused("client connects", [(CLIENT, "r")], (CONNECTED, 1))
    yield refused("no address", [(IP, "no.such.host.invalid")], (CONNECTED, 1))
    yield refused("half an address", [(IP, "10.0.0.1.2.3")], (CONNECTED, 1))
    yield refused("address and client", [(IP, "10.0.0.1"), (CLIENT, "r")], (CONNECTED, 1))
    yield refused("address and user", [(IP, None), (USER, None)], (CONNECTED, 1))
    yield refused("nobody", [])
    yield refused("no kind", [("", "r")])
    yield refused("other kind", [("group", "r")])
    yield refused("other kind as well", [("group", "r"), (CLIENT, "r")])
    yield refused("no name", [(CLIENT, "")])
    yield refused("no name of a user", [(USER, ""), (CLIENT, "r")])
    yield refused("kind twice", [(CLIENT, "r5"), (CLIENT, "r6")])
    yield refused("key twice", [(CLIENT, "r7")], (WRITTEN, 1), (WRITTEN, 2))
    yield refused("key twice, both gone", [(CLIENT, "r7"), (USER, None)], (WRITTEN, None), (WRITTEN, None))
    yield (
        "entity twice",
        lambda it: it.alter(([(CLIENT, "r8")], [(WRITTEN, 1)]), ([(CLIENT, "r8")], [(WRITTEN, 2)])),
    )
    yield (
        "entity twice with a user",
        lambda it: it.alter(
            ([(CLIENT, "r9"), (USER, None)], [(WRITTEN, 1)]), ([(USER, None), (CLIENT, "r9")], [(READ, 2)])
        ),
    )
    yield "good and bad of one", lambda it: it.alter(([(CLIENT, "r10")], [(WRITTEN, 1), (READ, -2)]))
    yield "nothing of one", lambda it: it.alter(([(CLIENT, "r11")], []))
    yield "no entity", lambda it: it.alter()
    yield "what was refused: settled", lambda it: it.settle()
    yield "what was refused", lambda it: it.described((CLIENT, ANY, None))


def filters() -> Iterator[Step]:
    def found(name: str, *wanted: Any) -> Iterator[Step]:
        yield name, lambda it: it.described(*wanted)
        yield f"{name}, strict", lambda it: it.described(*wanted, strict=True)

    yield from found("all of them")
    yield from found("this client", (CLIENT, EXACT, "c"))
    yield from found("this user", (USER, EXACT, "u"))
    yield from found("any user", (USER, ANY, None))
    yield from found("default user", (USER, DEFAULT, None))
    yield from found("user and client", (USER, EXACT, "u"), (CLIENT, EXACT, "c"))
    yield from found("user and any client", (USER, EXACT, "u"), (CLIENT, ANY, None))
    yield from found("user and default client", (USER, EXACT, "u"), (CLIENT, DEFAULT, None))
    yield from found("any user, any client", (USER, ANY, None), (CLIENT, ANY, None))
    yield from found("any address", (IP, ANY, None))
    yield from found("this address", (IP, EXACT, "10.1.2.3"))
    yield from found("default address", (IP, DEFAULT, None))
    yield from found("nobody of the name", (CLIENT, EXACT, "nobody at all"))
    yield from found("empty name", (CLIENT, EXACT, ""))
    yield from found("odd name", (USER, EXACT, "CN=a,O=b c/%20<default>"))
    yield from found("no kind", ("", EXACT, "a"))
    yield from found("other kind", ("group", EXACT, "a"))
    yield from found("other kind, odd match", ("group", 7, "a"))
    yield from found("kind twice", (CLIENT, EXACT, "a"), (CLIENT, ANY, None))
    yield from found("exact without a name", (CLIENT, EXACT, None))
    yield from found("default with a name", (CLIENT, DEFAULT, "a"))
    yield from found("any with a name", (CLIENT, ANY, "a"))
    yield from found("match 3", (CLIENT, 3, None))
    yield from found("match -1", (CLIENT, -1, "a"))
    yield from found("address and user", (IP, ANY, None), (USER, ANY, None))
    yield from found("client and address", (CLIENT, EXACT, "c"), (IP, DEFAULT, None))


def precedence() -> Iterator[Step]:
    """Each quota that comes about has more weight than those before it; then they go in some order."""
    clients = ("c", "d", "", None)

    def written(name: str) -> Iterator[Step]:
        return (writes(name, client) for client in clients)

    def writes(name: str, client: str | None) -> Step:
        return f"{name}: {client!r} writes", lambda it: it.produce(client, 200_000)

    def change(names: Any, limit: float | None) -> Iterator[Step]:
        name = f"{dict(names)} {limit}"
        yield name, lambda it: it.set(names, (WRITTEN, limit))
        yield from written(name)

    yield from written("no quota")
    yield from change([(CLIENT, None)], 1)
    yield from change([(CLIENT, "c")], 2)
    yield from change([(USER, None)], 3)
    yield from change([(USER, None), (CLIENT, None)], 5)
    yield from change([(USER, None), (CLIENT, "c")], 7)
    yield from change([(USER, ME)], 11)
    yield from change([(USER, ME), (CLIENT, None)], 13)
    yield from change([(USER, ME), (CLIENT, "c")], 17)
    yield from change([(USER, ME), (CLIENT, "c")], 1)
    yield from change([(USER, ME), (CLIENT, "c")], None)
    yield from change([(CLIENT, "c")], None)
    yield from change([(USER, ME)], None)
    yield from change([(USER, None), (CLIENT, None)], None)
    yield from change([(USER, ME), (CLIENT, None)], None)
    yield from change([(USER, None)], None)
    yield from change([(USER, None), (CLIENT, "c")], None)
    yield from change([(CLIENT, None)], None)


def bytes_() -> Iterator[Step]:
    yield "written", lambda it: it.produce("w", 100_000)
    yield "and more", lambda it: it.produce("w", 100_000)
    yield "a quota", lambda it: it.set([(CLIENT, "p")], (WRITTEN, 10))
    yield "within it", lambda it: it.produce("p", 300_000)
    yield "still", lambda it: it.produce("p", 30_000)
    yield "beyond it", lambda it: it.produce("p", 60_000)
    yield "farther", lambda it: it.produce("p", 60_000)
    yield "old version", lambda it: it.produce("p", 60_000, version=3)
    yield "newer version", lambda it: it.produce("p", 60_000, version=11)
    yield "acks 1", lambda it: it.produce("p", 60_000, acks=1)
    yield "others", lambda it: it.produce("q", 600_000)
    yield "a larger quota", lambda it: it.set([(CLIENT, "p")], (WRITTEN, 100))
    yield "within it again", lambda it: it.produce("p", 60_000)
    yield "reads", lambda it: it.set([(CLIENT, "r")], (READ, 10))
    # Kafka cuts what it answers within a batch, where a limit is there.
    yield "read", lambda it: it.fetch("r", 0, max_bytes=2 * SMALLEST)
    yield "beyond", lambda it: it.fetch("r", 0, max_bytes=2 * SMALLEST)
    yield "nothing was counted", lambda it: it.fetch("r", 0, max_bytes=1)
    yield "beyond by one", lambda it: it.fetch("r", 0, max_bytes=1)
    yield "in a session", lambda it: it.fetch("r", 0, max_bytes=2 * SMALLEST, epoch=0)
    yield "one batch is too much", lambda it: it.set([(CLIENT, "s")], (READ, 1))
    yield "so it is", lambda it: it.fetch("s", 0)
    yield "others read", lambda it: it.fetch("t", 0, max_bytes=1000, epoch=0)


def time_() -> Iterator[Step]:
    """Whatever is asked is too much, and the longest wait is a window."""
    yield "a quota", lambda it: it.set([(CLIENT, "a")], (ASKED, 1e-12))
    yield "asks", lambda it: it.metadata("a")
    yield "writes", lambda it: it.produce("a", 1000)
    yield "reads", lambda it: it.fetch("a", 0)
    yield "is gone", lambda it: it.set([(CLIENT, "a")], (ASKED, None))
    yield "asks again", lambda it: it.metadata("a")


def changes() -> Iterator[Step]:
    yield "a quota", lambda it: it.set([(USER, ME), (CLIENT, "m")], (CHANGED, 0.001))
    yield "only a check", lambda it: it.create("other", {"v": 2}, validate_only=True)
    yield "one topic", lambda it: it.create("m", {"m1": 5})
    yield "no other", lambda it: it.create("m", {"m2": 1})
    yield "nor two", lambda it: it.create("m", {"m2": 1, "m3": 1})
    yield "nor a check", lambda it: it.create("m", {"m2": 1}, validate_only=True)
    yield "what is wrong is wrong", lambda it: it.create("m", {"m1": 5})
    yield "growth", lambda it: it.grow("m", "m1", 6)
    yield "no growth", lambda it: it.grow("m", "m1", 5)
    yield "no end", lambda it: it.delete("m", "m1")
    yield "nobody's end", lambda it: it.delete("m", "nobody")
    yield "not by itself", lambda it: it.metadata("m", "by-itself", is_made=True)
    yield "nor later", lambda it: it.metadata("other", "by-itself")
    yield "an old client", lambda it: it.create("m", {"m4": 2}, version=5)
    yield "its growth", lambda it: it.grow("m", "m1", 6, version=2)
    yield "its end", lambda it: it.delete("m", "m4", version=4)
    yield "others", lambda it: it.create("other", {"m2": 1})
    yield "a check takes too", lambda it: it.set([(CLIENT, "n"), (USER, None)], (CHANGED, 0.001))
    yield "it does", lambda it: it.create("n", {"n1": 3}, validate_only=True)
    yield "see", lambda it: it.create("n", {"n1": 3})


def connections() -> Iterator[Step]:
    """By the usual windows: ten connections at once, if they take less than ten seconds."""
    yield "a quota of another", lambda it: it.set([(IP, "10.0.0.1")], (CONNECTED, 1))
    yield "as many as one likes", lambda it: it.connect(15)
    yield "a quota", lambda it: it.set([(IP, "127.0.0.1")], (CONNECTED, 1))
    yield "too many", lambda it: it.connect(12)
    yield "a larger quota", lambda it: it.set([(IP, "127.0.0.1")], (CONNECTED, 100))
    yield "not too many", lambda it: it.connect(12)
    yield "of all", lambda it: it.set([(IP, None)], (CONNECTED, 1))
    yield "not of this one", lambda it: it.connect(12)
    yield "of this one as well", lambda it: it.set([(IP, "127.0.0.1")], (CONNECTED, None))
    yield "who is counted since", lambda it: it.connect(1)
    yield "none", lambda it: it.set([(IP, None)], (CONNECTED, None))
    yield "as many as one likes again", lambda it: it.connect(15)


def play(
    start_kafka: Start,
    tmp_path: Path,
    steps: Iterator[Step],
    settings: Any = SETTINGS,
    watched: Sequence[str] = (CREATION_RATE,),
) -> None:
    own = BrokerProcess(tmp_path / "data", settings).start()
    kafka = start_kafka(settings)
    players = [QuotaPlayer(kafka.port, watched), QuotaPlayer(own.port, watched)]
    parted = []
    try:
        for one in players:
            one.raw.create(TOPIC, {})
        for name, take in steps:
            expected, found = (take(one) for one in players)
            if not is_alike(expected, found):
                parted.append(f"{name}\n  Kafka   {expected}\n  kompakt {found}")
    finally:
        for one in players:
            one.close()
        own.stop()
        log = own.log()
        own.close()
    assert "Traceback" not in log, log
    assert not parted, "\n".join(parted)


@pytest.mark.java
def test_what_is_set_is_told_as_by_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, settings())


@pytest.mark.java
def test_the_same_quota_holds_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, precedence())


@pytest.mark.java
@pytest.mark.parametrize("steps", [bytes_, time_, changes])
def test_who_does_too_much_waits_as_in_kafka(
    start_kafka: Start, tmp_path: Path, steps: Callable[[], Iterator[Step]]
) -> None:
    play(start_kafka, tmp_path, steps())


@pytest.mark.java
def test_who_connects_too_often_is_closed_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, connections(), {})
