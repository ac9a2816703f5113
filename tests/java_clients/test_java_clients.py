"""Goal: Java clients of years ago, down to the oldest that Apache Kafka 4 supports, work on kompakt.

Method: `Client.java` is run with each version that `pom.xml` pins; the broker is killed in the middle. What
the clients print are the answers, which must be the same ones.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.fixtures import or_skip
from tests.kafka.jars import ROOT, environment, resolved
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.slow]
HERE = Path(__file__).resolve().parent
HEAP = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LIMIT_SECONDS = 300.0
RECORDS = 2000
ANSWERS = {
    "sent": str(RECORDS),
    "read": str(RECORDS),
    "nodes": "1",
    "topics": "[orders]",
    "retention.ms": "-1",
    "deleted": "10",
    "partitions": "3",
    "groups": "readers",
    "group": "Empty",
    "committed": "{0=1000, 1=1000}",
    "directories": "1",
    "acls": "SecurityDisabledException",
    "tokens": "UnsupportedByAuthenticationException",  # as in Kafka, of a client that has not said who it is
    "left": "[]",
}
ASSIGNORS = {"oldest": "RangeAssignor,RangeAssignor", "middle": ",".join(["CooperativeStickyAssignor"] * 2)}


def client_tools(which: str) -> Tools:
    """A JVM with a compiler and the jars of one version; NoKafkaError when they cannot be had."""
    found = re.search(rf"<{which}\.version>([^<]+)<", (HERE / "pom.xml").read_text())
    assert found is not None
    target = ROOT / ".cache" / "java-clients" / found[1] / "libs"
    return Tools(resolved(HERE / "pom.xml", target, f"-Dclient.version={found[1]}")).with_compiler()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data").start()
    yield process
    process.close()


@pytest.mark.parametrize("which", ["oldest", "middle"])
def test_an_old_java_client_writes_reads_and_administers(
    tmp_path: Path, broker: BrokerProcess, which: str
) -> None:
    command = or_skip(lambda: client_tools(which)).jvm(str(HERE / "Client.java"), *HEAP)
    output, errors = tmp_path / "output", tmp_path / "errors"
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [*command, broker.bootstrap, ASSIGNORS[which]], stdout=out, stderr=err, env=environment()
        )

    def is_half_done() -> bool:
        assert process.poll() is None, errors.read_text()[-8000:]
        return "\nhalf " in f"\n{output.read_text()}"

    try:
        wait_for(is_half_done, "half of the records", LIMIT_SECONDS)
        broker.kill()
        broker.start()
        assert process.wait(LIMIT_SECONDS) == 0, errors.read_text()[-8000:]
    finally:
        process.kill()
        process.wait()
    told = dict(line.split(" ", 1) for line in output.read_text().splitlines())
    assert {name: told.get(name) for name in ANSWERS} == ANSWERS, errors.read_text()[-8000:]
    assert "failed" not in told
    assert told["transactions"] == "committed"
    assert "Traceback" not in broker.log(), broker.log()
