"""Goal: what the console asks is answered with what is true: the broker, its topics, groups, transactions,
and where a group reads on after a reset. What may not be asked is refused with the reason.

Method: a broker in the loop with a manual clock; each state is brought about with real requests and records,
and asked for over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from aiohttp import web

from broker.console import STATIC, TYPES
from broker.groups.commits import CommitRequest, Position
from broker.http.server import Api
from broker.questions.overview import RECENT_RUNS
from broker.topic import OFFSETS_TOPIC
from cleaner.checkpoints import CleanerCheckpoints
from storage.layout import TopicPartition
from storage.log import Log
from storage.types import Origin
from tests.broker.client import until
from tests.broker.test_questions import Asker, MakeWorld, compacted, log_of, put
from tests.broker.transactions.producer import T, Transactional

DAY_MS = 86_400_000
FOREIGN = ({"Host": "evil.example"}, {"Sec_Fetch_Site": "cross-site"}, {"Origin": "http://evil.example"})


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


async def get(asker: Asker, path: str, status: int = 200) -> dict[str, Any]:
    got, _, text = await asker.send("GET", f"/api/{path}")
    assert got == status, text
    answer: dict[str, Any] = json.loads(text)
    return answer


async def post(asker: Asker, path: str, body: object, status: int = 200) -> dict[str, Any]:
    got, _, text = await asker.send("POST", f"/api/{path}", body, Content_Type="application/json")
    assert got == status, text
    answer: dict[str, Any] = json.loads(text)
    return answer


async def commit(asker: Asker, group: str, *positions: tuple[int, int], topic: str = "t") -> None:
    """As an admin client commits for a group without members."""
    groups = asker.world.broker.groups
    await groups.ensure_offsets_topic()
    rows = [Position(TopicPartition(topic, index), offset, -1, "by hand") for index, offset in positions]
    outcome = groups.commit(CommitRequest(group, "", None, -1, -1, rows), api_version=9)
    if outcome.flushed is not None:
        await outcome.flushed


async def topic_row(asker: Asker, name: str = "t") -> dict[str, Any]:
    (row,) = [one for one in (await get(asker, "topics"))["topics"] if one["topic"] == name]
    return row


# The broker


async def test_the_broker_at_a_glance(asker: Asker) -> None:
    world = asker.world
    compacted(world)
    started_ms = world.clock.now_ms()
    world.clock.advance(5000)
    await put(world, ("k", "1"), ("k", "2"), roll=True)
    answer = await get(asker, "broker")
    assert (answer["started_ms"], answer["now_ms"]) == (started_ms, started_ms + 5000)
    assert (answer["topics"], answer["partitions"], answer["internal_partitions"]) == (1, 1, 1)
    assert answer["groups"] == 0
    assert answer["cluster_id"] == world.broker.cluster_id
    (listener,) = answer["listeners"]
    port = world.broker.listeners[0].port
    assert (listener["security_protocol"], listener["address"]) == ("PLAINTEXT", f"127.0.0.1:{port}")
    (directory,) = answer["directories"]
    assert directory["path"] == str(world.directory)
    assert directory["log_bytes"] == sum(one.log.size_bytes for one in world.broker.partitions.values())
    assert 0 < directory["free_bytes"] < directory["total_bytes"]
    assert 0 < answer["open_files"] < answer["open_files_limit"]
    cleaner = answer["cleaner"]
    assert (cleaner["is_running"], cleaner["problem"], cleaner["uncleanable"]) == (False, None, [])
    assert (cleaner["cleanable_bytes"], cleaner["eligible_partitions"]) == (
        log_of(world).segments[0].size_bytes,
        1,
    )
    assert cleaner["bytes_per_second_at_most"] is None
    assert answer["recent_cleanings"] == []


async def test_a_clock_that_is_set_changes_no_uptime(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may start with the time of its battery; `kompakt status` said that it was up for 56 years."""
    asker.world.clock.advance(5000)
    later_ms = asker.world.clock.now_ms() + 86_400_000
    monkeypatch.setattr(asker.world.clock, "now_ms", lambda: later_ms)
    answer = await get(asker, "broker")
    assert answer["now_ms"] - answer["started_ms"] == 5000


