"""Goal: transactions v2 (KIP-890) go as in Apache Kafka: records bring their partition along, each end gives
the producer its next epoch, what is sent again or late gets the same answers, and the logs have the same
batches and markers.

Method: as in `test_transactions.py`, step by step on both. Kafka answers an end before its markers are
written, so that a step behind one waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.transactions import EndTxnRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.test_transactions import TOPICS, Player, play

Start = Callable[..., KafkaBroker]
EXHAUSTED_EPOCH = 32_766


class PlayerV2(Player):
    """A producer keeps under `NAME before` who it was when it last ended a transaction."""

    def end_v2(self, name: str, is_commit: bool, transactional_id: str = "tx") -> Any:
        request = EndTxnRequest(committed=is_commit, **self.who(name, transactional_id))
        answer = self.ask(request, 5, lambda one: [one.error_code])
        if not answer.error_code and not name.endswith(" before"):
            self.become(name, answer.producer_id, answer.producer_epoch)
        told = answer.error_code, self.name_of(answer.producer_id), answer.producer_epoch
        return told, self.described(transactional_id)

    def become(self, name: str, producer_id: int, epoch: int) -> None:
        """A new epoch begins with 0, the one before goes on."""
        self.producers[f"{name} before"] = self.producers[name]
        self.producers[name] = producer_id, epoch
        for key in [key for key in self.sequences if key[0] == name]:
            self.sequences[f"{name} before", *key[1:]] = self.sequences.pop(key)

    def skip(self, name: str, count: int, topic: str = "a", index: int = 0) -> int:
        """Records that never arrived."""
        key = name, topic, index
        self.sequences[key] = self.sequences.get(key, 0) + count
        return 0

    def exhaust(self, name: str, transactional_id: str) -> int:
        """Use up the epochs but for the last."""
        while self.producers[name][1] < EXHAUSTED_EPOCH:
            assert not self.init(name, transactional_id, goes_on=name)[0]
        return self.producers[name][1]


Take = Callable[[PlayerV2], Any]
Step = tuple[str, Take]


def ending(name: str, is_commit: bool) -> Take:
    return lambda it: it.end_v2(name, is_commit)


def committing(place: tuple[str, int, int]) -> Take:
    return lambda it: it.commit_offsets("two", place, version=5)


def reading(topic: str, index: int) -> Take:
    return lambda it: it.log(topic, index)


def usual() -> Iterator[Step]:
    """In an order that must be kept."""
    yield from transactions()
    yield from repetitions()
    yield from mixtures()
    yield from fences()
    yield from offsets()
    for topic, count in TOPICS.items():
        for index in range(count):
            yield f"the log of {topic}-{index}", reading(topic, index)


def transactions() -> Iterator[Step]:
    yield "init", lambda it: it.init("one", version=5)
    yield "commit of nothing", lambda it: it.end_v2("one", True)
    yield "abort of nothing", lambda it: it.end_v2("one", False)
    for is_commit in (True, False):
        yield f"write {is_commit}", lambda it: it.write("one", version=12)
        yield f"write more {is_commit}", lambda it: it.write("one", version=12)
        yield f"goes on {is_commit}", lambda it: it.described("tx")
        yield f"write beside {is_commit}", lambda it: it.write("one", "b", version=12)
        yield f"goes on in two {is_commit}", lambda it: it.described("tx")
        yield f"end {is_commit}", ending("one", is_commit)
    yield "write nowhere", lambda it: it.write("one", "none", version=12)
    yield "write beyond", lambda it: it.write("one", "a", 9, version=12)
    yield "nothing began", lambda it: it.described("tx")


def repetitions() -> Iterator[Step]:
    for is_commit in (True, False):
        yield f"write {is_commit}", lambda it: it.write("one", version=12)
        yield f"end {is_commit}", ending("one", is_commit)
        yield f"end again {is_commit}", ending("one before", is_commit)
        yield f"end otherwise {is_commit}", ending("one before", not is_commit)
        yield f"write late {is_commit}", lambda it: it.write("one before", version=12)
        yield (
            f"write late where nothing was {is_commit}",
            lambda it: it.write("one before", "a", 1, version=12),
        )
        yield f"commit the next {is_commit}", lambda it: it.end_v2("one", True)
    yield "abort the next", lambda it: it.end_v2("one", False)
    yield "abort one more", lambda it: it.end_v2("one", False)
    yield "end of one that is long over", lambda it: it.end_v2("one before", True)
    yield "lost", lambda it: it.skip("one", 2)
    yield "behind what is lost", lambda it: it.write("one", version=12)
    yield "lost where nothing was", lambda it: it.skip("one", 2, "a", 1)
    yield "behind what is lost where nothing was", lambda it: it.write("one", "a", 1, version=12)
    yield "what that began", lambda it: it.described("tx")
    yield "its end", lambda it: it.end_v2("one", False)


def mixtures() -> Iterator[Step]:
    """Versions before and behind v2, of one producer."""
    yield "unasked in v11", lambda it: it.write("one", version=11)
    yield "asked", lambda it: it.add("one", ("a", 0))
    yield "asked in v11", lambda it: it.write("one", version=11)
    yield "unasked in v12", lambda it: it.write("one", "b", version=12)
    yield "ended in v4", lambda it: it.end("one", True, version=4)
    yield "after v4", lambda it: it.described("tx")
    yield "ended in v4 again", lambda it: it.end("one", True, version=4)
    yield "ended in v5 behind it", lambda it: it.end_v2("one", True)
    yield "aborted in v5 behind it", lambda it: it.end_v2("one", False)
    yield "asked once more", lambda it: it.add("one", ("a", 0))
    yield "in v9", lambda it: it.write("one", version=9)
    yield "ended in v5", lambda it: it.end_v2("one", True)
    yield "init goes on", lambda it: it.init("one", goes_on="one", version=5)
    yield "write after it", lambda it: it.write("one", version=12)
    yield "end after it", lambda it: it.end_v2("one", True)
    yield "plain records", lambda it: it.write("one", "a", 1, is_transactional=False, version=12)
    yield "no name", lambda it: it.write("one", transactional_id=None, version=12)
    yield "another name", lambda it: it.write("one", transactional_id="never", version=12)
    yield "nobody", lambda it: it.write("nobody", version=12)
    yield "end of nobody", lambda it: it.end_v2("nobody", True)
    yield "end of never", lambda it: it.end_v2("one", True, transactional_id="never")[0]
    yield "end of no name", lambda it: it.end_v2("one", True, transactional_id="")[0]


def fences() -> Iterator[Step]:
    yield "begin", lambda it: it.write("one", version=12)
    yield "a second one", lambda it: it.init("two", version=5)
    yield "zombie writes", lambda it: it.write("one", version=12)
    yield "zombie writes beside", lambda it: it.write("one", "b", version=12)
    yield "zombie commits", lambda it: it.end_v2("one", True)
    yield "zombie aborts", lambda it: it.end_v2("one", False)
    yield "zombie commits offsets", lambda it: it.commit_offsets("one", ("a", 0, 1), version=5)
    yield "the second writes", lambda it: it.write("two", version=12)
    yield "the second goes on in the midst", lambda it: it.init("two", goes_on="two", version=5)
    yield "the second writes once more", lambda it: it.write("two", version=12)
    yield "the second commits", lambda it: it.end_v2("two", True)


def offsets() -> Iterator[Step]:
    yield "unasked in v4", lambda it: it.commit_offsets("two", ("a", 0, 3), version=4)
    for number, is_commit in enumerate((True, False, True)):
        at = ("a", 0, 10 + number)
        yield f"offsets {number}", committing(at)
        yield f"they are a part {number}", lambda it: [row[:5] for row in it.described("tx")]
        yield f"reads {number}", lambda it: it.offsets()
        yield f"waits {number}", lambda it: it.offsets(stable=True)
        yield f"ends {number}", ending("two", is_commit)
        yield f"reads what is decided {number}", lambda it: it.settled_offsets()
    yield (
        "of a generation",
        lambda it: it.commit_offsets("two", ("a", 1, 7), generation_id=5, member_id="m", version=5),
    )
    for version in (4, 5):
        yield (
            f"of no group {version}",
            lambda it, v=version: it.commit_offsets("two", ("a", 1, 7), group_id="", version=v),
        )
    yield "of nobody", lambda it: it.commit_offsets("nobody", ("a", 1, 7), version=5)
    yield "ends", lambda it: it.end_v2("two", False)


def rotations() -> Iterator[Step]:
    """Where the epochs are used up the next end gives another producer id."""
    yield "long", lambda it: it.init("long", "worn")
    yield "worn", lambda it: it.exhaust("long", "worn")
    yield "writes last", lambda it: it.write("long", transactional_id="worn", version=12)
    yield "ends last", lambda it: it.end_v2("long", True, "worn")
    yield "ends last again", lambda it: it.end_v2("long before", True, "worn")
    yield "ends last otherwise", lambda it: it.end_v2("long before", False, "worn")
    yield "writes with the new id", lambda it: it.write("long", transactional_id="worn", version=12)
    yield "ends last behind it", lambda it: it.end_v2("long before", True, "worn")
    yield "ends with it", lambda it: it.end_v2("long", False, "worn")


@pytest.mark.java
@pytest.mark.parametrize(
    "steps", [usual, pytest.param(rotations, marks=[pytest.mark.slow(reason="32,766 epochs are used up")])]
)
def test_transactions_v2_go_as_in_kafka(
    start_kafka: Start, tmp_path: Path, steps: Callable[[], Iterator[Step]]
) -> None:
    play(start_kafka, tmp_path, PlayerV2, steps())
