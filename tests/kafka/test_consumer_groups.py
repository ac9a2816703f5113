"""Goal: consumer groups (KIP-848) go as in Apache Kafka: the same errors, epochs, assignments and states, for
members of either protocol, in every version of the requests, and what is written down of them.

Method: the same steps, each a request of a member (or of none that there is), are taken on both; what each
was told is compared. Members have names that the test gives them, so that both order them alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.group_player import NOTHING, Player
from tests.kafka.raw import Raw
from tests.kafka.test_coming_over import serving
from tests.process import BrokerProcess
from tests.waiting import wait_for

Start = Callable[..., KafkaBroker]
TOPICS = {"a": 4, "b": 2, "other": 1}
MEMBER_ID_REQUIRED = 79
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
}
KAFKAS = {
    **SETTINGS,
    # It would gather what happens within a second, and look up regular expressions on its own time.
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}

Step = tuple[str, Callable[[Player], Any]]
A = [("a", index) for index in range(4)]
B = [("b", index) for index in range(2)]


def steps() -> Iterator[Step]:
    """In an order that must be kept."""
    yield from refusals()
    yield from one_member()
    yield from two_members()
    yield from commits()
    yield from static_members()
    yield from unsubscribing()
    yield from regular_expressions()
    yield from endings()
    yield from upgrade()
    yield from downgrade()
    yield from there_and_back()
    yield from catching_up()
    yield from intervals()


def refusals() -> Iterator[Step]:
    for version in (0, 1):
        v = version
        yield f"no group {v}", lambda it, v=v: it.join("m", ["a"], group="", version=v)
        yield f"no member id {v}", lambda it, v=v: it.beat("", 5, version=v)[:2]
        yield f"no id leaves {v}", lambda it, v=v: it.beat("", -1, version=v)[:2]
        yield f"no instance {v}", lambda it, v=v: it.join("m", ["a"], instance_id="", version=v)
        yield f"no rack {v}", lambda it, v=v: it.join("m", ["a"], rack_id="", version=v)
        yield f"no timeout {v}", lambda it, v=v: it.join("m", ["a"], rebalance_timeout_ms=-1, version=v)
        yield (
            f"owns {v}",
            lambda it, v=v: it.beat("m", 0, owned=A[:1], topics=["a"], rebalance_timeout_ms=1, version=v),
        )
        yield (
            f"owns what {v}",
            lambda it, v=v: it.beat("m", 0, topics=["a"], rebalance_timeout_ms=1, version=v),
        )
        yield (
            f"wants nothing {v}",
            lambda it, v=v: it.beat("m", 0, owned=NOTHING, rebalance_timeout_ms=1, version=v),
        )
        yield f"who leaves {v}", lambda it, v=v: it.beat("m", -2, version=v)
        yield f"what epoch {v}", lambda it, v=v: it.beat("m", -3, version=v)
        yield f"what assignor {v}", lambda it, v=v: it.join("m", ["a"], server_assignor="none", version=v)
        yield f"no such group {v}", lambda it, v=v: it.beat("m", 1, version=v)
        yield f"no such group leaves {v}", lambda it, v=v: it.beat("m", -1, version=v)
        yield f"described none {v}", lambda it, v=v: it.described("g", version=v)


def one_member() -> Iterator[Step]:
    yield "joins", lambda it: it.join("m1", ["a"], server_assignor="range", rack_id="r1")
    yield "beats", lambda it: it.beat("m1", 2)
    yield "says all", lambda it: it.beat("m1", 2, owned=A, topics=["a"], rebalance_timeout_ms=60_000)
    yield "owns less", lambda it: it.beat("m1", 2, owned=A[:1])
    yield "described", lambda it: it.described("g")
    yield "described 0", lambda it: it.described("g", version=0)
    yield "listed", lambda it: it.listed()
    yield "listed by type", lambda it: it.listed(types_filter=["Consumer"])
    yield "listed by other type", lambda it: it.listed(types_filter=["classic"])
    yield "listed by state", lambda it: it.listed(states_filter=["stable"])
    yield "listed by states", lambda it: it.listed(states_filter=["Empty", "Assigning"])
    yield "described as classic", lambda it: it.classic_described("g")
    yield "described as classic 5", lambda it: it.classic_described("g", version=5)
    yield "ahead", lambda it: it.beat("m1", 3)
    yield "joins again", lambda it: it.join("m1", ["a"])
    yield "another topic", lambda it: it.beat("m1", 2, topics=["a", "b"], owned=A)
    yield "lost that answer", lambda it: it.beat("m1", 2, topics=["a", "b"], owned=A)
    yield "lost, owns more", lambda it: it.beat("m1", 2, owned=[*A, ("other", 0)])
    yield "lost, tells nothing", lambda it: it.beat("m1", 2)
    yield "a topic that is not there", lambda it: it.beat("m1", 3, topics=["a", "b", "none"])
    yield "one topic less", lambda it: it.beat("m1", 4, topics=["a", "none"], owned=[*A, *B])
    yield "still has it", lambda it: it.beat("m1", 4, owned=[*A, *B])
    yield "described meanwhile", lambda it: it.described("g")
    yield "gave it back", lambda it: it.beat("m1", 4, owned=A)
    yield "described then", lambda it: it.described("g")
    yield "no topic at all", lambda it: it.beat("m1", 5, topics=[], owned=NOTHING)
    yield "described without", lambda it: it.described("g")
    yield "and back", lambda it: it.beat("m1", 6, topics=["a"], owned=NOTHING)


def two_members() -> Iterator[Step]:
    yield "stranger beats", lambda it: it.beat("m2", 4)
    yield "stranger leaves", lambda it: it.beat("m2", -1)
    yield "second joins", lambda it: it.join("m2", ["a", "b"], server_assignor="range")
    yield "described both", lambda it: it.described("g")
    yield "first has to give", lambda it: it.beat("m1", 7)
    yield "first has not", lambda it: it.beat("m1", 7, owned=A)
    yield "second waits", lambda it: it.beat("m2", 8)
    yield "described waiting", lambda it: it.described("g")
    yield "first has", lambda it: it.beat("m1", 7, owned=A[:2])
    yield "second gets", lambda it: it.beat("m2", 8)
    yield "second has", lambda it: it.beat("m2", 8, owned=[*A[2:], *B])
    yield "described settled", lambda it: it.described("g")
    yield "third joins", lambda it: it.join("m3", ["b"])
    yield "second gives", lambda it: it.beat("m2", 8)
    yield "third leaves before", lambda it: it.beat("m3", -1)
    yield "second has given", lambda it: it.beat("m2", 8, owned=[*A[2:], B[0]])
    yield "second catches up", lambda it: it.beat("m2", 9)
    yield "second again", lambda it: it.beat("m2", 10)
    yield "first catches up", lambda it: it.beat("m1", 8)
    yield "described again", lambda it: it.described("g")
    yield "second takes uniform", lambda it: it.beat("m2", 10, server_assignor="uniform")
    yield "described uniform", lambda it: it.described("g")


def commits() -> Iterator[Step]:
    yield "commits", lambda it: it.commit("m1", 10, ("a", 0))
    for version in (5, 8):
        yield f"commits {version}", lambda it, v=version: it.commit("m1", 10, ("a", 0), version=v)
    yield "commits in its old epoch", lambda it: it.commit("m1", 9, ("a", 0), ("none", 0))
    yield "and what it has not", lambda it: it.commit("m1", 9, ("a", 0), ("a", 3), ("none", 0))
    yield "commits in an older epoch", lambda it: it.commit("m1", 6, ("a", 0), ("a", 1))
    yield "commits ahead", lambda it: it.commit("m1", 13, ("a", 0))
    yield "stranger commits", lambda it: it.commit("x", 10, ("a", 0))
    yield "nobody commits", lambda it: it.commit("", -1, ("a", 0))
    yield "fetches", lambda it: it.fetch("m1", 10)
    yield "fetches stale", lambda it: it.fetch("m1", 9)
    yield "stranger fetches", lambda it: it.fetch("x", 10)
    yield "anybody fetches", lambda it: it.fetch(None, -1)
    yield "deletes what is used", lambda it: it.delete_offsets(("a", 0), ("other", 0))
    yield "deletes the group", lambda it: it.delete_group("g")


def static_members() -> Iterator[Step]:
    yield "another group", lambda it: it.use("s")
    i1 = {"instance_id": "i1", "server_assignor": "range"}
    yield "i1 joins", lambda it: it.join("s1", ["a"], **i1)
    yield "i2 joins", lambda it: it.join("s2", ["a"], instance_id="i2", server_assignor="range")
    yield "i1 gives", lambda it: it.beat("s1", 2, instance_id="i1", owned=A)
    yield "i1 has given", lambda it: it.beat("s1", 2, instance_id="i1", owned=A[:2])
    yield "i2 gets", lambda it: it.beat("s2", 3, instance_id="i2")
    yield "who has i1", lambda it: it.join("s3", ["a"], **i1)
    yield "i1 fenced", lambda it: it.beat("s3", 3, instance_id="i1")
    yield "who is i9", lambda it: it.beat("s1", 3, instance_id="i9")
    yield "i1 fenced, leaves", lambda it: it.beat("s3", -2, instance_id="i1")
    yield "i1 again", lambda it: it.join("s1", ["a"], **i1)
    yield "i1 goes for a while", lambda it: it.beat("s1", -2, instance_id="i1")
    yield "described without i1", lambda it: it.described("s")
    yield "i1 beats though", lambda it: it.beat("s1", 3, instance_id="i1")
    yield "i1 comes back", lambda it: it.join("s4", ["a"], **i1)
    yield "described with i1", lambda it: it.described("s")
    yield "i1 goes on", lambda it: it.beat("s4", 3, instance_id="i1", owned=A[:2])
    yield "i1 goes again", lambda it: it.beat("s4", -2, instance_id="i1")
    yield "i1 wants more", lambda it: it.join("s5", ["a", "b"], **i1)
    yield "described with more", lambda it: it.described("s")
    yield "i1 leaves", lambda it: it.beat("s5", -1, instance_id="i1")
    yield "described left", lambda it: it.described("s")
    yield "i2 gets all", lambda it: it.beat("s2", 3, instance_id="i2")
    yield "i2 gets it", lambda it: it.beat("s2", 5, instance_id="i2")


def unsubscribing() -> Iterator[Step]:
    """While there is still something to give back."""
    both = {"topics": ["a", "b"], "server_assignor": "range"}
    yield "group of the fickle", lambda it: it.use("u")
    yield "u1 joins", lambda it: it.join("u1", **both)
    yield "u2 joins", lambda it: it.join("u2", **both)
    yield "u1 has to give", lambda it: it.beat("u1", 2, owned=[*A, *B])
    yield "u1 wants less", lambda it: it.beat("u1", 2, topics=["a"])
    yield "described giving back more", lambda it: it.described("u")
    yield "u1 wants it again", lambda it: it.beat("u1", 2, topics=["a", "b"], owned=[*A, B[0]])
    yield "u1 wants something else", lambda it: it.beat("u1", 2, topics=["other"], owned=[*A, B[0]])
    yield "u1 has it still", lambda it: it.beat("u1", 2, owned=A[:1])
    yield "u2 gets none of it", lambda it: it.beat("u2", 3, owned=NOTHING)
    yield "u1 has given back", lambda it: it.beat("u1", 2, owned=NOTHING)
    yield "u2 gets all of it", lambda it: it.beat("u2", 6, owned=NOTHING)
    yield "described without the unsubscribed", lambda it: it.described("u")


def regular_expressions() -> Iterator[Step]:
    wants = {"owned": NOTHING, "rebalance_timeout_ms": 60_000}
    yield "third group", lambda it: it.use("r")
    yield "no expression", lambda it: it.beat("r1", 0, subscribed_topic_regex="(a", **wants)
    yield "no such group", lambda it: it.described("r")
    yield "an expression", lambda it: it.settled("r1", 0, subscribed_topic_regex="[ab]|o.*r.*", **wants)
    yield "fourth group", lambda it: it.use("r3")
    yield "all there is", lambda it: it.settled("r3", 0, subscribed_topic_regex=".*", **wants)
    yield "expression and topics", lambda it: it.join("r2", ["a"], subscribed_topic_regex="", group="r2")
    yield "described with topics", lambda it: it.described("r2")


def endings() -> Iterator[Step]:
    yield "first group", lambda it: it.use("g")
    yield "first leaves", lambda it: it.beat("m1", -1)
    yield "first is gone", lambda it: it.beat("m1", 10)
    yield "described one", lambda it: it.described("g")
    yield "second leaves", lambda it: it.beat("m2", -1)
    yield "described empty", lambda it: it.described("g")
    yield "listed empty", lambda it: it.listed(states_filter=["Empty"])
    yield "anybody commits", lambda it: it.commit("", -1, ("a", 1))
    yield "fetches all", lambda it: it.fetch(None, -1)
    yield "joins the empty", lambda it: it.join("m9", ["other"])
    yield "leaves it", lambda it: it.beat("m9", -1)
    yield "deletes an offset", lambda it: it.delete_offsets(("a", 1), ("other", 0))
    yield "deletes it", lambda it: it.delete_group("g")
    yield "is no more", lambda it: it.described("g")
    yield "fetches none", lambda it: it.fetch(None, -1)
    yield "deletes it again", lambda it: it.delete_group("g")


def upgrade() -> Iterator[Step]:
    yield "classic group", lambda it: it.use("c")
    yield "classic joins", lambda it: it.classic_join("c1", ["a"])
    yield "classic leads", lambda it: it.classic_sync("c1", 1, c1=A)
    yield "not described", lambda it: it.described("c")
    yield "beats at a classic", lambda it: it.beat("m1", 3)
    yield "leaves a classic", lambda it: it.beat("m1", -1)
    yield "upgrades", lambda it: it.join("m1", ["a"], server_assignor="range")
    yield "described mixed", lambda it: it.described("c")
    yield "described 0", lambda it: it.described("c", version=0)
    yield "listed mixed", lambda it: it.listed(types_filter=["consumer"])
    yield "classic commits", lambda it: it.commit("c1", 1, ("a", 0), version=8)
    yield "classic commits 9", lambda it: it.commit("c1", 1, ("a", 1))
    yield "classic commits ahead", lambda it: it.commit("c1", 7, ("a", 1))
    yield "classic beats", lambda it: it.classic_beat("c1", 1)
    yield "classic beats ahead", lambda it: it.classic_beat("c1", 9)
    yield "classic syncs too soon", lambda it: it.classic_sync("c1", 1)
    yield "other protocol", lambda it: it.classic_join("c1", ["a"], protocol="none", protocol_type="connect")
    yield "classic joins again", lambda it: it.classic_join("c1", ["a"], owned=tuple(A))
    yield "described revoking", lambda it: it.described("c")
    yield "classic beats then", lambda it: it.classic_beat("c1", 1)
    yield "wrong protocol", lambda it: it.classic_sync("c1", 1, protocol="other")
    yield "classic gives back", lambda it: it.classic_sync("c1", 1)
    yield "classic has", lambda it: it.classic_join("c1", ["a"], owned=tuple(A[:2]))
    yield "classic syncs", lambda it: it.classic_sync("c1", 2)
    yield "classic is well", lambda it: it.classic_beat("c1", 2)
    yield "first gets", lambda it: it.beat("m1", 2)
    yield "described mixed and settled", lambda it: it.described("c")
    yield "second classic joins", lambda it: it.classic_join("c2", ["a"], instance="i")
    yield "second classic syncs", lambda it: it.classic_sync("c2", 3)
    yield "classic has to join", lambda it: it.classic_beat("c1", 2)
    yield "stranger syncs", lambda it: it.classic_sync("m1", 2)
    yield "stranger beats", lambda it: it.classic_beat("m1", 2)
    yield "leave one by one", lambda it: it.classic_leave("c2", "x")
    yield "described after leaving", lambda it: it.described("c")


def downgrade() -> Iterator[Step]:
    yield "classic joins once more", lambda it: it.classic_join("c1", ["a"], owned=tuple(A[:2]))
    yield "classic syncs once more", lambda it: it.classic_sync("c1", 4)
    yield "downgrades", lambda it: it.beat("m1", -1)
    yield "described no more", lambda it: it.described("c")
    yield "described classic", lambda it: it.classic_described("c")
    yield "classic has to join", lambda it: it.classic_beat("c1", 4)
    yield "classic leads again", lambda it: it.classic_join("c1", ["a"], owned=tuple(A[:2]))
    yield "classic assigns", lambda it: it.classic_sync("c1", 5, c1=A)
    yield "described at last", lambda it: it.classic_described("c")
    yield "offsets are there", lambda it: it.fetch(None, -1)
    yield "classic leaves", lambda it: it.classic_leave("c1")
    yield "described as empty", lambda it: it.classic_described("c")
    yield "an empty one becomes", lambda it: it.join("m2", ["b"])
    yield "described anew", lambda it: it.described("c")
    yield "leaves it empty", lambda it: it.beat("m2", -1)
    yield "and it is classic", lambda it: it.classic_join("c3", ["a"])
    yield "described in the end", lambda it: it.classic_described("c")
    yield "described by classic syncs", lambda it: it.classic_sync("c3", 1, c3=A)
    yield "upgrades again", lambda it: it.join("m3", ["a"], server_assignor="range")
    yield "is taken out by LeaveGroup", lambda it: it.classic_leave("m3")
    yield "is classic again", lambda it: it.classic_described("c")
    yield "offsets are still there", lambda it: it.fetch(None, -1)


def there_and_back() -> Iterator[Step]:
    """A static member that changes its protocol."""
    i9 = {"instance_id": "i9", "server_assignor": "range"}
    yield "group of the returning", lambda it: it.use("d")
    yield "i9 joins", lambda it: it.join("d1", ["a"], **i9)
    yield "i9 is away", lambda it: it.beat("d1", -2, instance_id="i9")
    yield "i9 is classic", lambda it: it.classic_join("d2", ["a"], instance="i9")
    yield "i9 has what it had", lambda it: it.classic_sync("d2", 2)
    yield "i9 is well", lambda it: it.classic_beat("d2", 2)
    yield "described as a classic one", lambda it: it.classic_described("d")
    yield "i9 is new again", lambda it: it.join("d3", ["a"], **i9)
    yield "described in the same epoch", lambda it: it.described("d")
    yield "d4 joins", lambda it: it.classic_join("d4", ["a"])
    yield "d4 takes a protocol it had not", lambda it: it.classic_join("d4", ["a"], protocol="other")
    yield "i9 has to give", lambda it: it.beat("d3", 2, instance_id="i9", owned=A)
    yield "i9 has given", lambda it: it.beat("d3", 2, instance_id="i9", owned=A[:2])
    yield "d4 gets", lambda it: it.classic_join("d4", ["a"])
    yield "d4 syncs", lambda it: it.classic_sync("d4", 3)
    yield "described with d4", lambda it: it.described("d")
    yield "i9 is away again", lambda it: it.beat("d3", -2, instance_id="i9")
    yield "i9 with another protocol", lambda it: it.classic_join("d5", ["a"], instance="i9", protocol="other")
    yield "i9 is classic beside d4", lambda it: it.classic_join("d5", ["a"], instance="i9")
    yield "described undisturbed", lambda it: it.classic_described("d")
    yield "i9 still has what it had", lambda it: it.classic_sync("d5", 3)
    yield "d4 still has what it had", lambda it: it.classic_sync("d4", 3)
    yield "i9 is well beside d4", lambda it: it.classic_beat("d5", 3)
    yield "d4 is well", lambda it: it.classic_beat("d4", 3)
    yield "i9 is new beside d4", lambda it: it.join("d6", ["a"], **i9)
    yield "described mixed in the same epoch", lambda it: it.described("d")
    yield "i9 is away once more", lambda it: it.beat("d6", -2, instance_id="i9")
    yield "i9 wants more", lambda it: it.classic_join("d7", ["a", "b"], instance="i9")
    yield "described disturbed", lambda it: it.classic_described("d")[:4]
    yield "d4 has to join", lambda it: it.classic_beat("d4", 3)
    yield "i9 has to join", lambda it: it.classic_sync("d7", 0)


def catching_up() -> Iterator[Step]:
    """Of classic members with an epoch that has no targets yet."""
    yield "group of the late", lambda it: it.use("e")
    yield "e1 joins", lambda it: it.join("e1", ["a"], server_assignor="range")
    yield "e2 joins", lambda it: it.classic_join("e2", ["b"])
    yield "e3 joins", lambda it: it.classic_join("e3", ["other"], instance="i")
    yield "e1 catches up", lambda it: it.beat("e1", 2)
    yield "e2 catches up", lambda it: it.classic_join("e2", ["b"], owned=tuple(B))
    yield "e2 syncs", lambda it: it.classic_sync("e2", 4)
    yield "e3 syncs", lambda it: it.classic_sync("e3", 4)
    yield "e3 leaves", lambda it: it.classic_leave("e3")
    yield "described without targets", lambda it: it.described("e")
    yield "e2 has nothing to do", lambda it: it.classic_beat("e2", 4)
    yield "e2 is told what it knows", lambda it: it.classic_sync("e2", 4)
    yield "e1 makes targets", lambda it: it.beat("e1", 4)
    yield "described with targets", lambda it: it.described("e")
    yield "e2 has to join", lambda it: it.classic_beat("e2", 4)
    yield "e2 cannot sync", lambda it: it.classic_sync("e2", 4)


def intervals() -> Iterator[Step]:
    """A group is divided anew only so often."""
    interval = "consumer.assignment.interval.ms"
    yield "group with an interval", lambda it: it.use("f")
    yield "too long an interval", lambda it: it.set_group({interval: "15001"})
    yield "no interval", lambda it: it.set_group({interval: "-1"})
    yield "a long interval", lambda it: it.set_group({interval: "15000"})
    yield "first of an interval", lambda it: it.join("f1", ["a"], server_assignor="range")
    yield "second within it", lambda it: it.join("f2", ["a"])
    yield "second beats within it", lambda it: it.beat("f2", 2)
    yield "first beats within it", lambda it: it.beat("f1", 2)
    yield "first unsubscribes within it", lambda it: it.beat("f1", 2, topics=["b"])
    yield "first has given", lambda it: it.beat("f1", 2, owned=NOTHING)
    yield "described within it", lambda it: it.described("f")
    yield "static within it", lambda it: it.join("f3", ["b"], instance_id="i")
    yield "static goes", lambda it: it.beat("f3", -2, instance_id="i")
    yield "static comes back", lambda it: it.join("f4", ["b"], instance_id="i", server_assignor="range")
    yield "classic within it", lambda it: it.classic_join("f5", ["b"])
    yield "classic syncs", lambda it: it.classic_sync("f5", 2)
    yield "classic has nothing to do", lambda it: it.classic_beat("f5", 2)
    yield "described with four", lambda it: it.described("f")
    yield "all but the classic leave", lambda it: [it.beat(one, -1) for one in ("f1", "f2")]
    yield "no interval any more", lambda it: it.set_group({interval: "0"})
    yield "divided then", lambda it: it.beat("f4", 2, owned=NOTHING, instance_id="i")
    yield "classic has to join", lambda it: it.classic_beat("f5", 2)
    yield "described then", lambda it: it.described("f")


EXPLAINED = {
    "no expression": "the words are RE2's own, in Java there and in C++ here",
}
"""where the two part, and why that is right"""


@pytest.mark.java
def test_t201_consumer_groups_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    own = BrokerProcess(tmp_path / "data", {"node.id": "1", **SETTINGS}).start()
    kafka = start_kafka(KAFKAS)
    players = [Player(Raw(broker.port)) for broker in (kafka, own)]
    for player in players:
        player.prepare(TOPICS)
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


def _check_dump(kafka: KafkaBroker) -> None:
    """Kafka's own decoder knows every record that lies there, whoever wrote it."""
    files = [str(path) for path in kafka.data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    said = kafka.tools.dump("--offsets-decoder", "--files", ",".join(files))
    for kind in (3, 5, 6, 7, 8, 16):
        assert f'"type":"{kind}"' in said, said
    assert not re.search("could not|Exception|<unknown>", said, re.IGNORECASE), said


@pytest.mark.java
def test_t201_members_go_on_from_kafka_to_kompakt_and_back(start_kafka: Start) -> None:
    """Whoever changes brokers under running consumers keeps members, epochs and assignments."""
    kafka = start_kafka(KAFKAS)
    player = Player(Raw(kafka.port))
    player.use("moving")
    player.prepare(TOPICS)
    player.join("m1", ["a"])
    player.join("m2", ["a", "b"], instance_id="i", rack_id="r")
    player.beat("m3", 0, owned=NOTHING, rebalance_timeout_ms=60_000, subscribed_topic_regex="o.*er")
    epochs = {row[0]: row[3] for row in player.described("moving")[0][8]}
    assigned = _settle(player, epochs, {})
    assert sorted(place for places in assigned.values() for place in places) == [*A, *B, ("other", 0)]
    assert player.commit("m1", epochs["m1"], *assigned["m1"])[0][2] == 0
    player.use("mixed")
    player.join("n1", ["b"])
    generation = player.classic_join("c1", ["other"])[1]
    assert player.classic_sync("c1", generation)[3] == [("other", 0)]
    player.use("moving")
    described, offsets = player.described("moving", "mixed"), player.fetch(None, -1)
    player.raw.close()
    kafka.stop()
    with serving(kafka):
        player.raw = Raw(kafka.port)
        assert player.described("moving", "mixed") == described
        assert player.fetch(None, -1) == offsets
        assert _settle(player, epochs, assigned) == assigned
        player.join("m4", ["b"])
        epochs["m4"] = player.described("moving")[0][4]
        changed = _settle(player, epochs, assigned)
        assert sorted(place for places in changed.values() for place in places) == [*A, *B, ("other", 0)]
        assert changed["m4"], "the newcomer has something"
        described = player.described("moving", "mixed")
        player.raw.close()
    _check_dump(kafka)
    kafka.start()
    player.raw = Raw(kafka.port)
    wait_for(lambda: [row[0] for row in player.described("moving", "mixed")] == [0, 0], "the groups on Kafka")
    assert player.described("moving", "mixed") == described
    assert player.fetch(None, -1) == offsets
    assert _settle(player, epochs, changed) == changed
    player.raw.close()


def _settle(player: Player, epochs: dict[str, int], owned: dict[str, Any]) -> dict[str, Any]:
    """Let every member beat, and own what it is told, until the group is stable; what each has then."""
    owned = dict(owned)
    described: list[Any] = []

    def is_stable() -> bool:
        for member in epochs:
            answer = player.beat(member, epochs[member], owned=owned.get(member, NOTHING))
            assert answer[0] is True, answer
            epochs[member] = answer[1]
            owned[member] = answer[3] if answer[3] is not None else owned.get(member, NOTHING)
        described[:] = player.described(player.group)[0]
        return described[3] == "Stable"

    wait_for(is_stable, "a stable group")
    return {row[0]: row[8] for row in described[8]}
