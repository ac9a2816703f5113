"""A log of changes, its values JSON objects, applied to a Parquet table with their fields as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.isolation import committed_unless_told
from spark_connector.pipelines.keyed_table import BUCKET, KeyedTable, Refresh, with_instants
from spark_connector.pipelines.refreshing import (
    FIRST_BAD,
    IS_DELETED,
    IS_MALFORMED,
    PARTITIONS,
    Feed,
    Say,
    quoted,
    refresh,
)
from spark_connector.pipelines.session import refuse_connect
from spark_connector.shape import MALFORMED, SCHEMA_ID

META = {"key": "binary", "partition": "int", "offset": "bigint", "timestamp": "timestamp"}
"""The columns of the record that the table keeps beside the fields of the value."""

TAKEN = {*META, "value", BUCKET, MALFORMED, SCHEMA_ID, IS_DELETED, IS_MALFORMED, FIRST_BAD, PARTITIONS}


def apply_changes(
    spark: Any,
    topic: str,
    source: Mapping[str, str],
    path: str | Path,
    schema: str,
    *,
    delete_when: str = "false",
    skip_malformed: bool = False,
    buckets: int | None = None,
    is_full: bool = False,
    say: Say = lambda line: None,
) -> Refresh:
    """Bring the table in `path` up to the end of the log: the last change of each key is its row.

    `schema` names the fields ("id long, name string"); a tombstone, or a change for which the SQL condition
    `delete_when` holds ("op = 'd'"), removes the row. Of transactions committed records are taken, unless
    `source` (options of the format without a subscription) says otherwise. A value that is not such an object
    ends the refresh with its offset, unless `skip_malformed`.
    """
    from pyspark.sql.types import StructType

    refuse_connect(spark)
    source = committed_unless_told(source)
    fields = StructType.fromDDL(schema)
    _refuse_names(fields.names)
    record = ", ".join(f"{name} {kind}" for name, kind in META.items())

    def read(positions: dict[str, str]) -> Any:
        options = {**source, **positions, "subscribe": topic, "valueFormat": "json"}
        options["columns"] = ",".join([*META, "value"])
        wanted = f"{record}, value binary, {schema}, _corrupt_record string"
        rows = spark.read.format("kompakt").options(**options).schema(with_instants(wanted)).load()
        if skip_malformed:
            rows = rows.where("_corrupt_record IS NULL")
        return rows.selectExpr(
            *META,
            *map(quoted, fields.names),
            f"coalesce(value IS NULL OR ({delete_when}), false) AS {IS_DELETED}",
            f"_corrupt_record IS NOT NULL AS {IS_MALFORMED}",
        )

    feed = Feed(read, (*META, *fields.names), f"{record}, {schema}", delete_when)
    return refresh(spark, KeyedTable(path), topic, source, feed, buckets=buckets, is_full=is_full, say=say)


def _refuse_names(names: Sequence[str]) -> None:
    """Spark tells columns apart whatever their case."""
    lower = [name.lower() for name in names]
    taken = TAKEN & set(lower)
    if taken:
        raise ConnectorError(f"the schema cannot have a field {', '.join(sorted(taken))}: the table has one")
    twice = [name for name in names if lower.count(name.lower()) > 1]
    if twice:
        raise ConnectorError(
            f"the schema has {', '.join(twice)}, which are one name to Spark: leave out all but one"
        )
