"""Goal: every figure of table 13 can be scraped, with one line of help, while the broker serves.

Method: the tables are held against naming rules; a broker in the loop serves requests and `/metrics` is
read back with prometheus-client's own parser.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker import metric_tables
from broker.metric_tables import Kind, Metric
from broker.metrics import Metrics
from protocol.messages.group_offsets import OffsetCommitRequest
from protocol.messages.groups import FindCoordinatorRequest
from storage import statistics
from storage.layout import TopicPartition
from tests.broker.conftest import World

MakeWorld = Callable[..., Awaitable[World]]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
TABLES = [
    metric_tables.BROKER,
    metric_tables.COUNTERS,
    metric_tables.TOPIC,
    metric_tables.LOG,
    metric_tables.CLEANER,
    metric_tables.DIRECTORY,
    metric_tables.PARTITION,
    metric_tables.FILES,
    metric_tables.SINGLE,
]
ROWS: list[Metric[Any]] = [row for table in TABLES for row in table]


def test_names_are_unique_and_spelled_by_the_rules() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    for row in ROWS:
        assert row.name.startswith(("kafka_", "kompakt_")), row.name
        assert row.name == row.name.lower()
        assert row.words
        assert "\n" not in row.words
        assert not row.name.endswith("_total"), "the library adds it"


async def scrape(world: World) -> tuple[Samples, dict[str, str]]:
    """All samples, and the help of every family."""
    metrics = Metrics(world.broker)
    body = await world.broker.run_blocking(metrics.render, metrics.moment())
    samples: Samples = {}
    words = {}
    for family in text_string_to_metric_families(body.decode()):
        words[family.name] = family.documentation
        for sample in family.samples:
            samples[sample.name, frozenset(sample.labels.items())] = sample.value
    return samples, words


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


async def test_every_row_is_exposed_with_its_help(world: World) -> None:
    world.topic("t", cleanup_policy="compact")
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")))
    _, words = await scrape(world)
    for row in ROWS:
        assert words.get(row.name) == row.words, row.name
    assert all(text for text in words.values())
    assert "process_resident_memory_bytes" in words
    assert "process_open_fds" in words


async def test_logs_and_topics_are_counted(world: World) -> None:
    world.topic("t", 2, cleanup_policy="compact")
    client = await world.connect()
    batch = world.batch((b"k", b"v"), (b"k", b"w"))
    await world.produce(client, batch)
    await world.produce(client, world.batch((None, b"v")))
    await world.values(client)
    samples, _ = await scrape(world)
    assert value(samples, "kafka_log_log_logendoffset", topic="t", partition="0") == 2
    assert value(samples, "kompakt_high_watermark", topic="t", partition="0") == 2
    assert value(samples, "kafka_log_log_size", topic="t", partition="0") == len(batch)
    assert value(samples, "kafka_log_log_numlogsegments", topic="t", partition="1") == 1
    prefix = "kafka_server_brokertopicmetrics_"
    assert value(samples, f"{prefix}messagesin_total", topic="t") == 2
    assert value(samples, f"{prefix}bytesin_total", topic="t") == len(batch)
    assert value(samples, f"{prefix}bytesout_total", topic="t") == len(batch)
    assert value(samples, f"{prefix}nokeycompactedtopicrecords_total", topic="t") == 1
    assert value(samples, f"{prefix}failedproducerequests_total", topic="t") == 1
    assert value(samples, "kafka_network_requestmetrics_requests_total", request="Produce") == 2
    assert value(samples, "kafka_server_replicamanager_partitioncount") == 3
    assert value(samples, "kompakt_connections_open") == 1
    assert value(samples, "kompakt_bytes_received_total") > len(batch)


async def test_requests_are_timed(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    for _ in range(3):
        await world.produce(client, world.batch((b"k", b"v")))
    samples, _ = await scrape(world)
    assert value(samples, "kompakt_request_seconds_count", request="Produce") == 3
    assert value(samples, "kompakt_request_seconds_bucket", request="Produce", le="+Inf") == 3
    assert value(samples, "kompakt_request_seconds_sum", request="Produce") > 0


async def test_an_offline_log_is_seen(world: World) -> None:
    world.topic("t")
    samples, _ = await scrape(world)
    assert value(samples, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    next(log for key, log in world.broker.logs.logs.items() if key.topic == "t").take_offline("EIO")
    samples, _ = await scrape(world)
    assert value(samples, "kafka_controller_kafkacontroller_offlinepartitionscount") == 1
    count = len(world.broker.partitions)
    assert value(samples, "kafka_server_replicamanager_partitioncount") == count
    assert value(samples, "kafka_server_replicamanager_leadercount") == count - 1
    assert value(samples, "kompakt_log_offline", topic="t", partition="0") == 1
    assert value(samples, "kafka_log_logmanager_offlinelogdirectorycount") == 0


async def test_s10_lag_of_groups(world: World) -> None:
    """S10: log end, committed offset and lag in one place."""
    world.topic("t")
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 2)
    for _ in range(5):
        await world.produce(client, world.batch((b"k", b"v")))
    partition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=2, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await client.ask(
        OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic]), 7
    )
    assert answer.topics[0].partitions[0].error_code == 0
    samples, _ = await scrape(world)
    labels = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert value(samples, "kafka_consumergroup_current_offset", **labels) == 2
    assert value(samples, "kafka_consumergroup_lag", **labels) == 3


async def test_a_scrape_looks_at_copies(world: World) -> None:
    """Topics come and go on the event loop while a thread renders: it walks nothing that changes. And the
    loop only copies: what follows from hundreds of thousands of commits is reckoned on the thread.
    """
    world.topic("t")
    world.topic("gone")
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 2)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    commit = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, topics=[topic(name="t", partitions=[partition])]
    )
    await client.ask(commit, 7)
    metrics = Metrics(world.broker)
    moment = metrics.moment()
    await world.broker.deletions.delete("gone")
    world.topic("new")
    await world.produce(client, world.batch((b"k", b"v")))
    partition.committed_offset = 1
    await client.ask(commit, 7)
    body = (await world.broker.run_blocking(metrics.render, moment)).decode()
    assert 'kafka_log_log_logendoffset{partition="0",topic="gone"} 0.0' in body
    assert 'topic="new"' not in body
    assert 'kafka_consumergroup_lag{consumergroup="g",partition="0",topic="t"} 1.0' in body
    assert 'kafka_consumergroup_current_offset{consumergroup="g",partition="0",topic="t"} 0.0' in body


async def test_compaction_of_each_partition(world: World) -> None:
    """What Kafka lacks: the dirty part, what a cleaning removed and why, for one partition."""
    topic = world.topic("t", cleanup_policy="compact")
    client = await world.connect()
    for value_bytes in (b"1", b"2", None):
        await world.produce(client, world.batch((b"k", value_bytes), (b"j", b"v")))
    log = world.broker.partitions[TopicPartition("t", 0)].log
    log.roll(world.clock.now_ms())
    labels = {"topic": "t", "partition": "0"}
    samples, _ = await scrape(world)
    assert value(samples, "kompakt_dirty_ratio", **labels) == 1
    assert value(samples, "kompakt_cleanable_bytes", **labels) == log.size_bytes
    assert value(samples, "kompakt_first_uncleanable_offset", **labels) == 6
    assert value(samples, "kompakt_records_removed_total", reason="superseded", **labels) == 0
    await world.broker.run_blocking(world.broker.cleaner.clean_now, TopicPartition(topic.name, 0))
    samples, _ = await scrape(world)
    assert value(samples, "kompakt_cleanable_bytes", **labels) == 0
    assert value(samples, "kompakt_clean_bytes", **labels) == log.size_bytes
    assert value(samples, "kompakt_first_dirty_offset", **labels) == 6
    assert value(samples, "kompakt_records_removed_total", reason="superseded", **labels) == 4
    assert value(samples, "kompakt_tombstones", state="armed", **labels) == 1
    assert value(samples, "kompakt_clean_seconds_count", **labels) == 1
    assert value(samples, "kompakt_clean_seconds_bucket", le="+Inf", **labels) == 1
    assert value(samples, "kompakt_cleaning_records_sum", **labels) == 6
    assert value(samples, "kompakt_cleaning_records_bucket", le="1000", **labels) == 1
    assert value(samples, "kompakt_cleaning_bytes_count", **labels) == 1
    assert 0 < value(samples, "kompakt_cleaning_kept_ratio_sum", **labels) < 1
    assert value(samples, "kompakt_bytes_reclaimed_total", **labels) > 0
    assert value(samples, "kompakt_last_clean_timestamp", **labels) == world.clock.now_ms() / 1000
    assert value(samples, "kompakt_cleaner_runs_total") == 1
    assert value(samples, "kafka_log_logcleaner_max_buffer_utilization_percent") > 0
    reasons = [
        dict(key)["reason"]
        for name, key in samples
        if name == "kompakt_not_cleaned" and ("topic", "t") in key
    ]
    assert reasons == ["nothing was written since the last cleaning"]


async def test_t77_tombstones_by_state(world: World) -> None:
    """Fresh until a cleaning meets them, armed until their horizon, expired until a later one drops them."""
    world.topic("t", cleanup_policy="compact", delete_retention_ms="1000")
    client = await world.connect()
    cleaner, topic_partition = world.broker.cleaner, TopicPartition("t", 0)
    log = world.broker.partitions[topic_partition].log

    async def states() -> dict[str, float]:
        for segment in log.segments[:-1]:
            await world.broker.run_blocking(statistics.ensure, segment)
        samples, _ = await scrape(world)
        labels = {"topic": "t", "partition": "0"}
        return {
            state: value(samples, "kompakt_tombstones", state=state, **labels)
            for state in ("fresh", "armed", "expired")
        }

    await world.produce(client, world.batch((b"a", None), (b"b", None), (b"c", b"1")))
    assert await states() == {"fresh": 0, "armed": 0, "expired": 0}, "the active segment is not counted"
    log.roll(world.clock.now_ms())
    assert await states() == {"fresh": 2, "armed": 0, "expired": 0}
    await world.broker.run_blocking(cleaner.clean_now, topic_partition)
    assert await states() == {"fresh": 0, "armed": 2, "expired": 0}
    world.clock.advance(1000)
    await world.produce(client, world.batch((b"d", None)))
    log.roll(world.clock.now_ms())
    assert await states() == {"fresh": 1, "armed": 0, "expired": 2}
    await world.broker.run_blocking(cleaner.clean_now, topic_partition)
    assert await states() == {"fresh": 0, "armed": 1, "expired": 0}


async def test_a_deleted_topic_is_no_longer_exposed(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")))
    await world.broker.deletions.delete("t")
    samples, _ = await scrape(world)
    assert not [key for key in samples if ("topic", "t") in key[1]]


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_used(kind: Kind) -> None:
    assert any(row.kind is kind for row in ROWS)
