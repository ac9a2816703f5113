"""Goal: a person who asks why a topic is not compacted gets the true reason, and can have it compacted.

Method: a broker in the loop whose clock stands still and whose cleaner is off; each reason is brought about
with real records, and asked for over HTTP. Answers are compared with what the log really holds.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from cleaner.manager import CleanerManager
from cleaner.selection import Assessment
from protocol.control import Marker, encode_marker
from protocol.records import encode_batch
from storage.file import Disk
from storage.layout import TopicPartition
from storage.log import Log
from storage.types import Origin
from tests.broker.client import until
from tests.broker.conftest import World

MakeWorld = Callable[..., Awaitable[World]]
HOUR_MS = 3_600_000
MAX_LAG = "max.compaction.lag.ms"


class Asker:
    """HTTP requests to the broker of a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def send(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        url = f"http://127.0.0.1:{self.world.broker.http.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method,
                url,
                data=None if body is None else json.dumps(body).encode(),
                headers={name.replace("_", "-"): text for name, text in headers.items()},
            ) as answer,
        ):
            return answer.status, dict(answer.headers), await answer.text()

    async def get(self, path: str, status: int = 200) -> dict[str, Any]:
        got, _, text = await self.send("GET", f"/api/topics/{path}")
        assert got == status, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    async def post(self, path: str, body: object, status: int = 200) -> dict[str, Any]:
        got, _, text = await self.send("POST", f"/api/topics/{path}", body, Content_Type="application/json")
        assert got == status, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    async def why(self, reason: str, *parts: str) -> dict[str, Any]:
        """The answer about partition 0 of topic t, whose reason and words must be these."""
        answer: dict[str, Any] = (await self.get("t/explain"))["partitions"][0]
        assert answer["reason"] == reason, answer["sentence"]
        for part in parts:
            assert part in answer["sentence"]
        return answer

    async def compact(self, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = (await self.post("t/compact", body))["partitions"][0]
        return answer


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


def log_of(world: World, partition: int = 0, topic: str = "t") -> Log:
    return world.broker.partitions[TopicPartition(topic, partition)].log


async def put(world: World, *pairs: tuple[str, str | None], partition: int = 0, roll: bool = False) -> None:
    """One batch of each pair, flushed; `roll` closes the segment behind it."""
    served = world.broker.partitions[TopicPartition("t", partition)]
    now_ms = world.clock.now_ms()
    for key, value in pairs:
        served.append(world.batch((key.encode(), None if value is None else value.encode())), now_ms)
    if roll:
        served.log.roll(now_ms)
    waited = served.when_flushed(served.log.log_end_offset)
    if waited is not None:
        await waited


def compacted(world: World, **overrides: str) -> None:
    world.topic("t", cleanup_policy="compact", **overrides)


# Why


async def test_a_topic_that_is_not_compacted(asker: Asker) -> None:
    asker.world.topic("t")
    answer = await asker.why("not_compacted", "cleanup.policy is delete")
    assert answer["dry_run"] is None
    assert "log.cleaner.enable" not in answer["sentence"]


async def test_nothing_is_written(asker: Asker) -> None:
    compacted(asker.world)
    await asker.why("empty", "Nothing is written", "log.cleaner.enable=false")


async def test_all_that_was_written_is_deleted(asker: Asker) -> None:
    asker.world.topic("t", cleanup_policy="compact,delete")
    await put(asker.world, ("a", "1"), ("a", "2"))
    log_of(asker.world).delete_records(2)
    answer = await asker.why("empty", "No record is left: all below its end, offset 2, were deleted")
    assert "Nothing is written" not in answer["sentence"]
    assert (await asker.compact(dry_run=True))["held_back_by"] == "the log holds no record"


async def test_only_the_active_segment(asker: Asker) -> None:
    """W1: the commonest reason; the answer says when the segment is closed."""
    compacted(asker.world, segment_ms=str(HOUR_MS))
    await put(asker.world, ("a", "1"), ("a", "2"))
    answer = await asker.why("active_segment", "active segment", "by the first record after")
    assert answer["rolls_after_ms"] == asker.world.clock.now_ms() + HOUR_MS
    assert answer["uncleanable_bytes"]["active"] == answer["active_bytes"] == log_of(asker.world).size_bytes


async def test_an_active_segment_that_nobody_writes_to(asker: Asker) -> None:
    """T21: the time alone closes nothing, as in Kafka; the answer names the setting that gives it, and what
    would.
    """
    compacted(asker.world, **{MAX_LAG.replace(".", "_"): str(HOUR_MS)})
    await put(asker.world, ("a", "1"), ("a", "2"))
    asker.world.clock.advance(2 * HOUR_MS)
    await asker.why("active_segment", "UTC (max.compaction.lag.ms)", "segment.idle.ms would", "--roll")
    asker.world.broker.topics.set_overrides("t", {"cleanup.policy": "compact"})
    await asker.why("active_segment", "UTC (segment.ms)")


async def test_a_ratio_that_nothing_exceeds(asker: Asker) -> None:
    compacted(asker.world, min_cleanable_dirty_ratio="1")
    await put(asker.world, ("a", "1"), ("a", "2"), roll=True)
    await asker.why("ratio", "1, which no ratio exceeds", "max.compaction.lag.ms", "`kompakt topics compact`")


async def test_tombstones_that_wait_for_a_cleaning(asker: Asker) -> None:
    """T77: as in Kafka nothing but a cleaning removes them, and nothing is dirty."""
    compacted(asker.world, delete_retention_ms=str(HOUR_MS))
    await put(asker.world, ("a", "1"), ("a", None), ("b", "1"), roll=True)
    await asker.compact()
    words = "1 tombstone that it kept may go from "
    for _ in range(2):
        await asker.why("nothing_dirty", words, "compaction.expired.tombstones.enable")
        await asker.world.restart()
        asker.world.clock.advance(HOUR_MS)
    await asker.compact()
    answer = await asker.why("nothing_dirty")
    assert "tombstone" not in answer["sentence"]


async def test_a_cleaner_that_is_off_deletes_nothing_either(asker: Asker) -> None:
    """T133: retention of compact,delete is its work."""
    compacted(asker.world)
    answer = await asker.why("empty", "log.cleaner.enable=false")
    assert "retention then" not in answer["sentence"]
    asker.world.broker.topics.set_overrides("t", {"cleanup.policy": "compact,delete"})
    await asker.why("empty", "log.cleaner.enable=false", "Nor does anything delete by retention then")


async def test_a_cleaner_that_cannot_begin(make_world: MakeWorld) -> None:
    """Its threads live, and wait for another setting."""
    asker = Asker(await make_world(http_port="0", log_cleaner_io_buffer_size="1"))
    compacted(asker.world, min_cleanable_dirty_ratio="0.1")
    await put(asker.world, ("a", "1"), ("a", "2"), roll=True)
    await asker.why("eligible", "But nothing is cleaned at all: log.cleaner.io.buffer.size")


async def test_the_ratio_is_too_low_and_how_much_is_missing(asker: Asker) -> None:
    compacted(asker.world, min_cleanable_dirty_ratio="0.6")
    world = asker.world
    await put(world, *((f"k{index}", "v" * 100) for index in range(20)), roll=True)
    await asker.compact()
    await put(world, *((f"n{index}", "v" * 100) for index in range(10)), roll=True)
    answer = await asker.why("ratio", "Not dirty enough", "ratio of 0.33", "0.6")
    missing = answer["bytes_until_eligible"]
    clean, dirty = answer["clean_bytes"], answer["cleanable_bytes"]
    assert dirty + missing > 0.6 * (clean + dirty + missing)
    assert dirty + missing - 2 <= 0.6 * (clean + dirty + missing - 2)
    assert answer["next_eligible_ms"] is None


async def test_the_ratio_is_too_low_but_the_longest_lag_comes(asker: Asker) -> None:
    compacted(asker.world, min_cleanable_dirty_ratio="1.0", **{MAX_LAG.replace(".", "_"): str(HOUR_MS)})
    world = asker.world
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    written_ms = world.clock.now_ms()
    answer = await asker.why("ratio", "by max.compaction.lag.ms")
    assert answer["bytes_until_eligible"] is None
    assert answer["next_eligible_ms"] == written_ms + HOUR_MS + 1
    world.clock.advance(HOUR_MS + 1)
    answer = await asker.why("eligible", "over max.compaction.lag.ms")
    assert answer["compaction_delay_ms"] == 1


async def test_eligible(asker: Asker) -> None:
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("a", "2"), roll=True)
    answer = await asker.why("eligible", "Due to be cleaned", "ratio of 1.00 above", "The cleaner is off")
    assert answer["next_eligible_ms"] == asker.world.clock.now_ms()


