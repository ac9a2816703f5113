"""Goal: a group that goes from the classic protocol to KIP-848's and back while it has members, as dice say,
is led as by Apache Kafka: epochs and generations, partitions, errors, and what each protocol tells of it.

Method: two members that know only the classic protocol, one of them static, and two that know only the newer
one join, sync, beat and leave in one group, on both brokers. The classic ones' leader divides by dice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.both import Start, both
from tests.kafka.classic_player import beating, joining, leaving, syncing
from tests.kafka.group_play import LOST, Step, play_seeds, prepare
from tests.kafka.group_player import assignment_bytes, subscription_bytes
from tests.kafka.mixed_player import MixedPlayer, Places, beating_anew
from tests.kafka.raw import Raw
from tests.kafka.test_consumer_groups import KAFKAS, SETTINGS, A, B

TOPICS = {"a": 4, "b": 2}
CLASSIC, STATIC = ("m", "s"), {"s": "i", "~d": "j"}
NEWER = ("~c", "~d")
"""behind every id that a broker may give, and so divided among in one order"""
MEMBERS = (*CLASSIC, *NEWER)
SUBSCRIPTIONS = (["a"], ["b"], ["a", "b"], ["a", "b"])
RANGE = {"group.consumer.assignors": "range"}
AGAIN = 27
LOST_EPOCH = (*LOST, 110, 113)
"""what a member of the newer protocol is told that has to begin anew"""
UNRELEASED = 111
"""somebody, itself perhaps, has its instance"""
STEPS, PHASE = 90, 15


@pytest.mark.slow
@pytest.mark.java
def test_random_changes_of_protocol_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(100))


def play_at_random(start_kafka: Start, directory: Path, seeds: range) -> None:
    with both(start_kafka, directory, {**SETTINGS, **RANGE}, {**KAFKAS, **RANGE}) as brokers:
        for broker in brokers:
            prepare(Raw(broker.port), TOPICS)
        play_seeds(brokers, MixedPlayer, Dice, seeds, STEPS)


class Dice:
    """What one seed does, and what its members were told."""

    members = MEMBERS

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._absent = CLASSIC[0] if seed % 2 else ""  # so that the other one leads, however that is chosen
        self._names = {**dict.fromkeys(CLASSIC, ""), **{one: one for one in NEWER}}
        self._epochs = dict.fromkeys(MEMBERS, 0)
        self._has: dict[str, list[tuple[str, int]]] = {one: [] for one in MEMBERS}
        self._wants: dict[str, list[str]] = {one: ["a", "b"] for one in MEMBERS}
        self._asked: list[str] = []
        self._group: list[str] = []
        self._must_sync: set[str] = set()
        self._must_leave: set[str] = set()
        self._newer_come = False
        self.leader = ""

    def drawn(self, idle: Sequence[str]) -> Step:
        dice = self._dice
        # For a while the newer ones come, then they leave, and so on.
        self._newer_come = len(self._asked) // PHASE % 2 == 1
        able = [one for one in idle if self._may_act(one)]
        member = dice.choice(able or [one for one in MEMBERS if one != self._absent])
        step = self._newer(member) if member in NEWER else self._classic(member)
        self._asked.append(member)
        return step

    def _may_act(self, member: str) -> bool:
        if member in CLASSIC:
            return member != self._absent
        return self._newer_come or self._epochs[member] > 0

    def _epoch(self, member: str) -> int:
        return self._epochs[member] + self._dice.choices((0, 1, -1), (40, 1, 1))[0]

    def _owned(self, member: str) -> Places:
        has = self._has[member]
        return has if self._dice.random() < 0.9 else has[: self._dice.randint(0, len(has))]

    def _newer(self, member: str) -> Step:
        dice, instance = self._dice, STATIC.get(member)
        kinds = {"beat": 10, "leave": 1 if self._newer_come else 8, "join": 0.5}
        kind = "join" if self._epochs[member] < 1 else dice.choices([*kinds], [*kinds.values()])[0]
        if member in self._must_leave:
            self._must_leave.remove(member)
            kind = "leave"
        epoch, topics, owned = self._epoch(member), None, None
        if kind == "join":
            epoch, owned = 0, ()
            topics = self._wants[member] = dice.choice(SUBSCRIPTIONS)
        elif kind == "leave":
            epoch = dice.choice((-1, -2)) if instance else -1
        else:
            owned = self._owned(member) if dice.random() < 0.7 else None
            if dice.random() < 0.1:
                topics = self._wants[member] = dice.choice(SUBSCRIPTIONS)
        if kind == "leave":
            self._epochs[member], self._has[member] = epoch, []
        made = beating_anew(member, epoch, instance=instance, topics=topics, owned=owned)
        return f"{member} beats at {epoch}, wants {topics}, owns {owned}", member, 1, made

    def _classic(self, member: str) -> Step:
        dice, instance, name = self._dice, STATIC.get(member), self._names[member]
        kinds = {"join": 1.0, "sync": 1.0, "beat": 6.0, "leave": 0.7}
        if member in self._must_sync:
            kinds["sync"] += 20
        kind = dice.choices([*kinds], [*kinds.values()])[0]
        if kind == "join" or not self._epochs[member]:
            return self._join(member, name, instance)
        epoch = self._epoch(member)
        if kind == "sync":
            self._must_sync.discard(member)
            given = self._division() if name == self.leader else []
            text = f"{name} syncs in {epoch}: {given}"
            rows = [(one, assignment_bytes(places)) for one, places in given]
            protocol = dice.choices(("range", None), (9, 1))[0]
            return (
                text,
                member,
                5,
                syncing(name, epoch, rows, protocol_type="consumer", protocol=protocol, instance=instance),
            )
        if kind == "beat":
            return f"{name} beats in {epoch}", member, 4, beating(name, epoch, instance)
        self._epochs[member], self._has[member] = 0, []
        self._names[member] = ""
        return f"{name} leaves", member, 5, leaving([(name, instance)])

    def _join(self, member: str, name: str, instance: str | None) -> Step:
        dice = self._dice
        if dice.random() < 0.2:
            self._wants[member] = dice.choice(SUBSCRIPTIONS)
        topics, owned = self._wants[member], self._owned(member)
        version = dice.choice((5, 7, 9, 9))
        made = joining(
            name,
            [("range", subscription_bytes(topics, owned))],
            protocol_type="consumer",
            instance=instance,
        )
        return f"{member} joins as {name!r}, wants {topics}, owns {owned}, v{version}", member, version, made

    def _division(self) -> list[tuple[str, Places]]:
        """Each place at one member, or at nobody."""
        given: dict[str, list[tuple[str, int]]] = {one: [] for one in self._group}
        for place in (*A, *B):
            if self._dice.random() < 0.95:
                given[self._dice.choice(self._group)].append(place)
        return list(given.items())

    def hangs_up(self) -> bool:
        return True

    def learn(self, number: int, answer: Any) -> None:
        member = self._asked[number]
        kind, error = answer[:2]
        if error == UNRELEASED:
            self._must_leave.add(member)
        if error in LOST_EPOCH:
            self._epochs[member], self._has[member] = 0, []
            if member in CLASSIC:
                self._names[member] = ""
        elif kind == "joined":
            self._learn_joined(member, answer)
        elif kind == "synced":
            if not error:
                self._has[member] = answer[4] or []
        elif kind == "beaten" and error == AGAIN:
            self._must_sync.discard(member)
            self._rejoins(member)
        elif kind == "beaten" and len(answer) == 5 and not error and self._epochs[member] >= 0:
            self._epochs[member] = answer[3]
            if answer[4] is not None:
                self._has[member] = answer[4]

    def _rejoins(self, member: str) -> None:
        """It was told to join again."""
        if self._dice.random() < 0.8:
            self._epochs[member] = 0

    def _learn_joined(self, member: str, answer: Any) -> None:
        _, error, generation, _, _, leader, _, name, members = answer
        if error in (0, 79):
            self._names[member] = name
        if error:
            return
        self._epochs[member] = generation
        self._must_sync.add(member)
        self.leader = leader
        if members:
            self._group = [one for one, _, _ in members]

    def see(self, described: Any) -> None:
        if described[6][0] == 0:  # KIP-848's have no leader
            self.leader = ""
