"""Goal: share groups (KIP-932) go as in Apache Kafka: the same records for the same members, the same errors,
delivery counts, offsets and lags.

Method: the same steps, each a request of a member, are taken on both brokers, and what each was told is
compared. Where a group begins is set before, so
that neither depends on when it first reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.group_player import Player
from tests.kafka.share_player import SharePlayer
from tests.kafka.test_coming_over import serving
from tests.process import BrokerProcess
from tests.waiting import wait_for

Start = Callable[..., KafkaBroker]
Place = tuple[str, int]
Step = tuple[str, Callable[[SharePlayer], Any]]
TOPICS = {"a": 2, "b": 1, "c": 3}
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.share.heartbeat.interval.ms": "5000",
    "group.share.min.record.lock.duration.ms": "1000",
    # What is pruned tells where a group stands now; in Kafka it is what was written down last until more is.
    "log.initial.task.delay.ms": "600000",
}
# It would gather what happens within a second.
KAFKAS = {
    **SETTINGS,
    "group.share.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
}
INTERVAL = "share.assignment.interval.ms"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
WRONG_EPOCH = 123
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def deliveries() -> Iterator[Step]:
    """In an order that must be kept."""
    yield from beginnings()
    yield from acknowledgements()
    yield from bad_acknowledgements()
    yield from portions()
    yield from limits()
    yield from strange_fetches()
    yield from sessions()
    yield from last_attempts()
    yield from renewals()
    yield from transactions()
    yield from endings()


def beginnings() -> Iterator[Step]:
    yield "records", lambda it: it.produce("a", 10, 5, 1)
    yield "nobody", lambda it: it.offsets(A0)
    yield "nobody at all", lambda it: it.offsets()
    yield "begin", lambda it: it.alter({A0: 0, A1: 0})
    yield "begun", lambda it: it.offsets()
    yield "begun, v0", lambda it: it.offsets(version=0)
    yield "begin nowhere", lambda it: it.alter({("none", 0): 0, ("a", 7): 1, A1: 0})
    yield "asked for more", lambda it: it.offsets(A0, ("a", 7), ("none", 3), B0)
    yield "no session", lambda it: it.fetch("m", epoch=4)
    yield "no session to end", lambda it: it.fetch("m", epoch=-1)
    yield "no member", lambda it: it.fetch("", A0)
    yield "too long a member", lambda it: it.fetch("m" * 37, A0)
    yield "no group", lambda it: it.fetch("m", A0, group=None)  # type: ignore[arg-type]
    yield "says at first", lambda it: it.fetch("m", A0, acks={A0: [(0, 0, [ACCEPT])]})
    yield "open", lambda it: it.open(A0, A1)
    yield "first", lambda it: it.fetch("m", A0, A1)
    yield "nothing more", lambda it: it.fetch("m")
    yield "one behind", lambda it: it.fetch("m", epoch=1)
    yield "not written yet", lambda it: it.offsets()


def acknowledgements() -> Iterator[Step]:
    yield "accept", lambda it: it.acknowledge("m", {A0: [(0, 9, [ACCEPT])]})
    yield "accepted", lambda it: it.offsets()
    yield "accept again", lambda it: it.acknowledge("m", {A0: [(0, 9, [ACCEPT])]})
    yield "release", lambda it: it.acknowledge("m", {A0: [(10, 14, [RELEASE])]})
    yield "released", lambda it: it.offsets()
    yield "second time", lambda it: it.fetch("m")
    yield (
        "each by itself",
        lambda it: it.fetch("m", acks={A0: [(10, 14, [ACCEPT, RELEASE, REJECT, GAP, RELEASE])]}, records=1),
    )
    yield "mixed", lambda it: it.offsets()
    yield "the others", lambda it: it.fetch("m")
    yield "accept all", lambda it: it.fetch("m", acks={A0: [(11, 11, [ACCEPT]), (14, 15, [ACCEPT])]})
    yield "all over", lambda it: it.offsets()
    yield "more", lambda it: it.produce("a", 3, 3, partition=1)
    yield "other partition", lambda it: it.fetch("m")
    yield "half of it", lambda it: it.acknowledge("m", {A1: [(0, 1, [ACCEPT]), (2, 4, [RELEASE])]})
    yield "for another", lambda it: it.fetch("n", A1)
    yield "both", lambda it: it.offsets()
    yield "not its own", lambda it: it.acknowledge("m", {A1: [(2, 3, [ACCEPT])]})
    yield "its own", lambda it: it.acknowledge("n", {A1: [(2, 3, [ACCEPT])]})
    yield "in a row", lambda it: it.acknowledge("m", {A1: [(5, 5, [ACCEPT])]})
    yield "the last", lambda it: it.acknowledge("n", {A1: [(4, 4, [ACCEPT])]})
    yield "at the end", lambda it: it.offsets()


def bad_acknowledgements() -> Iterator[Step]:
    yield "records b", lambda it: it.produce("b", 10, 10)
    yield "begin b", lambda it: it.alter({B0: 0}, group="h")
    yield "open h", lambda it: it.open(B0, group="h")
    yield "fetch b", lambda it: it.fetch("m", B0, group="h")
    bad: dict[str, list[tuple[int, int, list[int]]]] = {
        "backwards": [(5, 3, [ACCEPT])],
        "overlapping": [(0, 5, [ACCEPT]), (3, 9, [ACCEPT])],
        "touching": [(0, 5, [ACCEPT]), (5, 9, [ACCEPT])],
        "no types": [(0, 5, [])],
        "too few types": [(0, 5, [ACCEPT, ACCEPT])],
        "unknown type": [(0, 5, [7])],
        "negative type": [(0, 5, [-1])],
        "renew": [(0, 5, [RENEW])],
        "beyond": [(15, 25, [ACCEPT])],
        "far beyond": [(100, 200, [ACCEPT])],
        "negative": [(-5, 3, [ACCEPT])],
        "good, then beyond": [(0, 3, [ACCEPT]), (18, 22, [ACCEPT])],
        "one of two types is unknown": [(0, 1, [ACCEPT, 9])],
    }
    for name, told in bad.items():
        yield f"{name} acknowledged", lambda it, told=told: it.acknowledge("m", {B0: told}, group="h")
        yield f"{name} with a fetch", lambda it, told=told: it.fetch("m", acks={B0: told}, group="h")
        yield f"{name}: where it stands", lambda it: it.offsets(group="h")
    yield "renew in v1", lambda it: it.acknowledge("m", {B0: [(0, 1, [RENEW])]}, version=1, group="h")
    yield (
        "unknown partitions",
        lambda it: it.acknowledge(
            "m", {("a", 9): [(0, 1, [ACCEPT])], ("c", 0): [(0, 1, [ACCEPT])], B0: []}, group="h"
        ),
    )
    yield "epoch 0", lambda it: it.acknowledge("m", {B0: [(0, 1, [ACCEPT])]}, epoch=0, group="h")
    yield "no member", lambda it: it.acknowledge("", {B0: [(0, 1, [ACCEPT])]}, epoch=0, group="h")
    yield "another epoch", lambda it: it.acknowledge("m", {B0: [(0, 1, [ACCEPT])]}, epoch=99, group="h")
    yield "nothing said of it", lambda it: it.acknowledge("m", {B0: []}, group="h")
    yield "stands", lambda it: it.offsets(group="h")
    yield "still its own", lambda it: it.acknowledge("m", {B0: [(0, 19, [ACCEPT])]}, group="h")
    yield "stands at the end", lambda it: it.offsets(group="h")


def portions() -> Iterator[Step]:
    """How much is acquired at a time."""
    yield "many", lambda it: it.produce("c", *([10] * 20))
    yield "begin c", lambda it: it.alter({("c", 0): 0}, group="p")
    yield "open p", lambda it: it.open(("c", 0), group="p")
    yield "few", lambda it: it.fetch("m", ("c", 0), records=15, batch=5, group="p")
    yield "one", lambda it: it.fetch("m", records=1, group="p")
    yield "batches of 25", lambda it: it.fetch("m", records=60, batch=25, group="p")
    yield "a limit", lambda it: it.fetch("m", records=3, share_acquire_mode=1, group="p")
    yield "a limit again", lambda it: it.fetch("m", records=3, share_acquire_mode=1, group="p")
    yield "a limit of many", lambda it: it.fetch("m", records=13, share_acquire_mode=1, group="p")
    yield "no limit", lambda it: it.fetch("m", records=3, group="p")
    yield "v1 knows no limit", lambda it: it.fetch("m", records=3, share_acquire_mode=1, version=1, group="p")
    yield "give all back", lambda it: it.fetch("m", epoch=-1, group="p")
    yield "again", lambda it: it.fetch("m", ("c", 0), records=15, group="p")
    yield "again a limit", lambda it: it.fetch("m", records=15, share_acquire_mode=1, group="p")
    yield "the rest", lambda it: it.fetch("m", group="p")
    yield "few bytes", lambda it: it.fetch("n", ("c", 0), max_bytes=100, group="p")
    yield "no bytes", lambda it: it.fetch("n", max_bytes=0, group="p")
    yield "no records", lambda it: it.fetch("n", records=0, group="p")
    yield "from the middle", lambda it: it.alter({("c", 0): 55}, group="q")
    yield "open q", lambda it: it.open(("c", 0), group="q")
    yield "batch of the middle", lambda it: it.fetch("m", ("c", 0), records=5, group="q")
    yield "stands in the middle", lambda it: it.offsets(group="q")
    yield "beyond the end", lambda it: it.alter({("c", 1): 55}, group="r")
    yield "fetch beyond the end", lambda it: it.fetch("m", ("c", 1), group="r")
    yield "stands beyond", lambda it: it.offsets(group="r")


def limits() -> Iterator[Step]:
    yield "too few", lambda it: it.settings("l", {"share.partition.max.record.locks": "99"})
    yield "too often", lambda it: it.settings("l", {"share.delivery.count.limit": "11"})
    yield "too short", lambda it: it.settings("l", {"share.record.lock.duration.ms": "999"})
    yield "nonsense", lambda it: it.settings("l", {"share.auto.offset.reset": "by_duration:P"})
    yield "none", lambda it: it.settings("l", {"share.auto.offset.reset": "none"})
    yield "isolation", lambda it: it.settings("l", {"share.isolation.level": "serializable"})
    yield "100 at a time", lambda it: it.settings("l", {"share.partition.max.record.locks": "100"})
    yield "begin", lambda it: it.alter({("c", 0): 0}, group="l")
    yield "open l", lambda it: it.open(("c", 0), group="l")
    yield "95", lambda it: it.fetch("m", ("c", 0), records=95, group="l")
    yield "no more", lambda it: it.fetch("n", ("c", 0), group="l")
    yield "one over", lambda it: it.fetch("m", acks={("c", 0): [(0, 0, [ACCEPT])]}, group="l")
    yield "one in the middle", lambda it: it.fetch("m", acks={("c", 0): [(30, 30, [RELEASE])]}, group="l")
    yield "stands", lambda it: it.offsets(group="l")


def strange_fetches() -> Iterator[Step]:
    """An unknown mode fails where a partition could be read, though what is said of deliveries holds."""
    place = ("a", 1)

    def step(name: str, *places: Place, **more: Any) -> Step:
        return name, lambda it: it.fetch("m", *places, group="v", **more)

    yield "begin", lambda it: it.alter({place: 0, B0: 0}, group="v")
    yield "open v", lambda it: it.open(place, B0, group="v")
    yield step("take all", B0, epoch=0)
    yield step("mode 2", acks={B0: [(0, 4, [ACCEPT])]}, epoch=1, share_acquire_mode=2)
    yield "what was said holds", lambda it: it.offsets(group="v")
    yield step("the epoch has passed", epoch=1)
    yield step("and goes on", place, epoch=2, records=1)
    for mode in (-1, 2):
        yield step(f"mode {mode}, no records", place, epoch=0, records=0, share_acquire_mode=mode)
        yield step(f"mode {mode} of nothing", epoch=0, share_acquire_mode=mode)
        yield step(f"mode {mode} of an unknown one", ("a", 7), epoch=0, share_acquire_mode=mode)
        yield step(f"mode {mode} in v1", place, epoch=0, share_acquire_mode=mode, version=1)
        yield step(f"mode {mode} at the end", epoch=-1, share_acquire_mode=mode)
    strange: dict[str, dict[str, Any]] = {
        "bytes": {"max_bytes": -1},
        "records": {"records": -1},
        "bytes, and no records": {"max_bytes": -1, "records": 0},
        "of both": {"max_bytes": -(2**31), "records": -1},
    }
    for name, more in strange.items():
        yield step(f"fewer than no {name}", place, epoch=0, **more)
        yield step(f"fewer than no {name} again", epoch=1, **more)


def sessions() -> Iterator[Step]:
    c = [("c", index) for index in range(3)]
    yield "begin everywhere", lambda it: it.alter(dict.fromkeys(c, 0), group="s")
    yield "open s", lambda it: it.open(*c, group="s")
    yield "little", lambda it: it.produce("c", 2, partition=1)
    yield "of one", lambda it: it.fetch("m", c[1], group="s")
    yield "of one more", lambda it: it.fetch("m", c[2], group="s")
    yield "without one", lambda it: it.fetch("m", c[0], forgotten=[c[1]], records=10, group="s")
    yield "forgotten is still its own", lambda it: it.acknowledge("m", {c[1]: [(0, 0, [ACCEPT])]}, group="s")
    yield "begin anew", lambda it: it.fetch("m", c[1], epoch=0, group="s")
    yield "unknown", lambda it: it.fetch("m", ("a", 5), group="s")
    yield "never begun", lambda it: it.fetch("m", ("b", 0), group="s")[0]
    yield "gone", lambda it: it.disconnect("m", "s")
    yield "ended with it", ended
    yield "for another", lambda it: it.fetch("n", c[1], wait_ms=2000, group="s")
    yield "ends", lambda it: it.acknowledge("n", {c[1]: [(1, 1, [ACCEPT])]}, epoch=-1, group="s")
    yield "is over", lambda it: it.acknowledge("n", {c[1]: [(1, 1, [ACCEPT])]}, epoch=2, group="s")
    yield "stands", lambda it: it.offsets(group="s")


def ended(it: SharePlayer) -> Any:
    """Kafka may take a request of another connection before it has seen that one is gone."""
    wait_for(lambda: it.fetch("m", epoch=1, group="s")[0] != WRONG_EPOCH, "a session to end")
    return it.fetch("m", epoch=1, group="s")


def last_attempts() -> Iterator[Step]:
    """What is sent again and again: in smaller portions, the last time each by itself."""
    yield "begin", lambda it: it.alter({("c", 0): 0}, group="o")
    yield "open o", lambda it: it.open(("c", 0), group="o")
    yield "once", lambda it: it.fetch("m", ("c", 0), records=20, group="o")
    for turn in range(14):
        yield f"give back {turn}", lambda it: it.give_back("m", "o")
        yield f"take again {turn}", lambda it: it.fetch("m", records=20, group="o")
        yield f"stands {turn}", lambda it: it.offsets(group="o")
    yield "twice only", lambda it: it.settings("w", {"share.delivery.count.limit": "2"})
    yield "begin w", lambda it: it.alter({("c", 0): 0}, group="w")
    yield "open w", lambda it: it.open(("c", 0), group="w")
    for turn in range(4):
        yield f"w {turn}", lambda it: it.fetch("m", ("c", 0), records=10, group="w")
        yield f"w back {turn}", lambda it: it.give_back("m", "w")
        yield f"w stands {turn}", lambda it: it.offsets(group="w")


def renewals() -> Iterator[Step]:
    nothing = {"records": 0, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0}
    yield "begin", lambda it: it.alter({("c", 0): 0}, group="n")
    yield "open n", lambda it: it.open(("c", 0), group="n")
    yield "take", lambda it: it.fetch("m", ("c", 0), records=20, group="n")
    yield "renew", lambda it: it.acknowledge("m", {("c", 0): [(0, 9, [RENEW])]}, is_renew_ack=True, group="n")
    yield (
        "renew some",
        lambda it: it.acknowledge(
            "m", {("c", 0): [(10, 13, [RENEW, ACCEPT, RENEW, RELEASE])]}, is_renew_ack=True, group="n"
        ),
    )
    yield (
        "renew with a fetch",
        lambda it: it.fetch("m", acks={("c", 0): [(0, 9, [RENEW])]}, is_renew_ack=True, group="n", **nothing),
    )
    yield (
        "and take more",
        lambda it: it.fetch("m", acks={("c", 0): [(0, 9, [RENEW])]}, is_renew_ack=True, group="n"),
    )
    yield (
        "not its own",
        lambda it: it.acknowledge("n", {("c", 0): [(0, 9, [RENEW])]}, is_renew_ack=True, epoch=-1, group="n"),
    )
    yield "not allowed", lambda it: it.settings("n", {"share.renew.acknowledge.enable": "false"})
    yield (
        "renew all the same",
        lambda it: it.acknowledge("m", {("c", 0): [(0, 9, [RENEW])]}, is_renew_ack=True, group="n"),
    )
    yield "stands", lambda it: it.offsets(group="n")


def transactions() -> Iterator[Step]:
    """Only what is committed, where a group says so. The producers are none that a coordinator knows."""
    yield "plain", lambda it: it.produce("b", 2)
    yield "begin", lambda it: it.alter({B0: 20}, group="t")
    yield "open t", lambda it: it.open(B0, group="t")
    yield "committed only", lambda it: it.settings("t", {"share.isolation.level": "read_committed"})
    yield "take", lambda it: it.fetch("m", B0, group="t")


def endings() -> Iterator[Step]:
    yield "list", lambda it: it.listed()
    yield "list shared", lambda it: it.listed(types_filter=["share"])
    yield "list shared and empty", lambda it: it.listed(types_filter=["Share"], states_filter=["Empty"])
    yield "describe", lambda it: it.described("g", "h", "none")
    yield "forget", lambda it: it.forget("a", "b", "none")
    yield "forgotten", lambda it: it.offsets()
    yield "forget again", lambda it: it.forget("a")
    yield "of no group", lambda it: it.forget("a", group="none")
    yield "delete", lambda it: it.delete("g", "none", "p")
    yield "deleted", lambda it: it.offsets()
    yield "deleted and described", lambda it: it.described("g")


def members() -> Iterator[Step]:
    """Who is in a group, and has what."""
    yield "no member id", lambda it: it.beat("", 0, ["a"])
    yield "no group", lambda it: it.beat("m", 0, ["a"], "")
    yield "no rack", lambda it: it.beat("m", 0, ["a"], rack_id="")
    yield "no topics", lambda it: it.beat("m", 0)
    yield "empty topics", lambda it: it.beat("m", 0, [])
    yield "bad epoch", lambda it: it.beat("m", -2)
    yield "too long", lambda it: it.beat("m" * 37, 0, ["a"])
    yield "nobody", lambda it: it.beat("m", 3)
    yield "nobody leaves", lambda it: it.beat("m", -1)
    yield "m alone", lambda it: it.settled("g", ("m", ["a"]), size=2)
    yield "where it stands", lambda it: it.offsets()
    yield "another epoch", lambda it: it.beat("m", 99)[:1]
    yield "unknown member", lambda it: it.beat("x", 5)
    yield "unknown leaves", lambda it: it.beat("x", -1)
    yield "n too", lambda it: shape(it.settled("g", ("m", ["a"]), ("n", ["a"]), size=2))
    yield "o too", lambda it: shape(it.settled("g", ("m", ["a"]), ("n", ["a"]), ("o", ["a"]), size=4))
    yield "bad interval", lambda it: it.settings("g", {INTERVAL: "15001"})
    yield "a long interval", lambda it: it.settings("g", {INTERVAL: "15000"})
    yield "p within it", lambda it: it.beat("p", 0, ["a"])[3]
    yield "p has nothing yet", lambda it: [row[-1] for row in it.described("g")[0][-1] if row[0] == "p"]
    yield "m unsubscribes within it", lambda it: it.beat("m", it.epoch_of("m"), ["b"])[3]
    yield "m subscribes again", lambda it: len(it.beat("m", it.epoch_of("m"), ["a"])[3])
    yield "p leaves", lambda it: it.beat("p", -1)
    yield "no interval any more", lambda it: it.settings("g", {INTERVAL: "0"})
    yield "n leaves", lambda it: it.beat("n", -1)
    yield "m and o", lambda it: shape(it.settled("g", ("m", ["a"]), ("o", ["a"]), size=2))
    yield "other topics", lambda it: it.settled("h", ("m", ["a", "b"]), size=3)
    yield "no such topic", lambda it: it.beat("m", 0, ["none"], "none")[3]
    yield "list", lambda it: it.listed()
    yield "not empty", lambda it: it.delete("g")
    yield "offsets of who is there", lambda it: it.alter({A0: 5})
    yield "forget of who is there", lambda it: it.forget("a")
    yield "all leave", lambda it: [it.beat("m", -1), it.beat("o", -1)]
    yield "empty", lambda it: it.described("g")
    yield "delete", lambda it: it.delete("g")


def other_kinds() -> Iterator[Step]:
    """Groups of another kind under the id of a share group, and the other way round."""
    yield "m", lambda it: it.settled("g", ("m", ["a"]), size=2)
    for state in ("with a member", "empty"):
        yield from strangers(state)
        if state == "with a member":
            yield "m leaves", lambda it: it.beat("m", -1)
    yield "deleted", lambda it: it.delete("g")
    yield "a consumer group now", lambda it: of(it).join("c", ["a"])[3]
    yield "no share group", lambda it: it.beat("m", 0, ["a"])
    yield "nor its member", lambda it: it.beat("m", 1)
    yield "nor one that leaves", lambda it: it.beat("m", -1)
    yield "described", lambda it: it.described("g")
    yield "offsets", lambda it: it.offsets(A0)
    yield "set", lambda it: it.alter({A0: 1})
    yield "forget", lambda it: it.forget("a")
    yield "fetch", lambda it: it.fetch("m", A0)[2][0][:3]  # Kafka does not say why
    yield "c leaves", lambda it: of(it).beat("c", -1)
    yield "an empty consumer group", lambda it: it.beat("m", 0, ["a"])
    yield "committed by nobody", lambda it: of(it, "h").commit("", -1, A0)
    yield "a group of offsets", lambda it: it.beat("m", 0, ["a"], "h")
    yield "set there", lambda it: it.alter({A0: 1}, "h")
    yield "all of them", lambda it: it.listed()
    yield "deleted by another word", lambda it: it.delete("h")


def strangers(state: str) -> Iterator[Step]:
    yield f"join, {state}", lambda it: of(it).classic_join("c", ["a"])
    yield f"sync, {state}", lambda it: of(it).classic_sync("c", 1)
    yield f"heartbeat, {state}", lambda it: of(it).classic_beat("c", 1)
    yield f"leave, {state}", lambda it: of(it).classic_leave("c")
    yield f"consumer joins, {state}", lambda it: of(it).join("c", ["a"])
    yield f"consumer, {state}", lambda it: of(it).beat("c", 3)
    yield f"consumer leaves, {state}", lambda it: of(it).beat("c", -1)
    yield f"commit, {state}", lambda it: of(it).commit("c", 1, A0)
    yield f"commit by the member, {state}", lambda it: of(it).commit("m", 1, A0)
    yield f"commit by nobody, {state}", lambda it: of(it).commit("", -1, A0)
    yield f"offsets, {state}", lambda it: of(it).fetch(None, -1)
    yield f"offsets of a member, {state}", lambda it: of(it).fetch("m", 1)
    yield f"delete offsets, {state}", lambda it: of(it).delete_offsets(A0)
    yield f"describe as classic, {state}", lambda it: of(it).classic_described("g")
    yield f"describe as consumer, {state}", lambda it: of(it).described("g")


def of(player: SharePlayer, group: str = "g") -> Player:
    """A member of the same broker, of a group that is no share group."""
    other = Player(player.raw)
    other.prepare({})
    other.use(group)
    return other


def shape(rows: Iterable[Any]) -> Any:
    """How many partitions each has, and which they have together: who has which is the broker's affair."""
    had = [row[-1] for row in rows]
    return sorted(map(len, had)), sorted({place for places in had for place in places})


