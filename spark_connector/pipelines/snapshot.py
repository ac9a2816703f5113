"""A compacted topic as a Parquet table of keys and values, refreshed by what has changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_connector.pipelines.isolation import committed_unless_told
from spark_connector.pipelines.keyed_table import KeyedTable, Refresh
from spark_connector.pipelines.refreshing import IS_DELETED, IS_MALFORMED, Feed, Say, refresh
from spark_connector.pipelines.session import refuse_connect

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")
SCHEMA = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


def refresh_snapshot(
    spark: Any,
    topic: str,
    source: Mapping[str, str],
    path: str | Path,
    *,
    buckets: int | None = None,
    is_full: bool = False,
    say: Say = lambda line: None,
) -> Refresh:
    """Make the table in `path` what the topic holds now: one row a key, none for a key with a tombstone.

    `source` are options of the format without a subscription; of transactions committed records are taken,
    unless it says otherwise. Read it by `KeyedTable(path).read(spark)`.
    """
    refuse_connect(spark)
    source = committed_unless_told(source)

    def read(positions: dict[str, str]) -> Any:
        options = {**source, **positions, "subscribe": topic, "columns": ",".join(COLUMNS)}
        rows = spark.read.format("kompakt").options(**options).load()
        return rows.selectExpr("*", f"value IS NULL AS {IS_DELETED}", f"false AS {IS_MALFORMED}")

    feed = Feed(read, COLUMNS, SCHEMA, mirrors_log=True)
    return refresh(spark, KeyedTable(path), topic, source, feed, buckets=buckets, is_full=is_full, say=say)
