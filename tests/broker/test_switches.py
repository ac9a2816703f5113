"""Goal: what Kafka lacks and kompakt offers where a topic asks for it: idle segments are closed (W12),
expired tombstones bring about a cleaning (T77), another record than the last may win (W8); and a policy that
loses a known system's data is told everywhere but in Kafka's answers (W15).

Method: a broker in the loop with a clock that stands still; its background jobs and its cleaner are run by
hand, and asked over the protocol, /metrics and the functions behind /api.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from broker.policy_lint import policy_warning
from broker.questions.partitions import explained, moment_of
from cleaner.manager import CleaningRefused
from cleaner.results import CleanResult
from config.broker import BrokerConfig
from config.definition import ConfigError
from config.topic import TopicConfig
from protocol.errors import ErrorCode
from protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.topics import CreateTopicsRequest
from protocol.records import encode_batch
from storage.layout import TopicPartition
from storage.log import Log
from tests.broker.conftest import World
from tests.broker.test_metrics import scrape, value

T = TopicPartition("t", 0)
HOUR_MS = 3_600_000


def log_of(world: World, topic: str = "t") -> Log:
    return world.broker.partitions[TopicPartition(topic, 0)].log


async def explain(world: World, topic: str = "t") -> dict[str, Any]:
    found, at = world.broker.topics.get(topic), moment_of(world.broker, TopicPartition(topic, 0))
    assert found is not None
    assert at is not None
    return (await world.broker.run_blocking(explained, world.broker, found, [(0, at)], {}))[0]


async def grab_and_clean(world: World) -> CleanResult | None:
    """What a cleaner thread does once."""
    manager = world.broker.cleaner

    def once() -> CleanResult | None:
        work = manager.grab()
        return None if work is None else manager.clean(manager.make_cleaner(lambda size: None), work)

    return await world.broker.run_blocking(once)


# Idle segments


async def test_w12_an_idle_segment_is_closed_and_then_compacted(world: World) -> None:
    world.topic(cleanup_policy="compact", segment_idle_ms=str(HOUR_MS), min_cleanable_dirty_ratio="0")
    client = await world.connect()
    await world.produce(client, world.batch((b"a", b"1"), (b"a", b"2")))
    await world.broker.background.roll_idle()
    assert await grab_and_clean(world) is None
    answer = await explain(world)
    assert answer["reason"] == "active_segment"
    assert answer["closes_idle_ms"] == world.clock.now_ms() + HOUR_MS
    assert "if nobody writes (segment.idle.ms)" in answer["sentence"]
    world.clock.advance(HOUR_MS - 1)
    await world.broker.background.roll_idle()
    assert len(log_of(world).segments) == 1
    world.clock.advance(1)
    await world.broker.background.roll_idle()
    assert [segment.base_offset for segment in log_of(world).segments] == [0, 2]
    result = await grab_and_clean(world)
    assert result is not None
    assert [record.offset for record in await world.records(client)] == [1]


async def test_w12_whoever_writes_keeps_the_segment_open(world: World) -> None:
    world.topic(segment_idle_ms=str(HOUR_MS))
    client = await world.connect()
    for _ in range(5):
        await world.produce(client, world.batch((b"a", b"1")))
        await world.broker.background.roll_idle()
        world.clock.advance(HOUR_MS - 1)
        await world.broker.background.roll_idle()
    assert len(log_of(world).segments) == 1


async def test_w12_a_clock_that_is_set_back_makes_nobody_wait_longer(world: World) -> None:
    world.topic(segment_idle_ms=str(HOUR_MS))
    client = await world.connect()
    await world.produce(client, world.batch((b"a", b"1")))
    await world.broker.background.roll_idle()
    world.clock.set_by(-1000 * HOUR_MS)
    await world.broker.background.roll_idle()
    world.clock.advance(HOUR_MS)
    await world.broker.background.roll_idle()
    assert len(log_of(world).segments) == 2


async def test_w12_an_empty_segment_is_never_closed(world: World) -> None:
    world.topic(segment_idle_ms="0")
    client = await world.connect()
    await world.produce(client, world.batch((b"a", b"1")))
    for _ in range(3):
        world.clock.advance(HOUR_MS)
        await world.broker.background.roll_idle()
    assert [segment.base_offset for segment in log_of(world).segments] == [0, 1]
    assert (await explain(world))["closes_idle_ms"] is None


async def test_w12_off_is_the_default_as_in_kafka(world: World) -> None:
    """T21: only an append closes a segment that is too old; an idle partition is never compacted."""
    world.topic()
    client = await world.connect()
    await world.produce(client, world.batch((b"a", b"1")))
    await world.broker.background.roll_idle()
    world.clock.advance(1000 * HOUR_MS)
    await world.broker.background.roll_idle()
    assert len(log_of(world).segments) == 1
    assert (await explain(world))["closes_idle_ms"] is None


async def test_w12_a_restart_does_not_begin_the_waiting_anew(world: World) -> None:
    """What the file says of its last write counts."""
    world.topic(segment_idle_ms=str(HOUR_MS))
    client = await world.connect()
    await world.produce(client, world.batch((b"a", b"1")))
    path = log_of(world).segments[-1].file.path
    await world.stop()
    written_s = world.clock.now_ms() / 1000
    os.utime(path, (written_s, written_s))
    world.clock.advance(HOUR_MS)
    await world.start()
    await world.broker.background.roll_idle()
    assert len(log_of(world).segments) == 2


async def test_w12_the_switch_may_be_the_brokers(world: World) -> None:
    client = await world.connect()
    change = IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = change.AlterableConfig(name="log.roll.idle.ms", config_operation=0, value="5")
    request = IncrementalAlterConfigsRequest(
        resources=[change(resource_type=4, resource_name="", configs=[entry])]
    )
    assert (await client.ask(request, 1)).responses[0].error_code == 0
    world.topic()
    assert log_of(world).config.segment_idle_ms == 5


# Expired tombstones


async def cleaned_with_a_tombstone(world: World, switch: str = "false") -> None:
    """A topic whose last cleaning kept one tombstone, with an hour to live; nothing is dirty any more."""
    world.topic(
        cleanup_policy="compact", delete_retention_ms=str(HOUR_MS), min_cleanable_dirty_ratio="0",
        compaction_expired_tombstones_enable=switch,
    )  # fmt: skip
    client = await world.connect()
    await world.produce(client, world.batch((b"a", b"1"), (b"b", b"1"), (b"a", None)))
    log_of(world).roll(world.clock.now_ms())
    assert await grab_and_clean(world) is not None
    assert [record.offset for record in await world.records(client)] == [1, 2]


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
async def test_t77_expired_tombstones_bring_about_a_cleaning(world: World, restarts: bool) -> None:
    await cleaned_with_a_tombstone(world, "true")
    due_ms = world.clock.now_ms() + HOUR_MS
    if restarts:
        await world.restart()
    answer = await explain(world)
    assert (answer["reason"], answer["next_eligible_ms"]) == ("nothing_dirty", due_ms)
    assert "Its tombstones may go at" in answer["sentence"]
    world.clock.advance(HOUR_MS - 1)
    assert await grab_and_clean(world) is None
    world.clock.advance(1)
    answer = await explain(world)
    assert (answer["reason"], answer["trigger"]) == ("eligible", "expired_tombstones")
    assert "compaction.expired.tombstones.enable" in answer["sentence"]
    result = await grab_and_clean(world)
    assert result is not None
    assert (result.cause, result.removed["tombstone"]) == ("expired tombstones", 1)
    client = await world.connect()
    assert [record.offset for record in await world.records(client)] == [1]
    world.clock.advance(100 * HOUR_MS)
    assert await grab_and_clean(world) is None, "it is done, and nothing more can go"


async def test_t77_a_crash_behind_the_checkpoint_forgets_no_tombstones(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What counts as clean is not looked at again: what waits in there must be written down before."""
    checkpoints = world.broker.cleaner.checkpoints
    put = checkpoints.put

    def put_and_die(*arguments: Any) -> None:
        put(*arguments)
        shutil.copytree(world.directory, tmp_path / "killed")

    monkeypatch.setattr(checkpoints, "put", put_and_die)
    await cleaned_with_a_tombstone(world, "true")
    killed = World(tmp_path / "killed", {})
    await killed.start()
    try:
        answer = await explain(killed)
        due_ms = world.clock.now_ms() + HOUR_MS
        assert (answer["reason"], answer["next_eligible_ms"]) == ("nothing_dirty", due_ms)
    finally:
        await killed.stop()


