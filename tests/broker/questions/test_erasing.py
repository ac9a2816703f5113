"""Goal: a key that was erased is in no file any more, and where it could not be erased the receipt says so.

Method: a broker in the loop with a manual clock. After an erasure every file of the data directory is
searched for the bytes themselves; each thing that can hold a value back is brought about and must be told of.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.partition import Partition
from broker.topic import METADATA_TOPIC
from protocol.compression import Codec
from storage.layout import TopicPartition
from storage.types import Origin
from tests.broker.conftest import World
from tests.broker.test_questions import Asker, MakeWorld, compacted, log_of, put

HOUR_MS = 3_600_000
SECRET = "the secret of alice"


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


async def erase(asker: Asker, key: str = "alice", status: int = 200, **more: Any) -> list[dict[str, Any]]:
    answer = await asker.post("t/erase", {"key": key, **more}, status)
    found: list[dict[str, Any]] = answer["partitions"]
    return found


def files_with(directory: Path, text: str) -> list[str]:
    """The names of the files that hold these bytes."""
    paths = (path for path in directory.rglob("*") if path.is_file())
    return [path.name for path in paths if text.encode() in path.read_bytes()]


async def pass_time(asker: Asker, time_ms: int) -> None:
    """Let files of replaced segments go that are due then."""
    asker.world.clock.advance(time_ms)
    await asker.world.broker.run_blocking(asker.world.broker.logs.deleted.remove)


def begin(world: World, value: bytes | None) -> Partition:
    """Producer 7 begins a transaction with a record of alice; the partition."""
    partition = world.broker.partitions[TopicPartition("t", 0)]
    who = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    partition.append(world.batch((b"alice", value), **who), world.clock.now_ms(), Origin.COORDINATOR)
    return partition


async def end(world: World, partition: Partition, *, is_commit: bool) -> None:
    """On disk, as it is when a producer hears of it."""
    partition.end_open_transaction(7, world.clock.now_ms(), is_commit=is_commit)
    waited = partition.when_flushed(partition.log.log_end_offset)
    if waited is not None:
        await waited


async def test_no_file_holds_a_value_and_later_not_even_the_key(asker: Asker) -> None:
    """Values in closed, cleaned and active segments; the receipt's times are when the last bytes go."""
    world = asker.world
    compacted(world, delete_retention_ms=str(HOUR_MS))
    await put(world, ("alice", f"{SECRET} 1"), ("bob", "stays"), roll=True)
    await asker.compact()
    await put(world, ("alice", f"{SECRET} 2"), ("carol", "stays"), roll=True)
    await put(world, ("alice", f"{SECRET} 3"), ("bob", "stays, too"))
    assert files_with(world.directory, SECRET)
    (receipt,) = await erase(asker)
    assert (receipt["partition"], receipt["is_erased"], receipt["held_back_by"]) == (0, True, None)
    assert (receipt["values"], receipt["last_value_offset"], receipt["tombstone_offset"]) == (3, 4, 6)
    assert (receipt["values_left"], receipt["written_since"]) == ([], [])
    now_ms = world.clock.now_ms()
    await pass_time(asker, receipt["files_until_ms"] - now_ms)
    assert files_with(world.directory, SECRET) == []
    assert files_with(world.directory, "alice") != []
    table = await asker.get("t/table")
    assert [(row["key"], row["value"]) for row in table["rows"]] == [
        ("bob", "stays, too"),
        ("carol", "stays"),
    ]
    assert (receipt["has_tombstone"], receipt["tombstone_until_ms"]) == (True, now_ms + HOUR_MS)
    await pass_time(asker, HOUR_MS)
    await asker.compact()
    await pass_time(asker, HOUR_MS)
    assert files_with(world.directory, "alice") == []
    assert await erase(asker) == []


@pytest.mark.parametrize("codec", list(Codec))
async def test_whatever_the_values_are_packed_in(asker: Asker, codec: Codec) -> None:
    world = asker.world
    compacted(world)
    partition = world.broker.partitions[TopicPartition("t", 0)]
    rows = [(key.encode(), f"{SECRET} {number}".encode()) for number, key in enumerate(["alice", "bob"] * 20)]
    partition.append(world.batch(*rows, codec=codec), world.clock.now_ms())
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], receipt["values"], receipt["last_value_offset"]) == (True, 20, 38)
    assert [row["key"] for row in (await asker.get("t/table"))["rows"]] == ["bob"]
    assert (await asker.get("t/get?key=alice&history=1"))["partitions"][0]["versions"][0]["is_tombstone"]


