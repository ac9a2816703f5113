"""Goal: workers of a share group (KafkaShareConsumer of Apache Kafka 4.3) do every job, whatever becomes of
the broker: each is accepted or rejected in the end, and the group is behind by nothing.

Method: `Workers.java` is run; the broker is killed in the middle. What it prints are the answers. What an
answer says is settled never comes again; of what the kill left unanswered nobody knows, as in Kafka.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.fixtures import or_skip
from tests.kafka.jars import environment
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = pytest.mark.java
HERE = Path(__file__).resolve().parent
HEAP = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LIMIT_SECONDS = 200.0
JOBS = 2000
ANSWERS = {
    "members": "3",
    "jobs": str(JOBS),
    "known to be done": "true",
    "refused and done": "0",
    "delivered again": "0",
    "tried again": "true",
    "lag": "0",
    "state": "Empty",
    "left": "0",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data").start()
    yield process
    process.close()


def test_every_job_is_done(tmp_path: Path, broker: BrokerProcess) -> None:
    command = or_skip(lambda: Tools().with_compiler()).jvm(str(HERE / "Workers.java"), *HEAP)
    output, errors = tmp_path / "output", tmp_path / "errors"
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen([*command, broker.bootstrap], stdout=out, stderr=err, env=environment())

    def is_half_done() -> bool:
        assert process.poll() is None, errors.read_text()[-8000:]
        return "half:" in output.read_text()

    try:
        wait_for(is_half_done, "half of the jobs", LIMIT_SECONDS)
        broker.kill()
        broker.start()
        assert process.wait(LIMIT_SECONDS) == 0, errors.read_text()[-8000:]
    finally:
        process.kill()
        process.wait()
    told = dict(line.split(": ", 1) for line in output.read_text().splitlines())
    assert {name: told.get(name) for name in ANSWERS} == ANSWERS, errors.read_text()[-8000:]
    assert "failed" not in told, told
    assert "Traceback" not in broker.log(), broker.log()
