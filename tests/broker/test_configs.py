"""Goal: what is set can be read with its sources and changed key by key, holds at once, and survives a
restart.

Method: a broker in the loop; the three config APIs are asked over a connection, the logs' and the broker's
values looked at, the broker stopped and started in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Thread
from typing import Any

import pytest

from broker.handlers import configs
from broker.handlers.config_entries import Entry, Source, topic_entries
from broker.topic import METADATA_TOPIC
from cleaner.offset_map import ENTRY_BYTES
from config.broker import broker_rows
from config.topic import topic_rows
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from storage.layout import TopicPartition
from tests.broker.client import Client, until
from tests.broker.conftest import World

MakeWorld = Callable[..., Awaitable[World]]
Wanted = DescribeConfigsRequest.DescribeConfigsResource
Change = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    client: Client, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **fields: bool
) -> dict[str, Entry]:
    resource = Wanted(resource_type=kind, resource_name=name, configuration_keys=keys)
    answer = await client.ask(DescribeConfigsRequest(resources=[resource], **fields), version)
    (result,) = answer.results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, kind, name)
    return {entry.name: entry for entry in result.configs}


def incremental(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    entries = [Change(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=entries
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def replace_all(kind: int, name: str, **settings: str | None) -> AlterConfigsRequest:
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterConfigsRequest.AlterConfigsResource.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ],
    )
    return AlterConfigsRequest(resources=[resource])


async def alter(client: Client, request: Any, version: int = 1) -> ErrorCode:
    answer = await client.ask(request, version)
    (response,) = answer.responses
    assert bool(response.error_code) == bool(response.error_message)
    return ErrorCode(response.error_code)


def sources(entry: Entry) -> list[tuple[str, str | None, Source]]:
    return [(synonym.name, synonym.value, Source(synonym.source)) for synonym in entry.synonyms]


@pytest.mark.parametrize("version", range(1, 5))
async def test_g23_every_key_is_listed_with_its_default(world: World, version: int) -> None:
    """G23: old tools read all, change one and write all."""
    world.topic("t")
    client = await world.connect()
    topic = await describe(client, TOPIC, "t", version=version, include_synonyms=True)
    assert set(topic) == {name for name, row in topic_rows().items() if not row.is_internal}
    assert await describe(client, TOPIC, "t", [], version=version) != {}
    broker = await describe(client, BROKER, "1", version=version)
    assert set(broker) == {name for name, row in broker_rows().items() if not row.is_internal}
    assert topic["cleanup.policy"].value == "delete"
    assert topic["cleanup.policy"].config_source == Source.DEFAULT
    assert broker["log.retention.ms"].value is None
    assert broker["node.id"].read_only
    assert not broker["log.cleaner.threads"].read_only


async def test_s30_sources_and_synonyms(make_world: MakeWorld) -> None:
    """S30: the topic's own value, then the broker's dynamic and static ones, then the default."""
    world = await make_world(log_retention_hours="5")
    world.topic("t", retention_ms="7")
    client = await world.connect()
    assert await alter(client, incremental(BROKER, "", ("log.retention.ms", SET, "8"))) == 0
    assert await alter(client, incremental(BROKER, "1", ("log.retention.ms", SET, "9"))) == 0
    entry = (await describe(client, TOPIC, "t", ["retention.ms"], include_synonyms=True))["retention.ms"]
    assert (entry.value, entry.config_source) == ("7", Source.TOPIC)
    assert sources(entry) == [
        ("retention.ms", "7", Source.TOPIC),
        ("log.retention.ms", "9", Source.DYNAMIC_BROKER),
        ("log.retention.ms", "8", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "5", Source.STATIC_BROKER),
        ("log.retention.hours", "168", Source.DEFAULT),
    ]
    assert await alter(client, incremental(TOPIC, "t", ("retention.ms", DELETE, None))) == 0
    entry = (await describe(client, TOPIC, "t", ["retention.ms"]))["retention.ms"]
    assert (entry.value, entry.config_source, entry.synonyms) == ("9", Source.DYNAMIC_BROKER, [])


async def test_types_and_words(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    entries = await describe(client, TOPIC, "t", include_documentation=True)
    assert all(entry.documentation and entry.config_type for entry in entries.values())
    entries = await describe(client, TOPIC, "t", ["cleanup.policy"])
    assert [entry.documentation for entry in entries.values()] == [None]


async def test_others_are_served_while_many_topics_are_described(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consoles ask of all topics in one request, again and again."""
    names = [f"t{number}" for number in range(100)]
    for name in names:
        world.topic(name)
    described: list[object] = []

    def entries(*arguments: Any) -> list[Entry]:
        described.append(arguments)
        return topic_entries(*arguments)

    monkeypatch.setattr(configs, "topic_entries", entries)
    console, other = await world.connect(), await world.connect()
    wanted = [Wanted(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names]
    console.send(DescribeConfigsRequest(resources=wanted), 4)
    await until(lambda: described)
    await other.ask(DescribeConfigsRequest(resources=[]), 4)
    assert len(described) < len(names)
    _, answer = await console.receive(DescribeConfigsResponse, 4)
    assert [result.resource_name for result in answer.results] == names
    assert {len(result.configs) for result in answer.results} == {len(answer.results[0].configs)}


async def test_what_cannot_be_described(world: World) -> None:
    client = await world.connect()
    resources = [
        Wanted(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((TOPIC, "none"), (TOPIC, "b ad"), (BROKER, "7"), (BROKER, "x"), (16, "1"))
    ]
    answer = await client.ask(DescribeConfigsRequest(resources=resources), 4)
    assert [result.error_code for result in answer.results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize("version", range(2))
async def test_s74_changes_hold_at_once_and_after_a_restart(world: World, version: int) -> None:
    world.topic("t", 2)
    client = await world.connect()
    changes = [
        ("cleanup.policy", SET, "compact"),
        ("min.cleanable.dirty.ratio", SET, "0.1"),
        ("min.compaction.lag.ms", SET, "1"),
        ("max.compaction.lag.ms", SET, "2"),
        ("delete.retention.ms", SET, "3"),
    ]
    assert await alter(client, incremental(TOPIC, "t", *changes), version) == 0
    for _ in range(2):
        for index in range(2):
            config = world.broker.partitions[TopicPartition("t", index)].log.config
            assert config.is_compacted
            assert config.min_cleanable_dirty_ratio == 0.1
            assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (1, 2)
            assert config.delete_retention_ms == 3
        await world.restart()


async def test_any_negative_size_is_no_limit_of_retention(world: World) -> None:
    """As in Kafka, which has no floor there; and it is told as it was set."""
    world.topic("t")
    client = await world.connect()
    assert await alter(client, incremental(BROKER, "", ("log.retention.bytes", SET, "-3"))) == 0
    assert (await describe(client, TOPIC, "t"))["retention.bytes"].value == "-3"
    assert await alter(client, incremental(TOPIC, "t", ("retention.bytes", SET, "-2"))) == 0
    entry = (await describe(client, TOPIC, "t"))["retention.bytes"]
    assert (entry.value, entry.config_source) == ("-2", Source.TOPIC)
    too_low = incremental(TOPIC, "t", ("retention.bytes", SET, str(-(2**63) - 1)))
    assert await alter(client, too_low) == ErrorCode.INVALID_CONFIG
    batch = world.batch((b"k", b"v"))
    for _ in range(2):
        assert (await world.produce(client, batch)).error_code == 0
    log = world.broker.partitions[TopicPartition("t", 0)].log
    assert log.expire(world.clock.now_ms()).removed_segments == 0


async def test_lists_are_appended_to_and_subtracted_from(world: World) -> None:
    world.topic("t")
    client = await world.connect()

    async def policy() -> str | None:
        return (await describe(client, TOPIC, "t", ["cleanup.policy"]))["cleanup.policy"].value

    assert await alter(client, incremental(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))) == 0
    assert await policy() == "delete,compact"
    assert await alter(client, incremental(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))) == 0
    assert await policy() == "delete,compact"
    assert await alter(client, incremental(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))) == 0
    assert await policy() == "compact"
    assert await alter(client, incremental(TOPIC, "t", ("cleanup.policy", DELETE, None))) == 0
    assert await policy() == "delete"


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("compact,", "delete,compact"),
        (",", "delete"),
        ("delete,,", "delete"),
        (",compact", None),
        ("compact,,delete", None),
        (" , ", None),
        ("", None),
    ],
)
async def test_what_is_empty_at_the_end_of_what_is_appended_is_nothing(
    world: World, text: str, policy: str | None
) -> None:
    """As in Kafka, which splits it as Java does; what is empty elsewhere is a member that may not be."""
    world.topic("t")
    client = await world.connect()
    expected = ErrorCode.NONE if policy else ErrorCode.INVALID_CONFIG
    assert await alter(client, incremental(TOPIC, "t", ("cleanup.policy", APPEND, text))) == expected
    assert (await describe(client, TOPIC, "t"))["cleanup.policy"].value == (policy or "delete")


