"""Goal: a refreshed table is the one that a whole read makes, where a key was written to two partitions.

Method: a topic gets another partition between two refreshes, and times that run backwards; the table that was
refreshed is compared with one that is built anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from spark_connector.pipelines import refresh_snapshot
from tests.spark.test_pipelines import servers, source, table_of
from tests.spark.test_spark import create_topic
from tests.waiting import wait_for

__all__ = ["servers"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NOON_MS = 1_790_000_000_000


def test_a_refresh_after_partitions_were_added_is_a_whole_read(
    spark: Any, servers: str, tmp_path: Path
) -> None:
    """An earlier value, or tombstone, of the new partition took the place of a later value of the old one."""
    topic = create_topic(servers, {"cleanup.policy": "compact"})
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})

    def put(partition: int, minute: int, values: dict[str, str | None]) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})  # which knows all partitions
        for key, value in values.items():
            producer.produce(topic, value, key, partition=partition, timestamp=NOON_MS + minute * 60_000)
        assert producer.flush(60) == 0

    def refresh(name: str) -> dict[bytes, bytes]:
        refreshed = refresh_snapshot(spark, topic, source(servers), tmp_path / name)
        assert refreshed.was_full == (name != "table" or refreshed.version == 1)
        return table_of(spark, tmp_path / name)

    keys = ("older", "younger", "older tombstone", "younger tombstone", "same partition", "both")
    put(0, 30, dict.fromkeys(keys, "first"))
    assert refresh("table") == {key.encode(): b"first" for key in keys}
    for done in admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, 4)]).values():
        done.result(60)
    wait_for(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 4, "a fourth partition", 60)
    put(3, 10, {"older": "second", "older tombstone": None, "both": "second"})
    put(3, 50, {"younger": "second", "younger tombstone": None})
    put(0, 5, {"same partition": "second", "both": "third"})
    expected = {
        b"older": b"first",
        b"younger": b"second",
        b"older tombstone": b"first",
        b"same partition": b"second",
        b"both": b"second",
    }
    assert refresh("whole") == expected
    assert refresh("table") == expected
