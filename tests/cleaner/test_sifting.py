"""Goal: a dry run tells the numbers of the real cleaning, also when the map holds so few keys that the real
one takes many rounds.

Method: random logs (every codec, several records a batch, tombstones, a part that is clean already, aborted
transactions) are counted in a dry run with a map of a few slots, then really cleaned, round after round, and
the sums compared. `mixed` brings about every reason that a record can go for: records without keys from the
time when the topic was not compacted, transactions of both ends, and a clock that passes delete horizons.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.questions.compactions import Rounds
from cleaner import cleaner as cleaner_module
from cleaner import sifting
from cleaner.results import REASONS, SUPERSEDED, TOMBSTONE
from protocol.compression import Codec
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.test_versions import NAME, close
from tests.cleaner.test_versions import write as write_versions
from tests.cleaner.world import RETENTION_MS, World
from tests.thoroughness import slow

PRODUCERS = 5
Compare = Callable[[int], dict[str, int]]
RECORDS = ("records_before", "records_after", "removed")
BYTES = ("bytes_before", "bytes_after")
ROUNDS_LEAVE = 0.05
"""of the bytes: a batch that got a delete horizon in an early round keeps it when its tombstone goes later"""


def write(world: World, chance: random.Random, batches: int, keys: int, tombstones: float = 0.2) -> None:
    for _ in range(batches):
        pairs = [
            (
                b"%d" % chance.randrange(keys),
                None if chance.random() < tombstones else chance.randbytes(9).hex(),
            )
            for _ in range(chance.randrange(1, 6))
        ]
        world.put(*pairs, codec=chance.choice(list(Codec)))
        if chance.random() < 0.1:
            world.roll()
    world.roll()


def really_cleaned(world: World, start: int) -> Rounds:
    rounds, checkpoint = Rounds(), start
    while checkpoint < world.log.segments[-1].base_offset:
        rounds.results.append(world.clean(checkpoint))
        checkpoint = rounds.results[-1].end_offset
    return rounds


def check(world: World, start: int = 0, *, has_tombstones: bool = True) -> Rounds:
    dry = Rounds([world.clean(start, is_dry=True)])
    assert dry.results[0].end_offset == world.log.segments[-1].base_offset
    real = really_cleaned(world, start)
    told, done = dry.summary(), real.summary()
    assert {name: told[name] for name in RECORDS} == {name: done[name] for name in RECORDS}
    leeway = ROUNDS_LEAVE if has_tombstones else 0
    assert [told[name] for name in BYTES] == [pytest.approx(done[name], rel=leeway) for name in BYTES]
    return real


@pytest.mark.parametrize("slots", [slow(5), 20, 100])
@pytest.mark.parametrize("seed", [0, *map(slow, range(1, 4))])
def test_the_sums_of_all_rounds(make_world: MakeWorld, slots: int, seed: int) -> None:
    world = make_world(slots, segment_bytes=3000)
    chance = random.Random(seed)
    write(world, chance, 150, 90)
    assert len(check(world).results) > 1 or slots == 100
    write(world, chance, 60, 120)  # now much of it is clean
    start = world.log.segments[-1].base_offset
    write(world, chance, 60, 120)
    assert world.clean(0, start, is_dry=True).records_read
    check(world, 0)


@pytest.mark.parametrize("slots", [5, 20, 100])
def test_without_tombstones_to_the_byte(make_world: MakeWorld, slots: int) -> None:
    world = make_world(slots, segment_bytes=3000)
    write(world, random.Random(slots), 150, 90, tombstones=0)
    check(world, has_tombstones=False)


def test_behind_a_clean_part(make_world: MakeWorld) -> None:
    world = make_world(8, segment_bytes=3000)
    chance = random.Random(7)
    write(world, chance, 100, 50)
    really_cleaned(world, 0)
    start = world.log.segments[-1].base_offset
    write(world, chance, 100, 70)
    assert len(check(world, start).results) > 1


def test_aborted_transactions(make_world: MakeWorld) -> None:
    world = make_world(4, segment_bytes=2000)
    for number in range(60):
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number, "is_transactional": True}
        world.put((b"%d" % (number % 13), "v" * number), **fields)
        world.end_transaction(7, is_commit=number % 3 > 0)
        if number % 10 == 9:
            world.roll()
    world.roll()
    check(world)


@pytest.mark.parametrize("slots", [6, 30, 400])
@pytest.mark.parametrize("strategy", ["timestamp", "header"])
def test_w8_by_versions(make_world: MakeWorld, strategy: str, slots: int) -> None:
    """`compaction.strategy`: rounds and passes weigh versions alike."""
    world = make_world(
        slots, segment_bytes=3000, compaction_strategy=strategy, compaction_strategy_header=NAME
    )
    chance = random.Random(slots)

    def write_some() -> None:
        for _ in range(100):
            records = [
                (str(chance.randrange(90)), chance.choice(["v", "value", None]), chance.randrange(9))
                for _ in range(chance.randrange(1, 6))
            ]
            write_versions(world, *records, codec=chance.choice(list(Codec)))
            if chance.random() < 0.1:
                world.roll()
        close(world)

    write_some()
    assert len(check(world).results) > 1 or slots == 400
    start = world.log.segments[-1].base_offset
    write_some()
    check(world, start)


def test_too_many_offsets_are_counted_as_far_as_one_map_reaches(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(8)
    write(world, random.Random(1), 50, 40)
    monkeypatch.setattr(cleaner_module, "LAST_OFFSET_BITS_BYTES", 1)
    result = world.clean(is_dry=True)
    assert 0 < result.end_offset < world.log.segments[-1].base_offset
    monkeypatch.undo()
    monkeypatch.setattr(sifting, "MOST_PASSES", 1)
    assert world.clean(is_dry=True).end_offset == result.end_offset


# Every reason


class Writer:
    """Batches of all kinds, and where each producer stands."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.sequences = dict.fromkeys(range(PRODUCERS), 0)

    def value(self) -> str | None:
        return None if self.chance.random() < 0.2 else self.chance.randbytes(9).hex()

    def mixed(self, batches: int, keys: int) -> None:
        for _ in range(batches):
            chance = self.chance
            pairs = [(b"%d" % chance.randrange(keys), self.value()) for _ in range(chance.randrange(1, 6))]
            kind = chance.randrange(4)
            if kind == 0:
                self.transaction(pairs)
            elif kind == 1:
                without = [(None, value) for _, value in pairs]
                self.world.put(*without, *pairs, trusted=True, codec=chance.choice(list(Codec)))
            else:
                self.world.put(*pairs, codec=chance.choice(list(Codec)))
            if chance.random() < 0.1:
                self.world.roll()
        self.world.roll()

    def transaction(self, pairs: list[tuple[bytes, str | None]]) -> None:
        """Many of one producer follow each other, so that markers lose all of their records."""
        producer = self.chance.randrange(PRODUCERS)
        fields = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
        self.world.put(*pairs, base_sequence=self.sequences[producer], **fields)
        self.sequences[producer] += len(pairs)
        self.world.end_transaction(producer, is_commit=self.chance.random() < 0.6)


