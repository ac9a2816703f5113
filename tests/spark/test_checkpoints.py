"""Goal: moving a stream from Spark's own Kafka source to kompakt, or back, is changing one word.

Method: the JVM's own serialiser of offsets (through Py4J) is held against ours for many sets of topics; then
one checkpoint is used by both sources in turn in one session: every record must be there once, the offsets be
those that Spark's own source writes, character for character, and no micro-batch be without records.
"""

from __future__ import annotations

import json
import random
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from spark_connector import canonical
from spark_connector.canonical import compact_json, write_offsets_compactly
from spark_connector.offsets import TopicPartition, to_json_object
from tests.spark.test_spark import create_topic, place_of, produce, received

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_the_order_of_topics_is_that_of_sparks_own_source() -> None:
    """As seen in a checkpoint that it wrote."""
    topics = [f"t{number}" for number in range(9)]
    topics += ["flights", "prices", "a.b", "Zeta", "orders-eu", "x_y"]
    offsets = {TopicPartition(topic, number): 0 for topic in topics for number in range(3)}
    assert " ".join(to_json_object(offsets)) == (
        "t4 t5 t6 t7 t8 orders-eu Zeta x_y a.b prices flights t0 t1 t2 t3"
    )


@pytest.mark.spark
def test_offsets_are_written_as_the_jvm_writes_them(spark: Any, peer: str) -> None:
    """Topics around the sizes at which its hash table grows, partitions in gaps, names of all kinds."""
    chance = random.Random(11)
    json_utils = spark._jvm.org.apache.spark.sql.kafka010.JsonUtils
    for count in (1, 2, 10, 11, 12, 13, 22, 23, 24, 25, 47, 48, 60):
        for partitions in ((0,), (0, 1, 2), (1, 17, 33, 5), tuple(range(14))):
            letters = "abcXYZ019._-"
            topics = {"".join(chance.choices(letters, k=chance.randint(1, 30))) for _ in range(count)}
            offsets = {TopicPartition(t, p): chance.randrange(1 << 41) for t in topics for p in partitions}
            read = json_utils.partitionOffsets(json.dumps(to_json_object(offsets)))
            assert compact_json(to_json_object(offsets)) == json_utils.partitionOffsets(read)


def run(spark: Any, source: str, bootstrap: str, topics: str, directory: Path, **options: str) -> Any:
    """Everything there is into Parquet files, by one source or the other; the finished query."""
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
    if "subscribePattern" not in options:
        reader = reader.option("subscribe", topics)
    reader = reader.options(startingOffsets="earliest", includeHeaders="true", **options)
    writer = reader.load().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    query = writer.start(str(directory / "rows"))
    assert query.awaitTermination(120)
    assert query.exception() is None
    return query


def logged(directory: Path) -> list[str]:
    """The offsets of each micro-batch, as the checkpoint has them."""
    files = [path for path in (directory / "checkpoint" / "offsets").iterdir() if path.name.isdecimal()]
    return [path.read_text().splitlines()[-1] for path in sorted(files, key=lambda path: int(path.name))]


@pytest.mark.spark
@pytest.mark.parametrize("first", ["kafka", "kompakt"])
def test_a_checkpoint_moves_over(
    spark: Any, peer: str, kompakt_broker: Any, tmp_path: Path, first: str
) -> None:
    """There, nothing new there, back with news: each record once, no micro-batch for nothing."""
    bootstrap = kompakt_broker.bootstrap
    second = {"kafka": "kompakt", "kompakt": "kafka"}[first]
    topics = [create_topic(bootstrap) for _ in range(3)]
    ends: dict[TopicPartition, int] = {}
    sent = []
    expected = []
    for number, source in enumerate((first, second, first, second)):
        if number != 1:
            for topic in topics:
                sent += produce(bootstrap, topic, 30, first=30 * number)
            for record in sent:
                place = TopicPartition(record.topic, record.partition)
                ends[place] = max(ends.get(place, 0), record.offset + 1)
            expected.append(compact_json(to_json_object(ends)))
        run(spark, source, bootstrap, ",".join(topics), tmp_path)
        assert logged(tmp_path) == expected, f"after run {number}, by {source}"
    assert received(spark.read.parquet(str(tmp_path / "rows"))) == sorted(sent, key=place_of)


@pytest.mark.spark
@pytest.mark.usefixtures("queries")
def test_one_query_of_both_sources(spark: Any, peer: str, kompakt_broker: Any, tmp_path: Path) -> None:
    """The same topic twice in one query, whose sources change places over its checkpoint."""
    bootstrap = kompakt_broker.bootstrap
    topic = create_topic(bootstrap)
    for number, sources in enumerate(((peer, "kompakt"), (peer, "kompakt"), ("kompakt", peer))):
        produce(bootstrap, topic, 30, first=30 * number)
        left, right = (
            spark.readStream.format(source)
            .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr(f"{side} AS side", "partition", "offset")
            for side, source in enumerate(sources)
        )
        writer = left.union(right).writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "check point"))
        query = writer.start(str(tmp_path / "rows"))
        assert query.awaitTermination(120)
        assert query.exception() is None
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert (rows.count(), rows.distinct().count()) == (180, 180)


@pytest.mark.spark
def test_a_pattern_means_the_same_topics_to_both(
    spark: Any, peer: str, kompakt_broker: Any, tmp_path: Path
) -> None:
    """A checkpoint with topics of which the pattern matches a part only: none of them is taken for lost."""
    bootstrap = kompakt_broker.bootstrap
    first = create_topic(bootstrap)
    second = create_topic(bootstrap, name=f"{first}-eu")
    sent = []
    for number, source in enumerate((peer, "kompakt", peer)):
        for topic in (first, second):
            sent += produce(bootstrap, topic, 30, first=30 * number)
        run(spark, source, bootstrap, "", tmp_path, subscribePattern=first[1:])
    assert len(logged(tmp_path)) == 3
    assert received(spark.read.parquet(str(tmp_path / "rows"))) == sorted(sent, key=place_of)


@pytest.mark.spark
def test_a_micro_batch_that_was_not_finished_is_finished_by_the_other(
    spark: Any, peer: str, kompakt_broker: Any, tmp_path: Path
) -> None:
    """Planned by one source and not committed: the other reads exactly the planned offsets."""
    bootstrap = kompakt_broker.bootstrap
    topic = create_topic(bootstrap)
    sent = produce(bootstrap, topic, 90)
    run(spark, peer, bootstrap, topic, tmp_path, maxOffsetsPerTrigger="30")
    planned = logged(tmp_path)
    assert len(planned) == 3
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    query = run(spark, "kompakt", bootstrap, topic, tmp_path)
    assert logged(tmp_path) == planned
    assert query.recentProgress[0]["batchId"] == 2
    # The file sink has the batch already, and takes it once.
    assert received(spark.read.parquet(str(tmp_path / "rows"))) == sorted(sent, key=place_of)


def test_blanks_are_left_out_in_the_planning_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, canonical.RUNNER, raising=False)
    assert not write_offsets_compactly()
    runner = types.ModuleType(canonical.RUNNER)
    monkeypatch.setitem(sys.modules, canonical.RUNNER, runner)
    assert not write_offsets_compactly(), "a later PySpark may have no json there"
    runner.json = object()  # type: ignore[attr-defined]
    assert write_offsets_compactly()
    assert runner.json.dumps({"t": {"0": 3, "1": 4}}) == '{"t":{"0":3,"1":4}}'
    assert runner.json.loads('{"t":{"0":3}}') == {"t": {"0": 3}}
