"""Goal: table 13 of the semantics is what `/metrics` says: every name, and the numbers of a known log.

Method: the table's names stand here as the table has them, so that a row that is renamed or lost in the code
is missed. A broker in the loop whose clock stands still gets records of known sizes and times; `/metrics` is
asked over HTTP, as Prometheus does. Kafka's names are spelled as the JMX exporter's lower-case rules do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cleaner.quarantine import FIRST_RETRY_MS
from cleaner.selection import Reason
from protocol.control import Marker, marker_batch
from storage import recovery
from storage.layout import TopicPartition
from storage.log import Log
from storage.types import Origin
from tests.broker.client import until
from tests.broker.conftest import World

MakeWorld = Callable[..., Awaitable[World]]
Found = dict[tuple[str, frozenset[tuple[str, str]]], float]
HOUR_MS = 3_600_000
KEY = TopicPartition("t", 0)
AT = {"topic": "t", "partition": "0"}

KAFKAS = {
    "kafka.log:LogCleaner": (
        "max-buffer-utilization-percent cleaner-recopy-percent max-clean-time-secs max-compaction-delay-secs "
        "DeadThreadCount"
    ),
    "kafka.log:LogCleanerManager": (
        "max-dirty-percent time-since-last-run-ms uncleanable-partitions-count uncleanable-bytes"
    ),
    "kafka.log:Log": "Size NumLogSegments LogStartOffset LogEndOffset",
    "kafka.log:LogManager": (
        "OfflineLogDirectoryCount LogDirectoryOffline remainingLogsToRecover remainingSegmentsToRecover"
    ),
}
RATES = (
    "MessagesIn BytesIn BytesOut BytesRejected FailedProduceRequests FailedFetchRequests "
    "TotalProduceRequests TotalFetchRequests NoKeyCompactedTopicRecords InvalidMagicNumberRecords "
    "InvalidMessageCrcRecords InvalidOffsetOrSequenceRecords"
)
"""BrokerTopicMetrics ...PerSec: Prometheus makes rates of counters itself"""
FLUSHES = {"kompakt_flushes_total", "kompakt_flush_seconds_total"}
"""LogManager's flush rate and time"""
LABELLED: dict[str, tuple[str, ...]] = {
    "kompakt_uncleanable_bytes": ("reason", "active", "lag", "lso"),
    "kompakt_tombstones": ("state", "fresh", "armed", "expired"),
    "kompakt_records_removed_total": ("reason", "superseded", "tombstone", "aborted", "keyless", "marker"),
}
PER_PARTITION = (
    "clean_bytes cleanable_bytes dirty_ratio first_dirty_offset compaction_delay_seconds "
    "next_eligible_timestamp live_keys bytes_reclaimed_total clean_seconds_bucket clean_seconds_sum "
    "clean_seconds_count recopy_bytes_total last_clean_timestamp segments"
)
OF_THE_PROCESS = {"kompakt_open_files"}
"""The table lists it per partition. Descriptors are one pool for all of them: which partition's files happen
to be open tells who was read last, not what it needs; what can run out is the process's limit, which stands
beside it as kompakt_open_files_limit."""


def kafkas() -> set[str]:
    """What has no labels of a partition, and `Log`, which has."""
    names = set()
    for bean, attributes in KAFKAS.items():
        domain, _, kind = bean.partition(":")
        for attribute in attributes.split():
            names.add(f"{domain}_{kind}_{attribute}".lower().replace(".", "_").replace("-", "_"))
    return names | {f"kafka_server_brokertopicmetrics_{name.lower()}_total" for name in RATES.split()}


@pytest.fixture
async def served(make_world: MakeWorld) -> World:
    return await make_world(http_port="0")


async def scrape(world: World) -> Found:
    url = f"http://127.0.0.1:{world.broker.http.port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        text = await answer.text()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Found, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def of_partition(found: Found, prefix: str = "kompakt_") -> set[str]:
    """The names that partition 0 of topic t has a sample of."""
    return {name for name, labels in found if labels >= AT.items() and name.startswith(prefix)}