async def test_t77_a_crash_behind_the_last_swap_forgets_no_tombstones(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing was written down of that cleaning yet: the horizons are in the batches, and what they say is
    found there, though nothing else asks for a cleaning.
    """

    def die(result: CleanResult) -> None:
        shutil.copytree(world.directory, tmp_path / "killed")

    monkeypatch.setattr(world.broker.cleaner, "on_cleaned", die)
    await cleaned_with_a_tombstone(world, "true")
    due_ms = world.clock.now_ms() + HOUR_MS
    killed = World(tmp_path / "killed", {})
    await killed.start()
    try:
        topic = killed.broker.topics.get("t")
        assert topic is not None
        killed.broker.topics.set_overrides("t", {**topic.overrides, "min.cleanable.dirty.ratio": "1"})
        await killed.broker.background._statistics.run()
        answer = await explain(killed)
        assert (answer["reason"], answer["next_eligible_ms"]) == ("ratio", due_ms)
        killed.clock.advance(due_ms - 1 - killed.clock.now_ms())
        assert await grab_and_clean(killed) is None
        killed.clock.advance(1)
        result = await grab_and_clean(killed)
        assert result is not None
        assert (result.cause, result.removed["tombstone"]) == ("expired tombstones", 1)
        assert await grab_and_clean(killed) is None
    finally:
        await killed.stop()


async def test_t77_by_default_they_wait_for_the_next_cleaning_as_in_kafka(world: World) -> None:
    await cleaned_with_a_tombstone(world)
    world.clock.advance(1000 * HOUR_MS)
    assert await grab_and_clean(world) is None
    answer = await explain(world)
    assert (answer["reason"], answer["trigger"], answer["next_eligible_ms"]) == ("nothing_dirty", None, None)
    samples, _ = await scrape(world)
    assert value(samples, "kompakt_tombstones", topic="t", partition="0", state="expired") == 1


async def test_t77_dirt_below_the_ratio_goes_along(world: World) -> None:
    await cleaned_with_a_tombstone(world, "true")
    topic = world.broker.topics.get("t")
    assert topic is not None
    world.broker.topics.set_overrides("t", {**topic.overrides, "min.cleanable.dirty.ratio": "1"})
    client = await world.connect()
    await world.produce(client, world.batch((b"b", b"2")))
    log_of(world).roll(world.clock.now_ms())
    answer = await explain(world)
    assert answer["reason"] == "ratio"
    assert "by compaction.expired.tombstones.enable" in answer["sentence"]
    world.clock.advance(HOUR_MS)
    assert await grab_and_clean(world) is not None
    assert [record.offset for record in await world.records(client)] == [3]


async def test_t77_a_cleaning_in_between_puts_nothing_off(world: World) -> None:
    """What an earlier cleaning gave a horizon goes then, not a whole delete.retention.ms after the last."""
    await cleaned_with_a_tombstone(world, "true")
    due_ms = world.clock.now_ms() + HOUR_MS
    world.clock.advance(HOUR_MS - 1)
    client = await world.connect()
    await world.produce(client, world.batch((b"b", b"2")))
    log_of(world).roll(world.clock.now_ms())
    assert await grab_and_clean(world) is not None
    assert (await explain(world))["tombstones_expire_ms"] == due_ms
    world.clock.advance(1)
    result = await grab_and_clean(world)
    assert result is not None
    assert result.removed["tombstone"] == 1


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
@pytest.mark.parametrize("retention_ms", [0, HOUR_MS])
async def test_t77_a_tombstone_that_must_stay_brings_about_no_cleaning(
    world: World, strategy: str, retention_ms: int
) -> None:
    """W8: the log's last record stays, expired or not, where a version decides: to clean again and again
    would change nothing.
    """
    world.topic(
        cleanup_policy="compact", delete_retention_ms=str(retention_ms), min_cleanable_dirty_ratio="0",
        compaction_expired_tombstones_enable="true", compaction_strategy=strategy,
    )  # fmt: skip
    client = await world.connect()
    await world.produce(client, world.batch((b"b", b"1"), (b"a", b"1"), (b"a", None)))
    log_of(world).roll(world.clock.now_ms())
    assert await grab_and_clean(world) is not None
    world.clock.advance(retention_ms)
    assert await grab_and_clean(world) is not None
    left = [0, 2] if strategy == "timestamp" else [0]
    assert [record.offset for record in await world.records(client)] == left
    world.clock.advance(1000 * HOUR_MS)
    assert await grab_and_clean(world) is None
    assert (await explain(world))["next_eligible_ms"] is None
    if strategy == "timestamp":
        await world.produce(client, world.batch((b"c", b"1")))
        log_of(world).roll(world.clock.now_ms())
        assert await grab_and_clean(world) is not None
        assert [record.offset for record in await world.records(client)] == [0, 3]


async def test_t77_a_tombstone_that_had_to_stay_goes_when_it_may(world: World) -> None:
    """W8: it was the log's last record when its time came. With a record behind it, it need not wait until
    the log is dirty enough.
    """
    world.topic(
        cleanup_policy="compact", delete_retention_ms="0", min_cleanable_dirty_ratio="0",
        compaction_expired_tombstones_enable="true", compaction_strategy="timestamp",
    )  # fmt: skip
    client = await world.connect()
    await world.produce(client, world.batch((b"b", b"1"), (b"a", None)))
    log_of(world).roll(world.clock.now_ms())
    for _ in range(2):
        assert await grab_and_clean(world) is not None
    assert await grab_and_clean(world) is None
    topic = world.broker.topics.get("t")
    assert topic is not None
    world.broker.topics.set_overrides("t", {**topic.overrides, "min.cleanable.dirty.ratio": "1"})
    await world.produce(client, world.batch((b"c", b"1")))
    log_of(world).roll(world.clock.now_ms())
    await world.broker.background._statistics.run()
    result = await grab_and_clean(world)
    assert result is not None
    assert (result.cause, result.removed["tombstone"]) == ("expired tombstones", 1)
    assert await grab_and_clean(world) is None


# Strategies


async def test_w8_the_strategy_is_set_described_and_checked_like_any_key(world: World) -> None:
    client = await world.connect()
    creatable = CreateTopicsRequest.CreatableTopic
    config = creatable.CreatableTopicConfig

    async def create(name: str, **settings: str) -> Any:
        configs = [config(name=key.replace("_", "."), value=text) for key, text in settings.items()]
        topic = creatable(name=name, num_partitions=1, replication_factor=1, configs=configs)
        return (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)).topics[0]

    assert (await create("t", compaction_strategy="timestamp")).error_code == 0
    assert (await create("u", compaction_strategy="version")).error_code == ErrorCode.INVALID_CONFIG
    refused = await create("u", compaction_strategy="header")
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "compaction.strategy.header" in refused.error_message
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")
    described = (
        await client.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    ).results
    entries = {entry.name: entry for entry in described[0].configs}
    assert entries["compaction.strategy"].value == "timestamp"
    assert [one.name for one in entries["compaction.strategy"].synonyms] == [
        "compaction.strategy",
        "log.cleaner.compaction.strategy",
    ]
    for name, default in {
        "compaction.expired.tombstones.enable": "false",
        "compaction.strategy.header": "",
        "segment.idle.ms": "-1",
    }.items():
        assert (entries[name].value, entries[name].read_only) == (default, False)


async def test_w8_a_topic_compacts_by_the_version_in_a_header(world: World) -> None:
    world.topic(
        cleanup_policy="compact", compaction_strategy="header", compaction_strategy_header="v",
        min_cleanable_dirty_ratio="0",
    )  # fmt: skip
    client = await world.connect()
    now_ms = world.clock.now_ms()
    for number, version in enumerate((7, 9, 8)):
        header = (("v", struct.pack(">q", version)),)
        await world.produce(client, encode_batch([(now_ms, b"a", b"%d" % number, header)], now_ms=now_ms))
    await world.produce(client, world.batch((b"b", b"")))
    log_of(world).roll(now_ms)
    assert await grab_and_clean(world) is not None
    assert [record.offset for record in await world.records(client)] == [1, 3]


def test_w8_a_broker_wide_strategy_is_checked_and_leaves_internal_topics_alone() -> None:
    with pytest.raises(ConfigError, match=r"log\.cleaner\.compaction\.strategy\.header"):
        BrokerConfig.parse({"log.cleaner.compaction.strategy": "header"})
    broker = BrokerConfig.parse({"log.cleaner.compaction.strategy": "timestamp"})
    assert TopicConfig.resolve({}, broker).compaction_strategy == "timestamp"
    assert TopicConfig.resolve({}, broker, is_internal=True).compaction_strategy == "offset"


# Policies that lose data

TABLES = [
    "_schemas",
    "connect-configs",
    "connect-offsets",
    "connect-status",
    "docker-connect-configs",
    "_connect-offsets",
    "connect-cluster-status",
    "mm2-offsets.primary.internal",
    "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog",
]
OTHERS = ["orders", "schemas-of-orders", "connections", "connect-config-errors", "changelog", "status"]


def with_policy(policy: str, **more: Any) -> TopicConfig:
    return TopicConfig.resolve({"cleanup.policy": policy, **more}, BrokerConfig())


@pytest.mark.parametrize("name", TABLES)
def test_w15_a_table_that_is_deleted_from_is_named(name: str) -> None:
    warning = policy_warning(name, with_policy("delete"))
    assert warning is not None
    assert name in warning
    assert "cleanup.policy=compact" in warning
    assert policy_warning(name, with_policy("compact")) is None
    both = policy_warning(name, with_policy("compact,delete"))
    assert (both is None) == name.endswith("-changelog"), "a window store's changelog is both, and means it"
    by_time = with_policy("compact", **{"compaction.strategy": "timestamp"})
    assert "compaction.strategy" in (policy_warning(name, by_time) or "")


@pytest.mark.parametrize("name", OTHERS)
def test_w15_other_topics_may_do_as_they_like(name: str) -> None:
    assert policy_warning(name, with_policy("delete")) is None


async def test_w15_the_warning_is_in_the_log_a_gauge_and_the_explanation(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """At creation, automatic creation and alteration; the protocol answers as Kafka does."""

    def warnings() -> int:
        return sum(
            "_schemas" in line.getMessage() for line in caplog.records if line.levelno == logging.WARNING
        )

    caplog.set_level(logging.WARNING)
    world.topic("_schemas")
    assert warnings() == 1
    samples, _ = await scrape(world)
    assert value(samples, "kompakt_topic_policy_warning", topic="_schemas") == 1
    answer = await explain(world, "_schemas")
    assert answer["warning"] == policy_warning("_schemas", log_of(world, "_schemas").config)
    assert f"Warning: {answer['warning']}" in answer["sentence"]
    world.broker.topics.set_overrides("_schemas", {"cleanup.policy": "compact"})
    assert warnings() == 1
    samples, _ = await scrape(world)
    assert not [name for name, _ in samples if name == "kompakt_topic_policy_warning"]
    assert (await explain(world, "_schemas"))["warning"] is None
    world.broker.topics.set_overrides("_schemas", {"cleanup.policy": "compact,delete"})
    assert warnings() == 2


@pytest.mark.parametrize("restarts", [False, True], ids=["altered", "restarted"])
async def test_w8_without_the_header_that_it_relies_on_a_topic_is_not_cleaned(
    world: World, caplog: pytest.LogCaptureFixture, restarts: bool
) -> None:
    """The header was named for all topics, and is no more: by any other rule the winner would be gone."""
    settings, name = world.broker.settings, "log.cleaner.compaction.strategy.header"
    settings.set(True, {name: "v"})
    world.topic(cleanup_policy="compact", compaction_strategy="header", min_cleanable_dirty_ratio="0")
    client = await world.connect()
    now_ms = world.clock.now_ms()
    for number, version in enumerate((9, 7)):
        header = (("v", struct.pack(">q", version)),)
        await world.produce(client, encode_batch([(now_ms - number, b"a", b"%d" % number, header)]))
    await world.produce(client, world.batch((b"b", b"")))
    log_of(world).roll(now_ms)
    settings.set(True, {})
    if restarts:
        await world.restart()
    assert "t is not cleaned any more" in caplog.text
    assert await grab_and_clean(world) is None
    answer = await explain(world)
    assert (answer["reason"], answer["next_eligible_ms"]) == ("no_version", None)
    assert name in answer["sentence"]
    for is_dry in (False, True):
        with pytest.raises(CleaningRefused, match="no header is named"):
            world.broker.cleaner.clean_now(T, is_dry=is_dry)
    world.broker.settings.set(True, {name: "v"})
    assert await grab_and_clean(world) is not None
    client = await world.connect()
    assert [record.offset for record in await world.records(client)] == [0, 2]
