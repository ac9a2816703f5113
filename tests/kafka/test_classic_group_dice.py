"""Goal: what members of a classic group say that nobody thought of is answered as by Apache Kafka, at once or
when others have spoken: generations, leaders, protocols, assignments, errors, and where the group stands.

Method: five members, two of them static (and one more with the first one's instance), join, sync, beat,
commit and leave as dice say, with what they were told or nearly, over all versions of the messages. A step
is over when both brokers have answered the same requests and describe the group alike, or will not in time.
Which member leads once the leader is gone a Kafka leaves to the order of random ids: such a seed ends there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.groups import FindCoordinatorRequest
from tests.kafka.both import Start, both
from tests.kafka.classic_player import (
    ClassicPlayer,
    Make,
    beating,
    committing,
    deleting,
    joining,
    leaving,
    syncing,
)
from tests.kafka.raw import Raw
from tests.waiting import wait_for

INSTANCES = {"s": "i", "t": "j", "u": "i"}
MEMBERS = ("m", "n", "o", *INSTANCES)
SUBSCRIPTIONS = (b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff", b"\0\0\0\0\0\1\0\1b\xff\xff\xff\xff")
PROTOCOLS = (("range", "sticky"), ("range",), ("sticky",), ())
"""in one order of preference: who wins where votes are equal Kafka leaves to a hash map"""
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
STEPS = 60
PAUSE_SECONDS = 0.1
"""so long what asks may go without an answer before it is said to wait for others"""
ALONE_SECONDS = 2.0
"""so long kompakt may be the only one who has answered"""
PARTED_SECONDS = 10.0
"""so long two brokers may stand at different places"""
AWAITED = {"PreparingRebalance": "join", "CompletingRebalance": "sync"}
"""what it takes that a group goes on"""
LOST = (25, 82)
"""unknown, fenced: a member begins anew"""
UNANSWERED = (("synced", 25), ("synced", 27), ("joined", 27))
"""what a Kafka never answers: who waits is taken out by others, or another one asks the same in its name"""
Step = tuple[str, str, int, Make]


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize(("seeds", "room"), [(range(100), 100), (range(100, 120), 4)])
def test_random_members_go_as_in_kafka(start_kafka: Start, tmp_path: Path, seeds: range, room: int) -> None:
    play_at_random(start_kafka, tmp_path, seeds, room)


def play_at_random(start_kafka: Start, directory: Path, seeds: range, room: int) -> None:
    """In groups that have room for so many members."""
    with both(start_kafka, directory, {**SETTINGS, "group.max.size": str(room)}) as brokers:
        for broker in brokers:
            raw = Raw(broker.port)
            raw.create("a", {})
            raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)  # makes a Kafka's topic
            raw.close()
        for seed in seeds:
            players = [ClassicPlayer(broker.port, f"g{seed}") for broker in brokers]
            for one in players:
                wait_for(lambda it=one: it.described()[0] not in (14, 15, 16), "a coordinator")
            play_seed(players, seed)
            for one in players:
                one.close()


def play_seed(players: Sequence[ClassicPlayer], seed: int) -> None:
    dice = Dice(seed)
    taken = []
    for number in range(STEPS):
        text, member, version, make = dice.drawn([one for one in MEMBERS if not players[0].waiting(one)])
        hangs_up = dice.hangs_up()
        for before in players[0].waiting(member):
            text += f", without waiting for {before}{', where it hangs up' if hangs_up else ''}"
        for one in players:
            # Of who asks again a Kafka lets the first request lie; kompakt answers it.
            for before in one.waiting(member):
                one.give_up(before, hangs_up=hangs_up)
            one.send(number, member, make(one), version)
        settling = Settling(players, number)
        wait_for(settling.is_over, f"an end of step {number}")
        expected, found = settling.found()
        taken.append(f"{number} {text}\n    {expected}")
        if is_by_chance(expected, found, dice.leader):
            return
        assert found == expected, "\n".join((f"seed {seed}", *taken, f"kompakt: {found}"))
        for answered, answer in expected[0]:
            dice.learn(answered, answer)
        dice.see(expected[1][2])


class Settling:
    """What two brokers answer since request `number` was sent to both, until it is clear what they say."""

    def __init__(self, players: Sequence[ClassicPlayer], number: int) -> None:
        self._players = players
        self._number = number
        self._begun = time.monotonic()
        self._answers: list[list[Any]] = [[] for _ in players]
        self._described: list[Any] = []

    def is_over(self) -> bool:
        """Whether both have answered the same requests and describe the group alike, or will not."""
        arrived = [one.arrived() for one in self._players]
        if arrived[0] == arrived[1]:
            for one, known in zip(self._players, self._answers, strict=True):
                known += [(which, one.take(which)) for which in arrived[0]]
        self._described = [one.described() for one in self._players]
        waited = time.monotonic() - self._begun
        if set(arrived[0]) < set(arrived[1]) and waited > ALONE_SECONDS:
            self._leave_out(set(arrived[1]) - set(arrived[0]))
        is_answered = waited > PAUSE_SECONDS or any(which == self._number for which, _ in self._answers[0])
        if is_answered and self._described[0] == self._described[1]:
            return waited > PARTED_SECONDS or not any(one.arrived() for one in self._players)
        return waited > PARTED_SECONDS

    def _leave_out(self, alone: Iterable[int]) -> None:
        kafka, own = self._players
        for which in alone:
            answer = own.take(which)
            assert answer[:2] in UNANSWERED, f"answered by kompakt alone: {which} {answer}"
            kafka.give_up(which, hangs_up=False)

    def found(self) -> list[Any]:
        """Of each the answers by number, how the group is described, and what it alone has answered."""
        return [
            (known, told, one.arrived())
            for known, told, one in zip(self._answers, self._described, self._players, strict=True)
        ]


def is_by_chance(expected: Any, found: Any, leader: str) -> bool:
    """Whether the brokers chose another leader each, because the one before has gone."""
    leaders = [
        {answer[5] for _, answer in answers if answer[0] == "joined" and answer[5]}
        for answers, _, _ in (expected, found)
    ]
    names = {row[0] for row in expected[1][5]}
    return leaders[0] != leaders[1] and leader not in names


class Dice:
    """What one seed does, and what its members were told."""

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
        """What a member does next, mostly one of those that do not wait for an answer."""
        dice = self._dice
        able = [one for one in idle if one != "u" or dice.random() < 0.1]
        if not able and self._known:  # they wait for one that all have forgotten
            self._asked.append(("m", ""))
            return self._leave("m", dice.choice(self._known), None)
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
            return "somebody deletes the group", member, 2, deleting()
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
        """Whether who asks again hangs up where it asked before."""
        return self._dice.random() < 0.5

    def learn(self, number: int, answer: Any) -> None:
        """What Kafka answered to request `number`."""
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

    def see(self, state: str) -> None:
        """Where the group stands."""
        self._state = state
