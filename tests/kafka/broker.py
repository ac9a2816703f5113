"""A real Apache Kafka broker (KRaft, both roles in one process) in a directory of its own on free ports."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.classes import ClassArchive
from tests.kafka.jars import environment
from tests.kafka.tools import Tools
from tests.process import free_port, remembered
from tests.waiting import wait_for

START_LIMIT_SECONDS = 120.0
STOP_LIMIT_SECONDS = 60.0
AS_RELEASED = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""how the release archive starts it, but for the heap"""
SHORT_LIVED = ("-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""a broker of a test lives for seconds: it is better off without the second compiler"""

_ASK_BODY = struct.pack(">hhih", 18, 0, 1, 5) + b"probe"
_ASK = struct.pack(">i", len(_ASK_BODY)) + _ASK_BODY


def answers_api_versions(port: int) -> bool:
    """Whether whatever listens on `port` answers ApiVersions v0: what a broker that serves does."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(_ASK)
            answer = b""
            while len(answer) < 14:
                part = connection.recv(65536)
                if not part:
                    return False
                answer += part
    except OSError:
        return False
    _, correlation_id, error_code, _ = struct.unpack_from(">iihi", answer)
    return (correlation_id, error_code) == (1, 0)


def random_cluster_id() -> str:
    """A Kafka Uuid that no argument parser takes for an option."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class KafkaBroker:
    """One broker; may be stopped or killed and started again on the same data and ports."""

    quorum: ClassVar[tuple[str, ...]] = ("--standalone",)
    """how a fresh directory is told which controllers there are"""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        tools: Tools | None = None,
        measured: tuple[str, ...] = (),
    ) -> None:
        """`measured`: the JVM's options where its speed is the point."""
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self.controller_port = free_port()
        self.settings = dict(settings or {})
        self.tools = tools or Tools()
        self.options = measured or SHORT_LIVED
        classes = str(self.tools.libraries)
        self.archive = None if measured else ClassArchive(self.tools.java, "broker", classes)
        self.process: subprocess.Popen[bytes] | None = None
        self.start_seconds = 0.0
        self.output = directory / "broker.log"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def properties(self) -> dict[str, str]:
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **self.settings,
        }

    def start(self) -> KafkaBroker:
        """Format a fresh directory, start, wait for an answer; `start_seconds` leaves the format out."""
        self.data.mkdir(parents=True, exist_ok=True)
        settings = self.directory / "server.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self.properties().items()))
        if not (self.data / "meta.properties").exists():
            arguments = ("format", *self.quorum, "-t", random_cluster_id(), "-c", settings)
            self.tools.run("kafka-storage", *arguments)
        archive = self.archive.options() if self.archive is not None else []
        options = (*self.options, *archive, f"-Dkafka.logs.dir={self.directory}")
        command = [*self.tools.jvm("kafka.Kafka", *options, log_level="INFO"), str(settings)]
        began = time.monotonic()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment()
            )
        remembered(self.process)
        wait_for(self._answers, f"Apache Kafka on {self.bootstrap}", START_LIMIT_SECONDS)
        self.start_seconds = time.monotonic() - began
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        status = self.process.poll()
        assert status is None, f"Apache Kafka ended with status {status}:\n{self.log()[-4000:]}"
        return answers_api_versions(self.port)

    def log(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def stop(self) -> None:
        """SIGTERM and a clean shutdown."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_LIMIT_SECONDS)
        self.process = None
        if self.archive is not None:
            self.archive.keep()

    def kill(self) -> None:
        """`kill -9`, and wait until the process is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None
        if self.archive is not None:
            self.archive.drop()

    def close(self) -> None:
        """End the process if it still runs, and remove everything."""
        if self.process is not None and self.archive is not None and self.archive.is_made:
            self.stop()  # the next ones start from what it leaves
        elif self.process is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class OldKafkaBroker(KafkaBroker):
    """One of Apache Kafka 3.x, whose settings name the controllers; before 3.9 there was no other way."""

    quorum: ClassVar[tuple[str, ...]] = ()

    def properties(self) -> dict[str, str]:
        named = super().properties()
        del named["controller.quorum.bootstrap.servers"]
        named["controller.quorum.voters"] = f"1@127.0.0.1:{self.controller_port}"
        named["advertised.listeners"] = f"PLAINTEXT://{self.bootstrap}"
        return named
