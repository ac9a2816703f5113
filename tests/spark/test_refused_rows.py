"""Goal: a row that a broker refuses is named with its column, by kompakt and Apache Kafka alike.

Method: rows written as a task writes them, into topics that do not take one of them. No Spark session.
"""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from spark_connector.errors import ConnectorError
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