async def test_the_last_cleanings_of_all_partitions(asker: Asker) -> None:
    world = asker.world
    compacted(world)
    for number in range(RECENT_RUNS // 16):
        await put(world, ("k", str(number)))
        await asker.compact(roll=True)
        world.clock.advance(1000)
    runs = (await get(asker, "broker"))["recent_cleanings"]
    assert [run["topic"] for run in runs] == ["t"] * (RECENT_RUNS // 16)
    assert runs[0]["started_ms"] > runs[-1]["started_ms"]
    assert (
        runs
        == [
            {"topic": "t", "partition": 0, **run}
            for run in (await asker.get("t/history"))["partitions"][0]["runs"]
        ][::-1]
    )


async def test_what_is_wrong_with_the_broker(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    world = asker.world
    compacted(world)
    world.topic("u")
    await put(world, ("k", "1"), roll=True)
    world.broker.cleaner._set_aside(log_of(world), ValueError("bad bytes"), world.clock.now_ms())
    log_of(world, topic="u").take_offline("its disk failed")
    answer = await get(asker, "broker")
    assert answer["offline_partitions"] == [{"topic": "u", "partition": 0, "reason": "its disk failed"}]
    (held,) = answer["cleaner"]["uncleanable"]
    assert (held["topic"], held["partition"]) == ("t", 0)
    assert "bad bytes" in held["error"]

    def no_usage(path: str) -> None:
        raise OSError("it does not answer")

    monkeypatch.setattr("broker.questions.disks.shutil.disk_usage", no_usage)
    (directory,) = (await get(asker, "broker"))["directories"]
    assert (directory["free_bytes"], directory["problem"]) == (None, "it does not answer")
    assert directory["forecast"] is None
    log_of(world, topic="u").offline_reason = None


# Topics


async def test_topics_in_one_line_each(asker: Asker) -> None:
    world = asker.world
    compacted(world)
    world.topic("plain", 3)
    world.topic("_schemas")
    assert (await topic_row(asker))["last_timestamp"] is None
    await put(world, ("k", "1"), ("k", "2"), ("other", "3"), roll=True)
    row = await topic_row(asker)
    log = log_of(world)
    assert (row["cleanup_policy"], row["partitions"], row["offsets"]) == ("compact", 1, 3)
    assert (row["size_bytes"], row["segments"], row["is_internal"]) == (log.size_bytes, 2, False)
    assert row["last_timestamp"] == world.clock.now_ms()
    assert (row["dirty_ratio"], row["cleanable_bytes"]) == (1.0, log.size_bytes)
    assert row["reasons"] == {"eligible": 1}
    await asker.compact()
    row = await topic_row(asker)
    assert (row["offsets"], row["keys_at_last_cleaning"], row["dirty_ratio"]) == (3, 2, 0.0)
    assert list(row["reasons"].values()) == [1]
    plain = await topic_row(asker, "plain")
    assert (plain["dirty_ratio"], plain["reasons"], plain["warning"]) == (None, {}, None)
    assert "schema registry" in (await topic_row(asker, "_schemas"))["warning"]
    assert (await topic_row(asker, "__kompakt_metadata"))["is_internal"]


async def test_a_topic_that_is_not_served_whole(asker: Asker) -> None:
    world = asker.world
    world.topic("t", 3, cleanup_policy="compact")
    log_of(world, 1).take_offline("its disk failed")
    gone = world.broker.partitions.pop(TopicPartition("t", 2))
    reasons = (await topic_row(asker))["reasons"]
    assert (reasons["offline"], reasons["not_served"], sum(reasons.values())) == (1, 1, 3)
    rows = (await get(asker, "topics/t"))["partitions"]
    assert [row["is_served"] for row in rows] == [True, True, False]
    assert [row.get("offline_reason") for row in rows] == [None, "its disk failed", None]
    await get(asker, "topics/t/partitions/1/records", 503)
    await get(asker, "topics/t/partitions/2/records", 503)
    world.broker.partitions[gone.topic_partition] = gone
    log_of(world, 1).offline_reason = None


async def test_one_topic(asker: Asker) -> None:
    world = asker.world
    compacted(world, segment_ms="1234567")
    await put(world, ("k", "1"), ("k", "2"))
    await commit(asker, "g", (0, 1))
    answer = await get(asker, "topics/t")
    assert answer["topic_id"] == str(world.broker.topics.get("t").topic_id)  # type: ignore[union-attr]
    (row,) = answer["partitions"]
    log = log_of(world)
    for name in ("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset", "size_bytes"):
        assert row[name] == getattr(log, name)
    assert (row["directory"], row["open_transactions"]) == (str(log.directory), 0)
    assert answer["groups"] == [{"group": "g", "partition": 0, "offset": 1}]
    configs = {one["name"]: one for one in answer["configs"]}
    assert (configs["segment.ms"]["value"], configs["segment.ms"]["source"]) == ("1234567", "topic")
    assert configs["segment.ms"]["inherited"] == "604800000"
    assert configs["retention.ms"]["source"] == "default"
    assert configs["retention.ms"]["documentation"]
    await get(asker, "topics/nosuch", 404)


# Groups


async def test_groups_and_what_is_left_of_their_topics(asker: Asker) -> None:
    """Records left are those that are there: after a compaction fewer than offsets (W20)."""
    world = asker.world
    world.topic("t", 2, cleanup_policy="compact")
    await put(world, *((f"k{number % 3}", str(number)) for number in range(10)), roll=True)
    await put(world, ("k0", "x"), partition=1)
    await commit(asker, "g", (0, 2), (1, 1))
    (row,) = (await get(asker, "groups"))["groups"]
    assert (row["group"], row["type"], row["state"]) == ("g", "classic", "Empty")
    assert (row["members"], row["topics"], row["lag"]) == (0, ["t"], 8)
    await asker.compact()
    answer = await get(asker, "groups/g")
    first, second = answer["offsets"]
    assert (first["topic"], first["partition"], first["committed_offset"]) == ("t", 0, 2)
    assert (first["lag"], first["records_left"]) == (8, 3)
    assert (second["lag"], second["records_left"], second["is_below_start"]) == (0, 0, False)
    assert (first["metadata"], first["committed_ms"]) == ("by hand", world.clock.now_ms())
    assert first["expires_ms"] == world.clock.now_ms() + 7 * DAY_MS
    await get(asker, "groups/nosuch", 404)


async def test_a_group_below_the_log_start(asker: Asker) -> None:
    asker.world.topic("t")
    await put(asker.world, ("k", "1"), ("k", "2"), ("k", "3"))
    await commit(asker, "g", (0, 1))
    log_of(asker.world).delete_records(2)
    (row,) = (await get(asker, "groups/g"))["offsets"]
    assert (row["is_below_start"], row["lag"], row["records_left"]) == (True, 1, 1)
    assert not row["is_beyond_end"]


async def test_a_group_beyond_the_end(asker: Asker) -> None:
    """Its readers are told OFFSET_OUT_OF_RANGE, and begin anew wherever `auto.offset.reset` says."""
    asker.world.topic("t")
    await put(asker.world, ("k", "1"))
    await commit(asker, "g", (0, 2))
    (row,) = (await get(asker, "groups/g"))["offsets"]
    assert (row["is_beyond_end"], row["lag"], row["records_left"]) == (True, 0, 0)
    await put(asker.world, ("k", "2"))
    (row,) = (await get(asker, "groups/g"))["offsets"]
    assert not row["is_beyond_end"]


async def test_groups_that_are_being_loaded_are_not_none(asker: Asker) -> None:
    store = asker.world.broker.groups._store
    store._loading = {0, 1}
    assert "loaded" in (await get(asker, "groups", 503))["error"]
    await get(asker, "groups/g", 503)
    store._loading = set()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"to": "earliest"}, [1, 0]),
        ({"to": "latest"}, [4, 1]),
        ({"to": "offset", "value": 3}, [3, 1]),
        ({"to": "offset", "value": 99}, [4, 1]),
        ({"to": "offset", "value": 0}, [1, 0]),
        ({"to": "time", "value": 1_700_000_002_000}, [2, 1]),
        ({"to": "latest", "partition": 0}, [4]),
    ],
)
async def test_a_group_reads_on_elsewhere(asker: Asker, body: dict[str, Any], expected: list[int]) -> None:
    """First as a preview that changes nothing; the committed offsets are then those, also after a restart."""
    world = asker.world
    world.topic("t", 2)
    assert world.clock.now_ms() == 1_700_000_000_000
    await put(world, ("k", "v"), partition=1)
    for _ in range(4):
        await put(world, ("k", "v"))
        world.clock.advance(1000)
    log_of(world).delete_records(1)
    await commit(asker, "g", (0, 2))
    wanted = {"topic": "t", **body}
    preview = await post(asker, "groups/g/reset", {**wanted, "dry_run": True})
    assert [row["new_offset"] for row in preview["partitions"]] == expected
    assert preview["partitions"][0]["committed_offset"] == 2
    assert (await get(asker, "groups/g"))["offsets"][0]["committed_offset"] == 2
    answer = await post(asker, "groups/g/reset", wanted)
    assert answer["partitions"] == preview["partitions"]
    await world.restart()
    rows = (await get(asker, "groups/g"))["offsets"]
    assert [row["committed_offset"] for row in rows] == expected


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"topic": "t"}, 400, "earliest"),
        ({"topic": "t", "to": "middle"}, 400, "earliest"),
        ({"topic": "t", "to": "offset"}, 400, "value"),
        ({"topic": "t", "to": "latest", "value": 3}, 400, "value"),
        ({"topic": "nosuch", "to": "latest"}, 404, "nosuch"),
        ({"to": "latest"}, 404, "no topic"),
        ({"topic": "t", "to": "latest", "partition": 7}, 404, "partitions"),
        ({"topic": "t", "to": "latest", "more": 1}, 400, "more"),
    ],
)
async def test_resets_that_mean_nothing(asker: Asker, body: object, status: int, words: str) -> None:
    asker.world.topic("t")
    await commit(asker, "g", (0, 0))
    assert words in (await post(asker, "groups/g/reset", body, status))["error"]


