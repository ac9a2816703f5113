"""Goal: no bytes whatever make a kernel read past the batch, loop, raise, or disagree with the plain decoder.

Method: the kernels as plain Python (`NUMBA_DISABLE_JIT=1`, where an index too large raises) and as compiled
code, over random sections, damaged sections and every truncation; whatever passes validation is decoded by
hand and compared. The long run (`make fuzz`) has other seeds each time and says which one failed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from protocol import batch, record_kernels, records
from protocol.errors import KafkaError
from protocol.records import as_array, decode_batch, encode_batch, encode_record

ROOT = Path(__file__).resolve().parent.parent.parent
HEADERS = [[], [("a", b"b")], [("", None), ("long", bytes(300))]]


def random_section(chance: random.Random, count: int) -> bytes:
    def some(limit: int) -> bytes | None:
        return None if chance.random() < 0.1 else chance.randbytes(chance.choice((0, 1, 5, 63, 64, limit)))

    return b"".join(
        encode_record(index, chance.choice((0, -1, 7, 2**40)), some(70), some(300), chance.choice(HEADERS))
        for index in range(count)
    )


def damaged(chance: random.Random, section: bytes) -> bytes:
    match chance.randrange(5):
        case 0:
            return section[: chance.randrange(len(section) + 1)]
        case 1:
            return section + chance.randbytes(chance.randrange(1, 20))
        case 2:
            return chance.randbytes(chance.randrange(200))
        case _:
            changed = bytearray(section)
            for _ in range(chance.randint(1, 3)):
                changed[chance.randrange(len(changed))] = chance.choice(
                    (0, 1, 2, 127, 128, 255, chance.randrange(256))
                )
            return bytes(changed)


def decode_by_hand(section: bytes, count: int) -> bool:
    """Whether the section is `count` whole records with deltas 0 ... count - 1, read plainly."""
    position = 0

    def number(end: int, most_bytes: int) -> int:
        nonlocal position
        raw = 0
        for shift in range(0, 7 * most_bytes, 7):
            if position >= end:
                raise ValueError
            byte = section[position]
            position += 1
            raw |= (byte & 127) << shift
            if byte < 128:
                raw &= 0xFFFFFFFF if most_bytes == 5 else 0xFFFFFFFFFFFFFFFF
                return (raw >> 1) ^ -(raw & 1)
        raise ValueError

    def skip(size: int, end: int, least: int) -> None:
        nonlocal position
        if size < least or position + max(size, 0) > end:
            raise ValueError
        position += max(size, 0)

    try:
        for index in range(count):
            end = number(len(section), 5)
            end += position
            if end > len(section):
                raise ValueError
            position += 1
            number(end, 10)
            if number(end, 5) != index:
                raise ValueError
            skip(number(end, 5), end, -1)
            skip(number(end, 5), end, -1)
            header_count = number(end, 5)
            if header_count < 0:
                raise ValueError
            for _ in range(header_count):
                skip(number(end, 5), end, 0)
                skip(number(end, 5), end, -1)
            if position != end:
                raise ValueError
    except ValueError:
        return False
    return position == len(section)


def attack(seed: int, rounds: int) -> int:
    """How many of `rounds` damaged sections passed validation; AssertionError where the kernels are wrong."""
    chance = random.Random(seed)
    passed = 0
    for _ in range(rounds):
        count = chance.randint(1, 6)
        section = damaged(chance, random_section(chance, count))
        array = as_array(section)
        fault, index, _ = records.validate_records(array, count, False)
        assert (fault == records.OK) == decode_by_hand(section, count), (seed, section.hex())
        assert fault == records.OK or 0 <= index <= count, (seed, section.hex())
        assert fault in record_kernels.FAULTS
        located = records.locate_records(array, count)
        assert fault != records.OK or located.shape == (records.LOCATED_ROWS, count), (seed, section.hex())
        records.keyless_records(array, count)
        passed += fault == records.OK
    return passed


def attack_batches(seed: int, rounds: int) -> None:
    """Whole batches with any byte changed: decoded as they were, or refused with a KafkaError."""
    chance = random.Random(seed)
    limited = partial(records.payload, limit=1 << 20)  # whatever a damaged length promises
    for _ in range(rounds):
        codec = chance.randrange(5)
        made = encode_batch(
            [(index, b"key", b"value" * 20, ()) for index in range(chance.randint(1, 30))], codec=codec
        )
        broken = bytearray(made)
        for _ in range(chance.randint(1, 3)):
            broken[chance.randrange(12, len(broken))] = chance.randrange(256)
        try:
            with patch.object(records, "payload", limited):
                decode_batch(broken, check_crc=False)
            list(batch.iterate_headers(broken))
        except KafkaError:
            pass


def test_damaged_sections() -> None:
    passed = sum(attack(seed, 400) for seed in range(10))
    assert 0 < passed < 4000, "some damage must be harmless, or the attack does not reach far"


def test_damaged_batches() -> None:
    attack_batches(1, 500)


def test_every_truncation_is_noticed() -> None:
    section = random_section(random.Random(3), 5)
    for size in range(len(section)):
        assert records.validate_records(as_array(section[:size]), 5, False)[0] != records.OK
        assert records.locate_records(as_array(section[:size]), 5).size == 0


def test_kernels_as_plain_python() -> None:
    """Interpreted, an index outside the section is an exception of numpy, not a matter of luck."""
    script = (
        "from tests.fuzz.test_batches import attack, attack_batches; attack(99, 250); attack_batches(9, 20)"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", script]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)


@pytest.mark.fuzz
def test_damaged_sections_at_length() -> None:
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + 200):
        attack(seed, 1000)
        attack_batches(seed, 200)