async def test_too_young(asker: Asker) -> None:
    compacted(asker.world, min_compaction_lag_ms=str(2 * HOUR_MS))
    world = asker.world
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    answer = await asker.why("compaction_lag", "younger than min.compaction.lag.ms (2 h)", "UTC")
    assert answer["next_eligible_ms"] == world.clock.now_ms() + 2 * HOUR_MS
    assert answer["uncleanable_bytes"]["lag"] > 0
    world.clock.advance(2 * HOUR_MS - 1)
    await asker.why("compaction_lag")
    world.clock.advance(1)
    await asker.why("eligible")


async def test_old_records_in_one_segment_with_a_young_one(asker: Asker) -> None:
    """What is kept is the segment; that all of it was young would be no answer to who sees old records."""
    compacted(asker.world, min_compaction_lag_ms=str(2 * HOUR_MS))
    await put(asker.world, ("a", "1"), ("a", "2"))
    asker.world.clock.advance(20 * HOUR_MS)
    await put(asker.world, ("a", "3"), roll=True)
    answer = await asker.why(
        "compaction_lag", "segment, from offset 0 on, holds a record younger", "kept whole"
    )
    assert "All that is dirty" not in answer["sentence"]
    assert answer["next_eligible_ms"] == asker.world.clock.now_ms() + 2 * HOUR_MS