async def test_lists_of_replicas_keep_what_is_empty(world: World) -> None:
    """As Kafka, which does not look closely at what it slows down; until something is appended."""
    world.topic("t")
    client = await world.connect()
    key = "leader.replication.throttled.replicas"
    for operation, text, shown in (
        (SET, ",", ","), (SET, "0:1,,1:1,0:1", "0:1,,1:1,0:1"), (APPEND, "2:1,", "0:1,1:1,0:1,2:1"),
        (APPEND, "", "0:1,1:1,0:1,2:1,"), (SUBTRACT, "0:1,1:1", "0:1,2:1"), (SET, "*,", "*,"),
    ):  # fmt: skip
        assert await alter(client, incremental(TOPIC, "t", (key, operation, text))) == 0
        assert (await describe(client, TOPIC, "t"))[key].value == shown
    assert await alter(client, incremental(TOPIC, "t", (key, APPEND, "0:1"))) == ErrorCode.INVALID_CONFIG


async def test_a_list_that_is_not_set_begins_with_the_default_of_its_key(make_world: MakeWorld) -> None:
    """As in Kafka, which does not look at what the topic inherits; and an empty member is none."""
    world = await make_world(log_cleanup_policy="compact")
    world.topic("t")
    client = await world.connect()
    empty = incremental(TOPIC, "t", ("cleanup.policy", APPEND, ""))
    assert await alter(client, empty) == ErrorCode.INVALID_CONFIG
    assert await alter(client, incremental(TOPIC, "t", ("cleanup.policy", APPEND, "delete"))) == 0
    entry = (await describe(client, TOPIC, "t", ["cleanup.policy"]))["cleanup.policy"]
    assert (entry.value, entry.config_source) == ("delete", Source.TOPIC)
    assert await alter(client, incremental(BROKER, "1", ("log.cleanup.policy", APPEND, "compact"))) == 0
    assert await alter(client, incremental(TOPIC, "t", ("cleanup.policy", SUBTRACT, ""))) == 0
    assert await alter(client, incremental(TOPIC, "t", ("cleanup.policy", DELETE, None))) == 0
    for kind, name, key in ((TOPIC, "t", "cleanup.policy"), (BROKER, "1", "log.cleanup.policy")):
        assert (await describe(client, kind, name, [key]))[key].value == "delete,compact"


