"""Goal: who joins a stream with a table in a topic knows as of when the table is.

Method: a real stream of two micro-batches, between which the table changes. What Spark does with the static
side is pinned, so that the documents change when Spark does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.test_spark import create_topic
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("queries"),
]
LIMIT_SECONDS = 240.0


def put(bootstrap: str, topic: str, value: str) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, key="k")
    assert producer.flush(60) == 0


def test_a_static_side_is_as_of_the_start_of_the_query(
    spark: Any, kompakt_broker: Any, tmp_path: Path
) -> None:
    """Spark plans it once for all micro-batches; what a micro-batch loads itself is as of now."""
    bootstrap = kompakt_broker.bootstrap
    table, orders = create_topic(bootstrap), create_topic(bootstrap)
    brokers = {"kafka.bootstrap.servers": bootstrap}

    def latest() -> Any:
        rows = spark.read.format("kompakt").options(**brokers, subscribe=table, view="latest").load()
        return rows.selectExpr("key", "CAST(value AS STRING) AS name")

    stream = spark.readStream.format("kompakt").options(**brokers, subscribe=orders)
    joined = stream.option("startingOffsets", "earliest").load().select("key").join(latest(), "key")
    seen: list[tuple[str, str]] = []

    def write(rows: Any, _batch_id: int) -> None:
        loaded = rows.select("key").join(latest(), "key").select("name").collect()
        seen.extend((mine.name, its.name) for mine, its in zip(rows.collect(), loaded, strict=True))

    put(bootstrap, table, "old")
    put(bootstrap, orders, "1")
    checkpoint = str(tmp_path / "checkpoint")
    query = joined.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()
    wait_for(lambda: len(seen) == 1 or not query.isActive, "the first micro-batch", LIMIT_SECONDS)
    put(bootstrap, table, "new")
    put(bootstrap, orders, "2")
    wait_for(lambda: len(seen) == 2 or not query.isActive, "the second micro-batch", LIMIT_SECONDS)
    query.stop()
    assert query.exception() is None
    assert seen == [("old", "old"), ("old", "new")]
