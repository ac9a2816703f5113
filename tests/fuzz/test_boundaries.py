"""Goal: no boundary value in any field of any API and version makes a broker process fail.

Method: of each request a plain one is made, then for each of its fields, at any depth, one with each boundary
value there: the ends of an integer and what is next to them, special negatives, no text and too much of it,
null, no element and the same one twice. Every one is answered readably, or its connection is closed; there is
no traceback, and a neighbour notices nothing. The long run (`make fuzz`) takes all versions, the short one
the oldest and the newest.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import crc32c
import pytest

import broker.handlers  # noqa: F401  # every handler is registered
from broker.api import Api, apis
from protocol.framing import decode_response, encode_request
from protocol.records import encode_batch
from protocol.schema import Field, schema_of
from tests.broker.client import Client
from tests.siege import PLAIN, SETTINGS, Neighbour, Siege

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
LAST = 20  # DeleteTopics: the others need what it deletes
NO_DELAY = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
TEXTS = (
    "", ".", "..", "a/b", "\0", "\u00fc\u2028\U0001f600", "x" * 249, "x" * 250, "x" * 32_767, "x" * 40_000,
    "-1", "1", "__consumer_offsets", "__kompakt_metadata", "cleanup.policy", PLAIN,
)  # fmt: skip
BYTES = (b"", b"\0", b"\xff" * 7, b"\0\3\x7f\xff\xff\xff", b"\0\0\xff\xff\xff\xff", bytes(100_000))
UUIDS = (UUID(int=0), UUID(int=1), UUID(int=(1 << 128) - 1))
BATCH = encode_batch([(1_700_000_000_000, b"k", b"v", ())], now_ms=1_700_000_000_000)
HEADER = (
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"),
    (51, ">h"), (53, ">i"), (57, ">i"),
)  # fmt: skip
ORDINARY: dict[str, Any] = {
    "acks": -1, "config_operation": 0, "count": 2, "generation_id_or_member_epoch": -1,
    "max_bytes": 1 << 20, "num_partitions": 1, "partition_max_bytes": 1 << 20, "rebalance_timeout_ms": 100,
    "replication_factor": 1, "resource_type": 2, "session_epoch": -1, "session_timeout_ms": 10_000,
    "timestamp": -1, "validate_only": True, "assignments": [], "protocol_type": "consumer",
    "current_leader_epoch": -1, "last_fetched_epoch": -1, "replica_id": -1, "retention_time_ms": -1,
}  # fmt: skip
"""of fields whose plain value is neither zero nor the name of a topic"""
_groups = itertools.count()


def ends_of(bits: int) -> list[int]:
    most = 1 << bits - 1
    near = (-most, 1 - most, -1000, -3, -2, -1, 0, 1, 2, 100, 1 << 15, 1 << 16, 1 << 31, most - 2, most - 1)
    return [number for number in near if -most <= number < most]


def batches() -> Iterator[bytes]:
    """One with each field of its header at its ends, with the checksum wrong and right."""
    yield from (b"", b"\0", BATCH[:-1], BATCH + BATCH, BATCH + b"\0", bytes(61), b"\xff" * 61)
    for position, letter in HEADER:
        for number in ends_of(8 * struct.calcsize(letter)):
            batch = bytearray(BATCH)
            struct.pack_into(letter, batch, position, number)
            yield bytes(batch)
            struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
            yield bytes(batch)


def ordinary(field: Field, version: int) -> Any:
    if field.nullable.has(version) and field.default is None:
        return None
    if field.name in ORDINARY and field.kind != "struct":
        return ORDINARY[field.name]
    if field.name in ("group_id", "group"):
        return f"g{next(_groups)}"
    if field.kind == "array":
        assert field.element is not None
        return [ordinary(field.element, version)]
    if field.kind == "struct":
        assert field.struct is not None
        return request(field.struct, version)
    zeros = {"bool": False, "uuid": UUIDS[0], "string": PLAIN, "bytes": b"", "records": BATCH}
    return zeros.get(field.kind, 0)


def request(cls: type[Any], version: int, **values: Any) -> Any:
    """A plain one, but for `values`."""
    fields = (field for field in schema_of(cls).fields if field.versions.has(version))
    return cls(**{field.name: ordinary(field, version) for field in fields} | values)


def at_the_ends(field: Field, version: int) -> Iterator[Any]:
    """Each boundary value of a field."""
    if field.nullable.has(version):
        yield None
    if field.kind in BITS:
        yield from ends_of(BITS[field.kind])
    elif field.kind == "struct":
        assert field.struct is not None
        yield from variants(field.struct, version)
    elif field.kind == "array":
        assert field.element is not None
        yield []
        yield [ordinary(field.element, version)] * 2
        yield from ([value] for value in at_the_ends(field.element, version))
    else:
        simple: dict[str, Any] = {"bool": (False, True), "uuid": UUIDS, "string": TEXTS, "bytes": BYTES}
        yield from simple.get(field.kind) or batches()


def variants(cls: type[Any], version: int) -> Iterator[Any]:
    """Plain messages with one boundary value each."""
    for field in schema_of(cls).fields:
        if field.versions.has(version):
            for value in at_the_ends(field, version):
                yield request(cls, version, **{field.name: value})


class Asker:
    """Asks, and connects anew where the broker has closed the connection."""

    def __init__(self, siege: Siege) -> None:
        self._siege = siege
        self._client: Client | None = None
        self.answers = 0

    async def ask(self, api: Api, version: int, message: Any) -> None:
        try:
            wire = b"".join(encode_request(message, version, 7, "boundaries"))
        except (
            struct.error,
            TypeError,
        ):  # a text that old versions have no room for, an element that is null
            return
        if self._client is None:
            self._client = await self._siege.connect()
        self._client.send_bytes(wire)
        if getattr(message, "acks", 1) == 0:
            return
        try:
            frame = await self._client.receive_frame()
        except (asyncio.IncompleteReadError, ConnectionError):
            self._client = None
            return
        assert decode_response(api.response, version, frame)[0] == 7
        self.answers += 1


async def attack(siege: Siege, *, all_versions: bool) -> int:
    await siege.make_topics()
    neighbour = await Neighbour.move_in(siege)
    neighbour.begin()
    asker = Asker(siege)
    for api in sorted(apis.values(), key=lambda api: (api.key == LAST, api.key)):
        versions = range(api.min_version, api.max_version + 1)
        for version in versions if all_versions else sorted({versions[0], versions[-1]}):
            for message in variants(api.request, version):
                await asker.ask(api, version, message)
    await neighbour.goes_on()
    await neighbour.leave()
    await siege.hang_up()
    return asker.answers


def run(directory: Path, *, all_versions: bool) -> None:
    siege = Siege(directory, {**SETTINGS, **NO_DELAY})
    try:
        answers = asyncio.run(attack(siege, all_versions=all_versions))
        log = siege.process.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:5000]
        assert " ERROR " not in log
        assert answers > 3000, "nearly all requests are answered"
        siege.explain_all()
        siege.end()
    finally:
        siege.process.close()


def test_oldest_and_newest_versions(tmp_path: Path) -> None:
    run(tmp_path, all_versions=False)


@pytest.mark.fuzz
def test_every_version(tmp_path: Path) -> None:
    run(tmp_path, all_versions=True)
