"""Goal: a job that writes by Spark's own Kafka sink moves over by one word, `format("kompakt")`.

Method: the same frames go through both sinks, in batch and as streams, with columns that neither has a place
for; what arrives is compared, and the differences (`timestamp`, names of columns) pinned.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.spark.test_spark import create_topic, produce, reader, topic
from tests.spark.test_writer_spark import Message, read_back

__all__ = ["topic"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("queries"),
]
by_both = pytest.mark.parametrize("sink", ["kafka", "kompakt"])
COUNT = 90


class Place(NamedTuple):
    """Where a frame is to be written, and by which sink."""

    sink: str
    bootstrap: str
    topic: str

    def write(self, rows: Any) -> None:
        self._to(rows.write.mode("append")).save()

    def stream(self, rows: Any, directory: Path) -> None:
        """Until it has caught up."""
        writer = self._to(rows.writeStream).option("checkpointLocation", str(directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert query.exception() is None

    def _to(self, writer: Any) -> Any:
        servers = writer.format(self.sink).option("kafka.bootstrap.servers", self.bootstrap)
        return servers.option("topic", self.topic)

    def read_back(self, count: int) -> list[Message]:
        return read_back(self.bootstrap, self.topic, count)


@pytest.fixture
def place(sink: str, bootstrap: str, peer: str) -> Place:
    return Place(sink, bootstrap, create_topic(bootstrap))


@by_both
@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
def test_a_whole_topic_is_copied(
    spark: Any, place: Place, topic: str, is_stream: bool, tmp_path: Path
) -> None:
    """As it is read: its partitions are taken by both sinks, its times by ours alone."""
    before_ms = time.time() * 1000
    sent = produce(place.bootstrap, topic, COUNT)
    if is_stream:
        source = spark.readStream.format(place.sink).option("kafka.bootstrap.servers", place.bootstrap)
        place.stream(source.option("subscribe", topic).option("startingOffsets", "earliest").load(), tmp_path)
    else:
        place.write(reader(spark, place.bootstrap, topic).load())
    found = place.read_back(COUNT)
    wanted = [(record.partition, record.key, record.value, ()) for record in sent]
    assert [message[:4] for message in found] == wanted
    times = [message[4] for message in found]
    if place.sink == "kompakt":
        assert times == [record.timestamp_ms for record in sent]
    else:
        assert all(written_ms >= before_ms - 1000 for written_ms in times)


@by_both
def test_columns_that_a_record_has_no_place_for(spark: Any, place: Place) -> None:
    """A field of the application, types that only Spark knows, a `topic` that the option beats."""
    frame = spark.range(9).selectExpr(
        "cast(id AS string) AS value",
        "'created' AS event_type",
        "map('a', array(id)) AS tags",
        "NULL AS nothing",
        "id AS topic",
    )
    place.write(frame)
    assert sorted(message[2] for message in place.read_back(9)) == [b"%d" % number for number in range(9)]


@by_both
def test_columns_are_found_in_any_case(spark: Any, place: Place) -> None:
    """By ours; Spark's own sink takes small letters for a column of a record, and all else for none."""
    place.write(spark.sql("SELECT 'v' AS value, 'k' AS Key"))
    ((_, key, value, *_),) = place.read_back(1)
    assert (key, value) == (b"k" if place.sink == "kompakt" else None, b"v")


@by_both
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("'a' AS value, 'b' AS value", "ConnectorError: column value is there 2 times"),
        ("'a' AS value, 'b' AS VALUE", "ConnectorError: column value is there 2 times"),
        ("'a' AS value, 1 AS x, 2 AS x", "DUPLICATED_FIELD_NAME_IN_ARROW_STRUCT"),
    ],
    ids=["same", "but for case", "without a place"],
)
def test_two_columns_of_one_name(spark: Any, place: Place, columns: str, said: str) -> None:
    """Spark's own sink takes the first of them."""
    frame = spark.sql(f"SELECT {columns}")
    if place.sink == "kompakt":
        with pytest.raises(Exception, match=said):
            place.write(frame)
        return
    place.write(frame)
    assert [message[2] for message in place.read_back(1)] == [b"a"]


@by_both
def test_a_write_from_another_thread(spark: Any, place: Place) -> None:
    """The session is active only in the thread that made it, where Spark looks for a format in Python."""

    def write(is_active: bool) -> None:
        if is_active:
            session = spark._jvm.org.apache.spark.sql.classic.SparkSession
            session.setActiveSession(spark._jsparkSession)
        place.write(spark.sql("SELECT 'v' AS value"))

    def in_a_thread(is_active: bool) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(write, is_active).result()

    in_a_thread(True)
    if place.sink == "kompakt":
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            in_a_thread(False)
    else:
        in_a_thread(False)
    place.read_back(1 if place.sink == "kompakt" else 2)