REFUSED = [
    (TOPIC, "t", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "t", [("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "t", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
    (TOPIC, "t", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
    (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
    (TOPIC, "t", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "t", [("segment.bytes", SET, "1000")], ErrorCode.INVALID_CONFIG),
    (
        TOPIC, "t", [("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "4")],
        ErrorCode.INVALID_CONFIG,
    ),
    (TOPIC, "none", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TOPIC, "", [("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
    (TOPIC, METADATA_TOPIC, [("retention.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION),
    (BROKER, "1", [("node.id", SET, "2")], ErrorCode.INVALID_REQUEST),
    (BROKER, "1", [("no.such", SET, "2")], ErrorCode.INVALID_CONFIG),
    (BROKER, "1", [("log.cleaner.threads", SET, "3")], ErrorCode.INVALID_REQUEST),
    (BROKER, "1", [("log.cleaner.threads", SET, "0")], ErrorCode.INVALID_REQUEST),
    (BROKER, "", [("log.cleaner.dedupe.buffer.size", SET, "1")], ErrorCode.INVALID_REQUEST),
    (BROKER, "1", [("log.cleaner.io.buffer.load.factor", SET, "0")], ErrorCode.INVALID_REQUEST),
    (BROKER, "", [("log.retention.ms", SET, "0")], ErrorCode.INVALID_REQUEST),
    (BROKER, "1", [("log.segment.bytes", SET, "1048575")], ErrorCode.INVALID_REQUEST),
    (BROKER, "1", [("num.partitions", SET, "2000000000")], ErrorCode.INVALID_REQUEST),
    (BROKER, "7", [("log.cleaner.threads", SET, "2")], ErrorCode.INVALID_REQUEST),
    (8, "1", [("no.such", SET, "DEBUG")], ErrorCode.INVALID_CONFIG),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"), REFUSED, ids=[str(n) for n in range(len(REFUSED))]
)
async def test_refused_changes_change_nothing(
    world: World, kind: int, name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    topic = world.topic("t")
    before = world.broker.config
    client = await world.connect()
    assert await alter(client, incremental(kind, name, *changes)) == code
    assert world.broker.topics.get("t") == topic
    assert world.broker.config is before


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("num.io.threads", "num.io.threads does nothing in kompakt: one event loop runs the requests"),
        ("replica.fetch.max.bytes", "does nothing in kompakt: there is no other broker"),
        ("delegation.token.max.lifetime.ms", "not supported: kompakt does not have what it sets up"),
        ("retention.ms", "a key of topics, whose default the broker calls log.retention.ms"),
        ("log.retention.mss", "did you mean log.retention.ms?"),
    ],
)  # fmt: skip
async def test_who_sets_a_key_that_the_broker_has_not_is_told_why(world: World, key: str, words: str) -> None:
    """An operator's scripts set those of Kafka's that may change while it runs."""
    client = await world.connect()
    (answer,) = (await client.ask(incremental(BROKER, "1", (key, SET, "8")), 1)).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert answer.error_message.endswith(words)


async def test_what_nobody_knows_can_be_deleted(world: World) -> None:
    """Kafka's tools clean up settings of older versions so."""
    topic = world.topic("t")
    client = await world.connect()
    assert await alter(client, incremental(TOPIC, "t", ("no.such", 1, None))) == ErrorCode.NONE
    assert world.broker.topics.get("t") == topic


async def test_a_resource_may_be_named_once(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    request = incremental(TOPIC, "t", ("retention.ms", SET, "1"))
    request.resources *= 2
    answer = await client.ask(request, 1)
    assert [response.error_code for response in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


async def test_validate_only(world: World) -> None:
    topic = world.topic("t")
    client = await world.connect()
    good = incremental(TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True)
    assert await alter(client, good) == 0
    bad = incremental(TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)
    assert await alter(client, bad) == ErrorCode.INVALID_CONFIG
    assert world.broker.topics.get("t") == topic


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_replaces_everything(world: World, version: int) -> None:
    world.topic("t", retention_ms="1", segment_ms="2")
    client = await world.connect()
    assert await alter(client, replace_all(TOPIC, "t", retention_ms="3"), version) == 0
    topic = world.broker.topics.get("t")
    assert topic is not None
    assert topic.overrides == {"retention.ms": "3"}
    bad = replace_all(TOPIC, "t", retention_ms="3", no_such="1")
    assert await alter(client, bad, version) == ErrorCode.INVALID_CONFIG


async def test_dynamic_broker_keys_reach_topics_and_survive(world: World) -> None:
    """T28: without a restart; and they are still there after one."""
    world.topic("t")
    world.topic("own", retention_ms="1")
    client = await world.connect()
    changes = [("log.retention.ms", SET, "77"), ("log.cleaner.backoff.ms", SET, "5")]
    assert await alter(client, incremental(BROKER, "1", *changes)) == 0
    for _ in range(2):
        assert world.broker.partitions[TopicPartition("t", 0)].log.config.retention_ms == 77
        assert world.broker.partitions[TopicPartition("own", 0)].log.config.retention_ms == 1
        assert world.broker.config.log_cleaner_backoff_ms == 5
        await world.restart()
    client = await world.connect()
    entries = await describe(client, BROKER, "1", ["log.retention.ms"], include_synonyms=True)
    assert sources(entries["log.retention.ms"]) == [("log.retention.ms", "77", Source.DYNAMIC_BROKER)]
    assert await alter(client, incremental(BROKER, "1", ("log.retention.ms", DELETE, None))) == 0
    assert world.broker.partitions[TopicPartition("t", 0)].log.config.retention_ms == 168 * 3_600_000


async def test_dynamic_settings_that_are_not_understood_do_not_stop_the_start(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Set before they were refused: they go alone, so that what the others keep is not deleted."""
    world = await make_world(log_cleaner_enable="true", log_cleaner_max_compaction_lag_ms="5")
    stored = {
        "log.cleaner.dedupe.buffer.size": "1",
        "no.such": "1",
        "log.cleaner.min.compaction.lag.ms": "9",  # good only beside the next
        "log.cleaner.max.compaction.lag.ms": "10",
    }
    world.broker.metadata.append("broker", "", {"configs": stored})
    world.broker.metadata.append("broker", "1", {"configs": {"log.retention.ms": "-1"}})
    await world.restart()
    config = world.broker.config
    assert config.log_retention_ms == -1
    assert (config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms) == (9, 10)
    assert world.broker.cleaner_pool.is_running
    told = [one.message for one in caplog.records if "is left out" in one.message]
    assert len(told) == 2
    assert "log.cleaner.dedupe.buffer.size" in told[0]
    assert "no.such" in told[1]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_lag_that_contradicts_that_of_all_topics_still_holds(
    make_world: MakeWorld, is_restarted: bool
) -> None:
    """As in Kafka. Were it dropped, what a topic promises to keep for an hour would be compacted at once."""
    world = await make_world()
    client = await world.connect()
    world.topic("t", cleanup_policy="compact", min_compaction_lag_ms="3600000")
    lag = ("log.cleaner.max.compaction.lag.ms", SET, "1000")
    assert await alter(client, incremental(BROKER, "1", lag)) == 0
    if is_restarted:
        await world.restart()
    config = world.broker.partitions[TopicPartition("t", 0)].log.config
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (3_600_000, 1000)


async def test_t28_a_client_changes_the_cleaner_that_runs(make_world: MakeWorld) -> None:
    """What each key does then is shown in cleaner/test_pool.py; here they get there, and new threads come."""
    world = await make_world(log_cleaner_enable="true", log_cleaner_backoff_ms="3600000")
    client = await world.connect()
    before = threads_of(world)
    assert len(before) == 1
    wanted = {
        "log.cleaner.dedupe.buffer.size": "2000000",
        "log.cleaner.io.buffer.load.factor": "0.5",
        "log.cleaner.io.buffer.size": "100000",
        "log.cleaner.io.max.bytes.per.second": "1000000.0",
        "log.cleaner.backoff.ms": "10",
        "log.cleaner.threads": "2",
    }
    assert (
        await alter(client, incremental(BROKER, "1", *((key, SET, text) for key, text in wanted.items())))
        == 0
    )
    after = threads_of(world)
    assert (len(after), after & before) == (2, set())
    config = world.broker.cleaner.config
    assert {key: str(getattr(config, key.replace(".", "_"))) for key in wanted} == wanted
    assert world.broker.cleaner.make_cleaner(lambda size: None)._map.slots == 1_000_000 // ENTRY_BYTES
    world.topic("t", cleanup_policy="compact")
    await world.produce(client, world.batch((b"k", b"1"), (b"k", b"2")))
    world.broker.partitions[TopicPartition("t", 0)].log.roll(world.clock.now_ms())
    await until(lambda: world.broker.cleaner.statistics.runs)


def threads_of(world: World) -> set[Thread]:
    return {worker.thread for worker in world.broker.cleaner_pool._workers if worker.thread.is_alive()}


async def test_t28_a_larger_batch_is_let_in_and_cleaned(make_world: MakeWorld) -> None:
    """message.max.bytes, while the cleaner's own buffer is smaller than the batch."""
    world = await make_world(message_max_bytes="1000", log_cleaner_io_buffer_size="200")
    world.topic("t", cleanup_policy="compact")
    client = await world.connect()
    large = world.batch((b"k", b"1" * 3000), (b"k", b"2" * 3000))
    assert (await world.produce(client, large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await alter(client, incremental(BROKER, "1", ("message.max.bytes", SET, "10000"))) == 0
    assert (await world.produce(client, large)).error_code == 0
    world.broker.partitions[TopicPartition("t", 0)].log.roll(world.clock.now_ms())
    await world.broker.run_blocking(world.broker.cleaner.clean_now, TopicPartition("t", 0))
    assert await world.values(client) == [b"2" * 3000]


async def test_t27_threads_may_be_doubled(world: World) -> None:
    client = await world.connect()
    assert await alter(client, incremental(BROKER, "", ("log.cleaner.threads", SET, "2"))) == 0
    assert world.broker.config.log_cleaner_threads == 2
    entries = await describe(client, BROKER, "")
    assert {name: entry.value for name, entry in entries.items()} == {"log.cleaner.threads": "2"}


async def test_t27_threads_may_be_doubled_twice_at_once(make_world: MakeWorld) -> None:
    """What is in force is one change behind the other; each is held against the one before it."""
    world = await make_world(log_cleaner_enable="true")
    client = await world.connect()
    steps = [
        (BROKER, "", ("log.cleaner.threads", SET, "2")),
        (BROKER, "1", ("log.cleaner.threads", SET, "4")),
    ]
    resources = [resource for step in steps for resource in incremental(*step).resources]
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert [one.error_code for one in answer.responses] == [0, 0]
    assert world.broker.cleaner_pool.is_running
    assert world.broker.cleaner.config.log_cleaner_threads == 4


async def test_aliases_are_the_same_key(world: World) -> None:
    """The seed's log.segment.ms is log.roll.ms."""
    client = await world.connect()
    assert await alter(client, incremental(BROKER, "1", ("log.segment.ms", SET, "9"))) == 0
    assert world.broker.config.dynamic == {"log.roll.ms": "9"}
    assert world.broker.config.log_roll_ms == 9


async def test_internal_segment_bytes_goes_below_the_floor(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    assert await alter(client, incremental(TOPIC, "t", ("internal.segment.bytes", SET, "1000"))) == 0
    assert world.broker.partitions[TopicPartition("t", 0)].log.config.segment_bytes == 1000
    assert "internal.segment.bytes" in await describe(client, TOPIC, "t")


@pytest.mark.parametrize(
    ("version", "types", "expected"),
    [
        (0, [], []),
        (1, [], [("t", 2), ("u", 2), ("1", 4), ("1", 8)]),
        (1, [2], [("t", 2), ("u", 2)]),
        (1, [4, 32, 16], [("1", 4)]),
    ],
)
async def test_what_has_settings_can_be_listed(
    world: World, version: int, types: list[int], expected: list[tuple[str, int]]
) -> None:
    """v0 asks for client metrics alone. Kafka 4.3.1 answers the same."""
    world.topic("t")
    world.topic("u")
    client = await world.connect()
    answer = await client.ask(ListConfigResourcesRequest(resource_types=types), version)
    assert answer.error_code == 0
    found = [(one.resource_name, one.resource_type) for one in answer.config_resources]
    assert [one for one in found if not one[0].startswith("__")] == expected


async def test_what_nobody_knows_cannot_be_listed(world: World) -> None:
    client = await world.connect()
    answer = await client.ask(ListConfigResourcesRequest(resource_types=[2, 3]), 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_values_are_told_as_kafka_spells_them(world: World) -> None:
    """Kafka 4.3.1 gives these texts for these settings."""
    world.topic(
        "t", min_cleanable_dirty_ratio="0.00001", retention_ms="0100", preallocate="TRUE",
        cleanup_policy="delete, compact",
    )  # fmt: skip
    client = await world.connect()
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")
    answer = await client.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    entries = {entry.name: entry for entry in answer.results[0].configs}
    for name, text in {
        "min.cleanable.dirty.ratio": "1.0E-5",
        "retention.ms": "100",
        "preallocate": "true",
        "cleanup.policy": "delete,compact",
    }.items():
        assert (entries[name].value, entries[name].synonyms[0].value) == (text, text)


@pytest.mark.parametrize(("kind", "words"), [(16, "metrics of clients"), (3, "type 3")])
async def test_who_asks_for_settings_that_are_not_here_is_told_what_they_are(
    world: World, kind: int, words: str
) -> None:
    """A Java client shows its user the message alone, in which a number of the protocol said nothing."""
    client = await world.connect()
    resource = Wanted(resource_type=kind, resource_name="1")
    answers = await client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    changed = await client.ask(incremental(kind, "1", ("interval.ms", SET, "1000")), 1)
    for answer in (*answers.results, *changed.responses):
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert words in answer.error_message


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "words"),
    [
        (3, "x", ("a", SET, None), ErrorCode.INVALID_REQUEST, "Null value not supported for : a"),
        (TOPIC, "none", ("preallocate", APPEND, "true"), ErrorCode.INVALID_CONFIG,
         "Can't APPEND to key preallocate because its type is not LIST."),
        (TOPIC, "none", ("nonsense", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG,
         "Can't SUBTRACT to key nonsense because its type is not LIST."),
        (TOPIC, "none", ("nonsense", SET, "1"), ErrorCode.INVALID_CONFIG,
         "Unknown topic config name: nonsense"),
        (TOPIC, "none", ("segment.ms", SET, "0"), ErrorCode.INVALID_CONFIG,
         "Invalid value 0 for configuration segment.ms: Value must be at least 1"),
        (TOPIC, "none", ("segment.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
         "The topic 'none' does not exist."),
        (TOPIC, "a b", ("segment.ms", SET, "0"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (BROKER, "x", ("compression.type", SET, "lz4"), ErrorCode.INVALID_REQUEST,
         "Node id must be an integer, but it is: x"),
        (BROKER, "", ("compression.type", APPEND, "lz4"), ErrorCode.INVALID_CONFIG,
         "Config value append is not allowed for config key: compression.type"),
        (BROKER, "", ("log.cleaner.min.cleanable.ratio", SET, "2"), ErrorCode.INVALID_REQUEST,
         "Invalid value 2.0 for configuration log.cleaner.min.cleanable.ratio: Value must be no more than 1"),
    ],
)  # fmt: skip
async def test_of_several_mistakes_the_one_is_named_that_kafka_names(
    world: World, kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode, words: str
) -> None:
    """Kafka looks at keys and values first, and last whether there is such a topic."""
    client = await world.connect()
    answer = (await client.ask(incremental(kind, name, change), 1)).responses[0]
    assert answer.error_code == code
    assert answer.error_message.startswith(words)


async def test_a_setting_that_no_topic_has_is_refused_in_kafkas_words(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    answer = await client.ask(incremental(TOPIC, "t", ("nonsense.key", SET, "1")), 1)
    assert answer.responses[0].error_message == "Unknown topic config name: nonsense.key"
    answer = await client.ask(incremental(TOPIC, "t", ("log.retention.ms", SET, "1")), 1)
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
    words = "Unknown topic config name: log.retention.ms: did you mean retention.ms?"
    assert answer.responses[0].error_message == words