async def test_a_partition_that_cannot_be_reset_is_told(asker: Asker) -> None:
    world = asker.world
    world.topic("t", 3)
    await put(world, ("k", "v"), partition=2)
    await commit(asker, "g", (0, 0), (1, 0))
    log_of(world, 1).take_offline("its disk failed")
    answer = await post(asker, "groups/g/reset", {"topic": "t", "to": "latest"})
    assert [(row["new_offset"], row["error"]) for row in answer["partitions"]] == [
        (0, None), (None, "the partition is offline"), (1, None)
    ]  # fmt: skip
    log_of(world, 1).offline_reason = None


@pytest.mark.parametrize("name", ["${GROUP}", "a b/c", "ä?#%", "{", "g"])
async def test_groups_have_any_name(asker: Asker, name: str) -> None:
    asker.world.topic("t")
    await commit(asker, name, (0, 0))
    path = f"groups/{quote(name, safe='')}"
    assert (await get(asker, path))["group"] == name
    assert (await post(asker, f"{path}/reset", {"topic": "t", "to": "latest"}))["group"] == name


@pytest.mark.parametrize("name", [".", "..", "", "a+b c/ä?#%&"])
async def test_groups_whose_name_no_path_holds(asker: Asker, name: str) -> None:
    """A browser takes the first two out of every path, and the third leaves none."""
    asker.world.topic("t")
    await commit(asker, name, (0, 0))
    query = urlencode({"group": name})
    assert (await get(asker, f"group?{query}"))["group"] == name
    assert (await post(asker, f"group/reset?{query}", {"topic": "t", "to": "latest"}))["group"] == name
    assert "no group none" in (await get(asker, "group?group=none", 404))["error"]
    assert "?group=GROUP" in (await get(asker, "group", 400))["error"]


