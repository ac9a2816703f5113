"""Goal: fetch sessions (KIP-227) go as in Apache Kafka: which partitions an incremental answer has, with
what, and which errors a session that is gone, closed, or of another epoch gets.

Method: two sessions begin, go on with partitions added, moved and forgotten (some of which do not exist),
skip an epoch, and end as dice say, between records that are written and deleted, on both brokers. A seed that
parts the two is shown with the steps that led there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import iterate_headers
from protocol.messages.fetch import FetchRequest
from protocol.records import encode_batch
from tests.kafka.both import Start, both
from tests.kafka.raw import Raw
from tests.kafka.test_transactions import SETTINGS
from tests.waiting import wait_for

Place = tuple[str, int]
Step = tuple[str, Callable[["FetchPlayer"], Any]]
SESSIONS = ("s", "u")
STEPS = 50
NO_SESSION, BEGIN, CLOSE = 0, 0, -1
BATCH = encode_batch([(1_700_000_000_000, b"k", b"v", ())])


class FetchPlayer:
    """One of the two brokers, and the sessions that it gave; `ids` by their names."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.ids: dict[str, int] = {}

    def fetch(
        self, session: str, epoch: int, wanted: Mapping[Place, int], forgotten: Iterable[Place], version: int
    ) -> Any:
        asked, gone = FetchRequest.FetchTopic, FetchRequest.ForgottenTopic
        part = asked.FetchPartition
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=0,
            session_id=self.ids.get(session, NO_SESSION), session_epoch=epoch,
            topics=[
                asked(topic=topic, partitions=[
                    part(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                ])
                for (topic, index), offset in wanted.items()
            ],
            forgotten_topics_data=[gone(topic=topic, partitions=[index]) for topic, index in forgotten],
        )  # fmt: skip
        answer = self.raw.ask(request, version)
        if not answer.error_code:
            self.ids[session] = answer.session_id
        return answer.error_code, answer.session_id != NO_SESSION, sorted(map(_row, _rows(answer)))


def _rows(answer: Any) -> Iterable[tuple[str, Any]]:
    return ((topic.topic, one) for topic in answer.responses for one in topic.partitions)


def _row(found: tuple[str, Any]) -> Any:
    """How much comes at once is not compared, only where it begins."""
    topic, one = found
    records = bytes(one.records or b"")
    first = [header.base_offset for _, header in iterate_headers(records)][:1]
    return (
        topic, one.partition_index, one.error_code, one.high_watermark, one.last_stable_offset,
        one.log_start_offset, first,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.java
def test_random_sessions_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(120))


def play_at_random(start_kafka: Start, directory: Path, seeds: range) -> None:
    with both(start_kafka, directory, SETTINGS) as brokers:
        players = [FetchPlayer(Raw(broker.port)) for broker in brokers]
        for seed in seeds:
            play_seed(players, seed)
        for one in players:
            one.raw.close()


def play_seed(players: list[FetchPlayer], seed: int) -> None:
    """In topics of its own."""
    dice = Dice(seed)
    for one in players:
        for topic in dice.topics:
            one.raw.create(topic, {}, partitions=2)
            wait_for(partial(has_leader, one, topic), f"a leader of {topic}-1")
    taken: list[str] = []
    for _ in range(STEPS):
        name, take = dice.drawn()
        expected, found = (take(one) for one in players)
        taken.append(f"{name}\n    {expected}")
        assert found == expected, "\n".join((f"seed {seed}", *taken, f"kompakt: {found}"))
        dice.learn(expected)


def has_leader(one: FetchPlayer, topic: str) -> bool:
    return one.raw.list_offset(topic, -1, 1)[0] == 0


class Dice:
    """What one seed does, and where its sessions are."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.topics = (f"a{seed}", f"b{seed}")
        self._places = [(topic, index) for topic in self.topics for index in range(2)]
        self._wrong = [(self.topics[0], 9), ("none", 0)]
        self._next = dict.fromkeys(SESSIONS, BEGIN)
        self._in: dict[str, set[Place]] = {session: set() for session in SESSIONS}
        self._fetches: tuple[str, int] | None = None

    def drawn(self) -> Step:
        dice = self._dice
        self._fetches = None
        kind = dice.choices(("produce", "delete", "fetch"), (5, 1, 12))[0]
        topic, index = dice.choice(self._places)
        if kind == "produce":
            count = dice.choice((1, 1, 3))
            return f"produce {count} to {topic}-{index}", lambda it: [
                it.raw.produce(topic, BATCH, index).base_offset for _ in range(count)
            ]
        if kind == "delete":
            at = dice.choice((-1, dice.randint(0, 3)))
            return f"delete {topic}-{index} before {at}", lambda it: it.raw.delete_records(topic, at, index)
        return self._fetch(dice.choice(SESSIONS))

    def _fetch(self, session: str) -> Step:
        dice, version = self._dice, self._dice.randint(7, 12)
        begins = self._next[session] == BEGIN or dice.random() < 0.08
        places = [*self._places, *(self._wrong if dice.random() < 0.15 else ())]
        count = dice.randint(1, 4) if begins else dice.choice((0, 0, 0, 1, 1, 2))
        wanted = {place: dice.randint(0, 12) for place in dice.sample(places, count)}
        inside = sorted(self._in[session])
        forgotten: list[Place] = []
        epoch = BEGIN
        if not begins:
            epoch = self._next[session]
            if inside and dice.random() < 0.2:
                forgotten = [place for place in [dice.choice(inside)] if place not in wanted]
            if dice.random() < 0.08:
                epoch = dice.choice((CLOSE, epoch + 1, max(epoch - 1, 1)))
        self._in[session] = ((set() if begins else set(inside)) | set(wanted)) - set(forgotten)
        self._fetches = session, epoch
        return f"{session} at {epoch} wants {wanted}, forgets {forgotten} v{version}", lambda it: it.fetch(
            session, epoch, wanted, forgotten, version
        )

    def learn(self, told: Any) -> None:
        """What Kafka answered."""
        if self._fetches is None:
            return
        session, epoch = self._fetches
        code, has_session, _ = told
        goes_on = not code and has_session
        self._next[session] = epoch + 1 if goes_on else BEGIN
