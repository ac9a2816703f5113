"""Goal: few tasks, limits in bytes: small partitions share a task, a micro-batch takes about so many bytes.

Method: the pure decisions on numbers; planning and reading against a fake broker; 200 partitions through a
Spark session.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from protocol.records import encode_batch
from spark_connector.byte_limits import LOOKS, limit_bytes, places_to_look, within_bytes
from spark_connector.client import connect
from spark_connector.errors import DataLossError
from spark_connector.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from spark_connector.options import parse_options
from spark_connector.packing import PACK_BYTES, pack_ranges
from spark_connector.probing import PROBE_BYTES, Probe, TopicSizes, measure, probe
from spark_connector.reader import BatchReader
from spark_connector.shape import Shape
from spark_connector.stream import StreamReader
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of
from tests.spark.test_spark import reader

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]


def place(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def packed(sizes: list[int], limit: int = 100, at_least: int = 1, per_offset: float = 0.0) -> list[list[int]]:
    """The numbers of the partitions in each task."""
    ranges = [OffsetRange(place(number), 5, 5 + size) for number, size in enumerate(sizes)]
    known = dict(zip(ranges, sizes, strict=True))
    groups = pack_ranges(ranges, known, limit, at_least, {"t": per_offset})
    return [[wanted.topic_partition.partition for wanted in group] for group in groups]


def test_small_ranges_share_and_large_ones_do_not() -> None:
    assert packed([10, 20, 30]) == [[0, 1, 2]]
    assert packed([60, 30, 20, 500, 1, 1]) == [[0, 1], [2], [3], [4, 5]]
    assert packed([10, 20], limit=0) == [[0], [1]]
    assert packed([10] * 3, per_offset=PACK_BYTES / 15) == [[0], [1], [2]]
    assert packed([]) == []


def test_as_many_tasks_as_asked_for() -> None:
    chosen = random.Random(1)
    for _ in range(300):
        sizes = [chosen.choice([0, 1, 10, 50, 99, 1000]) for _ in range(chosen.randrange(1, 30))]
        at_least = chosen.randrange(1, 40)
        groups = packed(sizes, at_least=at_least)
        assert [number for group in groups for number in group] == list(range(len(sizes)))
        assert len(groups) >= min(at_least, len(sizes))
        for group in groups:
            assert len(group) == 1 or sum(sizes[number] for number in group) <= 100
        if at_least == 1:
            ends = [group + following for group, following in itertools.pairwise(groups)]
            assert all(sum(sizes[number] for number in both) > 100 for both in ends)


def many(count: int, records: int = 3, size: int = 1) -> dict[TopicPartition, FakeLog]:
    entries = [(1, b"k", b"v" * size, ())] * records
    return logs_of(*([encode_batch(entries)] for _ in range(count)))


def rows_of(chosen: Any, tasks: Any) -> list[tuple[int, int]]:
    found = []
    for task in tasks:
        for made in chosen.read(task):
            found += zip(made.column("partition").to_pylist(), made.column("offset").to_pylist(), strict=True)
    return found


def test_a_batch_of_many_small_partitions_is_one_task(start_broker: Start) -> None:
    """The ends stay open till the task runs: what arrived since is read too."""
    broker = start_broker(many(40))
    parsed = parse_options(options_for(broker))
    chosen = BatchReader(parsed, Shape.of(["partition", "offset"]))
    (task,) = chosen.partitions()
    assert {(wanted.start, wanted.end) for wanted in task.value.ranges} == {(EARLIEST, LATEST)}
    broker.logs[place(7)].batches.append(encode_batch([(1, b"k", b"v", ())], base_offset=3))
    connections = broker.connections
    rows = rows_of(chosen, [task])
    assert sorted(rows) == sorted([(n, o) for n in range(40) for o in range(3)] + [(7, 3)])
    assert broker.connections == connections  # the worker's connection is kept from partition to partition


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 1),
        ({"minPartitions": "4"}, 4),
        ({"minPartitions": "12"}, 12),
        ({"minPartitions": "24"}, 24),
        ({"packOffsets": "0"}, 12),
        ({"packOffsets": "6"}, 6),
        ({"maxRecordsPerPartition": "9"}, 4),
        ({"maxRecordsPerPartition": "2"}, 24),
        ({"view": "latest", "minPartitions": "4"}, 4),
        ({"view": "latest", "minPartitions": "50"}, 12),
    ],
)
def test_options_of_the_number_of_tasks(start_broker: Start, options: dict[str, str], tasks: int) -> None:
    broker = start_broker(many(12))
    parsed = parse_options(options_for(broker, **options))
    chosen = BatchReader(parsed, Shape.of(["partition", "offset"]))
    planned = chosen.partitions()
    assert len(planned) == tasks
    expected = (
        [(n, 2) for n in range(12)] if parsed.is_view else [(n, o) for n in range(12) for o in range(3)]
    )
    assert sorted(rows_of(chosen, planned)) == expected


@pytest.mark.parametrize(("minimum", "tasks"), [(1, 1), (2, 2), (3, 4), (5, 6), (6, 6)])
def test_what_min_partitions_has_cut_stays_apart(start_broker: Start, minimum: int, tasks: int) -> None:
    """Two partitions of 50 offsets: beyond two tasks there are as many as pieces, however small."""
    broker = start_broker(many(2, records=50))
    parsed = parse_options(options_for(broker, minPartitions=str(minimum)))
    assert len(BatchReader(parsed, Shape.of(["offset"])).partitions()) == tasks


def test_large_records_do_not_share(start_broker: Start) -> None:
    """Few offsets, but 20 MiB each."""
    broker = start_broker(many(3, records=20, size=1 << 20))
    parsed = parse_options(options_for(broker))
    assert len(BatchReader(parsed, Shape.of(["partition", "offset"])).partitions()) == 3


def test_a_topic_that_goes_while_its_task_waits(start_broker: Start) -> None:
    broker = start_broker({**many(3), TopicPartition("u", 0): FakeLog([encode_batch([(1, b"k", b"v", ())])])})
    for fail in ("true", "false"):
        parsed = parse_options(options_for(broker, subscribe="t,u", failOnDataLoss=fail))
        chosen = BatchReader(parsed, Shape.of(["partition", "offset"]))
        (task,) = chosen.partitions()
        log = broker.logs.pop(TopicPartition("u", 0))
        if fail == "true":
            with pytest.raises(DataLossError, match="u"):
                rows_of(chosen, [task])
        else:
            assert len(rows_of(chosen, [task])) == 9
        broker.logs[TopicPartition("u", 0)] = log


def test_a_stream_packs_and_looks_at_sizes_once_a_minute(start_broker: Start) -> None:
    broker = start_broker(many(30))
    parsed = parse_options(options_for(broker, startingOffsets="earliest"))
    stream = StreamReader(parsed, Shape.of(["partition", "offset"]))
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    for _ in range(3):
        (task,) = stream.partitions(start, end)
    assert len(broker.fetched) == 1
    assert len(rows_of(stream, [task])) == 90


# --- bytes


def test_sizes_are_measured_by_headers() -> None:
    first = encode_batch([(1, b"k", b"v" * 10, ())] * 4, base_offset=10)
    second = encode_batch([(1, b"k", b"v" * 100, ())], base_offset=20)
    assert measure(first, 10) == Probe(14, len(first) / 4, 14)
    assert measure(first + second, 10) == Probe(14, len(first + second) / 11, 21)
    assert measure(first + second[:-1], 12) == Probe(14, len(first) / 4, 14)
    assert measure(first, 5) == Probe(14, len(first) / 9, 14)
    assert measure(first[:60], 10) is None
    assert measure(first, 14) is None


def test_bytes_become_offsets() -> None:
    start, end = {place(0): 0, place(1): 100}, {place(0): 1000, place(1): 1100}
    probes = {place(0): Probe(10, 10.0), place(1): Probe(101, 100.0)}
    assert limit_bytes(start, end, 10**9, probes) == end
    # 110,000 bytes are waiting, shared by backlog in bytes: the same part of each
    assert limit_bytes(start, end, 55_000, probes) == {place(0): 500, place(1): 600}
    assert limit_bytes(start, end, 1, probes) == {place(0): 10, place(1): 101}
    # a partition that was not looked at is taken for the average; without any look there is no limit
    assert limit_bytes(start, end, 10_000, {place(0): Probe(10, 10.0)}) == {place(0): 500, place(1): 600}
    assert limit_bytes(start, end, 1, {}) == end
    assert limit_bytes(start, {**end, place(2): 7}, 1, probes)[place(2)] == 7


def test_few_places_are_looked_at() -> None:
    start = {place(number): 0 for number in range(100)}
    end = {place(number): number for number in range(100)}
    places = places_to_look(start, end)
    assert len(places) == LOOKS
    assert min(places).partition == 100 - LOOKS


def test_a_look_that_fails_is_no_error(start_broker: Start) -> None:
    broker = start_broker(many(2))
    broker.closes = 1
    cluster = connect(parse_options(options_for(broker)).client)
    cluster.describe(["t"])
    broker.closes = 1
    assert set(probe(cluster, {place(0): 0, place(1): 0})) == {place(1)}
    sizes = TopicSizes()
    assert sizes.bytes_per_offset(cluster, {"t": (place(0), 99)}) == {}
    assert sizes.bytes_per_offset(cluster, {"t": (place(0), 0)})["t"] > 20


def test_micro_batches_of_about_so_many_bytes(start_broker: Start) -> None:
    """Sizes differ by partition and all is read in the end, a whole batch at least each time."""
    small = [encode_batch([(1, b"k", b"v" * 100, ())] * 10, base_offset=n * 10) for n in range(100)]
    large = [encode_batch([(1, b"k", b"v" * 1000, ())] * 10, base_offset=n * 10) for n in range(100)]
    broker = start_broker(logs_of(small, large))
    total = sum(map(len, small + large))
    parsed = parse_options(
        options_for(broker, startingOffsets="earliest", maxBytesPerTrigger=str(total // 10))
    )
    stream = StreamReader(parsed, Shape.of(["partition", "offset"]))
    assert stream.getDefaultReadLimit() == ReadMaxBytes(total // 10)
    start = stream.initialOffset()
    sizes = []
    while (end := stream.latestOffset(start, ReadMaxBytes(total // 10))) != start:
        taken = [end["t"][number] - start["t"][number] for number in "01"]
        sizes.append(taken[0] * len(small[5]) / 10 + taken[1] * len(large[5]) / 10)
        start = end
    assert start == {"t": {"0": 1000, "1": 1000}}
    assert 9 <= len(sizes) <= 12
    assert max(sizes) < 1.1 * total / 10
    everything = StreamReader(parsed, Shape.of(["offset"])).latestOffset(
        {"t": {"0": 0, "1": 0}}, ReadAllAvailable()
    )
    assert everything == start


class Sized:
    """A look at partitions whose records have these sizes, each in a batch of its own; counts looks."""

    def __init__(self, *records: list[int]) -> None:
        self.records = records
        self.looks = 0

    def __call__(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, Probe]:
        self.looks += len(places)
        return {tp: self._probe(self.records[tp.partition], offset) for tp, offset in places.items()}

    def _probe(self, sizes: list[int], offset: int) -> Probe:
        taken = sizes[offset : offset + 1]
        for size in sizes[offset + 1 : offset + 500]:
            if sum(taken) + size > PROBE_BYTES:
                break
            taken.append(size)
        return Probe(offset + 1, sum(taken) / len(taken), offset + len(taken))

    def micro_batches(self, limit: int) -> list[int]:
        """The bytes of each, until all is read."""
        start = {place(number): 0 for number in range(len(self.records))}
        ends = {place(number): len(sizes) for number, sizes in enumerate(self.records)}
        found = []
        while start != ends:
            after = within_bytes(start, ends, limit, self)
            assert all(after[tp] > start[tp] for tp in start if start[tp] < ends[tp])
            found.append(sum(sum(self.records[tp.partition][start[tp] : after[tp]]) for tp in start))
            start = after
        return found


@pytest.mark.parametrize(
    ("records", "batches", "looks"),
    [
        ([[10] * 600 + [100_000] * 300], 36, 13),
        ([[100_000] * 300 + [10] * 600], 36, 13),
        ([[10] * 3000 + [100_000] * 300 + [10] * 3000], 45, 13),
        ([[10] * 600 + [100_000] * 300, [2000] * 900], 60, 26),
        ([[10] * 100_000 + [100_000] * 30], 12, 13),
        ([[1000] * 30_000], 32, 7),
    ],
    ids=["small first", "large first", "large between", "two partitions", "few large", "all alike"],
)
def test_large_records_behind_small_ones(records: list[list[int]], batches: int, looks: int) -> None:
    """Are seen before they are planned; and small ones before large ones do not come a few at a time."""
    sized = Sized(*records)
    found = sized.micro_batches(1_000_000)
    assert max(found) <= 1_300_000
    assert len(found) <= batches
    assert sized.looks <= looks * len(found)


def test_what_one_look_shows_whole_needs_no_other() -> None:
    sized = Sized([10] * 50)
    assert sized.micro_batches(1_000_000) == [500]
    assert sized.looks == 1


def test_each_partition_goes_on_however_many_there_are_and_however_little_is_wanted() -> None:
    """Not all of them are looked at."""
    sized = Sized(*[[100] * 3] * (LOOKS + 8))
    assert sum(sized.micro_batches(50)) == 300 * (LOOKS + 8)


def test_a_micro_batch_ends_before_large_records(start_broker: Start) -> None:
    """Three batches of small ones, thirty times the limit behind them."""
    small = [encode_batch([(1, None, b"tiny", ())] * 200, base_offset=n * 200) for n in range(3)]
    large = [encode_batch([(1, None, bytes(100_000), ())], base_offset=600 + n) for n in range(300)]
    broker = start_broker(logs_of(small + large))
    options = options_for(broker, startingOffsets="earliest", maxBytesPerTrigger="1000000")
    stream = StreamReader(parse_options(options), Shape.of(["offset"]))
    ends = [0]
    while (end := stream.latestOffset({"t": {"0": ends[-1]}}, ReadMaxBytes(1_000_000))["t"]["0"]) != ends[-1]:
        ends.append(end)
    assert 500 <= ends[1] <= 612
    assert max(until - max(begin, 600) for begin, until in itertools.pairwise(ends)) <= 12
    assert len(ends) <= 40


def test_bytes_and_offsets_limit_together(start_broker: Start) -> None:
    broker = start_broker(many(1, records=1000, size=1000))
    for most, reached in ((7, 1000), (10**9, 1000)):
        options = {"maxBytesPerTrigger": "1", "maxOffsetsPerTrigger": str(most)}
        parsed = parse_options(options_for(broker, startingOffsets="earliest", **options))
        end = StreamReader(parsed, Shape.of(["offset"])).latestOffset({"t": {"0": 0}}, ReadMaxBytes(1))
        assert end == {"t": {"0": min(reached, most)}}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_many_partitions_in_spark(spark: Any, kompakt_broker: Any) -> None:
    bootstrap = kompakt_broker.bootstrap
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([confluent_kafka.admin.NewTopic("many", 60, 1)]).values():
        made.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(600):
        producer.produce("many", b"%d" % number, b"k", partition=number % 60)
    assert producer.flush(30) == 0
    frame = reader(spark, bootstrap, "many").load()
    assert frame.rdd.getNumPartitions() == 1
    rows = frame.selectExpr("count(*) AS rows", "count(DISTINCT partition, offset) AS places").collect()[0]
    assert (rows.rows, rows.places) == (600, 600)
    assert reader(spark, bootstrap, "many", minPartitions="20").load().rdd.getNumPartitions() == 20
