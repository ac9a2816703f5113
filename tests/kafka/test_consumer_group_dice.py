"""Goal: what members of a consumer group (KIP-848) say that nobody thought of is answered as by Apache Kafka:
epochs, partitions, errors, and after each step where the group stands.

Method: four members, one of them static, join, beat (with the epoch that they were told, or nearly; owning
what they were told to have, or part of it, or more), subscribe to other topics, commit, ask for offsets and
leave as dice say, on both brokers. A seed that parts the two is shown with the steps that led there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.both import Start, both
from tests.kafka.group_player import NOT_YET, NOTHING, Player
from tests.kafka.raw import Raw
from tests.kafka.test_consumer_groups import KAFKAS, SETTINGS, TOPICS, A, B
from tests.waiting import wait_for

Step = tuple[str, Callable[[Player], Any]]
Places = list[tuple[str, int]]
STATIC = "s"
MEMBERS = ("m", "n", "o", STATIC)
PLACES = [*A, *B, ("other", 0)]
SUBSCRIPTIONS = (["a"], ["b"], ["a", "b"], ["a", "b", "other"], ["other"], ["none"], ["b", "none"])
STEPS = 50
RANGE = {"group.consumer.assignors": "range"}
"""the other one is as even and moves as little as Kafka's, but may choose other partitions of many"""


@pytest.mark.slow
@pytest.mark.java
def test_random_members_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(120))


def play_at_random(start_kafka: Start, directory: Path, seeds: range) -> None:
    with both(start_kafka, directory, {**SETTINGS, **RANGE}, {**KAFKAS, **RANGE}) as brokers:
        players = [Player(Raw(broker.port)) for broker in brokers]
        for one in players:
            one.prepare(TOPICS)
        for seed in seeds:
            play_seed(players, seed)
        for one in players:
            one.raw.close()


def play_seed(players: list[Player], seed: int) -> None:
    """In a group of its own."""
    dice, group = Dice(seed), f"g{seed}"
    for one in players:
        one.use(group)
        wait_for(partial(has_coordinator, one), f"who coordinates {group}")
    taken = []
    for _ in range(STEPS):
        name, take = dice.drawn()
        expected, found = ((take(one), one.described(group)) for one in players)
        taken.append(f"{name}\n    {expected}")
        assert found == expected, "\n".join((f"seed {seed}", *taken, f"kompakt: {found}"))
        dice.learn(expected[0])


def has_coordinator(one: Player) -> bool:
    return one.described(one.group)[0][0] not in NOT_YET


class Dice:
    """What one seed does, and what its members were told."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._epochs = dict.fromkeys(MEMBERS, 0)
        self._has: dict[str, Places] = {member: [] for member in MEMBERS}
        self._speaks = ""
        """whose epoch is told by the step that was drawn last"""

    def drawn(self) -> Step:
        dice = self._dice
        member = dice.choice(MEMBERS)
        epoch = self._epochs[member]
        kinds = {"beat": 10, "commit": 2, "fetch": 1, "leave": 1, "join": 2}
        kind = "join" if epoch < 1 and dice.random() < 0.8 else dice.choices([*kinds], [*kinds.values()])[0]
        self._speaks = ""
        if kind == "join":
            return self._join(member)
        if kind == "leave":
            left = dice.choice((-1, -2)) if member == STATIC else -1
            self._epochs[member], self._has[member] = left, []
            more = {"instance_id": "i"} if member == STATIC else {}
            return f"{member} leaves {left}", lambda it: it.beat(member, left, **more)
        epoch += dice.choices((0, 1, -1), (12, 1, 1))[0]
        if kind == "commit":
            place = dice.choice(PLACES)
            return f"{member} commits {place} at {epoch}", lambda it: it.commit(member, epoch, place)
        if kind == "fetch":
            return f"{member} fetches at {epoch}", lambda it: it.fetch(member, epoch)
        return self._beat(member, epoch)

    def _join(self, member: str) -> Step:
        dice = self._dice
        more: dict[str, Any] = {"version": dice.randint(0, 1)}
        if dice.random() < 0.3:
            more["server_assignor"] = dice.choice(("range", "uniform"))
        if dice.random() < 0.3:
            more["rack_id"] = dice.choice(("r", "q"))
        if member == STATIC:
            more["instance_id"] = "i"
        topics = dice.choice(SUBSCRIPTIONS)
        self._speaks = member
        return f"{member} joins {topics} {more}", lambda it: it.join(member, topics, **more)

    def _beat(self, member: str, epoch: int) -> Step:
        dice, has = self._dice, self._has[member]
        more: dict[str, Any] = {"instance_id": "i"} if member == STATIC else {}
        if dice.random() < 0.15:
            more["topics"] = dice.choice(SUBSCRIPTIONS)
        if dice.random() < 0.05:
            more["server_assignor"] = dice.choice(("range", "uniform"))
        owns = dice.choices(("nothing said", "all", "part", "none", "more"), (5, 6, 1, 1, 1))[0]
        owned = {
            "nothing said": None,
            "all": has,
            "part": has[: dice.randint(0, len(has))],
            "none": NOTHING,
            "more": [*has, *(place for place in PLACES[:3] if place not in has)],
        }[owns]
        self._speaks = member
        return f"{member} beats at {epoch}, owns {owned} {more}", lambda it: it.beat(
            member, epoch, owned=owned, **more
        )

    def learn(self, told: Any) -> None:
        """What Kafka answered."""
        if not self._speaks or len(told) == 2:
            return
        _, self._epochs[self._speaks], _, places = told
        if places is not None:
            self._has[self._speaks] = places