async def test_each_partition_that_has_the_key_and_no_other(asker: Asker) -> None:
    asker.world.topic("t", 3, cleanup_policy="compact")
    await put(asker.world, ("alice", "1"))
    await put(asker.world, ("alice", "2"), partition=2)
    ends = log_of(asker.world, 1).log_end_offset
    assert [one["partition"] for one in await erase(asker)] == [0, 2]
    assert log_of(asker.world, 1).log_end_offset == ends
    await put(asker.world, ("alice", "3"), partition=2)
    await put(asker.world, ("alice", "3"))
    assert [one["partition"] for one in await erase(asker, partition=2)] == [2]


async def test_a_key_that_is_deleted_already_gets_no_second_tombstone(asker: Asker) -> None:
    compacted(asker.world)
    await put(asker.world, ("alice", SECRET), ("alice", None))
    (receipt,) = await erase(asker)
    assert (receipt["tombstone_offset"], receipt["is_erased"]) == (1, True)
    assert log_of(asker.world).log_end_offset == 2
    (receipt,) = await erase(asker)
    assert (receipt["values"], receipt["last_value_offset"], receipt["is_erased"]) == (0, None, True)
    assert log_of(asker.world).log_end_offset == 2


async def test_what_was_aborted_is_erased_as_well(asker: Asker) -> None:
    """No reader sees it, and its bytes are there all the same."""
    world = asker.world
    compacted(world)
    partition = begin(world, SECRET.encode())
    await end(world, partition, is_commit=False)
    assert (await asker.get("t/get?key=alice"))["partitions"][0]["versions"] == []
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], receipt["values"]) == (True, 1)
    await pass_time(asker, HOUR_MS)
    assert files_with(world.directory, SECRET) == []


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_tombstone_that_is_not_committed_is_none(asker: Asker, is_open: bool) -> None:
    """It deletes nothing: another one is written."""
    world = asker.world
    compacted(world)
    await put(world, ("alice", SECRET))
    partition = begin(world, None)
    if not is_open:
        await end(world, partition, is_commit=False)
    (receipt,) = await erase(asker)
    assert receipt["tombstone_offset"] == (2 if is_open else 3)
    assert receipt["is_erased"] is not is_open
    if is_open:
        assert "transaction" in receipt["held_back_by"]
        await end(world, partition, is_commit=False)
        (receipt,) = await erase(asker)
        assert receipt["is_erased"]
    assert (await asker.get("t/table"))["rows"] == []


async def test_more_versions_than_are_looked_at_prove_nothing(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.questions.erasing.MOST_VERSIONS", 3)
    compacted(asker.world)
    await put(asker.world, *(("alice", str(number)) for number in range(9)))
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], receipt["is_cut"], receipt["values"]) == (True, True, 3)
    await asker.world.broker.run_blocking(asker.world.broker.cleaner.abort_and_pause, TopicPartition("t", 0))
    await put(asker.world, *(("alice", str(number)) for number in range(9)))
    (receipt,) = await erase(asker)
    assert receipt["is_erased"] is False
    asker.world.broker.cleaner.resume(TopicPartition("t", 0))


# What holds a value back


async def test_an_open_transaction_holds_it_back(asker: Asker) -> None:
    world = asker.world
    compacted(world)
    await put(world, ("alice", "before"))
    partition = begin(world, b"undecided")
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], receipt["values_left"]) == (False, [0, 1])
    assert "transaction" in receipt["held_back_by"]
    await end(world, partition, is_commit=True)
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], receipt["tombstone_offset"]) == (True, 2)


async def test_a_compaction_lag_holds_it_back_until_it_is_over(asker: Asker) -> None:
    compacted(asker.world, min_compaction_lag_ms=str(HOUR_MS))
    await put(asker.world, ("alice", SECRET))
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], receipt["values_left"]) == (False, [0])
    assert "min.compaction.lag.ms" in receipt["held_back_by"]
    await pass_time(asker, HOUR_MS + 1)
    (receipt,) = await erase(asker)
    assert receipt["is_erased"]


