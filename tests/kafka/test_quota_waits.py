"""Goal: how long a client has to wait is what Apache Kafka's own arithmetic says, to the millisecond.

Method: random things that happen at random times, under limits that change, are counted here and by the
classes in Kafka's jars.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from broker.quotas.rates import Rate, TokenBucket
from tests.kafka.fixtures import or_skip
from tests.kafka.jars import environment
from tests.kafka.tools import Tools

PROGRAM = Path(__file__).with_name("Waits.java")
RUNS, EVENTS = 300, 60
BEGAN_MS = 1_700_000_000_000


def happen(kind: str, chance: random.Random) -> tuple[list[str], list[int]]:
    """What happens in one run, and the waits."""
    count, seconds = chance.choice([(11, 1), (2, 1), (1, 3), (5, 10)])
    lines, waits = [f"{kind} {count} {seconds}"], []
    now_ms, limit, amount = BEGAN_MS, 100.0, 0.0
    rate, bucket = Rate(count, 1000 * seconds, now_ms), TokenBucket(count, 1000 * seconds, now_ms)
    for number in range(EVENTS):
        limit = chance.choice([limit] * 9 + [0.5, 7.0, 100.0, 12345.0])
        if amount > 0 and chance.random() < 0.2:
            amount = -amount  # it is taken back at once
        else:
            amount = chance.choice([0.0, 1.0, 13.25, 4096.0, 100_000.0])
            now_ms += chance.choice([0, 0, 1, 17, 333, 999, 1000, 1001, 5000, 60_000]) if number else 0
        lines.append(f"{limit} {amount} {now_ms}")
        if kind == "rate":
            rate.add(amount, now_ms)
            waits.append(rate.wait_ms(limit, now_ms))
        else:
            bucket.add(amount, limit, now_ms)
            waits.append(bucket.wait_ms(limit, now_ms))
    return lines, waits


@pytest.mark.java
@pytest.mark.parametrize("kind", ["rate", "bucket"])
def test_waits_are_kafkas(kind: str) -> None:
    command = or_skip(lambda: Tools().with_compiler()).jvm(str(PROGRAM), "-Xmx128m")
    chance = random.Random(kind)
    lines: list[str] = []
    waits: list[int] = []
    for _ in range(RUNS):
        happened, found = happen(kind, chance)
        lines += happened
        waits += found
    said = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=180, env=environment()
    )
    assert said.returncode == 0, said.stderr
    assert waits == [min(int(line), 2**31 - 1) for line in said.stdout.split()]
    assert 0 in waits
    assert len(set(waits)) > RUNS
