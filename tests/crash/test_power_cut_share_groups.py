"""Goal: a power cut takes nothing back of what a share group was told: a record whose acceptance or rejection
was answered is never delivered again, and each record that was written is delivered.

Method: as in `test_power_cut.py`, the disk loses what was not synced, right behind `kill -9`. Members take
records and accept, reject or give them back, with requests of their own or with a fetch; when the broker is
back they begin anew, as Kafka's clients do.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from tests.crash.machine import LoopDisk, broker_on, loop_disk, lose_power
from tests.kafka.share_player import SharePlayer
from tests.process import BrokerProcess
from tests.waiting import wait_for

ROUNDS = 10
MEMBERS = 3
TOPIC = "a"
PLACES = [(TOPIC, index) for index in range(2)]
BATCHES = (20, 1, 50, 7, 100) * 4
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.prune.interval.ms": "100",
    "log.initial.task.delay.ms": "10",
}
ACCEPT, RELEASE, REJECT = 1, 2, 3
GONE = (OSError, AssertionError)
"""what a connection ends with"""

Offset = tuple[str, int, int]


class Member:
    """One of the group. Owned by: its thread; what was told may be read by any."""

    def __init__(self, name: str, broker: BrokerProcess, dice: random.Random, ids: dict[str, Any]) -> None:
        self.delivered: set[Offset] = set()
        self.settled: set[Offset] = set()
        """accepted or rejected, and answered to be"""
        self.answers = 0
        self.failure: BaseException | None = None
        self._name, self._broker, self._dice, self._ids = name, broker, dice, ids
        self._player: SharePlayer | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, everybody: list[Member]) -> None:
        self._everybody = everybody
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._take_and_tell()
                except GONE:
                    self._close()
        except BaseException as error:
            self.failure = error
        finally:
            self._close()

    def _close(self) -> None:
        if self._player is not None:
            self._player.close()
        self._player = None

    def _take_and_tell(self) -> None:
        """One fetch, and what becomes of its records; with an error, anew."""
        if self._player is None:
            self._player = SharePlayer(self._broker.port)
            self._player.ids = self._ids
        known = {one for member in list(self._everybody) for one in list(member.settled)}
        told = self._player.fetch(self._name, *PLACES, records=self._dice.choice((5, 50)), wait_ms=50)
        if told[0]:
            self._close()
            return
        acks: dict[tuple[str, int], list[tuple[int, int, list[int]]]] = {}
        for topic, index, *_, acquired in told[2]:
            for first, last, _ in acquired:
                offsets = {(topic, index, offset) for offset in range(first, last + 1)}
                if again := offsets & known:
                    raise RuntimeError(f"delivered again, though told to be settled: {sorted(again)}")
                self.delivered |= offsets
                types = self._dice.choices((ACCEPT, RELEASE, REJECT), (8, 1, 1), k=last - first + 1)
                acks.setdefault((topic, index), []).append((first, last, types))
        if acks:
            self._tell(self._player, acks)

    def _tell(
        self, player: SharePlayer, acks: dict[tuple[str, int], list[tuple[int, int, list[int]]]]
    ) -> None:
        is_with_fetch = self._dice.random() < 0.3
        if is_with_fetch:
            nothing = {"records": 0, "wait_ms": 0, "max_wait_ms": 0, "min_bytes": 0}
            told = player.fetch(self._name, acks=acks, **nothing)
        else:
            told = player.acknowledge(self._name, acks)
        if told[0]:
            self._close()
            return
        for topic, index, *more in told[2]:
            error = more[2] if is_with_fetch else more[0]
            if (topic, index) in acks and error == ErrorCode.NONE:  # a fetch tells of others too
                self.settled |= set(_settled(topic, index, acks[topic, index]))
                self.answers += 1


def _settled(topic: str, index: int, told: list[tuple[int, int, list[int]]]) -> Iterator[Offset]:
    for first, _, types in told:
        for number, kind in enumerate(types):
            if kind != RELEASE:
                yield topic, index, first + number


def wait_for_answers(members: list[Member], before: int) -> None:
    """More of what they told is answered than `before`, or one has failed."""
    wait_for(
        lambda: any(one.failure for one in members) or sum(one.answers for one in members) > before,
        "answers to what members told",
    )


def wait_for_the_end(player: SharePlayer, members: list[Member]) -> None:
    """The group has got through all that was written."""

    def is_through() -> bool:
        if any(one.failure for one in members):
            return True
        rows = player.offsets(*PLACES)[2]
        return [row[5] for row in rows] == [0] * len(PLACES)  # where it begins is told with the next answer

    wait_for(is_through, "the group to get through")


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_takes_no_answer_to_a_share_group_back(kind: str, tmp_path: Path) -> None:
    with loop_disk(kind) as disk, broker_on(disk, SETTINGS, tmp_path / "output") as broker:
        _cut_often(disk, broker, kind)


def _cut_often(disk: LoopDisk, broker: BrokerProcess, kind: str) -> None:
    player = SharePlayer(broker.port)
    player.prepare({TOPIC: len(PLACES)})
    player.alter(dict.fromkeys(PLACES, 0))
    dice = random.Random(20261127)
    ids = player.ids
    members = [Member(f"m{number}", broker, random.Random(dice.random()), ids) for number in range(MEMBERS)]
    written = dict.fromkeys(range(len(PLACES)), 0)
    for number in range(ROUNDS):
        before = sum(one.answers for one in members)
        for topic, index in PLACES:
            player.produce(topic, *BATCHES, partition=index)
            written[index] += sum(BATCHES)
        if not number:
            for one in members:
                one.start(members)
        wait_for_answers(members, before)
        threading.Event().wait(dice.uniform(0, 0.3))
        player.close()
        lose_power(disk, broker)
        player = SharePlayer(broker.port)
        player.prepare({})
        wait_for_the_end(player, members)
    player.close()
    for one in members:
        one.finish()
    everything = {(topic, index, at) for topic, index in PLACES for at in range(written[index])}
    assert set().union(*(one.delivered for one in members)) == everything
    answered = sum(len(one.settled) for one in members)
    print(
        f"{kind}: {ROUNDS} power cuts, {len(everything)} records, {answered} told to be settled, none again"
    )
