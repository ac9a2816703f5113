"""A program that does a little of all that the tests do with Spark: what it loads is what they start from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader


class Numbers(DataSource):
    """A source of one number, for the classes around Python sources."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n long"

    def reader(self, schema: object) -> DataSourceReader:
        return NumbersReader()


class NumbersReader(DataSourceReader):
    def read(self, partition: object) -> Iterator[tuple[int]]:
        yield (1,)


def main(directory: Path) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse")).getOrCreate()
    rows = spark.range(1000).selectExpr("id % 7 AS k", "CAST(id AS STRING) AS v")
    rows.groupBy("k").count().orderBy("k").collect()
    spark.createDataFrame([(1, "a")], "k long, w string").join(rows, "k").write.parquet(
        str(directory / "rows")
    )
    spark.dataSource.register(Numbers)
    spark.read.format("numbers").load().createOrReplaceTempView("numbers")
    spark.sql("SELECT count(*) FROM numbers").collect()
    stream = spark.readStream.schema("k long, w string, v string").parquet(str(directory / "rows"))
    query = stream.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query.trigger(availableNow=True).start(str(directory / "copy")).awaitTermination()
    spark.read.parquet(str(directory / "copy")).filter("k > 0").toPandas()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
