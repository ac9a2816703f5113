"""Goal: what members of a streams group (KIP-1071) say that nobody thought of is answered as by Apache Kafka:
epochs, numbers of tasks, statuses, errors, and after each step where the group stands.

Method: two members join, beat (with the epoch that they were told, or nearly; owning what they were told to
have, or nothing, or more), and leave as dice say, on both brokers. Of two, each has half of the tasks: which
half is a broker's affair. A seed that parts the two is shown with the steps that led there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.both import Start, both
from tests.kafka.raw import Raw
from tests.kafka.streams_player import NOTHING, TOLD, StreamsPlayer, sub, topology
from tests.kafka.test_streams_groups import KAFKAS, SETTINGS, TOPICS

Step = tuple[str, Callable[[StreamsPlayer], Any]]
MEMBERS = ("m", "n")
TOPOLOGIES = (
    topology(sub("0", "a")),
    topology(sub("0", "a"), sub("1", "b")),
    topology(sub("0", "a", "b", copartition=[([0, 1], [])]), sub("1", "c")),
)
STEPS = 50
TASKS = 6
"""where an answer has them"""


@pytest.mark.slow
@pytest.mark.java
def test_random_members_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(120))


def play_at_random(start_kafka: Start, directory: Path, seeds: range) -> None:
    with both(start_kafka, directory, SETTINGS, KAFKAS) as brokers:
        players = [StreamsPlayer(Raw(broker.port)) for broker in brokers]
        for one in players:
            one.use("first")
            one.prepare(TOPICS)
        for seed in seeds:
            play_seed(players, seed)
        for one in players:
            one.raw.close()


def play_seed(players: list[StreamsPlayer], seed: int) -> None:
    """In a group of its own."""
    dice = random.Random(seed)
    for one in players:
        one.use(f"g{seed}")
    runs = dice.choice(TOPOLOGIES)
    taken = [str(runs)]
    for _ in range(STEPS):
        name, take = drawn(dice, players[0].epochs, runs)
        expected, found = ((take(one), one.describes()) for one in players)
        if not name.endswith("owns None"):
            found = (as_told(found[0], expected[0]), found[1])
        taken.append(f"{name}\n    {expected}")
        assert found == expected, "\n".join((f"seed {seed}", *taken, f"kompakt: {found}"))


def as_told(found: Any, expected: Any) -> Any:
    """Without the tasks that Kafka does not tell once more: who owns others may have lost an answer."""
    if len(found) == len(expected) > TASKS and expected[TASKS] is None:
        return (*found[:TASKS], None, *found[TASKS + 1 :])
    return found


def drawn(dice: random.Random, epochs: dict[str, int], runs: Any) -> Step:
    """A step; `epochs` are those that members were told."""
    member = dice.choice(MEMBERS)
    epoch = epochs.get(member, -1)
    if (epoch < 1 and dice.random() < 0.9) or dice.random() < 0.1:
        more: dict[str, Any] = {"rack_id": "r"} if dice.random() < 0.3 else {}
        asked = topology(*runs.subtopologies, epoch=int(dice.random() < 0.1))
        return f"{member} joins {asked.epoch} {more}", lambda it: joined(it, member, asked, more)
    if member not in epochs:
        return f"{member}, who is nobody, beats", lambda it: it.beats(member, 1)
    if dice.random() < 0.07:
        return f"{member} leaves", lambda it: it.beats(member, -1)
    shift = dice.choices((0, 1, -1), (12, 1, 1))[0]
    owns = dice.choices((None, TOLD, NOTHING, ({"0": [0, 1, 2, 3]}, {}, {})), (6, 8, 1, 1))[0]
    return f"{member} beats, {shift}, owns {owns}", lambda it: it.beats(
        member, it.epochs[member] + shift, owned=owns
    )


def joined(it: StreamsPlayer, member: str, runs: Any, more: dict[str, Any]) -> Any:
    """Who is refused keeps what it has."""
    held = it.held.get(member, NOTHING)
    told = it.joins(member, runs, **more)
    if len(told) == 2:
        it.held[member] = held
    return told