async def test_a_reset_that_is_not_for_anybody_or_cannot_be_stored(asker: Asker) -> None:
    world = asker.world
    world.topic("t")
    await post(asker, "groups/g/reset", {"topic": "t", "to": "latest"}, 404)
    await commit(asker, "g", (0, 0))
    for index in (0, 1):
        log_of(world, index, OFFSETS_TOPIC).take_offline("its disk failed")
    (row,) = (await post(asker, "groups/g/reset", {"topic": "t", "to": "latest"}))["partitions"]
    assert row["error"] == "NOT_COORDINATOR"
    for index in (0, 1):
        log_of(world, index, OFFSETS_TOPIC).offline_reason = None


# Transactions


async def test_transactions_and_what_they_hold_back(asker: Asker) -> None:
    world = asker.world
    world.topic("t")
    assert await get(asker, "transactions") == {
        "count": 0, "ids": [], "open": [], "now_ms": world.clock.now_ms()
    }  # fmt: skip
    producer = await Transactional.begin(world, "pay")
    assert await producer.add(T) == [0]
    assert await producer.write(b"v") == 0
    await put(world, ("k", "behind it"))
    answer = await get(asker, "transactions")
    (known,), (held,) = answer["ids"], answer["open"]
    assert (known["transactional_id"], known["state"], known["timeout_ms"]) == ("pay", "Ongoing", 60_000)
    assert known["partitions"] == [{"topic": "t", "partition": 0}]
    assert known["aborted_ms"] == held["aborted_ms"] == world.clock.now_ms() + 60_000
    assert (held["transactional_id"], held["producer_id"]) == ("pay", producer.producer.producer_id)
    assert (held["first_offset"], held["last_stable_offset"], held["high_watermark"]) == (0, 0, 2)
    await post(asker, "topics/t/abort", {"partition": 0, "start_offset": 0})
    await until(lambda: not log_of(world).producers.open_transactions())
    answer = await get(asker, "transactions")
    assert (answer["open"], answer["ids"][0]["state"]) == ([], "CompleteAbort")


