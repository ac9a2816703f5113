"""A JVM of `Orders.java`, an application of Kafka Streams, and the jars that it runs on."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.kafka.jars import ROOT, environment, kafka_version, resolved
from tests.kafka.tools import Tools
from tests.waiting import wait_for

HERE = Path(__file__).resolve().parent
APPLICATION = "shop"
HEAP = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LIMIT_SECONDS = 300.0


def streams_tools() -> Tools:
    """The JVM, which needs its compiler, and the jars of Streams; NoKafkaError when they cannot be had."""
    libs = ROOT / ".cache" / "kafka-streams" / kafka_version() / "libs"
    return Tools(resolved(HERE / "pom.xml", libs)).with_compiler()


class StreamsApp:
    """One instance. Owned by: the test, which ends it."""

    def __init__(self, tools: Tools, directory: Path, bootstrap: str, settings: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.output = directory / "output"
        self.errors = directory / "errors"
        all_settings = {
            "bootstrap.servers": bootstrap,
            "application.id": APPLICATION,
            "state.dir": str(directory / "state"),
            "auto.offset.reset": "earliest",
            "topology.optimization": "all",
            "commit.interval.ms": "100",
            "repartition.purge.interval.ms": "100",
            **settings,
        }
        file = directory / "settings.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in all_settings.items()))
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*tools.jvm(str(HERE / "Orders.java"), *HEAP), str(file)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env=environment(),
                text=True,
            )

    def lines(self) -> list[str]:
        """What it has told up to now."""
        return self.output.read_text().splitlines()

    def is_running(self) -> bool:
        """Whether it has its tasks and their stores; AssertionError with all it told once it has ended."""
        status = self.process.poll()
        assert status is None, f"status {status}: {self.lines()}\n{self.errors.read_text()[-8000:]}"
        states = [line for line in self.lines() if line.startswith("state ")]
        return states[-1:] == ["state RUNNING"]

    def rebalances(self) -> int:
        return self.lines().count("state REBALANCING")

    def failures(self) -> list[str]:
        return [line for line in self.lines() if line.startswith("failed ")]

    def restored(self, store: str) -> int:
        """Records that were read from changelogs for a store, all its partitions and tasks together."""
        told = [line.split() for line in self.lines() if line.startswith(f"restored {store} ")]
        return sum(int(words[2]) for words in told)

    def table(self, store: str) -> dict[str, str]:
        """What this instance has in a store: of the partitions that it has, and that are read back."""
        return self._asked("table", store)

    def host(self, store: str, key: str) -> int:
        """The port of the instance that has a key, as far as this one knows."""
        return int(self._asked("host", store, key)[key])

    def _asked(self, command: str, store: str, *more: str) -> dict[str, str]:
        before = len(self.lines())
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join([command, store, *more]) + "\n")
        self.process.stdin.flush()

        def told() -> list[str] | None:
            lines = self.lines()[before:]
            assert self.process.poll() is None, self.errors.read_text()[-8000:]
            return lines if f"end {store}" in lines else None

        lines = wait_for(told, f"{command} {store}", LIMIT_SECONDS)
        rows = [line.split(" ", 3) for line in lines if line.startswith(f"row {store} ")]
        return {key: value for _, _, key, value in rows}

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it if it still runs."""
        self.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
