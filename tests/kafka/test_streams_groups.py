"""Goal: streams groups (KIP-1071) go as in Apache Kafka: the same errors, epochs, statuses, numbers of tasks,
internal topics and states, and what is written down of them.

Method: the same steps, each a request of a member (or of none that there is), are taken on both brokers, and
what each was told is compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.streams_groups import TaskOffset
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.kafka.streams_player import TOLD, StreamsPlayer, info, sub, topology
from tests.kafka.test_coming_over import serving
from tests.process import BrokerProcess
from tests.waiting import wait_for

Start = Callable[..., KafkaBroker]
Step = tuple[str, Callable[[StreamsPlayer], Any]]
TOPICS = {"a": 4, "b": 4, "c": 2}
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.streams.heartbeat.interval.ms": "5000",
    "group.streams.initial.rebalance.delay.ms": "0",
}
KAFKAS = {
    **SETTINGS,
    # It would gather what happens within a second.
    "group.streams.min.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
READS_A = topology(sub("0", "a"))
NO_COPIES: dict[str, Any] = {"standby_tasks": None, "warmup_tasks": None}
COUNTS = topology(
    sub("0", "a", repartition_sink_topics=["g-by-key"]),
    sub(
        "1",
        repartition_source_topics=[info("g-by-key", segment_bytes="52428800")],
        state_changelog_topics=[info("g-counts", cleanup_policy="compact")],
    ),
    epoch=1,
)
"""what counts by another key: a repartition topic between two subtopologies, and a changelog"""


def steps() -> Iterator[Step]:
    """In an order that must be kept."""
    yield from refusals()
    yield from topologies_that_cannot_be()
    yield from one_member()
    yield from commits()
    yield from two_members()
    yield from standbys()
    yield from partitions()
    yield from endpoints()
    yield from shutdown()
    yield from delays()
    yield from intervals()
    yield from other_kinds()


def refusals() -> Iterator[Step]:
    yield "use", lambda it: it.use("g")
    yield "no member id", lambda it: it.joins("", READS_A)
    yield "no group", lambda it: it.joins("m", READS_A, group="")
    yield "no rack", lambda it: it.joins("m", READS_A, rack_id="")
    yield "no instance", lambda it: it.joins("m", READS_A, instance_id="")
    yield "static", lambda it: it.joins("m", READS_A, instance_id="i")
    yield "no timeout", lambda it: it.joins("m", READS_A, rebalance_timeout_ms=-1)
    yield (
        "owns",
        lambda it: it.beats("m", 0, owned=({"0": [0]}, {}, {}), topology=READS_A, rebalance_timeout_ms=1),
    )
    yield "says nothing of tasks", lambda it: it.joins("m", READS_A, active_tasks=None, **NO_COPIES)
    yield "no topology", lambda it: it.joins("m", None)
    yield "a topology later", lambda it: it.beats("m", 3, topology=READS_A)
    yield "offsets", lambda it: it.beats("m", 3, task_offsets=[])
    yield "end offsets", lambda it: it.beats("m", 3, task_end_offsets=[TaskOffset(subtopology_id="0")])
    yield "warmups", lambda it: it.beats("m", 3, owned=({}, {}, {"0": [0]}))
    yield "only active tasks", lambda it: it.beats("m", 3, active_tasks=[])
    yield "no active tasks", lambda it: it.beats("m", 3, standby_tasks=[], warmup_tasks=[])
    yield "leaves for a while", lambda it: it.beats("m", -2)
    yield "what epoch", lambda it: it.beats("m", -3)
    yield "no such group", lambda it: it.beats("m", 1)
    yield "no such group leaves", lambda it: it.beats("m", -1)
    yield "described none", lambda it: it.describes()
    yield "described none by name", lambda it: it.describes("")


def topologies_that_cannot_be() -> Iterator[Step]:
    regex = topology(sub("0", "a", source_topic_regex=["a.*"]))
    changelog = topology(sub("0", "a", state_changelog_topics=[info("log", 3)]))
    loop = topology(
        sub("0", repartition_source_topics=[info("x")], repartition_sink_topics=["x"]),
    )
    unwritten = topology(sub("0", "a", repartition_source_topics=[info("x")]))
    yield "regex", lambda it: it.joins("m", regex)
    yield "changelog with a size", lambda it: it.joins("m", changelog)
    yield "internal", lambda it: it.joins("m", topology(sub("0", "a", "__consumer_offsets")))
    yield "bad name", lambda it: it.joins("m", topology(sub("0", "a b", "a"), sub("1", "c/d")))
    yield "loop", lambda it: it.joins("m", loop)
    yield "nobody writes it", lambda it: it.joins("m", unwritten)
    yield "no group is left of it", lambda it: it.describes()


def one_member() -> Iterator[Step]:
    later = topology(sub("0", "later"), sub("1", "never", "later"))
    yield "late topics", lambda it: it.use("late")
    yield "joins before its topics", lambda it: it.joins("m", later)
    yield "described before", lambda it: it.describes()
    yield "beats before", lambda it: it.beats("m")
    yield "listed", lambda it: it.listed()
    yield "listed by type", lambda it: it.listed(types_filter=["Streams"])
    yield "listed by other type", lambda it: it.listed(types_filter=["consumer"])
    yield "a topic comes", lambda it: it.prepare({"later": 2, "never": 1})
    yield "goes on", lambda it: it.settles("m")
    yield "leaves", lambda it: it.beats("m", -1)
    yield "left", lambda it: it.describes()
    yield "listed empty", lambda it: it.listed(states_filter=["empty"])
    yield "use g", lambda it: it.use("g")
    yield "joins", lambda it: it.joins("m", COUNTS, rack_id="r", tags={"zone": "z"})
    yield "internal topics", lambda it: it.topics("g-by-key", "g-counts")
    yield "settles", lambda it: it.settles("m")
    yield "beats", lambda it: it.beats("m")
    yield "says what it has", lambda it: it.beats("m", owned=TOLD)
    yield "says less", lambda it: it.beats("m", owned=({"0": [0]}, {}, {}))
    yield "a subtopology that is not", lambda it: it.beats("m", owned=({"7": [0]}, {}, {}))
    yield "a task that is not", lambda it: it.beats("m", owned=({"0": [0, 4]}, {}, {}))
    yield "ahead", lambda it: it.beats("m", 99)
    yield "behind", lambda it: it.beats("m", 1)
    yield "behind, owns what it has", lambda it: it.beats("m", 1, owned=TOLD)
    yield "joins again", lambda it: it.joins("m", COUNTS)
    yield "of another topology", lambda it: it.joins("m", topology(sub("0", "a")))
    yield "of a newer topology", lambda it: it.joins("m", topology(*COUNTS.subtopologies, epoch=2))
    yield "of an older topology", lambda it: it.joins("m", topology(sub("0", "c"), epoch=0))
    yield "described stale", lambda it: it.describes()
    yield "of the right one", lambda it: it.joins("m", COUNTS)
    yield "described as consumers", lambda it: it.described("g")
    yield "described as classic", lambda it: it.classic_described("g")
    yield "described as classic 5", lambda it: it.classic_described("g", version=5)


def commits() -> Iterator[Step]:
    """By the epoch that the member has."""
    a0 = ("a", 0)
    yield "commits", lambda it: it.commit("m", it.epochs["m"], a0, ("g-by-key", 1))
    yield "commits 8", lambda it: it.commit("m", it.epochs["m"], a0, version=8)
    yield "commits ahead", lambda it: it.commit("m", it.epochs["m"] + 1, a0)
    yield "commits in an old epoch", lambda it: it.commit("m", it.epochs["m"] - 1, a0, ("c", 0))
    yield "commits in the first epoch", lambda it: it.commit("m", 1, a0)
    yield "stranger commits", lambda it: it.commit("x", it.epochs["m"], a0)
    yield "nobody commits", lambda it: it.commit("", -1, a0)
    yield "fetches", lambda it: it.fetch("m", it.epochs["m"])
    yield "fetches stale", lambda it: it.fetch("m", 1)
    yield "stranger fetches", lambda it: it.fetch("x", it.epochs["m"])
    yield "anybody fetches", lambda it: it.fetch(None, -1)
    yield "deletes what is used", lambda it: it.delete_offsets(a0, ("c", 0))
    yield "deletes the group", lambda it: it.delete_group("g")


def two_members() -> Iterator[Step]:
    yield "stranger beats", lambda it: it.beats("n", 4)
    yield "stranger leaves", lambda it: it.beats("n", -1)
    yield "second joins", lambda it: it.joins("n", COUNTS)
    yield "described both", lambda it: it.describes()
    yield "first has to give", lambda it: it.beats("m")
    yield "described giving", lambda it: it.describes()
    yield "first has not", lambda it: it.beats("m", owned=({"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}, {}, {}))
    yield "second waits", lambda it: it.beats("n")
    yield "first has", lambda it: it.beats("m", owned=TOLD)
    yield "second gets", lambda it: it.beats("n", owned=TOLD)
    yield "second beats", lambda it: it.beats("n", owned=TOLD)
    yield "described settled", lambda it: it.describes()
    yield "third joins", lambda it: it.joins("o", COUNTS, process_id="process-m")
    yield "third leaves before", lambda it: it.beats("o", -1)
    yield "settled again", lambda it: it.settles("m", "n")
    yield "first leaves", lambda it: it.beats("m", -1)
    yield "first again", lambda it: it.beats("m", 5)
    yield "second has all", lambda it: it.settles("n")
    yield "another tag", lambda it: it.beats("n", tags={"zone": "y"})
    yield "another rack", lambda it: it.beats("n", rack_id="q")
    yield "described so", lambda it: it.describes()
    yield "last leaves", lambda it: it.beats("n", -1)
    yield "described empty", lambda it: it.describes()
    yield "offsets of the empty group", lambda it: it.fetch(None, -1)
    yield "anybody commits", lambda it: it.commit("", -1, ("a", 1))
    yield "comes back", lambda it: it.joins("m", COUNTS)
    yield "settled back", lambda it: it.settles("m")
    yield "gone", lambda it: it.beats("m", -1)
    yield "deleted", lambda it: it.delete_group("g")
    yield "described deleted", lambda it: it.describes()
    yield "offsets deleted", lambda it: it.fetch(None, -1)


def standbys() -> Iterator[Step]:
    stateful = topology(
        sub("0", "a", state_changelog_topics=[info("s-store", cleanup_policy="compact")]), sub("1", "c")
    )
    yield "use s", lambda it: it.use("s")
    yield "too many", lambda it: it.set_group({"streams.num.standby.replicas": "3"})
    yield "bad session", lambda it: it.set_group({"streams.session.timeout.ms": "10"})
    yield "bad heartbeat", lambda it: it.set_group({"streams.heartbeat.interval.ms": "90000"})
    yield "bad delay", lambda it: it.set_group({"streams.initial.rebalance.delay.ms": "-1"})
    yield "one", lambda it: it.set_group({"streams.num.standby.replicas": "1"})
    yield "one joins", lambda it: it.joins("m", stateful)
    yield "its changelog", lambda it: it.topics("s-store")
    yield "one settles", lambda it: it.settles("m")
    yield "another joins", lambda it: it.joins("n", stateful)
    yield "both settle", lambda it: it.settles("m", "n")
    yield "a third joins", lambda it: it.joins("o", stateful)
    yield "three settle", lambda it: it.settles("m", "n", "o")
    yield "two copies", lambda it: it.set_group({"streams.num.standby.replicas": "2"})
    yield "two copies settle", lambda it: it.settles("m", "n", "o")
    yield "one dies", lambda it: it.beats("n", -1)
    yield "two settle", lambda it: it.settles("m", "o")
    yield "one of the same process", lambda it: it.joins("p", stateful, process_id="process-m")
    yield "with a sibling", lambda it: it.settles("m", "o", "p")
    yield "no copies", lambda it: it.set_group({"streams.num.standby.replicas": "0"})
    yield "without copies", lambda it: it.settles("m", "o", "p")


def partitions() -> Iterator[Step]:
    """Numbers of partitions that follow from others, and those that cannot be."""
    together = topology(sub("0", "a", "c", copartition=[([0, 1], [])]))
    joined = topology(
        sub("0", "b", repartition_sink_topics=["j-r"]),
        sub("1", "c", repartition_source_topics=[info("j-r")], copartition=[([0], [0])]),
        sub("2", repartition_source_topics=[info("j-f", 3)], state_changelog_topics=[info("j-log")]),
        sub("3", "a", repartition_sink_topics=["j-f"]),
    )
    fixed = topology(
        sub("0", "b", repartition_sink_topics=["x-r"]),
        sub("1", "c", repartition_source_topics=[info("x-r", 3)], copartition=[([0], [0])]),
    )
    there = topology(sub("0", "a", state_changelog_topics=[info("c")]))
    many = topology(sub("0", "a", state_changelog_topics=[info(f"many-{one}") for one in range(5)]))
    bad = topology(sub("0", "a", state_changelog_topics=[info("bad-log", cleanup_policy="never")]))
    for name, runs in {"together": together, "fixed": fixed, "there": there}.items():
        yield f"use {name}", lambda it, name=name: it.use(name)
        yield f"{name} joins", lambda it, runs=runs: it.joins("m", runs)
        yield f"{name} beats", lambda it: it.beats("m")
        yield f"{name} described", lambda it: it.describes()
    yield "use j", lambda it: it.use("j")
    yield "j joins", lambda it: it.joins("m", joined)
    yield "j's topics", lambda it: it.topics("j-r", "j-f", "j-log")
    yield "j settles", lambda it: it.settles("m")
    yield "use many", lambda it: it.use("many")
    yield "many are missing", lambda it: it.joins("m", many)
    yield "use bad", lambda it: it.use("bad")
    yield "a topic that cannot be made", lambda it: [row[0] for row in it.joins("m", bad)[5]]
    yield "described without it", lambda it: it.describes()


def endpoints() -> Iterator[Step]:
    yield "use e", lambda it: it.use("e")
    yield "with an endpoint", lambda it: it.joins("m", READS_A, endpoint=("one", 1))
    yield "knows", lambda it: it.beats("m", endpoint_epoch=1)
    yield "does not know", lambda it: it.beats("m", endpoint_epoch=0)
    yield "another", lambda it: it.joins("n", READS_A, endpoint=("two", 65535))
    yield "settle", lambda it: it.settles("m", "n")
    yield "told", lambda it: it.beats("m", endpoint_epoch=0)
    yield "moves", lambda it: it.beats("m", endpoint=("three", 3), endpoint_epoch=0)
    yield "described", lambda it: it.describes()


def shutdown() -> Iterator[Step]:
    yield "wants an end", lambda it: it.beats("m", shutdown_application=True)
    yield "the other hears", lambda it: it.beats("n")
    yield "the other wants too", lambda it: it.beats("n", shutdown_application=True)
    yield "one leaves", lambda it: it.beats("m", -1)
    yield "still wanted", lambda it: it.beats("n")
    yield "all leave", lambda it: it.beats("n", -1)
    yield "begins anew", lambda it: it.joins("n", READS_A)
    yield "leaves and wants an end", lambda it: it.beats("n", -1, shutdown_application=True)
    yield "anew again", lambda it: it.joins("n", READS_A)


def delays() -> Iterator[Step]:
    yield "use d", lambda it: it.use("d")
    yield "a delay", lambda it: it.set_group({"streams.initial.rebalance.delay.ms": "3000"})
    yield "joins to wait", lambda it: it.joins("m", READS_A)
    yield "waits", lambda it: it.beats("m")
    yield "second waits", lambda it: it.joins("n", READS_A)
    yield "described waiting", lambda it: it.describes()
    yield "both get some", lambda it: it.settles("m", "n")
    yield "third need not wait", lambda it: it.joins("o", READS_A)


def intervals() -> Iterator[Step]:
    """A group is divided anew only so often."""
    interval = "streams.assignment.interval.ms"
    yield "use i", lambda it: it.use("i")
    yield "too long an interval", lambda it: it.set_group({interval: "15001"})
    yield "no interval", lambda it: it.set_group({interval: "-1"})
    yield "a long interval", lambda it: it.set_group({interval: "15000"})
    yield "first of an interval", lambda it: it.joins("m", READS_A)
    yield "second within it", lambda it: it.joins("n", READS_A)
    yield "second beats within it", lambda it: it.beats("n")
    yield "first beats within it", lambda it: it.beats("m")
    yield "described within it", lambda it: it.describes()
    yield "second leaves within it", lambda it: it.beats("n", -1)
    yield "third within it", lambda it: it.joins("o", READS_A)
    yield "no interval any more", lambda it: it.set_group({interval: "0"})
    yield "divided then", lambda it: it.settles("m", "o")


def other_kinds() -> Iterator[Step]:
    yield "a consumer where streams are", lambda it: it.join("k", ["a"], group="d")
    yield "a classic member where streams are", lambda it: it.classic_join("k", ["a"])
    yield "syncs there", lambda it: it.classic_sync("k", 1)
    yield "beats there", lambda it: it.classic_beat("k", 1)
    yield "leaves there", lambda it: it.classic_leave("k")
    for member in "mno":
        yield f"{member} leaves", lambda it, member=member: it.beats(member, -1)
    yield "commits for nobody", lambda it: it.commit("", -1, ("a", 0))
    yield "a classic member", lambda it: it.classic_join("k", ["a"])
    yield "in its place", lambda it: it.describes()
    yield "with its offsets", lambda it: it.fetch(None, -1)
    yield "streams where classic are", lambda it: it.joins("m", READS_A)
    yield "classic leaves", lambda it: it.classic_leave("k")
    yield "streams where classic were", lambda it: it.joins("m", READS_A)
    yield "with offsets", lambda it: it.fetch(None, -1)
    yield "use c", lambda it: it.use("c")
    yield "consumers", lambda it: it.join("k", ["a"])
    yield "streams where consumers are", lambda it: it.joins("m", READS_A)
    yield "streams beat there", lambda it: it.beats("m", 3)
    yield "streams leave there", lambda it: it.beats("m", -1)
    yield "streams described there", lambda it: it.describes()
    yield "consumers leave", lambda it: it.beat("k", -1)
    yield "streams where consumers were", lambda it: it.joins("m", READS_A)


EXPLAINED = {
    # Who owns something else may have lost an answer: Kafka does not tell it again, and nobody runs the task.
    "says less",
    "first has not",
    "moves",  # Kafka tells the endpoint before once more, which it has kept
}
"""where the two part, and why that is right"""


def prepared(broker: Any) -> StreamsPlayer:
    player = StreamsPlayer(Raw(broker.port))
    player.use("g")
    player.prepare(TOPICS)
    return player


@pytest.mark.java
def test_streams_groups_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    own = BrokerProcess(tmp_path / "data", {"node.id": "1", **SETTINGS}).start()
    players = [prepared(broker) for broker in (start_kafka(KAFKAS), own)]
    parted = []
    for name, take in steps():
        expected, found = (take(player) for player in players)
        if (expected == found) == (name in EXPLAINED):
            parted.append(f"{name}\n  Kafka   {expected}\n  kompakt {found}")
    for player in players:
        player.raw.close()
    own.stop()
    log = own.log()
    own.close()
    assert "Traceback" not in log, log
    assert not parted, "\n".join(parted)


@pytest.mark.java
def test_members_go_on_from_kafka_to_kompakt_and_back(start_kafka: Start) -> None:
    """Whoever changes brokers under a running application keeps members, epochs, tasks and offsets."""
    kafka = start_kafka(KAFKAS)
    player = prepared(kafka)
    player.joins("m", COUNTS, endpoint=("one", 1), tags={"zone": "z"}, rack_id="r")
    player.topics("g-by-key", "g-counts")
    player.settles("m")
    player.joins("n", COUNTS)
    described = player.settles("m", "n")
    assert (
        player.commit("m", player.epochs["m"], *(("a", one) for one in player.held["m"][0]["0"]))[0][2] == 0
    )
    offsets, held = player.fetch(None, -1), dict(player.held)
    player.raw.close()
    kafka.stop()
    with serving(kafka):
        player.raw = Raw(kafka.port)
        assert player.describes()[0][8] == described[8]
        assert player.fetch(None, -1) == offsets
        player.settles("m", "n")
        assert player.held == held, "who has it keeps it"
        player.joins("o", COUNTS)
        described = player.settles("m", "n", "o")
        offsets, held = player.fetch(None, -1), dict(player.held)
        player.raw.close()
    _check_dump(kafka)
    kafka.start()
    player.raw = Raw(kafka.port)
    wait_for(lambda: player.describes()[0][0] == 0, "the group on Kafka")
    assert player.describes()[0][8] == described[8]
    assert player.fetch(None, -1) == offsets
    player.settles("m", "n", "o")
    assert player.held == held
    player.raw.close()


def _check_dump(kafka: KafkaBroker) -> None:
    """Kafka's own decoder knows every record that lies there, whoever wrote it."""
    files = [str(path) for path in kafka.data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    said = kafka.tools.dump("--offsets-decoder", "--files", ",".join(files))
    for kind in (17, 19, 20, 21, 22, 23):
        assert f'"type":"{kind}"' in said, said
    assert not re.search("could not|Exception|<unknown>", said, re.IGNORECASE), said
