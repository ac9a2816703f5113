"""Goal: no sequence of requests whatever, well-formed or damaged, makes a broker process fail: no traceback,
no answer that cannot be read, no memory that grows, no record of a neighbour lost.

Method: a real process; several attackers at once pipeline requests whose fields are plausible (topics,
groups, settings that exist), absurd, or damaged on the wire, cut anywhere, and hang up when they like; a
neighbour works on. Each attacker has its own seed; the long run (`make fuzz`) has other ones each time and
prints the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

import broker.handlers  # noqa: F401  # every handler is registered
from broker.api import Api, apis
from protocol.errors import MalformedFrame
from protocol.framing import decode_response, encode_request
from protocol.records import encode_batch
from protocol.schema import Field, Schema, schema_of
from tests.broker.client import Client
from tests.fuzz.test_frames import damaged
from tests.siege import COMPACTED, MIB, PLAIN, SETTINGS, Neighbour, Siege

ATTACKERS = 6
MEMORY_BYTES = 256 * MIB
PATIENCE_SECONDS = 3.0
FUZZ_SETTINGS = {**SETTINGS, "offsets.topic.num.partitions": "3", "log.cleaner.backoff.ms": "100"}
NAMES = (
    PLAIN, COMPACTED, "a", "fresh", "g", "h", "", "..", "ü\n", "x" * 300, "y" * 40_000, "consumer", "range",
    "1", "-1", "__consumer_offsets", "__kompakt_metadata", "cleanup.policy", "compact", "delete", "zstd",
    "retention.ms", "segment.bytes", "compression.type", "message.timestamp.type", "LogAppendTime",
    "min.compaction.lag.ms",
)  # fmt: skip
NUMBERS = (-2, -1, 0, 1, 2, 3, 4, 5, 7, 100, 6_000, 10_000, 1 << 20)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class Attacker:
    """One source of requests. Owned by: the test's event loop."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.answers = 0
        self.member_ids = [""]

    # what it sends

    def request(self, api: Api, version: int) -> Any:
        return self._filled(schema_of(api.request), api.request, version)

    def _filled(self, schema: Schema, cls: type[Any], version: int) -> Any:
        fields = (field for field in schema.fields if field.versions.has(version))
        return cls(**{field.name: self._value(field, version) for field in fields})

    def _value(self, field: Field, version: int) -> Any:
        chance = self.chance
        if field.nullable.has(version) and chance.random() < 0.2:
            return None
        if field.kind in BITS:
            return self._number(BITS[field.kind])
        match field.kind:
            case "uint16":
                return chance.choice((0, 1, 9092, 65535))
            case "float64":
                return chance.choice((-1.0, 0.0, 0.5, 1e9, float("nan"), float("inf")))
            case "bool":
                return chance.random() < 0.5
            case "uuid":
                return uuid.UUID(int=chance.choice((0, 1, chance.getrandbits(128))))
            case "string":
                names = self.member_ids if "member_id" in field.name else NAMES
                return chance.choice(names)
            case "bytes":
                return chance.randbytes(chance.choice((0, 1, 4, 30, 3000)))
            case "records":
                return self._records()
            case "struct":
                assert field.struct is not None
                return self._filled(schema_of(field.struct), field.struct, version)
        assert field.element is not None
        return [self._value(field.element, version) for _ in range(chance.choice((0, 1, 1, 1, 2, 20)))]

    def _number(self, bits: int) -> int:
        if self.chance.random() < 0.05:
            return self.chance.randrange(-(1 << bits - 1), 1 << bits - 1)
        number = self.chance.choice(NUMBERS)
        return number if -(1 << bits - 1) <= number < 1 << bits - 1 else 1

    def _records(self) -> bytes:
        chance = self.chance
        items = [
            (chance.choice((None, 1, 1_700_000_000_000)), chance.choice((b"k", b"", None)), b"v" * 20, ())
            for _ in range(chance.randint(1, 5))
        ]
        producer_id = chance.choice((-1, -1, 0, 1, 5000))
        batch = encode_batch(
            items,
            codec=chance.randrange(5),
            now_ms=1_700_000_000_000,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else chance.choice((0, 1)),
            base_sequence=-1 if producer_id < 0 else chance.choice((0, 1, 5)),
            is_transactional=chance.random() < 0.1,
            is_control=chance.random() < 0.05,
        )
        return damaged(batch, chance) if chance.random() < 0.3 else batch

    # how it goes

    async def visit(self, siege: Siege) -> None:
        """One connection with a few requests on it."""
        chance = self.chance
        client = await Client.connect("127.0.0.1", siege.process.port, chance.choice(("", "fuzz", "f\n")))
        try:
            expected = [self._send(client) for _ in range(chance.randint(1, 6))]
            if chance.random() < 0.1:
                client.send_bytes(chance.randbytes(chance.randrange(40)))
            if chance.random() < 0.1:
                return
            with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    for correlation_id, api, version in filter(None, expected):
                        self._look_at(await client.receive_frame(), correlation_id, api, version)
        finally:
            client.writer.transport.abort()

    def _send(self, client: Client) -> tuple[int, Api, int] | None:
        """What answer is due; None when none is, or when the connection must be closed for it."""
        chance = self.chance
        api = chance.choice(list(apis.values()))
        version = chance.randint(api.min_version, api.max_version)
        request = self.request(api, version)
        correlation_id = chance.randrange(1 << 31)
        try:
            wire = b"".join(encode_request(request, version, correlation_id, client.client_id))
        except Exception:  # a string that is too long for this version
            return None
        if chance.random() < 0.25:
            body = damaged(wire[4:], chance)
            client.send_bytes(len(body).to_bytes(4, "big") + body)
            return None
        client.send_bytes(wire)
        return (correlation_id, api, version) if getattr(request, "acks", 1) else None

    def _look_at(self, frame: bytes, correlation_id: int, api: Api, version: int) -> None:
        """An answer is one of the requests' answers, in their order, and can be read."""
        if int.from_bytes(frame[:4], "big") != correlation_id:
            raise ConnectionError("the answer to a damaged request that was still one")
        _, answer = decode_response(api.response, version, frame)
        self.answers += 1
        if getattr(answer, "member_id", ""):
            self.member_ids.append(answer.member_id)


