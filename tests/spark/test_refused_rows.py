"""Goal: a row that a broker refuses is named with its column, by kompakt and Apache Kafka alike; a batch that
is refused for its size is split.

Method: rows written as a task writes them, into topics that do not take one of them, or not so many at once.
No Spark session.
"""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.write_options import parse_write_options
from spark_connector.writer import write_rows
from tests.spark.test_spark import create_topic

SCHEMA = pyarrow.schema({"key": pyarrow.binary(), "value": pyarrow.binary(), "partition": pyarrow.int32()})


@pytest.mark.parametrize(
    ("config", "row", "message"),
    [
        (
            {"cleanup.policy": "compact"},
            {"key": None},
            r"INVALID_RECORD.*refused: row 7 of the task, column key \(Compacted topic cannot accept",
        ),
        (
            {"max.message.bytes": "1000"},
            {"value": b"v" * 1000},
            r"MESSAGE_TOO_LARGE.*row 7 of the task, column value: a record of 10\d\d bytes is a batch of 10",
        ),
    ],
)
def test_a_row_that_the_topic_does_not_take(
    bootstrap: str, config: dict[str, str], row: dict[str, Any], message: str
) -> None:
    """In the second Arrow batch of the task, among rows for another partition."""
    topic = create_topic(bootstrap, config)
    rows: list[dict[str, Any]] = [
        {"key": b"k%d" % number, "value": b"v", "partition": number % 2} for number in range(12)
    ]
    rows[7] |= row
    batches = pyarrow.Table.from_pylist(rows, SCHEMA).to_batches(max_chunksize=5)
    options = parse_write_options({"kafka.bootstrap.servers": bootstrap, "topic": topic})
    with pytest.raises(ConnectorError, match=message):
        write_rows(options, iter(batches))


@pytest.mark.parametrize(
    "config",
    [{"max.message.bytes": "100000"}, {"max.message.bytes": "8000000", "segment.bytes": "1048576"}],
    ids=["message", "segment"],
)
def test_a_batch_that_the_topic_does_not_take_is_split(bootstrap: str, config: dict[str, str]) -> None:
    """MESSAGE_TOO_LARGE for the one, RECORD_LIST_TOO_LARGE for the other: as with a batch of the usual size
    and the segments below 512 KiB that Kafka had up to 3.9."""
    topic = create_topic(bootstrap, config)
    rows = [{"key": None, "value": b"v" * 1000, "partition": 0}] * 2500
    sizes = {"kafka.batch.size": "2000000", "kafka.max.request.size": "4000000"}
    options = parse_write_options({"kafka.bootstrap.servers": bootstrap, "topic": topic, **sizes})
    done = write_rows(options, iter(pyarrow.Table.from_pylist(rows, SCHEMA).to_batches()))
    assert done.last_offsets == {TopicPartition(topic, 0): 2499}
