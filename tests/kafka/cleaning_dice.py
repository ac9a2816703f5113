"""Pseudo-random lives of a compacted log with transactions, told step by step: the same seed, the same steps.

A life has rounds: segments are written, some time may go by, then the log is cleaned, in one pass or in
several. Transactions stay open over segments and rounds, markers end what was never begun, and producers
begin epochs anew. At the end of a life all transactions end.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from protocol.compression import Codec

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ROOMY_SLOTS = 4096
"""of an offset map that no life fills"""
_PLAIN = -1
_IDEMPOTENT = (1, 2)
_TRANSACTIONAL = (8, 9, 10)
_DEADLY_MS = 25 * HOUR_MS
"""a producer that was silent so long is forgotten, unless its transaction is open"""

Pairs = tuple[tuple[int, bytes | None, bytes | None], ...]


class Settings(NamedTuple):
    """What is drawn once for a log."""

    segment_bytes: int
    delete_retention_ms: int
    index_interval_bytes: int
    has_append_time: bool
    slots: int
    load_factor: float
    codecs: tuple[Codec, ...]


class Append(NamedTuple):
    """A batch of (age in milliseconds, key, value), after a wait; `producer_id` is -1 when it has none."""

    wait_ms: int
    pairs: Pairs
    codec: Codec
    producer_id: int
    epoch: int
    sequence: int
    is_transactional: bool

    @property
    def has_keyless(self) -> bool:
        return any(key is None for _, key, _ in self.pairs)


class Mark(NamedTuple):
    """The end of a transaction, or a marker where none was open, after a wait."""

    wait_ms: int
    producer_id: int
    epoch: int
    is_commit: bool


Step = Append | Mark


class Round(NamedTuple):
    segments: tuple[tuple[Step, ...], ...]
    idle_ms: int
    """between the last step and the first pass"""
    pauses_ms: tuple[int, ...]
    """between the passes; when they are over, what is still dirty is left to the next round"""


class Life(NamedTuple):
    settings: Settings
    rounds: tuple[Round, ...]
    closing: tuple[Mark, ...]
    """the ends of the transactions that are open still"""


def draw(seed: int, slots: tuple[int, ...]) -> Life:
    """The life of a seed, with a map of one of these sizes."""
    chance = random.Random(seed)
    settings = Settings(
        segment_bytes=chance.choice((800, 2000, 1 << 20)),
        delete_retention_ms=chance.choice((0, HOUR_MS, 5 * HOUR_MS)),
        index_interval_bytes=chance.choice((1, 100, 4096)),
        has_append_time=chance.random() < 0.2,
        slots=chance.choice(slots),
        load_factor=chance.choice((0.75, 0.9)),
        codecs=chance.choice(((Codec.NONE,), (Codec.NONE,), tuple(Codec))),
    )
    if settings.slots < ROOMY_SLOTS:
        # How many passes a round takes must not decide what is over by its end.
        settings = settings._replace(delete_retention_ms=max(HOUR_MS, settings.delete_retention_ms))
    writer = _Writer(chance, settings.codecs)
    rounds = tuple(writer.round() for _ in range(chance.randint(2, 6)))
    return Life(settings, rounds, writer.closing())


class _Writer:
    """Draws steps, and knows what they did to the producers: epoch, next sequence, open or not."""

    def __init__(self, chance: random.Random, codecs: tuple[Codec, ...]) -> None:
        self._chance = chance
        self._codecs = codecs
        self._keys = [b"k%d" % number for number in range(chance.choice((2, 4, 10)))]
        self._bumps_epochs = chance.random() < 0.5  # with each marker, as of transactions v2
        producers = (*_IDEMPOTENT, *_TRANSACTIONAL)
        self._epochs = dict.fromkeys(producers, 0)
        self._sequences = dict.fromkeys(producers, 0)
        self._open: set[int] = set()

    def round(self) -> Round:
        chance = self._chance
        segments = tuple(self._segment() for _ in range(chance.randint(1, 4)))
        idle_ms = _DEADLY_MS if chance.random() < 0.2 else 0
        if idle_ms:
            for one in self._epochs:
                self._begin_epoch(one, is_due=one not in self._open)
        pauses = []
        while chance.random() < 0.6:
            pauses.append(chance.choice((0, HOUR_MS, 6 * HOUR_MS)))
        return Round(segments, idle_ms, tuple(pauses))

    def closing(self) -> tuple[Mark, ...]:
        return tuple(self._mark(one) for one in sorted(self._open))

    def _segment(self) -> tuple[Step, ...]:
        drawn = (self._step() for _ in range(self._chance.randint(1, 10)))
        return tuple(one for one in drawn if one is not None)

    def _step(self) -> Step | None:
        chance = self._chance
        kind = chance.choice(("plain", "idempotent", "data", "data", "end", "end"))
        if kind == "plain":
            return self._append(_PLAIN, has_keyless=chance.random() < 0.1)
        if kind == "idempotent":
            producer_id = chance.choice(_IDEMPOTENT)
            self._begin_epoch(producer_id, is_due=chance.random() < 0.1)
            return self._append(producer_id)
        producer_id = chance.choice(_TRANSACTIONAL)
        if kind == "data":
            self._open.add(producer_id)
            return self._append(producer_id)
        if producer_id not in self._open and chance.random() < 0.7:
            return None
        return self._mark(producer_id)

    def _append(self, producer_id: int, *, has_keyless: bool = False) -> Append:
        chance = self._chance
        pairs = tuple(
            (
                chance.choice((0, 0, 5_000)),
                None if has_keyless else chance.choice(self._keys),
                chance.choice((None, b"v%d" % chance.randint(0, 9), b"x" * 60)),
            )
            for _ in range(chance.choice((1, 1, 2, 5)))
        )
        epoch, sequence = self._epochs.get(producer_id, -1), self._sequences.get(producer_id, -1)
        if producer_id != _PLAIN:
            self._sequences[producer_id] += len(pairs)
        codec = chance.choice(self._codecs)
        is_transactional = producer_id in _TRANSACTIONAL
        return Append(self._wait(), pairs, codec, producer_id, epoch, sequence, is_transactional)

    def _mark(self, producer_id: int) -> Mark:
        self._begin_epoch(producer_id, is_due=self._bumps_epochs)
        self._open.discard(producer_id)
        is_commit = self._chance.random() < 0.5
        return Mark(self._wait(), producer_id, self._epochs[producer_id], is_commit)

    def _begin_epoch(self, producer_id: int, *, is_due: bool) -> None:
        if is_due:
            self._epochs[producer_id] += 1
            self._sequences[producer_id] = 0

    def _wait(self) -> int:
        return self._chance.choice((0, 1, 1_000, MINUTE_MS))
