"""The data source that Spark sees under the name `kompakt`.

Spark pickles it into several short-lived processes before the first byte is read, so this module and what it
imports stay light: neither numpy nor numba nor pyarrow, and no protocol message, before a reader wants them.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_connector.errors import ConnectorError
from spark_connector.options import Options, parse_options
from spark_connector.shape import default_schema, shape_of
from spark_connector.spark_versions import has_stream_limits, need_filters, need_stream_sink
from spark_connector.worker import settle

NO_OPTIONS = (
    "option kafka.bootstrap.servers is needed: the addresses of one or more brokers. No option has arrived "
    "at all: those of a table (CREATE TABLE t USING kompakt OPTIONS (...)) Spark does not hand to a source "
    "in Python. Make it a view (CREATE TEMPORARY VIEW t USING kompakt OPTIONS (...)), or give the options "
    "where it is used: SELECT ... FROM t WITH (`kafka.bootstrap.servers` = 'host:9092', subscribe = 'topic')"
)


class KompaktDataSource(DataSource):  # type: ignore[misc]
    """Topics of a Kafka cluster as a table or a stream. Options: see `options.py`."""

    @classmethod
    def name(cls) -> str:
        return "kompakt"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._given = {str(name): str(value) for name, value in options.items()}

    @property
    def given(self) -> dict[str, str]:
        """The options as the user wrote them; ConnectorError when there are none."""
        if not self._given:
            raise ConnectorError(NO_OPTIONS)
        return self._given

    @property
    def parsed(self) -> Options:
        """The options of a reader; a writer has its own."""
        return parse_options(self.given)

    def schema(self) -> str:
        """The columns of Spark's own Kafka source, or those that the option `columns` names."""
        settle()
        return default_schema(self.parsed)

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_connector.reader import BatchReader

        options = self.parsed
        shape = shape_of(schema, options)
        if not options.is_pushdown:
            return BatchReader(options, shape)
        need_filters()
        from spark_connector.pushdown import FilteringReader

        return FilteringReader(options, shape)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self.parsed
        shape = shape_of(schema, options)
        if not has_stream_limits():
            from spark_connector.whole_stream import WholeStreamReader

            return WholeStreamReader(options, shape)
        from spark_connector.stream import StreamReader

        return StreamReader(options, shape)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_connector.writer import BatchWriter

        return BatchWriter(self.given, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        need_stream_sink()
        from spark_connector.stream_writer import StreamWriter

        return StreamWriter(self.given, schema)