async def test_too_young_and_not_enough_when_it_is_not(asker: Asker) -> None:
    """The end of the lag is a time, but none at which the log is cleaned."""
    lag = str(2 * HOUR_MS)
    compacted(asker.world, min_compaction_lag_ms=lag, min_cleanable_dirty_ratio="0.5")
    world = asker.world
    await put(world, *((f"k{index}", "v" * 100) for index in range(20)), roll=True)
    world.clock.advance(2 * HOUR_MS)
    await asker.compact()
    await put(world, ("a", "1"), roll=True)
    answer = await asker.why("compaction_lag", "is kept whole until", "that alone will not make it due")
    assert answer["next_eligible_ms"] is None
    world.clock.advance(HOUR_MS)
    await put(world, *((f"n{index}", "v" * 100) for index in range(30)), roll=True)
    answer = await asker.why("compaction_lag", "eligible at", "by the end of min.compaction.lag.ms")
    assert answer["next_eligible_ms"] == world.clock.now_ms() + 2 * HOUR_MS
    world.clock.advance(HOUR_MS)
    answer = await asker.why("ratio", "eligible after", "by the end of min.compaction.lag.ms for more of it")
    world.clock.advance(answer["next_eligible_ms"] - world.clock.now_ms() - 1)
    await asker.why("ratio")
    world.clock.advance(1)
    await asker.why("eligible")