async def put(world: World, *values: str, topic: str = "t", key: str = "k", roll: bool = True) -> Log:
    """A flushed batch for each value, "-" for a tombstone; the log."""
    partition = world.broker.partitions[TopicPartition(topic, 0)]
    now_ms = world.clock.now_ms()
    for index, text in enumerate(values):
        record = (f"{key}{index}".encode(), None if text == "-" else text.encode())
        partition.append(world.batch(record), now_ms)
    if roll:
        partition.log.roll(now_ms)
    waited = partition.when_flushed(partition.log.log_end_offset)
    if waited is not None:
        await waited
    return partition.log


async def clean(world: World) -> None:
    """What a cleaner thread does once."""
    cleaner = world.broker.cleaner

    def look() -> None:
        work = cleaner.grab()
        if work is not None:
            cleaner.clean(cleaner.make_cleaner(lambda size: None), work)

    await world.broker.run_blocking(look)


async def test_every_name_of_table_13_is_exposed(served: World) -> None:
    served.topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    log = await put(served, "1", "2", "-")
    await clean(served)
    await put(served, "x")
    path, content = damage(log, log.segments[-2].base_offset)
    await clean(served)
    found = await scrape(served)
    path.write_bytes(content)
    names = {name for name, _ in found}
    assert sorted((kafkas() | FLUSHES | OF_THE_PROCESS) - names) == []
    for name, (label, *values) in LABELLED.items():
        for text in values:
            assert value(found, name, **AT, **{label: text}) is not None, (name, text)
    wanted = {f"kompakt_{name}" for name in PER_PARTITION.split()} | LABELLED.keys()
    assert sorted((wanted | {"kompakt_uncleanable"}) - of_partition(found)) == []
    for name in ("Size", "NumLogSegments", "LogStartOffset", "LogEndOffset"):
        assert f"kafka_log_log_{name.lower()}" in of_partition(found, "kafka_")
    for name in OF_THE_PROCESS:
        assert value(found, name) is not None
        assert value(found, f"{name}_limit") is not None


def damage(log: Log, base_offset: int) -> tuple[Any, bytes]:
    """Flip a bit in the last byte of a segment: its path, and what it held."""
    path = next(one for one in log.segments if one.base_offset == base_offset).file.path
    content: bytes = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    return path, content


async def test_when_a_cleaning_is_due_and_how_late_it_is(served: World) -> None:
    """T19: by the topic's longest lag, while its ratio would never do."""
    lag = {"max_compaction_lag_ms": str(HOUR_MS), "min_cleanable_dirty_ratio": "1.0"}
    served.topic("t", cleanup_policy="compact", **lag)
    began_ms = served.clock.now_ms()
    found = await scrape(served)
    assert value(found, "kompakt_next_eligible_timestamp", **AT) is None
    await put(served, "1", "2")
    found = await scrape(served)
    assert value(found, "kompakt_next_eligible_timestamp", **AT) == (began_ms + HOUR_MS + 1) / 1000
    assert value(found, "kompakt_compaction_delay_seconds", **AT) == 0
    served.clock.advance(HOUR_MS + 5000)
    found = await scrape(served)
    assert value(found, "kompakt_compaction_delay_seconds", **AT) == 5
    assert value(found, "kompakt_next_eligible_timestamp", **AT) == served.clock.now_ms() / 1000
    assert value(found, "kafka_log_logcleaner_max_compaction_delay_secs") == 0, "no thread has looked yet"
    served.topic("later", cleanup_policy="compact", **lag)
    await put(served, "1", topic="later")
    await clean(served)
    found = await scrape(served)
    assert value(found, "kafka_log_logcleaner_max_compaction_delay_secs") == 5, "the most belated"
    assert value(found, "kompakt_compaction_delay_seconds", **AT) == 0
    assert value(found, "kompakt_last_clean_timestamp", **AT) == served.clock.now_ms() / 1000
    await clean(served)
    assert value(await scrape(served), "kafka_log_logcleaner_max_compaction_delay_secs") == 0


