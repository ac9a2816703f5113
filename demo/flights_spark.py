"""The demo's Spark side: the table of last flights by a batch read and by a streaming read of format
`kompakt`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console


def _session(directory: Path):  # type: ignore[no-untyped-def]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("kompakt demo")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.memory": "1g",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def spark_tables(
    bootstrap: str, topic: str, directory: Path, console: Console
) -> Iterator[tuple[str, dict[bytes, bytes]]]:
    """Each way's name and its table: key to last value."""
    with console.status("  starting Spark"):
        spark = _session(directory)
        from pyspark.sql import functions

        from spark_connector.source import KompaktDataSource

        spark.dataSource.register(KompaktDataSource)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    def last_values(frame):  # type: ignore[no-untyped-def]
        latest = frame.groupBy("key").agg(
            functions.max_by("value", functions.struct("partition", "offset")).alias("v")
        )
        return {bytes(row["key"]): bytes(row["v"]) for row in latest.collect()}

    with console.status("  Spark reads a batch"):
        table = last_values(spark.read.format("kompakt").options(**options).load())
    yield "Spark, batch", table
    with console.status("  Spark reads a stream"):
        stream = spark.readStream.format("kompakt").options(**options).load()
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(directory / "flights.parquet"))
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        table = last_values(spark.read.parquet(str(directory / "flights.parquet")))
    yield "Spark, stream", table
    spark.stop()