async def test_an_open_transaction_that_nobody_knows_of(asker: Asker) -> None:
    world = asker.world
    world.topic("t")
    begun = world.batch((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.broker.partitions[T].append(begun, world.clock.now_ms(), Origin.COORDINATOR)
    (held,) = (await get(asker, "transactions"))["open"]
    assert (held["producer_id"], held["transactional_id"], held["aborted_ms"]) == (7, None, None)


# Records and the table


async def test_records_over_http(asker: Asker) -> None:
    world = asker.world
    world.topic("t")
    for number in range(5):
        await put(world, (f"k{number}", f"v{number}"))
        world.clock.advance(1000)

    async def offsets(query: str) -> list[int]:
        answer = await get(asker, f"topics/t/partitions/0/records{query}")
        assert (answer["topic"], answer["partition"]) == ("t", 0)
        return [row["offset"] for row in answer["records"]]

    assert await offsets("") == [0, 1, 2, 3, 4]
    assert await offsets("?limit=2") == [3, 4]
    assert await offsets("?before=3&limit=2") == [1, 2]
    assert await offsets("?offset=1&limit=2") == [1, 2]
    assert await offsets(f"?time={world.clock.now_ms() - 2500}") == [3, 4]
    assert await offsets(f"?time={world.clock.now_ms()}") == []
    assert await offsets("?offset=0&contains=v3") == [3]
    assert await offsets("?offset=0&contains=7633&encoding=hex") == [3]
    assert await offsets("?offset=0&hidden=1") == [0, 1, 2, 3, 4]
    for wrong in ("?offset=1&before=2", "?limit=0", "?limit=1001", "?limit=x", "?hidden=2", "?offset=-1",
                  "?contains=zz&encoding=hex", "?contains=a&encoding=rot13"):  # fmt: skip
        assert (await get(asker, f"topics/t/partitions/0/records{wrong}", 400))["error"]
    await get(asker, "topics/t/partitions/1/records", 404)
    await get(asker, "topics/nosuch/partitions/0/records", 404)


async def test_the_table_over_http(asker: Asker) -> None:
    world = asker.world
    world.topic("t", 2, cleanup_policy="compact")
    await put(world, ("a", "1"), ("b", "2"), ("a", "3"), ("c", None), roll=True)
    await put(world, ("d", "4"), partition=1)

    async def rows(query: str = "") -> list[tuple[str, str | None]]:
        answer = await get(asker, f"topics/t/table{query}")
        return [(row["key"], row["value"]) for row in answer["rows"]]

    assert await rows() == [("a", "3"), ("b", "2"), ("d", "4")]
    assert await rows("?tombstones=1") == [("a", "3"), ("b", "2"), ("c", None), ("d", "4")]
    assert await rows("?prefix=b") == [("b", "2")]
    assert await rows("?partition=1") == [("d", "4")]
    assert await rows("?partition=0&offset=2") == [("a", "1"), ("b", "2")]
    first = await get(asker, "topics/t/table?limit=1")
    assert await rows(f"?limit=1&after={first['next_after_base64']}") == [("b", "2")]
    assert "name that as well" in (await get(asker, "topics/t/table?offset=2", 400))["error"]
    await get(asker, "topics/t/table?after=!", 400)
    await get(asker, "topics/t/table?tombstones=yes", 400)
    await asker.post("t/compact", {"partition": 0})
    assert "up to offset 4" in (await get(asker, "topics/t/table?partition=0&offset=2", 409))["error"]
    world.broker.topics.set_overrides("t", {"cleanup.policy": "delete"})
    assert "up to offset 4" in (await get(asker, "topics/t/table?partition=0&offset=2", 409))["error"]
    world.broker.topics.set_overrides("t", {"cleanup.policy": "compact"})
    assert await rows("?partition=0&offset=4") == [("a", "3"), ("b", "2")]


async def test_who_does_not_wait_for_a_table_holds_nobody_up(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of a table is a pass over all of a topic. What takes a moment is answered beside as many as may
    run at once, and a pass ends when whoever asked for it is gone.
    """
    asker.world.topic("t", 1, cleanup_policy="compact")
    await put(asker.world, ("a", "1"))
    begun, ended, is_over, real = list[Log](), list[Log](), threading.Event(), Log.scan

    def endless(log: Log, start: int, end: int) -> Iterator[Any]:
        begun.append(log)
        try:
            while not is_over.is_set():
                yield from real(log, start, end)
        finally:
            ended.append(log)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(Log, "scan", endless)
            passes = [asyncio.ensure_future(asker.get("t/table")) for _ in range(4)]
            await until(lambda: len(begun) == 2)
            assert "t" in [one["topic"] for one in (await get(asker, "topics"))["topics"]]
            for one in passes:
                one.cancel()
            await until(lambda: len(ended) == 2)
        assert len((await get(asker, "topics/t/table"))["rows"]) == 1
        assert len(begun) == 2, "those that waited for their turn were never begun"
    finally:
        is_over.set()


async def test_the_table_as_of_what_a_cleaning_has_swapped_away(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint moves after the swap, or not at all where the cleaning is aborted: for that time keys
    were missing from the table as of an offset that the cleaning had passed.
    """
    world = asker.world
    world.topic("t", 1, cleanup_policy="compact")
    await put(world, ("a", "1"), ("b", "2"), ("a", "3"), roll=True)
    assert len((await get(asker, "topics/t/table?partition=0&offset=2"))["rows"]) == 2
    monkeypatch.setattr(CleanerCheckpoints, "put", lambda *arguments: None)
    await asker.post("t/compact", {"partition": 0})
    assert "up to offset 3" in (await get(asker, "topics/t/table?partition=0&offset=2", 409))["error"]
    assert len((await get(asker, "topics/t/table?partition=0&offset=3"))["rows"]) == 2


# The console's files


async def test_the_console_is_served_and_nothing_else(asker: Asker) -> None:
    for path in ("/", "/console"):
        status, headers, _ = await asker.send("GET", path)
        assert status == 200, headers  # aiohttp's client follows
    for path in STATIC.rglob("*"):
        if path.is_file():
            status, headers, text = await asker.send("GET", f"/console/{path.relative_to(STATIC)}")
            assert (status, text) == (200, path.read_text())
            assert headers["Content-Type"] == f"{TYPES[path.suffix]}; charset=utf-8"
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
    for path in (
        "/console/nosuch.js",
        "/console/../__init__.py",
        "/console/%2e%2e/__init__.py",
        "/console/views",
    ):
        status, _, _ = await asker.send("GET", path)
        assert status == 404


async def test_no_question_is_answered_to_another_site(asker: Asker) -> None:
    """Whatever routes there are: a page's own name that comes to mean this machine does not make it ours."""
    asker.world.topic("t")
    await commit(asker, "g", (0, 0))
    router = web.UrlDispatcher()
    Api(asker.world.broker).add_to(router)
    routes = {(one.method, one.resource.canonical) for one in router.routes() if one.resource}
    assert len(routes) > 20
    for method, path in routes:
        path = path.format(topic="t", group="g", partition=0)
        for headers in FOREIGN:
            asked = {**headers, "Content_Type": "application/json"}
            status, answered, _ = await asker.send(method, path, {} if method == "POST" else None, **asked)
            assert (status, "Access-Control-Allow-Origin" in answered) == (403, False), (method, path)
        if method == "POST":
            assert (await asker.send(method, path, {}, Content_Type="text/plain"))[0] == 415
