"""`__kompakt_metadata`: a value for each type and name, written one at a time, read as a whole.

What the values mean is told where they are written: `topics.py`, `broker_settings.py`, `producer_ids.py`,
`questions/history.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protocol.records import decode_batch, encode_batch
from storage.log import Log
from storage.types import Origin

if TYPE_CHECKING:
    from broker.partition import Partition


class MetadataError(Exception):
    """What the topics are cannot be read; the message says where and what to do."""


def read_state(log: Log) -> dict[tuple[str, str], dict[str, Any]]:
    """The last value of every key in the metadata log; blocking. ValueError when it is damaged."""
    state: dict[tuple[str, str], dict[str, Any]] = {}
    for _, batch in log.scan(log.log_start_offset):
        for record in decode_batch(batch):
            if record.key is None:
                continue
            key = json.loads(bytes(record.key))
            identity = (str(key.get("type")), str(key.get("name", "")))
            if record.value is None:
                state.pop(identity, None)
            else:
                state[identity] = json.loads(bytes(record.value))
    for segment in log.segments:
        if segment.damages:
            raise ValueError(f"no good batches at offset {segment.damages[0].first_offset}")
    return state


def append_state(
    partition: Partition, now_ms: int, kind: str, name: str, value: Mapping[str, Any] | None
) -> None:
    """A new value of a key, or the end of it; KafkaError when it cannot be written."""
    payload = None if value is None else _json(value)
    batch = encode_batch([(now_ms, _json({"type": kind, "name": name}), payload, ())], now_ms=now_ms)
    partition.append(batch, now_ms, Origin.COORDINATOR)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
