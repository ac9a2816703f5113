"""What the cleaner did, kept across restarts: the latest cleanings of each partition, one record of
`__kompakt_metadata` a partition.

    {"name": "prices-0", "type": "cleanings"}   {"id": "0f…", "runs": [{"cause": "asked for", …}, …]}

A run that failed has an "error" instead, and how often it failed so in a row. The topic's id keeps a topic
that was made anew from inheriting the history of its namesake. A history that cannot be written is no
reason to stop cleaning: it is logged and the next run writes it whole.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from broker.metadata_log import MetadataLog, State
from broker.node import Node
from cleaner.statistics import Remembered
from protocol.errors import KafkaError
from storage.layout import TopicPartition, partition_directory_name

if TYPE_CHECKING:
    from cleaner.manager import CleanerManager
    from cleaner.quarantine import Uncleanable
    from cleaner.results import CleanResult

logger = logging.getLogger(__name__)

CLEANINGS = "cleanings"
RUNS_KEPT = 32
Run = dict[str, Any]


def run_of(result: CleanResult) -> Run:
    """One cleaning as it is kept and shown: from, to, before, after, seconds, reason."""
    return {
        "started_ms": result.started_ms,
        "seconds": round(result.seconds, 3),
        "cause": result.cause,
        "first_dirty_offset": result.first_dirty_offset,
        "end_offset": result.end_offset,
        "records_before": result.records_read,
        "records_after": result.records_kept,
        "bytes_before": result.bytes_read,
        "bytes_after": result.bytes_written,
        "segments_before": result.segments_read,
        "segments_after": result.segments_written,
        "keys": result.keys,
        "tombstones": result.tombstones_kept,
        "newest_horizon_ms": result.newest_horizon_ms,
        "removed": dict(result.removed),
    }


def is_done(run: Run) -> bool:
    """Whether it was finished, and is no failure."""
    return "removed" in run


def latest(runs: list[Run]) -> list[Run]:
    """So many as are kept, the last one that was finished among them: what it left behind still holds, after
    however many failures.
    """
    kept = runs[-RUNS_KEPT:]
    done = next((run for run in reversed(runs) if is_done(run)), None)
    return kept if done is None or done in kept else [done, *kept[1:]]


class CleaningHistory:
    """Owned by: event loop; `note...` may be called on any thread, `restore` before the broker listens."""

    def __init__(self, node: Node, metadata: MetadataLog, cleaner: CleanerManager) -> None:
        self._node = node
        self._metadata = metadata
        self._cleaner = cleaner
        self._loop = asyncio.get_running_loop()
        self._runs: dict[str, tuple[str, list[Run]]] = {}
        """by directory name: the topic's id and its runs, oldest first"""

    def restore(self, state: State) -> None:
        """Take over what `__kompakt_metadata` holds; what is not understood is left out."""
        for (kind, name), value in state.items():
            runs = value.get("runs")
            if kind == CLEANINGS and isinstance(runs, list):
                self._runs[name] = (str(value.get("id")), runs)

    def recall(self) -> None:
        """Tell the cleaner what its last cleaning of each partition left behind, as far as that still holds
        after a start: the tombstones that wait for their horizon, above all.
        """
        for topic_partition, partition in self._node.partitions.items():
            done = [one for one in self.runs(topic_partition, partition.topic_id) if is_done(one)]
            if done:
                last = done[-1]
                finished_ms = last.get("started_ms", 0) + int(last.get("seconds", 0) * 1000)
                horizon_ms = last.get("newest_horizon_ms", -1)
                kept = last.get("tombstones", 0) if horizon_ms >= 0 else 0
                self._cleaner.remember(
                    topic_partition, Remembered(finished_ms, last.get("keys", 0), kept, horizon_ms)
                )

    def note(self, result: CleanResult) -> None:
        """A cleaning was finished; it is written down when this returns."""
        run = run_of(result)
        self._node.run_on_loop(lambda: self._add(result.topic_partition, lambda runs: [*runs, run]))

    def note_failure(self, topic_partition: TopicPartition, why: Uncleanable) -> None:
        """A cleaning failed; the same failure again is counted with the one before."""
        now_ms = self._node.clock.now_ms()

        def add(runs: list[Run]) -> list[Run]:
            before = runs[-1] if runs else {}
            if before.get("error") == why.error:
                return [*runs[:-1], {**before, "failures": before["failures"] + 1, "last_ms": now_ms}]
            return [*runs, {"started_ms": now_ms, "error": why.error, "failures": 1, "last_ms": now_ms}]

        self._loop.call_soon_threadsafe(self._add, topic_partition, add)

    def _add(self, topic_partition: TopicPartition, change: Callable[[list[Run]], list[Run]]) -> None:
        partition = self._node.partitions.get(topic_partition)
        if partition is None:
            return
        name = partition_directory_name(topic_partition)
        topic_id = partition.topic_id
        runs = latest(change(self.runs(topic_partition, topic_id)))
        self._runs[name] = (str(topic_id), runs)
        self._append(name, {"id": str(topic_id), "runs": runs})

    def runs(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> list[Run]:
        """The latest cleanings of a partition, oldest first."""
        of, runs = self._runs.get(partition_directory_name(topic_partition), ("", []))
        return runs if of == str(topic_id) else []

    def forget(self, topic: str, partition_count: int) -> None:
        """The topic is deleted."""
        for index in range(partition_count):
            name = partition_directory_name(TopicPartition(topic, index))
            if self._runs.pop(name, None) is not None:
                self._append(name, None)

    def _append(self, name: str, value: Mapping[str, Any] | None) -> None:
        try:
            self._metadata.append(CLEANINGS, name, value)
        except KafkaError as error:
            logger.warning("the history of %s could not be written: %s", name, error)
