"""Goal: a partition whose disk failed once is back without a restart: by itself, or at once when a person
asks; what was acknowledged is there, and what follows is written.

Method: the real process under `strace`, which makes one call on one partition's file fail.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from broker.cli import app
from protocol.errors import ErrorCode
from storage.verify import verify_data_directory
from tests.crash.test_injected_errors import (
    BYSTANDER,
    FIRST,
    VICTIM,
    WRITES,
    FaultyProcess,
    broker,
    check,
    make_topics,
    offline_reason,
)
from tests.waiting import wait_for

__all__ = ["broker"]


def is_online(broker: FaultyProcess) -> bool:
    """Ask for it; no, while a cleaning that began before the failure still runs."""
    asked = ["topics", "reopen", VICTIM, "--http", f"127.0.0.1:{broker.http_port}", "--json"]
    result = CliRunner().invoke(app, asked)
    (answer,) = json.loads(result.stdout)["partitions"]
    assert result.exit_code == ("error" in answer)
    assert "error" not in answer or "still going on" in answer["error"]
    return "error" not in answer


@pytest.mark.crash
@pytest.mark.parametrize("is_asked", [False, True], ids=["by itself", "asked"])
@pytest.mark.parametrize(
    ("calls", "error"), [("fdatasync", "EIO"), (WRITES, "EIO")], ids=["a failed flush", "a failed write"]
)
def test_it_comes_back(broker: FaultyProcess, calls: str, error: str, is_asked: bool) -> None:
    producer = make_topics(broker)
    assert broker.stop() == 0
    broker.inject(calls, error, FIRST, "3").start()
    broker.wait_until_ready()
    wait_for(lambda: producer.write(VICTIM) == ErrorCode.KAFKA_STORAGE_ERROR, "the failure")
    assert offline_reason(broker)
    if is_asked:
        # Another thread's third flush may fail as well; then it is asked for once more.
        wait_for(lambda: is_online(broker) and producer.write(VICTIM) == ErrorCode.NONE, "the log", 120)
    else:
        wait_for(lambda: producer.write(VICTIM) == ErrorCode.NONE, "the log", 120)
    assert "is back: it ends at" in broker.log()
    assert producer.write(BYSTANDER) == ErrorCode.NONE
    check(broker, producer, VICTIM)
    assert broker.stop() == 0
    assert verify_data_directory(broker.data) == []
