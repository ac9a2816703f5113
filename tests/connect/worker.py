"""A JVM of Kafka Connect, unmodified: a distributed worker, or MirrorMaker."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kafka.jars import ROOT, environment, kafka_version, resolved
from tests.kafka.tools import Tools
from tests.process import free_port

POM = Path(__file__).resolve().parent / "pom.xml"
WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
HEAP = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def connect_tools() -> Tools:
    """The JVM and Connect's jars; NoKafkaError when they cannot be had."""
    return Tools(resolved(POM, ROOT / ".cache" / "kafka-connect" / kafka_version() / "libs"))


class ConnectProcess:
    """One JVM. Owned by: the test, which ends it."""

    def __init__(self, tools: Tools, program: str, directory: Path, settings: Mapping[str, str]) -> None:
        self.http_port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        self.output = directory / "output"
        listener = {"listeners": f"http://127.0.0.1:{self.http_port}"} if program == WORKER else {}
        lines = [f"{key} = {value}\n" for key, value in {**settings, **listener}.items()]
        file = directory / "settings.properties"
        file.write_text("".join(lines))
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*tools.jvm(program, *HEAP), str(file)],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment(),
            )

    def log(self) -> str:
        return self.output.read_text(errors="replace")

    def ask(self, path: str, body: Mapping[str, str] | None = None) -> Any:
        """The worker's answer to GET, or with a body PUT; None while it cannot give one."""
        assert self.process.poll() is None, self.log()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return None

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
