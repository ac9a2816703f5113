"""Goal: who removes the directory of a partition, or the files in it, under the running broker finds that
partition offline with one clear line, soon, and not acknowledged records that are nowhere; others notice
nothing. What is put back is served again, and a start without it says what is missing.

Method: the real process on directories from which things are removed, or moved away and put back.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.records import encode_batch
from tests.siege import PRODUCE_VERSION, Siege, fetch_request, produce_request
from tests.waiting import wait_for

VICTIM, OTHER = "victim", "other"
SETTINGS = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "100"}
FAR_SECONDS = 60


@pytest.fixture
def siege(tmp_path: Path) -> Iterator[Siege]:
    siege = Siege(tmp_path, SETTINGS)
    try:
        yield siege
    finally:
        siege.process.close()


async def produce(siege: Siege, topic: str) -> ErrorCode:
    client = await siege.connect()
    request = produce_request((topic, 0, encode_batch([(None, b"k", b"v", ())])))
    answer = await client.ask(request, PRODUCE_VERSION)
    await siege.hang_up()
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def fetch(siege: Siege, topic: str) -> ErrorCode:
    client = await siege.connect()
    answer = await client.ask(fetch_request(topic, 0), 12)
    await siege.hang_up()
    return ErrorCode(answer.responses[0].partitions[0].error_code)


async def make_topics(siege: Siege) -> None:
    for topic, policy in ((VICTIM, "compact"), (OTHER, "delete")):
        await siege.create_topic(topic, cleanup_policy=policy)
        assert await produce(siege, topic) == ErrorCode.NONE


def is_refused(siege: Siege) -> bool:
    return asyncio.run(produce(siege, VICTIM)) == ErrorCode.KAFKA_STORAGE_ERROR


def directory_of(siege: Siege) -> Path:
    return siege.process.data / f"{VICTIM}-0"


@pytest.mark.crash
def test_it_is_offline_and_others_are_not(siege: Siege) -> None:
    asyncio.run(make_topics(siege))
    shutil.rmtree(directory_of(siege))
    wait_for(lambda: is_refused(siege), "the refusal", FAR_SECONDS)
    assert asyncio.run(fetch(siege, VICTIM)) == ErrorCode.KAFKA_STORAGE_ERROR
    for call in (produce, fetch):
        assert asyncio.run(call(siege, OTHER)) == ErrorCode.NONE
    wait_for(lambda: f"{VICTIM}-0 stays offline" in siege.process.log(), "a try to open it", FAR_SECONDS)
    log = siege.process.log()
    (line,) = [line for line in log.splitlines() if " ERROR " in line]
    assert f"{VICTIM}-0 goes offline: {directory_of(siege)}" in line
    assert "is gone: somebody has removed it under the running broker" in line
    assert "Traceback" not in log
    assert siege.process.stop() == 0
    assert "Traceback" not in siege.process.log()


@pytest.mark.crash
def test_what_is_put_back_is_served(siege: Siege, tmp_path: Path) -> None:
    asyncio.run(make_topics(siege))
    moved = directory_of(siege).rename(tmp_path / "away")
    wait_for(lambda: is_refused(siege), "the refusal", FAR_SECONDS)
    moved.rename(directory_of(siege))
    wait_for(lambda: asyncio.run(fetch(siege, VICTIM)) == ErrorCode.NONE, "the log", FAR_SECONDS)
    assert asyncio.run(produce(siege, VICTIM)) == ErrorCode.NONE


@pytest.mark.crash
def test_where_only_its_files_are_gone_the_lost_offsets_are_named(siege: Siege) -> None:
    asyncio.run(make_topics(siege))
    for path in directory_of(siege).iterdir():
        path.unlink()
    wait_for(lambda: "is back: it ends at 0" in siege.process.log(), "the log", FAR_SECONDS)
    asyncio.run(produce(siege, VICTIM))
    log = siege.process.log()
    assert "is gone: somebody has removed it under the running broker" in log
    assert f"{VICTIM}-0 ends at 0, and ended at 1 or behind: offsets from there on are lost" in log
    assert "Traceback" not in log


@pytest.mark.crash
def test_a_start_without_it_says_so(siege: Siege) -> None:
    asyncio.run(make_topics(siege))
    assert siege.process.stop() == 0
    shutil.rmtree(directory_of(siege))
    siege.process.start()
    assert asyncio.run(fetch(siege, OTHER)) == ErrorCode.NONE
    log = siege.process.log()
    assert f"{VICTIM}-0 had no directory, and ended at 1: what it held is lost, it starts empty" in log