async def test_t19_the_delay_counts_on_while_a_transaction_keeps_the_log_from_being_cleaned(
    served: World,
) -> None:
    """T19: in Kafka's gauge as in that of the partition; its end lets the cleaning be done."""
    served.topic("t", cleanup_policy="compact", max_compaction_lag_ms=str(HOUR_MS))
    producer = {"producer_id": 7, "producer_epoch": 0}
    begun = served.batch((b"k0", b"0"), base_sequence=0, is_transactional=True, **producer)
    partition = served.broker.partitions[KEY]
    partition.append(begun, served.clock.now_ms(), Origin.COORDINATOR)
    await put(served, "1", "2")
    served.clock.advance(HOUR_MS + 7000)
    await clean(served)
    found = await scrape(served)
    assert value(found, "kafka_log_logcleaner_max_compaction_delay_secs") == 7
    assert value(found, "kompakt_compaction_delay_seconds", **AT) == 7
    assert value(found, "kompakt_cleanable_bytes", **AT) == 0
    assert value(found, "kompakt_uncleanable_bytes", **AT, reason="lso") == partition.log.size_bytes
    assert value(found, "kompakt_cleaner_runs_total") == 0
    now_ms = served.clock.now_ms()
    partition.append(marker_batch(Marker(False), now_ms=now_ms, **producer), now_ms, Origin.COORDINATOR)
    await put(served, "3")
    await clean(served)
    found = await scrape(served)
    assert value(found, "kompakt_cleaner_runs_total") == 1
    assert value(found, "kompakt_compaction_delay_seconds", **AT) == 0


async def test_what_a_cleaning_did(served: World) -> None:
    served.topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    await put(served, "0", "0", roll=False)
    log = await put(served, "1", "2", "3", "-")
    assert value(await scrape(served), "kompakt_live_keys", **AT) == 0
    before = log.size_bytes
    await clean(served)
    first = log.size_bytes
    found = await scrape(served)
    assert value(found, "kompakt_live_keys", **AT) == 3, "and a tombstone"
    assert value(found, "kompakt_recopy_bytes_total", **AT) == first
    assert value(found, "kompakt_bytes_reclaimed_total", **AT) == before - first
    assert value(found, "kafka_log_logcleanermanager_max_dirty_percent") == 100
    log = await put(served, "4", "5")
    dirty, total = log.segments[-2].size_bytes, log.size_bytes
    again = [header.size_bytes for header, _ in log.scan(5, 6)]  # the tombstone before the dirty part
    await clean(served)
    second = log.size_bytes
    found = await scrape(served)
    assert value(found, "kafka_log_logcleanermanager_max_dirty_percent") == pytest.approx(100 * dirty / total)
    assert value(found, "kompakt_recopy_bytes_total", **AT) == first + second
    assert value(found, "kompakt_live_keys", **AT) == 3
    assert value(found, "kompakt_records_removed_total", **AT, reason="superseded") == 4
    percent = 100 * second / (sum(again) + dirty + total)
    assert value(found, "kafka_log_logcleaner_cleaner_recopy_percent") == pytest.approx(percent)


async def test_how_long_no_thread_has_looked_for_work(served: World) -> None:
    name = "kafka_log_logcleanermanager_time_since_last_run_ms"
    assert value(await scrape(served), name) == 0
    await clean(served)
    served.clock.advance(1234)
    assert value(await scrape(served), name) == 1234
    await clean(served)
    assert value(await scrape(served), name) == 0


