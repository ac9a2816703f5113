"""Pseudo-random lives of a compacted partition: the same seed gives the same batches, bit by bit.

A life has rounds; after each the partition is cleaned. Timestamps are told from `epoch_ms` on; each leap of
`LEAP_MS` is beyond `segment.ms`, so segments roll where the sequence says and nowhere else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.compression import Codec
from protocol.records import Item, encode_batch

SEGMENT_MS = 5_000
LEAP_MS = 60_000
DAY_MS = 24 * 60 * 60 * 1000
DIRTY_NEVER = {"min.cleanable.dirty.ratio": "1.0"}  # a ratio is never above 1
DIRTY_ALWAYS = {"min.cleanable.dirty.ratio": "0.001"}


@dataclass
class Producer:
    """An idempotent producer: its next batch."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0


@dataclass(frozen=True)
class Life:
    """What is drawn once for a topic."""

    seed: int
    settings: dict[str, str]
    codecs: tuple[Codec, ...]
    keys: int
    value_bytes: int
    rounds: int
    tail_is_young: bool
    """the end of every round is younger than min.compaction.lag.ms, until the last round lifts it"""
    begins_without_keys: bool = False
    """the first round is written under cleanup.policy=delete, and a third of its records have no key (T46)"""
    loses_its_start: bool = False
    """before each cleaning DeleteRecords takes a part of what is there, down to the middle of a batch"""


@dataclass
class Round:
    batches: list[bytes] = field(default_factory=list)
    records: int = 0
    young_from: int | None = None
    """how many records of this round come before the first young one"""
    has_keyless: bool = False


def draw(
    seed: int, *, is_large: bool = False, begins_without_keys: bool = False, loses_its_start: bool = False
) -> Life:
    """The settings of seed's topic."""
    chance = random.Random(seed)
    young = seed % 4 == 3
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": str(SEGMENT_MS),
        "segment.bytes": str(1 << 20),
        "index.interval.bytes": str(chance.choice((1, 300, 4096))),
        "delete.retention.ms": str(chance.choice((0, 0, DAY_MS))),
        "file.delete.delay.ms": "0",
        "max.message.bytes": str(4 << 20),
        "compression.type": chance.choice(
            ("producer", "producer", "producer", "zstd", "gzip", "uncompressed")
        ),
        **DIRTY_NEVER,
    }
    if loses_its_start:
        settings |= {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
    if young:
        settings["min.compaction.lag.ms"] = str(DAY_MS)
    one = tuple(Codec) if chance.random() < 0.5 else (chance.choice(tuple(Codec)),)
    return Life(
        seed=seed,
        settings=settings,
        codecs=one,
        keys=chance.choice((3, 12, 60)),
        value_bytes=12_000 if is_large else chance.choice((0, 20, 300)),
        rounds=chance.choice((2, 3, 4)),
        tail_is_young=young,
        begins_without_keys=begins_without_keys,
        loses_its_start=loses_its_start,
    )


def rounds(life: Life, old_ms: int, young_ms: int) -> Iterator[Round]:
    """The batches of each round."""
    chance = random.Random(life.seed + 1_000_000)
    producers = [Producer(9_000 + index) for index in range(chance.choice((1, 3)))]
    now_ms = old_ms
    for number in range(life.rounds):
        made = Round(has_keyless=life.begins_without_keys and number == 0)
        segments = chance.randint(1, 5)
        for segment in range(segments):
            for _ in range(chance.randint(1, 8)):
                _add(made, life, chance, producers, now_ms)
                now_ms += chance.randint(0, 400)
            now_ms += LEAP_MS
            if life.tail_is_young and number == 0 and segment == segments - 1:
                now_ms = young_ms
                made.young_from = made.records
                _add(made, life, chance, producers, now_ms)
                now_ms += LEAP_MS
        _add(made, life, chance, producers, now_ms)  # the active segment, which stays dirty
        now_ms += LEAP_MS
        yield made


def _add(made: Round, life: Life, chance: random.Random, producers: list[Producer], now_ms: int) -> None:
    items = [_item(life, chance, now_ms) for _ in range(chance.choice((1, 1, 2, 5, 20)))]
    if made.has_keyless:
        items = [
            (time, None, *rest) if chance.random() < 0.34 else (time, key, *rest)
            for time, key, *rest in items
        ]
    codec = chance.choice(life.codecs)
    if chance.random() < 0.4:
        made.batches.append(encode_batch(items, codec=codec))
    else:
        made.batches.append(_idempotent(items, codec, chance, chance.choice(producers)))
    made.records += len(items)


def _idempotent(items: list[Item], codec: Codec, chance: random.Random, producer: Producer) -> bytes:
    if producer.sequence and chance.random() < 0.05:
        producer.epoch += 1
        producer.sequence = 0
    batch = encode_batch(
        items,
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )
    producer.sequence += len(items)
    return batch


def _item(life: Life, chance: random.Random, now_ms: int) -> Item:
    number = chance.randrange(life.keys)
    key = b"" if number == 0 else b"key-%d" % number
    if chance.random() < 0.2:
        value = None
    else:
        value = chance.randbytes(chance.randint(0, life.value_bytes))
    names = ("h", "", "header-é")
    headers = tuple(
        (chance.choice(names), chance.choice((None, b"", b"x" * 9)))
        for _ in range(chance.choice((0, 0, 0, 2)))
    )
    return now_ms - chance.choice((0, 0, 0, 150, 2_000)), key, value, headers
