"""The demo's broker: a kompakt process of its own in a temporary directory, and what the demo asks an
operator for.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType

import confluent_kafka
import confluent_kafka.admin

from demo.flights_input import Flight

LIMIT_SECONDS = 60.0
POLL_SECONDS = 0.05
READY_LINE = re.compile(r"Kafka on \S+:(\d+), HTTP on port (\d+)")
# Segments so small that a hundred megabytes make many, and a cleaner that looks twice a second.
SETTINGS = {"log.cleaner.backoff.ms": "500", "log.cleaner.threads": "1"}
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.5",
}


@dataclass(frozen=True)
class PartitionSize:
    """One partition as a reader and a directory listing see it."""

    partition: int
    records: int
    keys: int
    size_bytes: int
    segments: int


@dataclass(frozen=True)
class CompactionReport:
    """All partitions at one moment."""

    partitions: list[PartitionSize]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def keys(self) -> int:
        return sum(partition.keys for partition in self.partitions)


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LIMIT_SECONDS:g} s in vain for {what}")
        time.sleep(POLL_SECONDS)  # what another process has come to can only be asked again and again


class DemoBroker:
    """`kompakt serve` as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.port = self.http_port = 0  # free ones, which the broker names when it is ready
        command = [str(Path(sys.executable).with_name("kompakt")), "serve", "--port", "0"]
        command += ["--http-port", "0", "--data", str(self.data)]
        for key, value in SETTINGS.items():
            command += ["--set", f"{key}={value}"]
        self._output = (directory / "broker.output").open("wb")
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> DemoBroker:
        try:
            _wait_for(self._is_ready, "the broker")
        except BaseException:  # Ctrl-C too
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.__dict__.pop("_admin", None)  # it would report the broker's end as a failure
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_SECONDS)
        self._output.close()

    def _is_ready(self) -> bool:
        output = Path(self._output.name).read_text(errors="replace")
        if self._process.poll() is not None:
            raise RuntimeError(f"the broker ended with status {self._process.returncode}: {output}")
        if (ready := READY_LINE.search(output)) is None:
            return False
        self.port, self.http_port = map(int, ready.groups())
        return True

    @cached_property
    def _admin(self) -> confluent_kafka.admin.AdminClient:
        """Kept, because an admin client that is collected takes its unfinished requests with it."""
        return confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap})

    def create_topic(self, topic: str, partitions: int) -> None:
        asked = confluent_kafka.admin.NewTopic(topic, partitions, 1, config=TOPIC_SETTINGS)
        self._admin.create_topics([asked])[topic].result(LIMIT_SECONDS)

    def refusals(self, topic: str, flights: Sequence[Flight]) -> int:
        """How many of `flights` (which have no plane, so no key) the broker refuses."""
        refused = 0

        def report(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            nonlocal refused
            refused += error is not None and error.code() == confluent_kafka.KafkaError.INVALID_RECORD

        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20})
        for flight in flights:
            producer.produce(topic, flight.document, None, on_delivery=report)
        producer.flush(LIMIT_SECONDS)
        return refused

    def _measure(self, topic: str, partition: int) -> PartitionSize:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": "measure"})
        place = confluent_kafka.TopicPartition(topic, partition, 0)
        end = consumer.get_watermark_offsets(place, LIMIT_SECONDS)[1]
        consumer.assign([place])
        records, keys = 0, set()
        while consumer.position([place])[0].offset < end:
            messages = consumer.consume(2000, 0.1)
            records += len(messages)
            keys.update(message.key() for message in messages)
        consumer.close()
        logs = list((self.data / f"{topic}-{partition}").glob("*.log"))
        return PartitionSize(
            partition, records, len(keys), sum(log.stat().st_size for log in logs), len(logs)
        )

    def _set(self, topic: str, settings: dict[str, str]) -> None:
        operation = confluent_kafka.admin.AlterConfigOpType.SET
        entries = [
            confluent_kafka.admin.ConfigEntry(name, value, incremental_operation=operation)
            for name, value in settings.items()
        ]
        resource = confluent_kafka.admin.ConfigResource("topic", topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(LIMIT_SECONDS)

    def _checkpoint(self, topic: str) -> dict[int, int]:
        path = self.data / "cleaner-offset-checkpoint"
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        entries = [line.split() for line in lines]
        return {int(partition): int(offset) for name, partition, offset in entries if name == topic}

    def cleanings(self, topic: str) -> int:
        """How often the cleaner has cleaned a partition of `topic`, by the broker's own metrics."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.http_port}/metrics", timeout=LIMIT_SECONDS
        ) as page:
            lines = page.read().decode().splitlines()
        counted = [line for line in lines if line.startswith("kompakt_clean_seconds_count{")]
        return sum(int(float(line.split()[-1])) for line in counted if f'topic="{topic}"' in line)

    def compact_fully(self, topic: str, partitions: int) -> CompactionReport:
        """Lower the dirty ratio to 0, wait until all but the active segments is clean, and measure."""
        self._set(topic, {"min.cleanable.dirty.ratio": "0"})

        def clean() -> bool:
            done = self._checkpoint(topic)
            return all(
                done.get(number, -1) >= self._active_base(topic, number) for number in range(partitions)
            )

        _wait_for(clean, "the cleaner")
        return CompactionReport([self._measure(topic, number) for number in range(partitions)])

    def _active_base(self, topic: str, partition: int) -> int:
        return max(int(log.stem) for log in (self.data / f"{topic}-{partition}").glob("*.log"))