async def test_t178_what_cannot_be_cleaned_has_its_error_as_a_label(served: World) -> None:
    served.topic("t", cleanup_policy="compact")
    served.topic("fine", cleanup_policy="compact")
    log = await put(served, "1", "2")
    path, content = damage(log, 0)
    await clean(served)
    found = await scrape(served)
    directory = str(served.directory)
    prefix = "kafka_log_logcleanermanager_uncleanable_"
    ((error, number),) = [
        (dict(labels)["error"], number)
        for (name, labels), number in found.items()
        if name == "kompakt_uncleanable"
    ]
    assert ("checksum" in error, number) == (True, 1)
    assert value(found, "kompakt_uncleanable", **AT, error=error) == 1
    assert value(found, f"{prefix}partitions_count", logDirectory=directory) == 1
    assert value(found, f"{prefix}bytes", logDirectory=directory) == log.size_bytes
    assert value(found, "kompakt_not_cleaned", **AT, reason=Reason.UNCLEANABLE.value) == 1
    again = (served.clock.now_ms() + FIRST_RETRY_MS) / 1000
    assert value(found, "kompakt_next_eligible_timestamp", **AT) == again
    path.write_bytes(content)
    await served.broker.run_blocking(served.broker.cleaner.clean_now, KEY)
    found = await scrape(served)
    assert value(found, f"{prefix}partitions_count", logDirectory=directory) == 0
    assert value(found, f"{prefix}bytes", logDirectory=directory) == 0
    assert not [name for name, _ in found if name == "kompakt_uncleanable"]


async def test_an_offline_partition_has_no_figures_of_compaction(served: World) -> None:
    """They rest on files that cannot be read, and a figure that nobody can vouch for is left out, as Kafka
    takes the metrics of a failed log away. That it is offline has a gauge; its last offsets and size stay.
    Figures of others go on, and its own come back with it, counters where they were.
    """
    for topic in ("t", "fine"):
        served.topic(topic, cleanup_policy="compact")
    log = await put(served, "1", "2")
    await put(served, "1", topic="fine")
    await clean(served)
    before = await scrape(served)
    own = of_partition(before)
    assert {"kompakt_dirty_ratio", "kompakt_recopy_bytes_total", "kompakt_live_keys"} <= own
    log.take_offline("its disk failed")
    found = await scrape(served)
    of_log = {
        "high_watermark",
        "last_stable_offset",
        "recovery_point",
        "corrupt_batches_total",
        "segments",
        "log_offline",
    }
    assert of_partition(found) == {f"kompakt_{name}" for name in of_log}
    assert value(found, "kompakt_log_offline", **AT) == 1
    assert value(found, "kafka_log_log_size", **AT) == log.size_bytes
    assert value(found, "kompakt_dirty_ratio", topic="fine", partition="0") is not None
    log.offline_reason = None
    after = await scrape(served)
    assert of_partition(after) == own
    for name in ("kompakt_recopy_bytes_total", "kompakt_live_keys", "kompakt_last_clean_timestamp"):
        assert value(after, name, **AT) == value(before, name, **AT)


async def test_t183_what_a_start_still_has_to_recover(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery that is held up at the first of three segments is scraped."""
    world = await make_world(http_port="0", num_recovery_threads_per_data_dir="1")
    world.topic("t")
    await put(world, "1", key="a")
    await put(world, "2", key="b")
    await put(world, "3", key="c", roll=False)
    await world.stop()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (world.directory / name).unlink()
    reached, go_on = threading.Event(), threading.Event()
    recover = recovery.recover_segment

    def hold(*arguments: Any) -> bool:
        if any("t-0" in str(getattr(one, "directory", "")) for one in arguments):
            reached.set()
            assert go_on.wait(60)
        return recover(*arguments)

    monkeypatch.setattr(recovery, "recover_segment", hold)
    old, starting = world.broker, asyncio.ensure_future(world.start())
    await until(lambda: reached.is_set() and world.broker is not old and hasattr(world.broker, "http"))
    await until(lambda: world.broker.http.port > 0)
    prefix = "kafka_log_logmanager_remaining"
    found = await scrape(world)
    assert value(found, f"{prefix}logstorecover") == 1
    assert value(found, f"{prefix}segmentstorecover") == 3
    go_on.set()
    await starting
    found = await scrape(world)
    assert value(found, f"{prefix}logstorecover") == value(found, f"{prefix}segmentstorecover") == 0
    assert value(found, "kompakt_segments_recovered_total") is not None
