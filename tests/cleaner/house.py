"""Several logs, their manager and a clock: the cleaner as the broker runs it, without a broker."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cleaner.manager import CleanerManager
from cleaner.results import CleanResult
from config.broker import BrokerConfig
from protocol.records import Record, encode_batch
from storage.checkpoint import parse_offsets
from storage.layout import TopicPartition
from storage.log import Log
from storage.manager import LogManager
from tests.storage.builders import NOW_MS, read_all, topic_config

T = TypeVar("T")


class House:
    """Logs of topics by name, partition 0 each. The tests' own thread is one owner of many: a lock stands
    in.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.now_ms = NOW_MS
        self.config = dataclasses.replace(
            BrokerConfig(),
            **{"log_cleaner_backoff_ms": 10, "log_cleaner_dedupe_buffer_size": 1 << 20, **settings},
        )
        self.path = directory
        self.results: list[CleanResult] = []
        self.owner = threading.RLock()
        self.logs = LogManager([directory], self.config, lambda: self.now_ms)
        self.manager = CleanerManager(
            lambda: tuple(self.logs.logs.values()),
            self.logs,
            self.config,
            lambda: self.now_ms,
            self.run_on_owner,
        )
        self.manager.on_cleaned = self.results.append

    def run_on_owner(self, function: Callable[[], T]) -> T:
        with self.owner:
            return function()

    def log(self, topic: str, **config: Any) -> Log:
        """Make a log, or find it."""
        topic_partition = TopicPartition(topic, 0)
        if topic_partition in self.logs.logs:
            return self.logs.logs[topic_partition]
        values = {"cleanup_policy": "compact", "flush_messages": 1000, **config}
        return self.logs.open_log(topic_partition, topic_config(**values))

    def put(self, topic: str, *pairs: tuple[str, str | None], roll: bool = True) -> None:
        log = self.log(topic)
        with self.owner:
            for key, value in pairs:
                item = (self.now_ms, key.encode(), None if value is None else value.encode(), ())
                log.append(encode_batch([item]), now_ms=self.now_ms)
            if roll:
                log.roll(self.now_ms)

    def clean(self) -> CleanResult | None:
        """What a worker does once: grab, clean."""
        work = self.manager.grab()
        if work is None:
            return None
        cleaner = self.manager.make_cleaner(lambda size: self.manager.check(work.log.topic_partition))
        return self.manager.clean(cleaner, work)

    def records(self, topic: str) -> list[Record]:
        with self.owner:
            log = self.log(topic)
            return list(read_all(log, log.log_start_offset))

    def table(self, topic: str) -> dict[str, str]:
        found = {(one.key or b"").decode(): one.value for one in self.records(topic)}
        return {key: value.decode() for key, value in found.items() if value is not None}

    def checkpoints(self) -> dict[TopicPartition, int]:
        """What the file says. `read` would mend what it meets between two writes of a cleaner thread, and
        put the older offsets in the place of the newer ones.
        """
        try:
            return parse_offsets(self.logs.directories[0].cleaner_checkpoint.path.read_bytes())
        except FileNotFoundError:
            return {}

    def damage(self, topic: str) -> Path:
        """Flip a bit in the first segment; the file."""
        path = self.log(topic).segments[0].file.path
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        return path

    def close(self) -> None:
        self.logs.close()
