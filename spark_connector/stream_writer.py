"""Streaming writes: each micro-batch is written as a batch is.

At least once: a micro-batch that Spark runs again is written again. Output modes append and complete both
append their rows, as with Spark's own sink. Output mode update Spark itself refuses to every sink in Python;
a batch write inside `foreachBatch` takes its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_connector.errors import ConnectorError
from spark_connector.write_options import check_columns, parse_write_options
from spark_connector.writer import summary, write_rows

logger = logging.getLogger("kompakt.spark")


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Owned by: the driver's planning process, and a pickled copy by each task."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_write_options(given)
        check_columns(schema, self._options.topic)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of one task of a micro-batch."""
        return write_rows(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The micro-batch is written; ConnectorError when Spark has given its rows to nobody."""
        # A task that ends well has answered, but with a continuous trigger: Spark 4.3 takes a sink in Python
        # for it, drops each row on its way to the task, and says nothing. It logs this error, commits no
        # epoch and stands still: what was not written does not count as done in the checkpoint.
        if None in messages:
            raise ConnectorError(
                "nothing was written: Spark gives a sink in Python no rows of a continuous trigger; use "
                "trigger(processingTime=...) or trigger(availableNow=True)"
            )
        logger.info("micro-batch %d written: %s", batchId, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed; what others wrote stays and will be written again."""
        logger.warning("micro-batch %d failed; written nevertheless: %s", batchId, summary(messages))
