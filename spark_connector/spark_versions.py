"""What the Spark at hand gives a source in Python: the interface grew with each version from 4.0 on.

Asked for by what is there, not by a number: builds of Spark that are not Apache's bring parts of later ones.
"""

from __future__ import annotations

from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING

from pyspark.sql import datasource
from pyspark.sql.types import StructType

from spark_connector.errors import ConnectorError

if TYPE_CHECKING:
    import pyarrow


def has_stream_limits() -> bool:
    """Whether a stream is told where its last micro-batch ended, and may limit the next (Spark 4.2)."""
    return find_spec("pyspark.sql.streaming.datasource") is not None


def need_filters() -> None:
    """ConnectorError when this Spark pushes no filters down (before 4.1)."""
    if not hasattr(datasource, "Filter"):
        raise ConnectorError(
            "option pushdown needs Spark 4.1 or later; leave it out, and Spark filters by itself"
        )


def need_stream_sink() -> None:
    """ConnectorError when this Spark gives the sink of a stream rows one by one only (before 4.1)."""
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise ConnectorError(
            "writeStream needs Spark 4.1 or later; write inside foreachBatch: "
            "lambda rows, _: rows.write.format('kompakt').options(...).mode('append').save()"
        )


def arrow_schema(fields: StructType) -> pyarrow.Schema:
    """The Arrow types that Spark takes for these columns; times are UTC's, as always before Spark 4.2."""
    from pyspark.sql.pandas.types import to_arrow_schema

    has_choice = "timezone" in signature(to_arrow_schema).parameters
    return to_arrow_schema(fields, timezone="UTC") if has_choice else to_arrow_schema(fields)
