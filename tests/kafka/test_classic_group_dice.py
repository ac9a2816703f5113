"""Goal: what members of a classic group say that nobody thought of is answered as by Apache Kafka, at once or
when others have spoken: generations, leaders, protocols, assignments, errors, and where the group stands.

Method: five members, two of them static (and one more with the first one's instance), join, sync, beat,
commit and leave as dice say, with what they were told or nearly, over all versions of the messages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.both import Start, both
from tests.kafka.classic_player import (
    ClassicPlayer,
    beating,
    committing,
    deleting,
    joining,
    leaving,
    syncing,
)
from tests.kafka.group_play import LOST, Step, play_seeds, prepare
from tests.kafka.raw import Raw

INSTANCES = {"s": "i", "t": "j", "u": "i"}
MEMBERS = ("m", "n", "o", *INSTANCES)
SOMEBODY = "somebody"
"""who is no member"""
SUBSCRIPTIONS = (b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff", b"\0\0\0\0\0\1\0\1b\xff\xff\xff\xff")
PROTOCOLS = (("range", "sticky"), ("range",), ("sticky",), ())
"""in one order of preference: who wins where votes are equal Kafka leaves to a hash map"""
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
STEPS = 60
AWAITED = {"PreparingRebalance": "join", "CompletingRebalance": "sync"}
"""what it takes that a group goes on"""


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize(("seeds", "room"), [(range(100), 100), (range(100, 120), 4)])
def test_random_members_go_as_in_kafka(start_kafka: Start, tmp_path: Path, seeds: range, room: int) -> None:
    play_at_random(start_kafka, tmp_path, seeds, room)


def play_at_random(start_kafka: Start, directory: Path, seeds: range, room: int) -> None:
    """In groups that have room for so many members."""
    with both(start_kafka, directory, {**SETTINGS, "group.max.size": str(room)}) as brokers:
        for broker in brokers:
            prepare(Raw(broker.port), {"a": 1})
        play_seeds(brokers, ClassicPlayer, Dice, seeds, STEPS)


class Dice:
    """What one seed does, and what its members were told."""

    members = MEMBERS

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._names = dict.fromkeys(MEMBERS, "")
        self._generations = dict.fromkeys(MEMBERS, 0)
        self._group: list[str] = []
        self._called_back: set[str] = set()
        self._asked: list[tuple[str, str]] = []
        self._known: list[str] = []
        self._protocol, self._state = "range", ""
        self.leader = ""

    def drawn(self, idle: Sequence[str]) -> Step:
        dice = self._dice
        able = [one for one in idle if one != "u" or dice.random() < 0.1]
        if not able and self._known:  # they wait for one that all have forgotten
            self._asked.append((SOMEBODY, ""))
            return self._leave(SOMEBODY, dice.choice(self._known), None)
        member = dice.choice(able if able and dice.random() < 0.97 else MEMBERS)
        kinds = {"join": 4, "sync": 4, "beat": 3, "commit": 2, "leave": 1, "delete": 0.3}
        kinds[AWAITED.get(self._state, "beat")] += 12
        kind = "join" if not self._names[member] else dice.choices([*kinds], [*kinds.values()])[0]
        name = self._names[member]
        if dice.random() < 0.05:
            name = dice.choice(("x", *filter(None, self._names.values())))
        self._asked.append((member, name))
        instance = INSTANCES.get(member)
        if dice.random() < 0.03:
            instance = dice.choice((None, "i", "k"))
        generation = self._generations[member] + dice.choices((0, 1, -1), (15, 1, 1))[0]
        if kind == "join":  # with an instance who was asked to come back is an error inside a Kafka
            return self._join(member, name, None if name in self._called_back else instance)
        if kind == "sync":
            return self._sync(member, name, generation, instance)
        if kind == "leave":
            return self._leave(member, name, instance)
        if kind == "delete":
            return "somebody deletes the group", SOMEBODY, 2, deleting()
        if kind == "beat":
            version = dice.randint(3 if instance else 0, 4)
            text = f"{name} ({instance}) beats in {generation}, v{version}"
            return text, member, version, beating(name, generation, instance)
        version = dice.randint(7, 9)
        text = f"{name} ({instance}) commits in {generation}, v{version}"
        return text, member, version, committing(name, generation, instance)

    def _join(self, member: str, name: str, instance: str | None) -> Step:
        dice = self._dice
        version = dice.choice((9, 9, 9, 8, 7, 6, 5)) if instance else dice.choice((*range(10), 9, 9, 9))
        # A join that a Kafka refuses makes the group none the less, if there was none.
        is_known = self._state not in ("", "Dead")
        offered = dice.choices(PROTOCOLS, (40, 4, 1, is_known))[0]
        protocols = [(one, dice.choice(SUBSCRIPTIONS)) for one in offered]
        protocol_type = dice.choices(("consumer", "connect", ""), (40, is_known, is_known))[0]
        more = (
            {"session_timeout_ms": dice.choice((0, -1, 1, 5_999, 1_800_001))} if dice.random() < 0.02 else {}
        )
        text = f"{member} joins as {name!r} ({instance}) {protocol_type} {protocols} {more}, v{version}"
        made = joining(name, protocols, protocol_type=protocol_type, instance=instance, **more)
        return text, member, version, made

    def _sync(self, member: str, name: str, generation: int, instance: str | None) -> Step:
        dice = self._dice
        version = dice.randint(3 if instance else 0, 5)
        given = []
        if name == self.leader or dice.random() < 0.1:
            given = [(one, f"{one} in {generation}".encode()) for one in self._group if dice.random() < 0.9]
            if dice.random() < 0.05:
                given.append(("x", b"for nobody"))
        protocol = dice.choices((self._protocol, None, "other"), (20, 1, 1))[0]
        protocol_type = dice.choices(("consumer", None, "connect"), (20, 1, 1))[0]
        text = f"{name} ({instance}) syncs in {generation} by {protocol_type} {protocol} {given}, v{version}"
        made = syncing(
            name, generation, given, protocol_type=protocol_type, protocol=protocol, instance=instance
        )
        return text, member, version, made

    def _leave(self, member: str, name: str, instance: str | None) -> Step:
        dice = self._dice
        version = dice.randint(3 if instance else 0, 5)
        who = [(name, instance)]
        if instance and dice.random() < 0.4:
            who = [("", instance)]
        if version > 2 and dice.random() < 0.2:
            who.append(dice.choice((("x", None), (name, None), ("", "i"), ("", "k"))))
        return f"{who} leave, v{version}", member, version, leaving(who)

    def hangs_up(self) -> bool:
        return self._dice.random() < 0.5

    def learn(self, number: int, answer: Any) -> None:
        member, asked_as = self._asked[number]
        is_lost = answer[0] in ("joined", "synced", "beaten") and answer[1] in LOST
        if is_lost and asked_as == self._names[member] and self._dice.random() < 0.8:
            self._names[member] = ""
        if answer[0] != "joined":
            return
        _, error, generation, _, protocol, leader, _, name, members = answer
        if error == 79:
            self._called_back.add(name)
        if error in (0, 79):
            self._names[member] = name
            self._known.append(name)
        if error == 0:
            self._generations[member] = generation
            self._protocol, self.leader = protocol, leader
            if members:
                self._group = [one for one, _, _ in members]

    def see(self, described: Any) -> None:
        self._state = described[2]
