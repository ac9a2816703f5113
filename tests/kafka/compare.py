"""What is compared of two brokers' partitions, brought into one form.

What may differ by nature is left out here, each with its reason; all else must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.batch import iterate_headers
from protocol.compression import Codec
from protocol.records import Record, decode_batch
from tests.kafka.tools import Tools

DUMP = ("--deep-iteration", "--print-data-log", "--skip-record-metadata")


class Batch(NamedTuple):
    """A batch as it lies in the log, without its epoch, which tells how often a broker was started."""

    base_offset: int
    last_offset_delta: int
    attributes: int
    base_timestamp: int | str
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    checksum: int | str
    size_bytes: int | str
    records: tuple[Record, ...]


def batches(data: bytes) -> list[Batch]:
    """Every batch of `data`.

    A delete horizon is the time of a cleaning plus a setting, and the brokers do not clean in the same
    millisecond: only its presence (an attribute) is compared, and with it the deltas and the checksum fall
    out. Compressed records are compared decompressed: encoders differ, sizes and checksums with them.
    """
    found = []
    for position, header in iterate_headers(data):
        records = tuple(decode_batch(data, position)) if header.record_count else ()
        is_armed = header.delete_horizon_ms is not None
        is_exact = header.codec == Codec.NONE and not is_armed
        found.append(
            Batch(
                header.base_offset,
                header.last_offset_delta,
                header.attributes,
                "horizon" if is_armed else header.base_timestamp,
                header.max_timestamp,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.record_count,
                header.crc if is_exact else "not compared",
                header.size_bytes if is_exact else "not compared",
                records,
            )
        )
    return found


def differences(expected: Sequence[object], found: Sequence[object]) -> str:
    """The first place where two lists part, in words; empty when they do not."""
    for index, (left, right) in enumerate(zip(expected, found, strict=False)):
        if left != right:
            return f"at {index}: Kafka has\n  {left}\nkompakt has\n  {right}"
    if len(expected) != len(found):
        return f"Kafka has {len(expected)}, kompakt has {len(found)}: {[*expected, *found][-3:]}"
    return ""


def dumped(tools: Tools, files: Sequence[Path]) -> dict[str, list[str]]:
    """File name (with its directory's) -> what kafka-dump-log prints of it, without what may differ.

    Where all batches of a segment are uncompressed, their positions must agree, and so both indexes of it,
    entry by entry. The sizes of compressed batches depend on the encoder, with them all positions behind, and
    the moments at which `index.interval.bytes` are over: the indexes of such a segment are left out.
    """
    said = tools.dump(*DUMP, "--files", ",".join(map(str, files)))
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in said.splitlines():
        if line.startswith("Dumping "):
            path = Path(line.removeprefix("Dumping "))
            lines = parts.setdefault(f"{path.parent.name}/{path.name}", [])
        else:
            lines.append(line.replace(f"{path.parent}/", ""))
    exact = {name.removesuffix(".log") for name in parts if name.endswith(".log") and _is_exact(parts[name])}
    found = {}
    for name, lines in parts.items():
        stem, _, kind = name.rpartition(".")
        if kind in ("index", "timeindex") and stem not in exact:
            continue
        found[name] = [_without_the_incomparable(line, stem in exact) for line in lines]
        if kind == "snapshot":
            found[name].sort()  # Kafka writes producers in the order of a hash map
    return found


def _is_exact(lines: Sequence[str]) -> bool:
    """Whether all batches of a dumped segment are uncompressed."""
    return all("compresscodec: none" in line for line in lines if "compresscodec: " in line)


def _without_the_incomparable(line: str, has_equal_positions: bool) -> str:
    if "compresscodec: none" not in line or "deleteHorizonMs: OptionalLong[" in line:
        line = re.sub(r"(crc|size): \d+", r"\1: -", line)
    line = re.sub(r"deleteHorizonMs: OptionalLong\[\d+\]", "deleteHorizonMs: set", line)
    line = re.sub(r"partitionLeaderEpoch: \d+", "partitionLeaderEpoch: -", line)
    return line if has_equal_positions else re.sub(r"position: \d+", "position: -", line)
