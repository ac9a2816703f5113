"""Batch writes: one task for each partition of the DataFrame, Arrow batches in, record batches out.

A row is written at least once, as by Spark's own sink: within a task the idempotent producer writes it once,
but Spark may run a task again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_connector.client import connect
from spark_connector.errors import ConnectorError, MissingTopicError
from spark_connector.offsets import TopicPartition, to_json_object
from spark_connector.worker import settle
from spark_connector.write_options import WriteOptions, check_columns, parse_write_options

logger = logging.getLogger("kompakt.spark")


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task has written."""

    rows: int
    bytes: int
    last_offsets: dict[TopicPartition, int]


def write_rows(options: WriteOptions, batches: Iterator[Any]) -> Written:
    """Write the Arrow batches of one task; returns when the broker has acknowledged all of them."""
    from protocol.kernel import drop_loader
    from spark_connector.encoder import Encoder  # numpy, numba and pyarrow: wanted in tasks only
    from spark_connector.producer import Producer

    settle()
    cluster = connect(options.client)

    def partitions_of(topic: str) -> int:
        try:
            return len(cluster.describe_or_create(topic))
        except MissingTopicError as problem:
            raise MissingTopicError(
                f"{problem}; create the topic, or let the broker do it (auto.create.topics.enable=true)"
            ) from problem

    encoder = Encoder(options, partitions_of)
    producer = None
    is_clean = False
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            for sealed in encoder.encode(batch, time.time_ns() // 1_000_000):
                # No sooner: the encoder has had the topic described, which shows if a kept id still counts.
                producer = producer or Producer(cluster, options, encoder.limit)
                producer.send(sealed)
        for sealed in encoder.flush():
            producer = producer or Producer(cluster, options, encoder.limit)
            producer.send(sealed)
        if producer is None:
            return Written(0, 0, {})
        producer.flush()
        is_clean = True
        drop_loader()  # PySpark loads pandas for what is returned
        return Written(encoder.rows, producer.written_bytes, producer.offsets)
    finally:
        if producer is not None:
            producer.close(is_clean=is_clean)


def summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    """What all tasks together have written, for the driver's log."""
    done = [message for message in messages if isinstance(message, Written)]
    last: dict[TopicPartition, int] = {}
    for message in done:
        for place, offset in message.last_offsets.items():
            last[place] = max(offset, last.get(place, offset))
    rows = sum(message.rows for message in done)
    size = sum(message.bytes for message in done)
    return f"{rows} rows in {size} bytes by {len(done)} tasks; last offsets {to_json_object(last)}"


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Owned by: the driver's planning process, and a pickled copy by each task."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConnectorError('a topic cannot be overwritten, only appended to: use mode("append")')
        self._options = parse_write_options(given)
        check_columns(schema, self._options.topic)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of one task."""
        return write_rows(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended well; their rows are readable already."""
        logger.info("written: %s", summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed. What others wrote stays: a log takes nothing back."""
        logger.warning("the write failed; written nevertheless: %s", summary(messages))