def reasons_of(world: World, seed: int, rounds: int, compare: Compare) -> None:
    """Write, compare a dry run with what is then done, let delete horizons pass; every reason comes up."""
    writer, start = Writer(world, seed), 0
    sums = dict.fromkeys(REASONS, 0)
    for _ in range(rounds):
        writer.mixed(80, 60)
        removed = compare(start)
        sums = {reason: sums[reason] + removed[reason] for reason in REASONS}
        start = world.log.segments[-1].base_offset
        world.now_ms += RETENTION_MS
    assert all(sums.values()), sums


@pytest.mark.parametrize("seed", range(2))
def test_w3_every_reason_is_told_as_it_is_done(make_world: MakeWorld, seed: int) -> None:
    """Superseded, tombstone, aborted, keyless, marker: one by one, with a map that holds all keys."""
    world = make_world(segment_bytes=3000)

    def compare(start: int) -> dict[str, int]:
        rounds = check(world, start)
        assert len(rounds.results) == 1
        return rounds.results[0].removed

    reasons_of(world, seed, 4, compare)


@pytest.mark.parametrize(("strategy", "slots"), [("offset", 14), ("offset", 30), ("timestamp", 40)])
def test_w3_every_reason_with_a_small_map(make_world: MakeWorld, strategy: str, slots: int) -> None:
    """What rounds count as an expired tombstone because the round that supersedes it comes later is told as
    superseded (`sifting.py`); all else reason by reason.
    """
    world = make_world(slots, segment_bytes=3000, compaction_strategy=strategy)

    def compare(start: int) -> dict[str, int]:
        told = Rounds([world.clean(start, is_dry=True)]).summary()
        rounds = really_cleaned(world, start)
        done = rounds.summary()
        assert len(rounds.results) > 1
        assert (told["records_before"], told["records_after"]) == (
            done["records_before"],
            done["records_after"],
        )
        assert at_once(told["removed"]) == at_once(done["removed"])
        assert told["removed"][TOMBSTONE] <= done["removed"][TOMBSTONE]
        removed: dict[str, int] = done["removed"]
        return removed

    reasons_of(world, slots, 3, compare)


def at_once(removed: dict[str, int]) -> dict[str, int]:
    """Expired and superseded ones as one."""
    others = {reason: count for reason, count in removed.items() if reason not in (SUPERSEDED, TOMBSTONE)}
    return {**others, SUPERSEDED: removed[SUPERSEDED] + removed[TOMBSTONE]}
