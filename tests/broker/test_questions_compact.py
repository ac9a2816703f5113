"""Goal: compacting by hand does what it says, a dry run writes nothing and tells the same numbers, what was
done is remembered, and no web page can start it.

Method: as in test_questions.py, a broker in the loop asked over HTTP; its log is read back by a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from broker.http import changes
from cleaner.cleaner import Cleaner
from cleaner.manager import CleanerManager, CleaningRefused
from cleaner.quarantine import Uncleanable
from cleaner.states import Phase
from storage.layout import TopicPartition
from tests.broker.client import until
from tests.broker.conftest import World
from tests.broker.test_questions import HOUR_MS, Asker, MakeWorld, compacted, log_of, put
from tests.broker.test_transactional_cleaning import Transaction

KEY = TopicPartition("t", 0)


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


def files(world: World) -> dict[str, bytes]:
    directory: Path = log_of(world).directory
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_w2_compact_now_with_before_and_after(asker: Asker) -> None:
    compacted(asker.world, min_cleanable_dirty_ratio="1.0")
    world = asker.world
    await put(world, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None), roll=True)
    before = log_of(world).size_bytes
    answer = await asker.compact()
    assert (answer["records_before"], answer["records_after"], answer["keys"]) == (4, 2, 1)
    assert answer["removed"]["superseded"] == 2
    assert (answer["log_bytes_before"], answer["log_bytes_after"]) == (before, log_of(world).size_bytes)
    assert answer["is_complete"]
    assert answer["now"]["reason"] == "nothing_dirty"
    client = await world.connect()
    assert [(one.key, one.value) for one in await world.records(client)] == [(b"a", b"2"), (b"b", None)]


async def test_roll_lets_the_active_segment_be_cleaned(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, ("a", "1"), ("a", "2"))
    answer = await asker.compact()
    assert (answer["records_before"], answer["now"]["reason"]) == (0, "active_segment")
    answer = await asker.compact(roll=True)
    assert (answer["records_before"], answer["records_after"]) == (2, 1)
    assert len(log_of(world).segments) == 2


async def test_a_roll_needs_no_flush_by_others(asker: Asker) -> None:
    """What was just appended and not flushed is flushed first, else the last stable offset would hold it."""
    compacted(asker.world)
    partition = asker.world.broker.partitions[KEY]
    now_ms = asker.world.clock.now_ms()
    for value in (b"1", b"2"):
        partition.append(asker.world.batch((b"a", value)), now_ms)
    assert (await asker.compact(roll=True))["records_after"] == 1


async def test_w3_a_dry_run_tells_the_same_and_writes_nothing(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, *((f"k{index % 7}", "v" * index) for index in range(40)), ("k1", None), roll=True)
    before = files(world)
    dry = await asker.compact(dry_run=True, roll=True)
    assert files(world) == before
    assert world.broker.cleanings.runs(KEY, log_of(world).topic_id) == []
    real = await asker.compact()
    for name in ("records_before", "records_after", "bytes_before", "bytes_after", "keys", "removed"):
        assert dry[name] == real[name]
    assert dry["log_bytes_after"] == real["log_bytes_after"]
    assert dry["is_dry"]


async def test_w3_a_dry_run_with_roll_counts_the_active_segment(asker: Asker) -> None:
    """As the compaction with a roll does, of which it writes nothing: closed segments, the active one, an
    empty active one.
    """
    compacted(asker.world)
    world = asker.world
    await put(world, *((f"k{index % 7}", "v" * index) for index in range(20)), roll=True)
    for count in (20, 0):
        await put(world, *((f"k{index % 7}", "v" * index) for index in range(count)))
        before = files(world)
        dry = await asker.compact(dry_run=True, roll=True)
        assert files(world) == before
        assert (dry["held_back_by"] is None, dry["is_complete"]) == (bool(count), True)
        real = await asker.compact(roll=True)
        for name in ("records_before", "records_after", "bytes_before", "bytes_after", "keys", "removed"):
            assert dry[name] == real[name]
        assert dry["end_offset"] == real["end_offset"] == 40
        assert dry["records_after"] == 7


async def test_w3_a_dry_run_with_roll_goes_by_the_settings_that_are_tried(asker: Asker) -> None:
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("a", "2"))
    tried = {"min.compaction.lag.ms": str(HOUR_MS)}
    answer = await asker.compact(dry_run=True, roll=True, set=tried)
    assert (answer["records_before"], "min.compaction.lag.ms" in answer["held_back_by"]) == (0, True)


async def test_w3_a_dry_run_is_not_told_as_a_cleaning(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("a", "2"), roll=True)
    cleaner = asker.world.broker.cleaner
    with held(cleaner, monkeypatch) as reached:
        running = asyncio.ensure_future(asker.compact(dry_run=True))
        await until(reached.is_set)
        await asker.why("dry_run", "A dry run")
        assert cleaner.grab() is None
        with pytest.raises(CleaningRefused, match="a dry run"):
            cleaner.clean_now(KEY)
    assert (await running)["records_after"] == 1
    await asker.why("eligible")
    assert (await asker.compact())["records_after"] == 1


async def test_w3_a_what_if_does_not_hide_that_a_topic_is_not_compacted(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker.world.topic("t")
    with held(asker.world.broker.cleaner, monkeypatch) as reached:
        running = asyncio.ensure_future(asker.compact(dry_run=True, set={"cleanup.policy": "compact"}))
        await until(reached.is_set)
        await asker.why("not_compacted", "cleanup.policy is delete")
    assert "error" not in await running


@contextlib.contextmanager
def held(cleaner: CleanerManager, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Who cleans or counts waits where a cleaner's thread begins; the event says that it has come so far."""
    reached, go_on, make = threading.Event(), threading.Event(), cleaner.make_cleaner

    def wait(account: Callable[[int], None]) -> Cleaner:
        reached.set()
        assert go_on.wait(60)
        return make(account)

    with monkeypatch.context() as patch:
        patch.setattr(cleaner, "make_cleaner", wait)
        try:
            yield reached
        finally:
            go_on.set()


