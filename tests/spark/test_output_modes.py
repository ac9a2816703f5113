"""Goal: what a stream's output mode promises arrives in the topic, or Spark says that it cannot.

Method: real streams from topic to topic, each run twice over one checkpoint; what Spark does not let a sink
in Python do is pinned, so that the documents change when Spark does.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.test_spark import create_topic, produce
from tests.spark.test_writer_spark import read_back, writer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("queries"),
]
RUNS = ((21, 0), (5, 21))
"""How many records come before each run, and the number of the first."""
COUNTS = "cast(partition AS string) AS key", "cast(count AS string) AS value"


class Copying:
    """Topic to topic in runs over one checkpoint. Owned by: one test."""

    def __init__(self, spark: Any, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self.source, self.target = create_topic(bootstrap), create_topic(bootstrap)
        stream = spark.readStream.format("kompakt").option("kafka.bootstrap.servers", bootstrap)
        self.rows = stream.option("subscribe", self.source).option("startingOffsets", "earliest").load()
        self.counts = self.rows.groupBy("partition").count().selectExpr(*COUNTS)

    def sink(self, rows: Any, mode: str) -> Any:
        made = rows.writeStream.format("kompakt").outputMode(mode).option("topic", self.target)
        return made.option("kafka.bootstrap.servers", self.bootstrap)

    def run(self, sink: Any) -> None:
        """Until it has caught up; what ended it is raised."""
        sink = sink.option("checkpointLocation", str(self.directory / "checkpoint"))
        query = sink.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert query.exception() is None

    def run_twice(self, sink: Any) -> None:
        for count, first in RUNS:
            produce(self.bootstrap, self.source, count, first=first)
            self.run(sink)

    def written(self, count: int) -> Counter[tuple[bytes, bytes]]:
        return Counter((key, value) for _, key, value, _, _ in read_back(self.bootstrap, self.target, count))


@pytest.fixture
def copying(spark: Any, kompakt_broker: Any, tmp_path: Path) -> Copying:
    return Copying(spark, kompakt_broker.bootstrap, tmp_path)


def test_append_writes_each_row_once(copying: Copying) -> None:
    texts = "cast(partition AS string) AS key", "cast(offset AS string) AS value"
    copying.run_twice(copying.sink(copying.rows.selectExpr(*texts), "append"))
    # 26 records by turns: nine in partitions 0 and 1, eight in partition 2
    wanted = [(partition, offset) for partition in range(3) for offset in range(8 if partition == 2 else 9)]
    assert copying.written(26) == Counter((b"%d" % partition, b"%d" % offset) for partition, offset in wanted)


def test_complete_appends_the_whole_result_each_time(copying: Copying) -> None:
    copying.run_twice(copying.sink(copying.counts, "complete"))
    first = [(b"0", b"7"), (b"1", b"7"), (b"2", b"7")]
    assert copying.written(6) == Counter([*first, (b"0", b"9"), (b"1", b"9"), (b"2", b"8")])


def test_update_is_refused_by_spark(copying: Copying) -> None:
    """A sink in Python cannot say that updates may be appended (SupportsStreamingUpdateAsAppend)."""
    produce(copying.bootstrap, copying.source, 3)
    with pytest.raises(Exception, match="kompakt does not support Update mode"):
        copying.run(copying.sink(copying.counts, "update"))


def test_update_by_foreach_batch(copying: Copying) -> None:
    """The way out that the documents give: the groups that changed, at the end of each run."""

    def write(rows: Any, _batch: int) -> None:
        writer(rows, copying.bootstrap, topic=copying.target).save()

    sink = copying.counts.writeStream.outputMode("update").foreachBatch(write)
    produce(copying.bootstrap, copying.source, 21)
    copying.run(sink)
    produce(copying.bootstrap, copying.source, 2, first=21)
    copying.run(sink)
    first = [(b"0", b"7"), (b"1", b"7"), (b"2", b"7")]
    assert copying.written(5) == Counter([*first, (b"0", b"8"), (b"1", b"8")])
