"""Goal: deliveries that nobody thought of go as in Apache Kafka too: records, delivery counts, errors, and
after each step where the group stands.

Method: three members of a group fetch, acknowledge (what they have, or nearly), give back and begin anew, as
dice say, on both brokers. A seed that parts them is shown with the steps that led there.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from tests.kafka.both import Start, both
from tests.kafka.share_player import SharePlayer
from tests.kafka.test_share_groups import ACCEPT, GAP, KAFKAS, REJECT, RELEASE, SETTINGS, Place, Step
from tests.waiting import wait_for

Run = tuple[int, int]
MEMBERS = "mno"
STEPS = 60
KEPT = 6
"""of the runs that a member was told to have, so that old ones are acknowledged again"""


@pytest.mark.java
def test_random_deliveries_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(4))


@pytest.mark.slow
@pytest.mark.java
def test_many_random_deliveries_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(4, 60))


def play_at_random(start_kafka: Start, directory: Path, seeds: range) -> None:
    with both(start_kafka, directory, SETTINGS, KAFKAS) as brokers:
        players = [SharePlayer(broker.port) for broker in brokers]
        for one in players:
            one.prepare({})
        for seed in seeds:
            play_seed(players, seed)
        for one in players:
            one.close()


def play_seed(players: list[SharePlayer], seed: int) -> None:
    """In a topic and a group of its own."""
    dice = random.Random(seed)
    group, place = f"g{seed}", (f"t{seed}", 0)
    sizes = [dice.randint(1, 10) for _ in range(3)]
    limit = dice.choice((None, None, 2, 3, 4, 8))
    for one in players:
        one.prepare({place[0]: 1})
        one.produce(place[0], *sizes)
        wait_for(partial(begins, one, group, place), f"{group} to begin")
        one.open(place, group=group)
        if limit is not None:
            one.settings(group, {"share.delivery.count.limit": str(limit)})
    held: dict[str, list[Run]] = {member: [] for member in MEMBERS}
    taken = []
    for _ in range(STEPS):
        name, take = drawn(dice, group, place, held)
        expected, found = ((take(one), one.offsets(place, group=group)) for one in players)
        taken.append(f"{name}\n    {expected}")
        assert found == expected, "\n".join((f"seed {seed}", *taken, f"kompakt: {found}"))
        for member, runs in held.items():
            runs += [run for run in players[0].acquired(group, member, place) if run not in runs]
            del runs[:-KEPT]
    for one in players:
        one.leave(group)


def begins(one: SharePlayer, group: str, place: Place) -> bool:
    """Kafka's coordinator of groups hears of a new topic behind the broker, and knows none until then."""
    return one.alter({place: 0}, group) == (0, None, [(*place, 0, None)])


def drawn(dice: random.Random, group: str, place: Place, held: dict[str, list[Run]]) -> Step:
    """A step; `held` is what members were told to have."""
    member = dice.choice(MEMBERS)
    kind = dice.choices(("fetch", "acknowledge", "both", "produce", "anew"), (5, 6, 3, 2, 1))[0]
    if kind == "produce":
        sizes = [dice.randint(1, 12) for _ in range(dice.randint(1, 4))]
        return f"produce {sizes}", lambda it: it.produce(place[0], *sizes, partition=place[1])
    # What comes with a fetch is available in Kafka some time behind it.
    types = (GAP, ACCEPT, REJECT) if kind == "both" else (GAP, ACCEPT, REJECT, *[RELEASE] * 4)
    acks = {place: _acks(dice, held[member], types)} if kind in ("acknowledge", "both") else {}
    if kind == "acknowledge":
        return f"{member} {acks}", lambda it: it.acknowledge(member, acks, group=group)
    wish = {
        "records": dice.choice((1, 3, 10, 40, 500)),
        "batch": dice.choice((1, 5, 20, 500)),
        "share_acquire_mode": dice.randint(0, 1),
        "wait_ms": 1,
    }
    epoch = 0 if kind == "anew" else None
    return (
        f"{member} fetches, {kind}: {wish} {acks}",
        lambda it: it.fetch(member, place, acks=acks, epoch=epoch, group=group, **wish),
    )


def _acks(dice: random.Random, runs: list[Run], types: tuple[int, ...]) -> list[tuple[int, int, list[int]]]:
    """Of what a member has, or of what is near that, in order."""
    told = []
    end = -1
    for first, last in sorted(dice.sample(runs, min(len(runs), dice.randint(1, 3)))):
        low, high = sorted((dice.randint(first - (dice.random() < 0.1), last), dice.randint(first, last)))
        if dice.random() < 0.5:
            low, high = first, last
        if low > end:
            end = high
            count = high - low + 1 if dice.random() < 0.5 else 1
            told.append((low, high, dice.choices(types, k=count)))
    return told
