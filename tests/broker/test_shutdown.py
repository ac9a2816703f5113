"""Goal: a broker that is told to stop answers what it took, loses nothing of it, and ends soon.

Method: a real process; a client pipelines produces when the signal comes, and counts what was acknowledged.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.records import encode_batch
from storage.verify import verify_data_directory
from tests.broker.client import until
from tests.siege import PRODUCE_VERSION, Siege, produce_request
from tests.survivor import TOPIC, Survivor
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]


def test_sigterm_under_load_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """The broker answers what it took, flushes, marks the directory clean, and ends with status 0."""
    siege = Siege(tmp_path, {})
    process = siege.process
    acknowledged = asyncio.run(_produce_until_the_end(siege))
    assert process.process is not None
    assert process.process.wait(60) == 0
    log = process.log()
    assert "Traceback" not in log
    assert " ERROR " not in log
    assert (process.data / ".kafka_cleanshutdown").exists()
    assert verify_data_directory(process.data) == []
    process.process = None
    process.start()
    try:

        async def look() -> None:
            client = await siege.connect()
            keys = await Survivor(client).keys()
            assert keys[:acknowledged] == [b"%d" % number for number in range(acknowledged)]
            await siege.hang_up()

        asyncio.run(look())
        assert process.stop() == 0
    finally:
        process.close()


async def _produce_until_the_end(siege: Siege) -> int:
    """Pipelined produces while SIGTERM comes; how many were acknowledged."""
    client = await siege.connect()
    await siege.create_topic_on(client, TOPIC)
    sent = acknowledged = 0
    batches = (encode_batch([(None, b"%d" % number, b"value" * 100, ())]) for number in range(1_000_000))
    try:
        while True:
            while sent < acknowledged + 100:
                client.send(produce_request((TOPIC, 0, next(batches))), PRODUCE_VERSION)
                sent += 1
            await client.receive_frame()
            acknowledged += 1
            if acknowledged == 500:
                assert siege.process.process is not None
                siege.process.process.terminate()
    except (asyncio.IncompleteReadError, ConnectionError):
        await siege.hang_up()
    assert acknowledged >= 500
    return acknowledged


def test_a_terminal_that_closes_ends_it_cleanly(tmp_path: Path) -> None:
    """Shell and kernel may both say so. The tests themselves may run under `nohup`."""
    siege = Siege(tmp_path, {}, prefix=["env", "--default-signal=HUP"])
    process = siege.process.process
    assert process is not None
    try:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
        siege.process.process = None
        assert (siege.process.data / ".kafka_cleanshutdown").exists()
    finally:
        siege.process.close()


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_it_was_started_with_closed_streams(tmp_path: Path, closed: str) -> None:
    """As a daemon may be. libuv ends a process that closes a socket of number 0, 1 or 2, and a file would
    get what a library has to say.
    """
    siege = Siege(tmp_path, {}, prefix=["sh", "-c", f'exec "$@" {closed}', "sh"])
    process = siege.process.process
    assert process is not None
    try:
        opened = Path(f"/proc/{process.pid}/fd")
        for number in range(3):
            assert (opened / str(number)).readlink() in (Path("/dev/null"), siege.process.output)
        assert siege.process.stop() == 0
        assert (siege.process.data / ".kafka_cleanshutdown").exists()
    finally:
        siege.process.close()


def test_nohup_is_respected(tmp_path: Path) -> None:
    siege = Siege(tmp_path, {}, prefix=["nohup"])
    process = siege.process.process
    assert process is not None
    try:
        process.send_signal(signal.SIGHUP)
        assert siege.process.http("/healthz")
        assert siege.process.stop() == 0
    finally:
        siege.process.close()


def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    """Who cannot wait for a drain says so again: the next start recovers."""
    siege = Siege(tmp_path, {})
    process = siege.process.process
    assert process is not None
    try:
        process.terminate()
        process.terminate()
        assert process.wait(60) in (0, 1)
        siege.process.process = None
        siege.process.start()
        assert siege.process.stop() == 0
        assert "Traceback" not in siege.process.log()
    finally:
        siege.process.close()


def test_sigterm_while_a_large_topic_is_made(tmp_path: Path) -> None:
    """It is given up with all that was made of it, and who asked is told so."""
    siege = Siege(tmp_path, {})
    process = siege.process.process
    assert process is not None

    async def ask() -> int:
        client = await siege.connect()
        topic = CreateTopicsRequest.CreatableTopic(name="huge", num_partitions=10_000, replication_factor=1)
        client.send(CreateTopicsRequest(timeout_ms=60_000, topics=[topic]), 5)
        await until(lambda: len(list(siege.process.data.glob("huge-*"))) > 10)
        process.terminate()
        answer = (await client.receive(CreateTopicsResponse, 5))[1]
        await siege.hang_up()
        code: int = answer.topics[0].error_code
        return code

    try:
        assert asyncio.run(ask()) == ErrorCode.NOT_CONTROLLER
        assert process.wait(60) == 0
        siege.process.process = None
        siege.process.start()
        siege.process.wait_until_ready()
        assert " 0 topics" in siege.process.log().splitlines()[-1]
        wait_for(lambda: not list(siege.process.data.glob("huge-*")), "the removal of what was made")
        assert siege.process.stop() == 0
        assert verify_data_directory(siege.process.data) == []
    finally:
        siege.process.close()


COMPILING = """
import logging, sys, threading
import broker.broker, broker.run, broker.warm_up
from config.load import load

logging.basicConfig(level="INFO")
broker.warm_up.USUAL_SECONDS = 0.0
broker.warm_up.has_compiled = lambda: True
{place} = lambda: threading.Event().wait()
sys.exit(broker.run.run(load(data=[sys.argv[1]], port=0, http_port=-1)))
"""


@pytest.mark.parametrize("place", ["broker.broker.load_kernels", "broker.run.load_cleaner_kernels"])
def test_sigterm_does_not_wait_for_a_compiler(tmp_path: Path, place: str) -> None:
    """Where no kernel is in the cache, a first start compiles for a minute, and says so."""
    data, log = tmp_path / "data", tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", COMPILING.format(place=place), str(data)], stderr=output, cwd=ROOT
        )
    try:
        wait_for(lambda: "kernels are being compiled" in log.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert (data / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in log.read_text()
