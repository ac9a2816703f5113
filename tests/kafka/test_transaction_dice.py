"""Goal: transactions that nobody thought of go as in Apache Kafka too: each answer, where the transaction
stands after it, the committed offsets, and in the end the logs.

Method: two producers of one transactional id begin, go on, write, end and commit offsets as dice say, on both
brokers; a producer that was fenced or has ended goes on sending. A seed keeps to the requests of one
generation of clients (transactions v1 or v2). One that parts the two is shown with the steps that led there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.groups import FindCoordinatorRequest
from tests.kafka.both import Start, both
from tests.kafka.raw import Raw
from tests.kafka.test_transactions import SETTINGS, TOPICS
from tests.kafka.test_transactions_v2 import PlayerV2

Step = tuple[str, Callable[["DicePlayer"], Any]]
PLACES = (*((topic, index) for topic, count in TOPICS.items() for index in range(count)), ("none", 0))
STEPS = 40


class DicePlayer(PlayerV2):
    def begin(self, name: str, transactional_id: str, goes_on: str, *, is_reset: bool, version: int) -> Any:
        """An epoch begins with sequence 0, unless its producer errs."""
        told = self.init(name, transactional_id, goes_on=goes_on, version=version)
        if is_reset and not told[0]:
            for key in [key for key in self.sequences if key[0] == name]:
                del self.sequences[key]
        return told

    def offsets_of(self, name: str, number: int, *places: tuple[str, int], **named: Any) -> Any:
        return self.commit_offsets(name, *((*place, number) for place in places), **named)


@pytest.mark.java
def test_random_transactions_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(6))


@pytest.mark.slow
@pytest.mark.java
def test_many_random_transactions_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(6, 120))


def play_at_random(start_kafka: Start, directory: Path, seeds: range) -> None:
    with both(start_kafka, directory, SETTINGS) as brokers:
        players = [DicePlayer(Raw(broker.port)) for broker in brokers]
        for one in players:
            for topic, count in TOPICS.items():
                one.raw.create(topic, {}, partitions=count)
            find(one, 0, "g")
        for seed in seeds:
            play_seed(players, seed)
        for one in players:
            one.raw.close()


def find(one: DicePlayer, kind: int, name: str) -> None:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
    one.ask(request, 4, lambda answer: [answer.coordinators[0].error_code])


def play_seed(players: list[DicePlayer], seed: int) -> None:
    """With an id and producers of its own, which leave nothing open."""
    dice = random.Random(seed)
    is_v2, transactional_id = bool(seed % 2), f"tx{seed}"
    for one in players:
        find(one, 1, transactional_id)
    first, version = f"p{seed}", 4 + is_v2
    taken = []
    for number in range(STEPS):
        if number:
            name, take = drawn(dice, transactional_id, known(players[0], seed), number, is_v2=is_v2)
        else:
            name, take = beginning(first, transactional_id, "", is_reset=True, version=version)
        expected, found = ((take(one), one.described(transactional_id)) for one in players)
        taken.append(f"{name}\n    {expected}")
        assert found == expected, "\n".join((f"seed {seed}", *taken, f"kompakt: {found}"))
    for one in players:
        one.begin(f"last{seed}", transactional_id, "", is_reset=True, version=version)
        one.described(transactional_id)
    for topic, index in PLACES[:-1]:
        expected, found = (one.log(topic, index) for one in players)
        assert found == expected, "\n".join((f"seed {seed}, {topic}-{index}", *taken))
    expected, found = (one.settled_offsets() for one in players)
    assert found == expected, "\n".join((f"seed {seed}, offsets", *taken, f"{expected}, kompakt {found}"))


def beginning(name: str, transactional_id: str, goes_on: str, *, is_reset: bool, version: int) -> Step:
    return f"{name} begins, {goes_on!r} {is_reset} v{version}", lambda it: it.begin(
        name, transactional_id, goes_on, is_reset=is_reset, version=version
    )


def known(one: DicePlayer, seed: int) -> list[str]:
    """Producers of the seed that have had an id."""
    return [name for name in one.producers if name.startswith((f"p{seed}", f"q{seed}"))] + ["nobody"]


def drawn(dice: random.Random, transactional_id: str, names: list[str], number: int, *, is_v2: bool) -> Step:
    name = dice.choices(names, [1 if one == "nobody" or "before" in one else 8 for one in names])[0]
    kinds = {"write": 9, "end": 5, "begin": 2, "offsets": 3, "skip": 0.5}
    if not is_v2:
        kinds |= {"add": 8, "add offsets": 2, "verify": 2}
    kind = dice.choices([*kinds], [*kinds.values()])[0]
    place = dice.choices(PLACES, (9, 4, 4, 1))[0]
    who = {"transactional_id": transactional_id}
    if kind == "begin":
        fresh = dice.choice("pq") + transactional_id[2:]
        goes_on, is_reset = dice.choice(("", name)), dice.random() < 0.9
        version = dice.choice((4, 5)) if is_v2 else dice.choice((3, 4))
        return beginning(fresh, transactional_id, goes_on, is_reset=is_reset, version=version)
    if kind == "write":
        version = 12 if is_v2 else dice.choice((7, 9, 10, 11))
        return f"{name} writes {place} v{version}", lambda it: it.write(name, *place, version=version, **who)
    if kind == "end":
        is_commit = dice.random() < 0.6
        if is_v2:
            return f"{name} ends, {is_commit}", lambda it: it.end_v2(name, is_commit, transactional_id)
        return f"{name} ends, {is_commit}", lambda it: it.end(name, is_commit, transactional_id)
    if kind == "offsets":
        version = 5 if is_v2 else dice.choice((3, 4))
        return f"{name} commits {place} at {number}", lambda it: it.offsets_of(
            name, number, place, version=version, **who
        )
    if kind == "skip":
        return f"{name} loses {place}", lambda it: it.skip(name, 1, *place)
    if kind == "add offsets":
        return f"{name} adds offsets", lambda it: it.add_offsets(name, transactional_id=transactional_id)
    if kind == "add":
        version = dice.randint(0, 3)
        places = {place, dice.choice(PLACES[:-1])}
        return f"{name} adds {places} v{version}", lambda it: it.add(
            name, *sorted(places), version=version, **who
        )
    return f"{name} verifies {place}", lambda it: it.add_as_broker(
        name, transactional_id, places=[place], is_verify=True
    )