def play(start_kafka: Start, directory: Path, steps: Iterable[Step]) -> None:
    """Take the steps on both brokers: they part nowhere."""
    own = BrokerProcess(directory / "data", SETTINGS).start()
    kafka = start_kafka(KAFKAS)
    players = [SharePlayer(broker.port) for broker in (kafka, own)]
    for one in players:
        one.prepare(TOPICS)
    parted = []
    for name, take in steps:
        expected, found = (take(one) for one in players)
        if expected != found:
            parted.append(f"{name}\n  Kafka   {expected}\n  kompakt {found}")
    for one in players:
        one.close()
    own.stop()
    log = own.log()
    own.close()
    assert "Traceback" not in log, log
    assert not parted, "\n".join(parted)


@pytest.mark.java
def test_deliveries_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, deliveries())


@pytest.mark.java
def test_other_kinds_of_groups_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, other_kinds())


@pytest.mark.java
def test_members_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, members())


@pytest.mark.java
def test_a_share_group_goes_from_kafka_to_kompakt_and_back(start_kafka: Start) -> None:
    """With its member, where it stands, and how often what was sent."""
    kafka = start_kafka(KAFKAS)
    player = SharePlayer(kafka.port)
    player.prepare({"a": 1})
    player.alter({A0: 0})
    player.settled("g", ("m", ["a"]), size=1)
    player.open(A0)
    player.produce("a", 5, 5)
    assert player.fetch("m", A0, wait_ms=5000)[2][0][-1] == [(0, 9, 1)]
    told = player.acknowledge("m", {A0: [(0, 4, [ACCEPT]), (5, 6, [RELEASE])]})
    assert told[2] == [("a", 0, 0, None)]
    before = player.described("g")
    kafka.stop()
    player.close()

    with serving(kafka):
        player = restarted(player, kafka.port)
        assert [row[0] for row in player.described("g")[0][-1]] == ["m"]
        assert player.described("g")[0][-1][0][-1] == before[0][-1][0][-1] == [A0]
        assert player.settled("g", ("m", ["a"]), size=1)
        assert player.fetch("n", A0)[2][0][-1] == [(5, 6, 2), (7, 9, 1)]
        told = player.acknowledge("n", {A0: [(5, 5, [ACCEPT]), (6, 6, [REJECT]), (7, 7, [RELEASE])]})
        assert told[2] == [("a", 0, 0, None)]
        assert player.settled("g", ("m", ["a"]), ("n", ["a"]), size=2)
        assert player.offsets()[2][0][5] == 3, "two that n has, and one that it gave back"
        player.close()

    kafka.start()
    player = restarted(player, kafka.port)
    player.prepare({})
    wait_for(lambda: bool(player.described("g")[0][-1]), "the group")
    assert [row[0] for row in player.described("g")[0][-1]] == ["m", "n"]
    rows: list[Any] = []

    def is_read() -> bool:
        rows[:] = player.fetch("o", A0, epoch=0)[2]
        return bool(rows) and bool(rows[0][-1])

    wait_for(is_read, "what is left")
    left = {offset: count for first, last, count in rows[0][-1] for offset in range(first, last + 1)}
    # What n had was given back with its connection.
    assert left == {7: 2, 8: 2, 9: 2}
    player.close()


def restarted(player: SharePlayer, port: int) -> SharePlayer:
    """The player at the broker that has taken the place of the other."""
    again = SharePlayer(port)
    again.ids = player.ids
    return again
