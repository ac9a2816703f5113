"""`__kompakt_metadata`: a value for each type and name, written one at a time, read as a whole.

One compacted log of one partition; its records are JSON, the key says what the value is about:

    {"name": "a", "type": "topic"}  {"configs": {"cleanup.policy": "compact"}, "id": "0f…", "partitions": 3}

What the values mean is told where they are written: `topics.py`, `broker_settings.py`, `group_settings.py`,
`producer_ids.py`, `cleaning_history.py`, `quotas/settings.py`, `security/users.py`,
`security/authorizer.py`. Takes the place of Kafka's quorum log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker.node import Node
from broker.topic import METADATA_OVERRIDES, METADATA_TOPIC, Topic
from config.topic import TopicConfig
from protocol.errors import KafkaError
from protocol.records import decode_batch, encode_batch
from storage.layout import TopicPartition, partition_directory_name
from storage.log import Log
from storage.types import Origin

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)

State = dict[tuple[str, str], dict[str, Any]]
"""the last value of every key, by type and name; in the order in which the keys were first written"""


class MetadataError(Exception):
    """What the topics are cannot be read; the message says where and what to do."""


class MetadataLog:
    """Owned by: event loop; `load` may run on any thread before the broker listens."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.topic: Topic
        """itself, as the registry has it; from `load` on"""
        self.is_new = False
        """whether there was none at this start"""
        self.was_served = False
        """whether a broker has served this one before"""

    def load(self) -> State:
        """Blocking: open or make it, and read it. It takes records when its log is served. MetadataError."""
        logs = self._node.logs
        config = TopicConfig.resolve(METADATA_OVERRIDES, self._node.config, is_internal=True)
        self.was_served = any(METADATA_PARTITION in one.recovery_points for one in logs.directories)
        logs.expect([METADATA_PARTITION])
        own = partition_directory_name(METADATA_PARTITION)
        self.is_new = not any((one.path / own).is_dir() for one in logs.directories)
        try:
            log = logs.open_log(METADATA_PARTITION, config, cuts_at_damage=True)
            state = read_state(log)
        except (KafkaError, LookupError, TypeError, ValueError) as error:
            place = next(at for one in logs.directories if (at := one.path / own).is_dir())
            raise MetadataError(
                f"{place} is damaged ({error}). Put a good copy of it there, or move it away: topics are "
                "then found by their directories, with settings that delete nothing"
            ) from error
        self.topic = Topic(METADATA_TOPIC, log.topic_id, 1, METADATA_OVERRIDES, config, is_internal=True)
        return state

    def append(self, kind: str, name: str, value: Mapping[str, Any] | None) -> None:
        """A new value of a key, or the end of it; durable when `flushed()` returns. KafkaError when it cannot
        be written.
        """
        now_ms = self._node.clock.now_ms()
        payload = None if value is None else _json(value)
        batch = encode_batch([(now_ms, _json({"type": kind, "name": name}), payload, ())], now_ms=now_ms)
        self._node.partitions[METADATA_PARTITION].append(batch, now_ms, Origin.COORDINATOR)

    async def flushed(self) -> None:
        """Return when every change so far is on disk; KafkaError when it cannot be."""
        partition = self._node.partitions[METADATA_PARTITION]
        waited = partition.when_flushed(partition.log.log_end_offset)
        if waited is not None:
            await waited


def read_state(log: Log) -> State:
    """The last value of every key in the metadata log; blocking. ValueError when it is damaged."""
    state: State = {}
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


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
