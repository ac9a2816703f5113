"""Prometheus metrics: a custom collector that reads plain counters when it is scraped.

The only module that knows a metrics library. What there is to read stands in `metric_tables.py`. What only
the event loop may walk (what topics, partitions and groups there are) is copied there as a `Moment`; the
rest is numbers and immutable tuples, read and rendered on an I/O thread, so that a scrape of ten thousand
partitions does not hold up a request.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from broker import metric_tables as tables
from broker.api import api_name
from broker.build import installed_version
from broker.counters import Latencies, TopicCounters
from broker.groups.commits import Committed, Lag, lags
from broker.metric import Kind, Metric
from broker.questions.disks import directory_rows
from broker.questions.share_groups import share_lags
from broker.quotas.limits import NOT_SAID, Place
from broker.quotas.settings import CONNECTED
from cleaner.distribution import Distribution
from storage.file import POOL

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.partition import Partition
    from storage.layout import TopicPartition

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""what who asks for no other format is given: readers that know this one alone take no later version"""
PARTITION_LABELS = ("topic", "partition")
SMALLEST_BUCKET = 4
LARGEST_BUCKET = 25
"""16 us and 34 s"""
CLIENT_LABELS = ("user", "client_id", "ip")
GROUP_LABELS = ("consumergroup", "topic", "partition")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moment:
    """What the event loop saw: copies, for it goes on changing what they are of. Owned by: any thread."""

    committed: Committed
    shared: Sequence[Lag]
    partitions: Mapping[TopicPartition, Partition]
    topics: Mapping[str, TopicCounters]
    requests: Mapping[int, int]
    latencies: Mapping[int, Latencies]
    told_ms: Mapping[tuple[str, Place], int]


class Metrics:
    """`moment` on the event loop, `render` on any thread, one at a time or several."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def moment(self) -> Moment:
        """Nothing but copies: there may be hundreds of thousands of committed offsets."""
        counters = self._broker.metrics_state
        return Moment(
            self._broker.groups.committed(),
            share_lags(self._broker),
            self._broker.partitions.copy(),
            dict(counters.topics),
            dict(counters.requests),
            dict(counters.latencies),
            {(quota, place): waited.told_ms for quota, place, waited in self._broker.quotas.waits.all()},
        )

    def render(self, moment: Moment) -> bytes:
        """Everything, in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(_Once(_families(self._broker, moment)))
        return generate_latest(registry) + generate_latest(self._process)


class _Once(Collector):
    """Families that were collected already, as a collector."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterable[Family]:
        return self._families


def _families(broker: Broker, moment: Moment) -> Iterator[Family]:
    yield _build()
    yield from _rows(tables.BROKER, (), [((), broker)])
    yield from _rows(tables.COUNTERS, (), [((), broker.metrics_state)])
    topics = [((name,), topic) for name, topic in sorted(moment.topics.items())]
    yield from _rows(tables.TOPIC, ("topic",), topics)
    logs = [
        (_labels(topic_partition), partition.log)
        for topic_partition, partition in sorted(moment.partitions.items())
    ]
    yield from _rows(tables.LOG, PARTITION_LABELS, logs)
    # In this order: the figures of partitions bring those of the cleaner up to date.
    stats = broker.cleaner.partition_stats()
    cleaned = [(_labels(topic_partition), found) for topic_partition, found in sorted(stats.items())]
    yield from _rows(tables.PARTITION, PARTITION_LABELS, cleaned)
    directories = directory_rows(broker, [partition.log for partition in moment.partitions.values()], stats)
    yield from _rows(tables.DIRECTORY, ("logDirectory",), [((row["path"],), row) for row in directories])
    yield from _rows(tables.CLEANER, (), [((), broker.cleaner)])
    yield from _rows(tables.FILES, (), [((), POOL)])
    yield from _requests(moment)
    yield _throttled(moment)
    yield from _groups(itertools.chain(lags(moment.committed, moment.partitions), moment.shared))


def _labels(topic_partition: TopicPartition) -> tuple[str, str]:
    return (topic_partition.topic, str(topic_partition.partition))


def _rows(
    metrics: Iterable[Metric[Any]], labels: Sequence[str], subjects: Sequence[tuple[Sequence[str], Any]]
) -> Iterator[Family]:
    """One family a row, one sample a subject (or several, where the row has a label of its own)."""
    for metric in metrics:
        names = (*labels, metric.label) if metric.label else tuple(labels)
        if metric.kind is Kind.HISTOGRAM:
            yield _histogram(metric, names, subjects)
            continue
        family = _family(metric, names)
        for values, subject in subjects:
            found = metric.read(subject)
            if isinstance(found, Mapping):
                for value, number in found.items():
                    family.add_metric((*values, value), number)
            elif isinstance(found, int | float):
                family.add_metric(values, found)
        yield family


def _histogram(
    metric: Metric[Any], labels: Sequence[str], subjects: Sequence[tuple[Sequence[str], Any]]
) -> HistogramMetricFamily:
    histogram = HistogramMetricFamily(metric.name, metric.words, labels=labels)
    for values, subject in subjects:
        found = metric.read(subject)
        assert isinstance(found, Distribution)
        if found.count:
            histogram.add_metric(values, found.buckets(), found.sum)
    return histogram


def _family(metric: Metric[Any], labels: Sequence[str]) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    return kind(metric.name, metric.words, labels=labels)


def _build() -> Family:
    family = _family(tables.BUILD, (tables.BUILD.label,))
    family.add_metric((installed_version(),), 1)
    return family


def _requests(moment: Moment) -> Iterator[Family]:
    requests = _family(tables.REQUESTS, (tables.REQUESTS.label,))
    for key, count in sorted(moment.requests.items()):
        requests.add_metric((api_name(key),), count)
    yield requests
    seconds = HistogramMetricFamily(
        tables.REQUEST_SECONDS.name, tables.REQUEST_SECONDS.words, labels=(tables.REQUEST_SECONDS.label,)
    )
    for key, latencies in sorted(moment.latencies.items()):
        seconds.add_metric((api_name(key),), _buckets(latencies), latencies.nanoseconds / 1e9)
    yield seconds


def _throttled(moment: Moment) -> Family:
    family = _family(tables.CLIENT_THROTTLE_SECONDS, (tables.CLIENT_THROTTLE_SECONDS.label, *CLIENT_LABELS))
    for (quota, place), told_ms in sorted(moment.told_ms.items()):
        whose = (NOT_SAID, NOT_SAID, place[0]) if quota == CONNECTED else (*place, NOT_SAID)
        family.add_metric((quota, *whose), told_ms / 1000)
    return family


def _buckets(latencies: Latencies) -> list[tuple[str, float]]:
    """Cumulative counts; the smallest and the largest buckets are of no use to anybody."""
    counts = tuple(latencies.counts)
    buckets: list[tuple[str, float]] = [
        (f"{Latencies.limit_seconds(bucket):.6g}", sum(counts[: bucket + 1]))
        for bucket in range(SMALLEST_BUCKET, LARGEST_BUCKET + 1)
    ]
    return [*buckets, ("+Inf", sum(counts))]


def _groups(found: Iterable[Lag]) -> Iterator[Family]:
    behind = _family(tables.GROUP_LAG, GROUP_LABELS)
    committed = _family(tables.GROUP_OFFSET, GROUP_LABELS)
    for lag in found:
        labels = (lag.group_id, *_labels(lag.topic_partition))
        behind.add_metric(labels, lag.lag)
        committed.add_metric(labels, lag.committed_offset)
    yield behind
    yield committed