async def test_what_is_written_during_a_dry_run_with_roll_is_not_counted(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not where one map is too small and the log is read class by class of keys."""
    asker = Asker(
        await make_world(
            http_port="0",
            log_cleaner_dedupe_buffer_size="1048576",
            log_cleaner_io_buffer_load_factor="0.0002",
        )
    )
    world, loop, chunks = asker.world, asyncio.get_running_loop(), 0
    compacted(world)
    await put(world, *((f"k{index % 30}", "v") for index in range(60)))

    def write(size: int, check: Any) -> None:
        nonlocal chunks
        chunks += 1
        pairs = [(f"k{index}", "later") for index in range(20)]
        asyncio.run_coroutine_threadsafe(put(world, *pairs), loop).result(60)

    monkeypatch.setattr(world.broker.cleaner.throttle, "take", write)
    answer = await asker.compact(dry_run=True, roll=True)
    assert chunks > 2
    assert (answer["records_before"], answer["records_after"], answer["end_offset"]) == (60, 30, 60)


async def test_w3_what_if_other_settings_held(asker: Asker) -> None:
    compacted(asker.world, min_compaction_lag_ms=str(HOUR_MS))
    world = asker.world
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    answer = await asker.compact(dry_run=True)
    assert (answer["records_before"], "min.compaction.lag.ms" in answer["held_back_by"]) == (0, True)
    answer = await asker.compact(dry_run=True, set={"min.compaction.lag.ms": "0"})
    assert (answer["records_before"], answer["records_after"]) == (2, 1)
    assert answer["held_back_by"] is None
    world.topic("plain")
    await asker.post("plain/compact", {"dry_run": True}, 409)
    answer = await asker.post("plain/compact", {"dry_run": True, "set": {"cleanup.policy": "compact"}})
    assert answer["partitions"][0]["records_before"] == 0


async def test_w3_a_what_if_of_an_internal_topic_goes_by_offsets(make_world: MakeWorld) -> None:
    """As its cleaning does, whatever `compaction.strategy` others have by the broker's settings (W8)."""
    asker = Asker(await make_world(http_port="0", log_cleaner_compaction_strategy="timestamp"))
    world, name = asker.world, "__consumer_offsets"
    world.topic(name, cleanup_policy="compact")
    partition, now_ms = world.broker.partitions[TopicPartition(name, 0)], world.clock.now_ms()
    for age_ms in (0, 1):
        partition.append(world.batch((b"a", b"1"), now_ms=now_ms - age_ms), now_ms)
    for tried in ({}, {"set": {"min.compaction.lag.ms": "0"}}):
        body = {"dry_run": True, "roll": True, **tried}
        answer = (await asker.post(f"{name}/compact", body))["partitions"][0]
        assert answer["removed"]["superseded"] == 1


async def test_w3_a_refusal_names_the_policy_that_was_tried(asker: Asker) -> None:
    compacted(asker.world)
    answer = await asker.post("t/compact", {"dry_run": True, "set": {"cleanup.policy": "delete"}}, 409)
    assert answer["error"] == "t is not compacted: cleanup.policy would be delete"
    asker.world.topic("plain")
    answer = await asker.post("plain/compact", {"dry_run": True}, 409)
    assert answer["error"] == "plain is not compacted: cleanup.policy is delete"


async def test_records_below_the_log_start_are_no_keys(asker: Asker) -> None:
    """They lie in the first segment still and are not mapped, so that each version of a key is kept."""
    world = asker.world
    world.topic("t", cleanup_policy="compact,delete")
    await put(world, *((f"k{index % 3}", "v") for index in range(30)), ("new", "v"), roll=True)
    log_of(world).delete_records(30)
    for dry_run in (True, False):
        answer = await asker.compact(dry_run=dry_run)
        assert (answer["records_after"], answer["keys"]) == (31, None)
    assert (await asker.get("t/history"))["partitions"][0]["runs"][-1]["keys"] is None


async def test_keys_are_known_again_when_nothing_below_the_log_start_is_left(asker: Asker) -> None:
    """A cleaned segment goes on to be named by the offset that its first source began with."""
    world = asker.world
    world.topic("t", cleanup_policy="compact,delete")
    await put(world, ("a", "1"), ("b", "1"), ("c", "1"), roll=True)
    log_of(world).delete_records(3)
    await put(world, ("a", "2"), ("b", "2"), ("c", "2"), ("c", "3"), roll=True)
    await asker.compact()
    assert log_of(world).segments[0].base_offset == 0
    await put(world, ("d", "1"), roll=True)
    answer = await asker.compact()
    assert (answer["records_after"], answer["keys"]) == (4, 4)


async def test_markers_are_no_keys(asker: Asker) -> None:
    """What a transaction leaves behind stays for a while, and is no key with a value."""
    compacted(asker.world)
    world = asker.world
    transaction = Transaction(world, KEY)
    await transaction.write((b"a", b"1"), (b"b", b"1"), (b"c", None))
    await transaction.end(is_commit=True)
    await put(world, ("d", "1"), roll=True)
    assert (await asker.compact(dry_run=True))["keys"] == 3
    answer = await asker.compact()
    assert (answer["records_after"], answer["tombstones"], answer["keys"]) == (5, 1, 3)
    assert (await asker.get("t/history"))["partitions"][0]["runs"][-1]["keys"] == 3
    assert world.broker.cleaner.partition_stats()[KEY].live_keys == 3


async def with_a_small_map(make_world: MakeWorld) -> Asker:
    """A compacted topic of more keys than a cleaning can map at once."""
    asker = Asker(
        await make_world(
            http_port="0",
            log_cleaner_dedupe_buffer_size="1048576",
            log_cleaner_io_buffer_load_factor="0.0002",
        )
    )
    compacted(asker.world)
    return asker


async def test_a_cleaning_that_makes_the_log_larger_says_so(make_world: MakeWorld) -> None:
    """A tombstone's delete horizon takes bytes where nothing else goes: in a dry run, and in rounds."""
    asker = await with_a_small_map(make_world)
    world = asker.world
    await put(world, *((f"k{index}", None) for index in range(30)), roll=True)
    before = log_of(world).size_bytes
    dry = await asker.compact(dry_run=True)
    real = await asker.compact()
    assert real["rounds"] > 1
    after = log_of(world).size_bytes
    assert after > before
    for answer in (dry, real):
        assert (answer["log_bytes_before"], answer["log_bytes_after"]) == (before, after)
        assert (answer["bytes_before"], answer["bytes_after"]) == (before, after)


async def test_a_dry_run_leaves_what_is_set_aside(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    path = log_of(world).segments[0].file.path
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "error" in await asker.compact(dry_run=True)
    assert world.broker.cleaner.uncleanable(KEY) is None
    path.write_bytes(content)


async def test_a_map_too_small_takes_several_rounds(make_world: MakeWorld) -> None:
    asker = await with_a_small_map(make_world)
    await put(asker.world, *((f"k{index % 30}", "v") for index in range(60)), roll=True)
    answer = await asker.compact()
    assert answer["rounds"] > 1
    assert answer["is_complete"]
    assert (answer["records_before"], answer["records_after"]) == (60, 30)
    assert answer["removed"]["superseded"] == 30


async def test_progress_comes_as_lines(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaning that is held up at its second chunk is seen on its way; the last line is the answer."""
    monkeypatch.setattr("broker.http.changes.PROGRESS_SECONDS", 0.01)
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("a", "2"), roll=True)
    go_on, chunks, sent = threading.Event(), [], []
    as_line = changes._line

    def hold(size: int, check: Any) -> None:
        chunks.append(size)
        if len(chunks) > 1:
            go_on.wait(60)

    def line(value: dict[str, Any]) -> bytes:
        sent.append(value)
        return as_line(value)

    monkeypatch.setattr(asker.world.broker.cleaner.throttle, "take", hold)
    monkeypatch.setattr(changes, "_line", line)
    headers = {"Accept": "application/x-ndjson", "Content_Type": "application/json"}
    asking = asyncio.ensure_future(asker.send("POST", "/api/topics/t/compact", {}, **headers))
    await until(lambda: any(value.get("bytes_done", 0) > 0 for value in sent))
    assert (await asker.why("in_progress"))["dry_run"] is None
    go_on.set()
    status, _, text = await asking
    lines = [json.loads(line) for line in text.splitlines()]
    assert status == 200
    assert lines[0]["partition"] == 0
    assert any(line["bytes_done"] > 0 for line in lines[:-1])
    assert lines[-1]["partitions"][0]["records_after"] == 1


async def test_stopping_the_broker_aborts_it(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker(await make_world(http_port="0"))
    world = asker.world
    compacted(world)
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    chunks: list[int] = []
    never = threading.Event()

    def hold(size: int, check: Any) -> None:
        chunks.append(size)
        while True:
            check()
            never.wait(0.01)

    monkeypatch.setattr(world.broker.cleaner.throttle, "take", hold)
    asking = asyncio.ensure_future(asker.post("t/compact", {}))
    await until(lambda: chunks)
    await world.broker.http.stop()
    await asyncio.wait([asking])
    assert world.broker.cleaner.statistics.aborted_runs == 1
    assert log_of(world).segments[0].size_bytes > 0


# What was done


async def test_w22_history_survives_a_restart_and_a_cleaning_of_its_own(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    for value in ("1", "2"):
        await put(world, ("a", value), ("a", value), roll=True)
        world.clock.advance(HOUR_MS)
        await asker.compact()
    runs = (await asker.get("t/history"))["partitions"][0]["runs"]
    assert [(run["first_dirty_offset"], run["end_offset"]) for run in runs] == [(0, 2), (2, 4)]
    assert [run["cause"] for run in runs] == ["asked for", "asked for"]
    assert [run["records_before"] for run in runs] == [2, 3]
    await asker.post("__kompakt_metadata/compact", {"roll": True})
    await world.restart()
    assert (await asker.get("t/history"))["partitions"][0]["runs"] == runs
    assert (await asker.get("__kompakt_metadata/history"))["partitions"][0]["runs"] != []


async def test_w22_the_cleaners_own_runs_say_why(make_world: MakeWorld) -> None:
    asker = Asker(await make_world(http_port="0", log_cleaner_enable="true", log_cleaner_backoff_ms="10"))
    world = asker.world
    compacted(world)
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    topic_id = log_of(world).topic_id
    await until(lambda: world.broker.cleanings.runs(KEY, topic_id))
    run = (await asker.get("t/history"))["partitions"][0]["runs"][0]
    assert run["cause"] == "dirty ratio 1.00 above 0.5"
    await until(lambda: world.broker.cleaner.state_of(KEY).phase is Phase.IDLE)  # noted before it is over
    assert "log.cleaner.enable" not in (await asker.why("nothing_dirty"))["sentence"]


async def test_w22_failures_are_told_and_counted(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, ("a", "1"), ("a", "2"), roll=True)
    path = log_of(world).segments[0].file.path
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    began_ms = world.clock.now_ms()
    await asker.compact()
    world.clock.advance(HOUR_MS)
    await asker.compact()
    path.write_bytes(content)
    await asker.compact()
    failed, done = (await asker.get("t/history"))["partitions"][0]["runs"]
    assert (failed["failures"], failed["started_ms"]) == (2, began_ms)
    assert failed["last_ms"] == began_ms + HOUR_MS
    assert "checksum" in failed["error"]
    assert done["records_after"] == 1


async def test_a_queue_of_compactions_has_an_end(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.http.changes.MOST_WAITING", 0)
    compacted(asker.world)
    await asker.post("t/compact", {}, 429)
    await asker.post("t/explain", {}, 429)
    await asker.get("t/explain")


async def test_failures_do_not_push_out_what_the_last_cleaning_left_behind(asker: Asker) -> None:
    """After a restart it alone says when the tombstones that it kept may go."""
    compacted(asker.world, compaction_expired_tombstones_enable="true")
    world = asker.world
    await put(world, ("a", "1"), ("a", None), roll=True)
    await asker.compact()
    expire_ms = world.broker.cleaner.assess(log_of(world)).tombstones_expire_ms
    assert expire_ms is not None
    for number in range(40):
        why = Uncleanable(f"OSError: {number}", 0, 1, 0, is_damaged=True)
        world.broker.cleanings.note_failure(KEY, why)
    topic_id = log_of(world).topic_id
    await until(lambda: world.broker.cleanings.runs(KEY, topic_id)[-1].get("error") == "OSError: 39")
    runs = (await asker.get("t/history"))["partitions"][0]["runs"]
    assert "removed" in runs[0]
    assert [run["error"] for run in runs[1:]] == [f"OSError: {number}" for number in range(9, 40)]
    await world.restart()
    assert world.broker.cleaner.assess(log_of(world)).tombstones_expire_ms == expire_ms


async def test_history_is_bounded_and_a_new_topic_has_none(asker: Asker) -> None:
    compacted(asker.world)
    world = asker.world
    await put(world, ("a", "1"), roll=True)
    for _ in range(35):
        await asker.compact()
    assert len((await asker.get("t/history"))["partitions"][0]["runs"]) == 32
    await world.broker.deletions.delete("t")
    compacted(world)
    assert (await asker.get("t/history"))["partitions"][0]["runs"] == []
    await world.restart()
    assert (await asker.get("t/history"))["partitions"][0]["runs"] == []


# Who may


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": "application/json", "Origin": "http://evil.example"}, 403),
        ({"Content_Type": "application/json", "Origin": "null"}, 403),
        ({"Content_Type": "application/json", "Origin": "http://127.0.0.1:1"}, 403),
        ({"Content_Type": "application/json", "Sec_Fetch_Site": "cross-site"}, 403),
        (
            {
                "Content_Type": "application/json",
                "Origin": "http://evil.example:9644",
                "Host": "evil.example:9644",
            },
            403,
        ),
        ({"Content_Type": "application/json; charset=utf-8"}, 200),
        ({"Content_Type": "application/json", "Origin": "http://localhost:9", "Host": "localhost:9"}, 200),
        ({"Content_Type": "application/json", "Origin": "http://[::1]:9", "Host": "[::1]:9"}, 200),
    ],
)
async def test_a_web_page_cannot_compact(asker: Asker, headers: dict[str, str], status: int) -> None:
    """The last but three: an attacker's name that resolves to this machine."""
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("a", "2"), roll=True)
    got, answered, text = await asker.send("POST", "/api/topics/t/compact", {}, **headers)
    assert got == status, text
    assert "Access-Control-Allow-Origin" not in answered
    runs = asker.world.broker.cleanings.runs(KEY, log_of(asker.world).topic_id)
    assert bool(runs) == (status == 200)


@pytest.mark.parametrize(
    "body",
    [[], "x", {"partition": "0"}, {"partition": True}, {"roll": 1}, {"unknown": 1}, {"set": {"a": "b"}}]
    + [{"dry_run": True, "set": settings} for settings in ({"no.such": "1"}, {"segment.bytes": 1})],
)
async def test_bodies_that_are_none(asker: Asker, body: object) -> None:
    compacted(asker.world)
    assert (await asker.post("t/compact", body, 400))["error"]


async def test_not_while_starting(asker: Asker) -> None:
    compacted(asker.world)
    asker.world.broker.is_ready = False
    await asker.get("t/explain", 503)
    asker.world.broker.is_ready = True
    assert (await asker.send("GET", "/api/topics/t/compact"))[0] == 405


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"[" * 200_000, {}),
        (b'{"set": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", {}),
        (b"\xff\xfe", {}),
        (b"{}", {"Content-Type": "application/json; charset=none-of-these"}),
        (b"{}", {"Content-Encoding": "gzip"}),
    ],
    ids=["deep", "deep-inside", "no-text", "charset", "packing"],
)
async def test_a_body_that_cannot_be_read_is_the_askers_fault(
    asker: Asker, body: bytes, headers: dict[str, str]
) -> None:
    """It is told so; the broker has no trouble of its own, and nothing to write into its log."""
    compacted(asker.world)
    url = f"http://127.0.0.1:{asker.world.broker.http.port}/api/topics/t/compact"
    sent = {"Content-Type": "application/json", **headers}
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=sent) as answer:
        assert (answer.status, "no JSON" in (await answer.json())["error"]) == (400, True)
