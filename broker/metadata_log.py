"""`__kompakt_metadata` read as a whole: the last value of every key, or why there is none to be had.

What the values mean is told where they are written: `topics.py`, `producer_ids.py`, `questions/history.py`.
"""

from __future__ import annotations

import json
from typing import Any

from protocol.records import decode_batch
from storage.log import Log


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