async def attack(siege: Siege, first_seed: int, visits: int) -> int:
    """How many answers the attackers could read."""
    neighbour = await Neighbour.move_in(siege)
    neighbour.begin()
    attackers = [Attacker(first_seed + number) for number in range(ATTACKERS)]

    async def besiege(attacker: Attacker) -> None:
        for _ in range(visits):
            try:
                await attacker.visit(siege)
            except MalformedFrame as error:
                raise AssertionError(f"an answer that cannot be read: {error}") from error

    with siege.takes_at_most(MEMORY_BYTES):
        await asyncio.gather(*map(besiege, attackers))
    await neighbour.goes_on()
    await neighbour.leave()
    await siege.hang_up()
    return sum(attacker.answers for attacker in attackers)


def run(directory: Path, seed: int, visits: int) -> None:
    siege = Siege(directory, FUZZ_SETTINGS)
    try:
        asyncio.run(siege.make_topics())
        answers = asyncio.run(attack(siege, seed, visits))
        log = siege.process.log()
        assert "Traceback" not in log, (seed, log[log.index("Traceback") - 500 :][:5000])
        assert " ERROR " not in log, seed
        assert answers > visits * ATTACKERS / 10, "most requests must get through, or little is shown"
        siege.end(may_warn_until_stop=True)
    finally:
        siege.process.close()


def test_a_short_siege(tmp_path: Path) -> None:
    run(tmp_path, 1, 30)


@pytest.mark.fuzz
def test_a_long_siege(tmp_path: Path) -> None:
    for round_number in range(10):
        seed = random.SystemRandom().randrange(1 << 40)
        print(f"seed {seed}")
        directory = tmp_path / str(round_number)
        directory.mkdir()
        run(directory, seed, 500)
