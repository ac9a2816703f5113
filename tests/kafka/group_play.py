"""A group's members on two brokers, step by step, some of which are answered only behind others.

A step is over when both brokers have answered the same requests and describe the group alike, or will not in
time. Which member leads once the leader is gone a Kafka leaves to the order of random ids: there a play ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from protocol.messages.groups import FindCoordinatorRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.classic_player import ClassicPlayer, Make
from tests.kafka.raw import Raw
from tests.process import BrokerProcess
from tests.waiting import wait_for

PAUSE_SECONDS = 0.1
"""so long what asks may go without an answer before it is said to wait for others"""
ALONE_SECONDS = 2.0
"""so long kompakt may be the only one who has answered"""
PARTED_SECONDS = 10.0
"""so long two brokers may stand at different places"""
LOST = (25, 82)
"""unknown, fenced: a member begins anew"""
UNANSWERED = (("synced", 25), ("synced", 27), ("joined", 27))
"""what a Kafka never answers: who waits is taken out by others, or another one asks the same in its name"""
Step = tuple[str, str, int, Make]
"""what it is, who says it, the version of the message, and how it is made for a broker"""


def prepare(raw: Raw, topics: Mapping[str, int]) -> None:
    """Make topics, and the one that a Kafka keeps its groups in."""
    for topic, partitions in topics.items():
        raw.create(topic, {}, partitions=partitions)
    raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    raw.close()


class SomeDice(Protocol):
    """What a seed does."""

    members: Sequence[str]
    leader: str

    def drawn(self, idle: Sequence[str]) -> Step:
        """The next step; `idle` are the members that wait for no answer."""

    def hangs_up(self) -> bool:
        """Whether who asks again hangs up where it asked before."""

    def learn(self, number: int, answer: Any) -> None:
        """What Kafka answered to request `number`."""

    def see(self, described: Any) -> None:
        """Where the group stands."""


def play_seeds(
    brokers: Sequence[KafkaBroker | BrokerProcess],
    player: Callable[[int, str], ClassicPlayer],
    dice: Callable[[int], SomeDice],
    seeds: range,
    steps: int,
) -> None:
    """Each in a group of its own."""
    for seed in seeds:
        players = [player(broker.port, f"g{seed}") for broker in brokers]
        for one in players:
            wait_for(one.is_coordinated, "a coordinator")
        play(players, dice(seed), f"seed {seed}", steps)
        for one in players:
            one.close()


def play(players: Sequence[ClassicPlayer], dice: SomeDice, name: str, steps: int) -> None:
    """As many steps on both, or until the brokers chose leaders by chance; what parts them is shown."""
    taken = []
    for number in range(steps):
        text, member, version, make = dice.drawn([one for one in dice.members if not players[0].waiting(one)])
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
        assert found == expected, "\n".join((name, *taken, f"kompakt: {found}"))
        for answered, answer in expected[0]:
            dice.learn(answered, answer)
        dice.see(expected[1])


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
    names = {row[0] for row in expected[1][5]}
    return leaders_of(expected) != leaders_of(found) and leader not in names


def leaders_of(found: Any) -> set[str]:
    """Whom the answers of a step call the leader."""
    return {answer[5] for _, answer in found[0] if answer[0] == "joined" and answer[5]}
