"""The two brokers under measurement behind one interface, each with its own defaults."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.goals import KAFKA, KOMPAKT
from benchmarks.wire import serves
from tests.kafka.broker import AS_RELEASED, KafkaBroker, answers_api_versions
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

# The heap of the release archive's own start script.
ARCHIVE_HEAP = ("-Xms1g", "-Xmx1g")
# The same for both: one cleaner thread that looks often, files gone soon after their topic.
SETTINGS = {
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "1",
}
LEADER_LIMIT_SECONDS = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


class System:
    """One broker process that can be started, asked for topics, and looked at from outside."""

    name: str

    def __init__(self, broker: BrokerProcess | KafkaBroker, name: str, data: Path) -> None:
        self.broker = broker
        self.name = name
        self.data = data

    @property
    def port(self) -> int:
        return self.broker.port

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def pid(self) -> int:
        assert self.broker.process is not None
        return self.broker.process.pid

    def start(self) -> float:
        """Seconds from the start of the process to its first answer of ApiVersions."""
        if isinstance(self.broker, KafkaBroker):
            self.broker.start()
            return self.broker.start_seconds
        began = time.monotonic()
        self.broker.start()
        wait_for(lambda: answers_api_versions(self.port), self.name)
        return time.monotonic() - began

    def stop(self) -> None:
        self.broker.stop()

    def kill(self) -> None:
        """`kill -9`."""
        self.broker.kill()

    def close(self) -> None:
        self.broker.close()

    def log(self) -> str:
        return self.broker.log()

    def memory_mib(self) -> float:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None, status
        return int(found[1]) / 1024

    def cpu_seconds(self) -> float:
        """utime and stime of the process, in ticks of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def cpu_meter(self) -> Callable[[], float]:
        """What `cpu_seconds` grows by from now on, exact: for a process that does next to nothing. The exact
        count of a thread goes with it: where some ended meanwhile, whole ticks of the process say more.
        """
        before, whole = self._scheduled(), self.cpu_seconds()

        def used() -> float:
            now = self._scheduled()
            exact = sum(taken - before.get(thread, 0) for thread, taken in now.items()) / 1e9
            return exact if before.keys() <= now.keys() else max(exact, self.cpu_seconds() - whole)

        return used

    def _scheduled(self) -> dict[str, int]:
        """Of each thread that lives how many ns it has had."""
        found = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                found[task.name] = int((task / "schedstat").read_text().split()[0])
        return found

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 4})

    def create_topic(
        self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until its partitions have a leader."""
        admin = self.admin()
        wanted = NewTopic(topic, partitions, 1, config=dict(settings or {}))
        admin.create_topics([wanted], request_timeout=LEADER_LIMIT_SECONDS)[topic].result(
            LEADER_LIMIT_SECONDS
        )

        def is_led() -> bool:
            known = admin.list_topics(topic, 10).topics[topic].partitions
            return len(known) == partitions and all(one.leader >= 0 for one in known.values())

        wait_for(is_led, f"a leader of {topic}", LEADER_LIMIT_SECONDS)
        for index in range(partitions):
            wait_for(partial(serves, self.port, topic, index), f"{topic}-{index} to be served")

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(60)

    def set_topic(self, topic: str, key: str, value: str) -> None:
        """Set one key of a topic's configuration."""
        admin = self.admin()
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)


def make_systems(
    directory: Path, tools: Tools, only: str | None = None, settings: Mapping[str, str] | None = None
) -> list[System]:
    """Both systems (or the one named), not started, with their data under `directory`."""
    systems = []
    settings = SETTINGS if settings is None else settings
    if only in (None, KOMPAKT):
        data = directory / "kompakt" / "data"
        data.parent.mkdir(parents=True, exist_ok=True)
        systems.append(System(BrokerProcess(data, settings), KOMPAKT, data))
    if only in (None, KAFKA):
        options = (*ARCHIVE_HEAP, *AS_RELEASED)
        broker = KafkaBroker(directory / "kafka", settings, tools=tools, measured=options)
        systems.append(System(broker, KAFKA, broker.data))
    return systems