async def test_an_open_transaction(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    began_ms = world.clock.now_ms()
    partition = world.broker.partitions[TopicPartition("t", 0)]
    begun = world.batch((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition.append(begun, began_ms, Origin.COORDINATOR)
    world.clock.advance(HOUR_MS)
    await put(world, ("a", "2"), roll=True)
    answer = await asker.why(
        "last_stable_offset", "open transaction of producer 7", "since 2023-11-14", "(offset 0)"
    )
    assert answer["open_transactions"] == [
        {"producer_id": 7, "first_offset": 0, "since_ms": began_ms, "aborted_ms": None}
    ]
    marker = encode_batch(
        [(began_ms, *encode_marker(Marker(True)), ())],
        producer_id=7, producer_epoch=0, is_transactional=True, is_control=True, now_ms=began_ms,
    )  # fmt: skip
    partition.append(marker, began_ms, Origin.COORDINATOR)
    await put(world, ("b", "1"), roll=True)
    await asker.why("eligible")


async def test_an_open_transaction_behind_a_little_that_could_be_cleaned(asker: Asker) -> None:
    """However much is written behind it, the ratio never rises: that is the reason."""
    compacted(asker.world)
    world = asker.world
    await put(world, *((f"k{index}", "v" * 100) for index in range(20)), roll=True)
    await asker.compact()
    await put(world, ("a", "1"), roll=True)
    partition = world.broker.partitions[TopicPartition("t", 0)]
    begun = world.batch((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition.append(begun, world.clock.now_ms(), Origin.COORDINATOR)
    answer = await asker.why(
        "ratio", "eligible after", "behind the end of the open transaction of producer 7"
    )
    await put(world, *((f"n{index}", "v" * 100) for index in range(50)), roll=True)
    answer = await asker.why("ratio", "more, and all that is written now, are held back by", "producer 7")
    assert answer["uncleanable_bytes"]["lso"] > answer["bytes_until_eligible"]
    assert "eligible after" not in answer["sentence"]


async def test_what_is_not_flushed_yet(asker: Asker) -> None:
    """The last stable offset can also wait for the disk, with no transaction open."""
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("a", "2"), roll=True)
    log_of(asker.world).high_watermark = 1  # as long as the flush lasts
    await asker.why("last_stable_offset", "not flushed to disk yet", "stands at 1 of 2")
    log_of(asker.world).high_watermark = 2


async def test_many_open_transactions_are_told_in_short(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    partition = world.broker.partitions[TopicPartition("t", 0)]
    for producer_id in range(5):
        begun = world.batch(
            (b"a", b"1"), producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        partition.append(begun, world.clock.now_ms(), Origin.COORDINATOR)
    await put(world, ("a", "2"), roll=True)
    answer = await asker.why("last_stable_offset", "producer 0", "producer 2", "and 2 more")
    assert [one["producer_id"] for one in answer["open_transactions"]] == [0, 1, 2, 3, 4]
    assert "producer 3" not in answer["sentence"]


async def test_uncleanable_since_and_when_it_is_tried_again(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    path = log_of(world).segments[0].file.path
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "error" in await asker.compact()
    answer = await asker.why("uncleanable", "cannot be cleaned since", "Failed 1 time,", "again at")
    assert answer["uncleanable"]["failures"] == 1
    assert answer["uncleanable"]["retry_ms"] == answer["next_eligible_ms"] > world.clock.now_ms()
    path.write_bytes(content)
    assert "error" not in await asker.compact()
    await asker.why("nothing_dirty")


@pytest.mark.parametrize("path", ["t/partitions/0/seek?time=5", "t/segments", "t/get?key=a"])
async def test_a_file_that_cannot_be_read_is_told(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """It was the text of a web server, and a traceback in the log."""
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("a", "2"), roll=True)

    def fail(*arguments: object) -> bytes:
        raise OSError(errno.EIO, "as a test says")

    monkeypatch.setattr(Disk, "pread", fail)
    _, _, text = await asker.send("GET", f"/api/topics/{path}")
    assert "as a test says" in str(json.loads(text))


def waits(cleaner: CleanerManager) -> bool:
    """Whether somebody waits for the end of a cleaning."""
    return bool(cleaner._changed._waiters)  # type: ignore[attr-defined]


async def test_paused_offline_and_being_cleaned(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    compacted(asker.world)
    world, key = asker.world, TopicPartition("t", 0)
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    await world.broker.run_blocking(world.broker.cleaner.abort_and_pause, key)
    assert (await asker.why("paused", "paused, 1 time"))["pauses"] == 1
    assert "paused" in (await asker.compact())["error"]
    world.broker.cleaner.resume(key)
    work = world.broker.cleaner.grab()
    assert work is not None
    await asker.why("in_progress", "right now")
    assert "being cleaned" in (await asker.compact(dry_run=True))["error"]
    waiting = asyncio.create_task(asker.compact())
    await until(lambda: waits(world.broker.cleaner))
    cleaner = world.broker.cleaner.make_cleaner(lambda size: None)
    await world.broker.run_blocking(world.broker.cleaner.clean, cleaner, work)
    assert (await waiting)["is_complete"]
    await asker.why("nothing_dirty", "reached offset 2")
    assess = world.broker.cleaner.assess

    def assess_what_fails(log: Log) -> Assessment:
        log.take_offline("its disk failed")
        return assess(log)

    with monkeypatch.context() as patch:
        patch.setattr(world.broker.cleaner, "assess", assess_what_fails)
        await asker.why("offline", "its disk failed")
    answer = await asker.why("offline", "its disk failed")
    assert "clean_bytes" not in answer
    log_of(world).offline_reason = None


async def test_nothing_to_gain(asker: Asker) -> None:
    """Unique keys: only a dry run can know, or the last cleaning."""
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("b", "2"), roll=True)
    await asker.why("eligible")
    answer = (await asker.post("t/explain", {}))["partitions"][0]
    assert answer["reason"] == "nothing_to_gain"
    assert answer["sentence"].startswith("Nothing to gain: a cleaning now would remove no record. ")
    assert answer["dry_run"]["records_after"] == answer["dry_run"]["records_before"] == 2
    assert log_of(asker.world).segments[0].base_offset == 0
    await asker.compact()
    await put(asker.world, ("c", "3" * 500), roll=True)
    await asker.why("eligible", "The last cleaning removed nothing")


async def test_a_dry_run_that_may_not_look_tells_of_no_gain(asker: Asker) -> None:
    """A hundred values of one key in the active segment: nobody may say that there is nothing to gain."""
    compacted(asker.world)
    await put(asker.world, *(("a", str(number)) for number in range(100)))
    answer = (await asker.post("t/explain", {}))["partitions"][0]
    assert (answer["reason"], answer["dry_run"]["records_before"]) == ("active_segment", 0)
    assert answer["sentence"].startswith("All that is dirty is in the active segment")
    assert "remove no record" not in answer["sentence"]


async def test_every_partition_or_one(asker: Asker) -> None:
    asker.world.topic("t", 3, cleanup_policy="compact")
    answer = await asker.get("t/explain")
    assert [one["partition"] for one in answer["partitions"]] == [0, 1, 2]
    answer = await asker.get("t/explain?partition=1")
    assert [one["partition"] for one in answer["partitions"]] == [1]
    await asker.get("t/explain?partition=3", 404)
    for wrong in ("x", "0_1", "%D9%A1", "%201", "9" * 5000):
        await asker.get(f"t/explain?partition={wrong}", 400)
    await asker.get("none/explain", 404)


# Segments


async def test_segments_are_counted_and_their_states_told(asker: Asker) -> None:
    compacted(asker.world, min_compaction_lag_ms=str(HOUR_MS))
    world = asker.world
    await put(world, ("a", "1"), ("a", "2"), ("b", "1"), roll=True)
    first_ms = world.clock.now_ms()
    world.clock.advance(2 * HOUR_MS)
    await asker.compact()
    await put(world, ("a", "3"), roll=True)
    world.clock.advance(HOUR_MS + 1)
    await put(world, ("a", "4"), ("a", "5"), roll=True)
    await put(world, ("a", "6"))
    rows = (await asker.get("t/segments"))["partitions"][0]["segments"]
    assert [row["state"] for row in rows] == ["clean", "dirty", "lagging", "active"]
    assert [(row["base_offset"], row["end_offset"]) for row in rows] == [(0, 3), (3, 4), (4, 6), (6, 7)]
    assert [row["records"] for row in rows] == [2, 1, 2, 1]
    assert [row["holes"] for row in rows] == [1, 0, 0, 0]
    assert rows[0]["min_timestamp"] == rows[0]["max_timestamp"] == first_ms
    log = log_of(world)
    assert [row["size_bytes"] for row in rows] == [one.size_bytes for one in log.segments]
    assert rows[0]["file"] == "00000000000000000000.log"


async def test_segments_with_a_tombstones_horizon_and_of_other_policies(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, ("a", "1"), ("a", None), roll=True)
    await asker.compact()
    row = (await asker.get("t/segments"))["partitions"][0]["segments"][0]
    assert (row["records"], row["min_timestamp"]) == (1, world.clock.now_ms())
    world.topic("plain")
    rows = (await asker.get("plain/segments"))["partitions"][0]["segments"]
    assert [(row["state"], row["records"], row["min_timestamp"]) for row in rows] == [("active", 0, None)]


# Seek


async def test_an_offset_is_found_in_five_steps(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, ("a", "1"), ("b", "2"), roll=True)
    await put(world, ("c", "3"))
    answer = await asker.get("t/partitions/0/seek?offset=1")
    assert len(answer["steps"]) == 5
    assert answer["found"]["base_offset"] == 1
    assert answer["found"]["log_file"] == answer["log_file"]
    assert answer["notes"] == []
    assert "active segment" in (await asker.get("t/partitions/0/seek?offset=2"))["notes"][0]
    assert "ends at 3" in (await asker.get("t/partitions/0/seek?offset=9", 404))["error"]


async def test_offsets_that_are_gone_or_not_seen_yet(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    world = asker.world
    world.topic("t")
    await world.hold_lingering(monkeypatch)
    await put(world, ("a", "1"), ("b", "2"))
    log_of(world).delete_records(1)
    assert "starts at 1" in (await asker.get("t/partitions/0/seek?offset=0", 404))["error"]
    partition = world.broker.partitions[TopicPartition("t", 0)]
    partition.append(world.batch((b"c", b"3")), world.clock.now_ms())
    assert "high watermark is 2" in (await asker.get("t/partitions/0/seek?offset=2"))["notes"][-1]


async def test_a_time_is_found_behind_what_was_deleted(asker: Asker) -> None:
    world = asker.world
    world.topic("t")
    at_ms = world.clock.now_ms()
    await put(world, ("a", "1"), roll=True)
    await put(world, ("b", "2"), roll=True)
    log_of(world).delete_records(1)
    assert [segment.base_offset for segment in log_of(world).segments] == [0, 1, 2]
    for time_ms in (0, at_ms):
        answer = await asker.get(f"t/partitions/0/seek?time={time_ms}")
        assert (answer["offset"], "segment 1 is" in answer["time_steps"][0]) == (1, True)


async def test_a_time_is_found(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, ("a", "1"), roll=True)
    world.clock.advance(HOUR_MS)
    await put(world, ("b", "2"), roll=True)
    at_ms = world.clock.now_ms()
    answer = await asker.get(f"t/partitions/0/seek?time={at_ms - 1}")
    assert (answer["offset"], len(answer["time_steps"]), len(answer["steps"])) == (1, 3, 5)
    assert "segment 1" in answer["time_steps"][0]
    assert "newest" in (await asker.get(f"t/partitions/0/seek?time={at_ms + 1}", 404))["error"]
    for bad in ("", "?offset=1&time=2", "?offset=x", "?offset=-1", f"?time={2**63}", "?offset=" + "9" * 5000):
        await asker.get(f"t/partitions/0/seek{bad}", 400)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:9644"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:9644", "Origin": "https://evil.example"}, 403),
        ({"Host": "localhost:9644", "Origin": "https://localhost:9644"}, 200),
        ({"Host": "localhost:9644", "Origin": "http://localhost:9644"}, 200),
        ({"Host": "localhost:9644"}, 200),
        ({"Host": "[::1]:9644"}, 200),
        ({"Host": "192.168.7.7:9644"}, 200),
    ],
)
async def test_a_web_page_cannot_read_answers(asker: Asker, headers: dict[str, str], status: int) -> None:
    """DNS rebinding: a page's own name that comes to mean this machine does not make it this server."""
    compacted(asker.world)
    for path in ("explain", "history", "segments", "get?key=k", "partitions/0/seek?offset=0"):
        got, answered, text = await asker.send("GET", f"/api/topics/t/{path}", **headers)
        assert (got == 403) == (status == 403), text
        assert "Access-Control-Allow-Origin" not in answered