async def test_a_pause_and_a_damage_hold_it_back(asker: Asker) -> None:
    world = asker.world
    compacted(world)
    await put(world, ("alice", SECRET), roll=True)
    await world.broker.run_blocking(world.broker.cleaner.abort_and_pause, TopicPartition("t", 0))
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], receipt["values_left"]) == (False, [0])
    assert "paused" in receipt["held_back_by"]
    world.broker.cleaner.resume(TopicPartition("t", 0))
    path = log_of(world).segments[0].file.path
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (receipt,) = await erase(asker)
    assert not receipt["is_erased"]
    assert receipt["held_back_by"]
    path.write_bytes(content)


async def test_a_key_that_is_written_again_meanwhile_is_told_of(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = asker.world
    compacted(world)
    await put(world, ("alice", SECRET))
    manager = world.broker.cleaner
    clean_now = manager.clean_now

    def and_write(*arguments: Any, **more: Any) -> Any:
        world.broker.run_on_loop(
            lambda: world.broker.partitions[TopicPartition("t", 0)].append(
                world.batch((b"alice", b"again")), world.clock.now_ms()
            )
        )
        return clean_now(*arguments, **more)

    monkeypatch.setattr(manager, "clean_now", and_write)
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], receipt["written_since"]) == (True, [2])


async def test_a_log_that_is_offline(asker: Asker) -> None:
    compacted(asker.world)
    await put(asker.world, ("alice", SECRET))
    log_of(asker.world).take_offline("its disk failed")
    (receipt,) = await erase(asker)
    assert (receipt["is_erased"], "offline" in receipt["error"]) == (False, True)
    log_of(asker.world).offline_reason = None


# What is refused


@pytest.mark.parametrize(
    ("topic", "body", "status", "words"),
    [
        ("t", {}, 400, "'key' is needed"),
        ("t", {"key": 7}, 400, "type str"),
        ("t", {"key": "0g", "encoding": "hex"}, 400, "no hex"),
        ("t", {"key": "k", "encoding": "rot13"}, 400, "encoding"),
        ("t", {"key": "\ud800"}, 400, "surrogate"),
        ("t", {"key": "k", "partition": 5}, 404, "partitions"),
        ("plain", {"key": "k"}, 409, "is delete"),
        ("newest", {"key": "k"}, 409, "timestamp"),
        (METADATA_TOPIC, {"key": "k"}, 409, "own"),
    ],
)
async def test_what_cannot_be_erased(asker: Asker, topic: str, body: object, status: int, words: str) -> None:
    compacted(asker.world)
    asker.world.topic("plain")
    asker.world.topic("newest", cleanup_policy="compact", compaction_strategy="timestamp")
    assert words in (await asker.post(f"{topic}/erase", body, status))["error"]


async def test_no_more_than_so_many_wait(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that erases counts from its begin, its first look at the files included."""
    monkeypatch.setattr("broker.http.changes.MOST_WAITING", 1)
    compacted(asker.world)
    await put(asker.world, ("alice", SECRET))
    answers = await asyncio.gather(
        *(asker.send("POST", "/api/topics/t/erase", {"key": "alice"}, Content_Type="application/json")
          for _ in range(4))
    )  # fmt: skip
    found = sorted(status for status, _, _ in answers)
    assert found[0] == 200
    assert set(found[1:]) <= {200, 429}
    monkeypatch.setattr("broker.http.changes.MOST_WAITING", 0)
    await asker.post("t/erase", {"key": "alice"}, 429)


async def test_keys_that_are_no_text(asker: Asker) -> None:
    world = asker.world
    compacted(world)
    partition = world.broker.partitions[TopicPartition("t", 0)]
    partition.append(world.batch((b"\x00\xff", b"v")), world.clock.now_ms())
    (receipt,) = await erase(asker, "00ff", encoding="hex")
    assert receipt["is_erased"]
    assert await erase(asker, "AP8=", encoding="base64") == [
        {**receipt, "values": 0, "last_value_offset": None}
    ]
