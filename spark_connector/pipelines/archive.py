"""A topic appended to Parquet, and Parquet written back into a topic with keys, headers and timestamps.

Both are streaming queries that end when they have caught up; what they have done stands in their checkpoint.
Into the files a record comes exactly once: Spark's file sink lists the files of a finished micro-batch in
`_spark_metadata`, which readers of the directory follow. Into a topic it comes at least once, as from any
Kafka sink: a micro-batch that was cut short is written again.

That list names whole paths. Of a directory that was moved none of the files would be read any more, and no
word said, so both look first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.checkpoints import (
    Target,
    begin_anew_if_unused,
    refuse_another_checkpoint,
    refuse_another_target,
)
from spark_connector.pipelines.isolation import committed_unless_told
from spark_connector.pipelines.paths import refuse_pattern
from spark_connector.pipelines.session import refuse_connect

OFFSETS_A_BATCH = 5_000_000
"""What one micro-batch of an archive covers: the most that a restart has to do again."""
FILES_A_BATCH = 64
CHECKPOINT = "_checkpoint"
CUTTING = ("minPartitions", "maxRecordsPerPartition")
WRITTEN_COLUMNS = ("key", "value", "headers", "timestamp")
Report = Callable[[dict[str, Any]], None]


def archive_topic(
    spark: Any,
    source: Mapping[str, str],
    path: str,
    *,
    checkpoint: str | None = None,
    report: Report | None = None,
) -> int:
    """Append what has arrived since the last run to the Parquet files in `path`; the records of this run.

    `source` are options of the format (brokers, a subscription); of transactions committed records are taken,
    unless it says otherwise. The checkpoint lies in `path` unless told otherwise. `report` gets Spark's
    progress of each micro-batch. ConnectorError when `path` was moved, is a pattern or was written with
    another checkpoint, or `source` would cut partitions.
    """
    refuse_connect(spark)
    refuse_pattern(path)
    _refuse_moved(path)
    _refuse_cutting(source)
    place = checkpoint or f"{path.rstrip('/')}/{CHECKPOINT}"  # `path` may be a URL
    refuse_another_checkpoint(spark, path, place)
    begin_anew_if_unused(spark, place)
    stream = (
        spark.readStream.format("kompakt")
        .options(**_limit())
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .options(**committed_unless_told(source))
        .load()
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", place)
        .trigger(availableNow=True)
        .start()
    )
    return _finish(query, report)


def _limit() -> dict[str, str]:
    """Small micro-batches, where Spark lets a source have them."""
    from spark_connector.spark_versions import has_stream_limits  # needs PySpark, which --help does not

    return {"maxOffsetsPerTrigger": str(OFFSETS_A_BATCH)} if has_stream_limits() else {}


def restore_topic(
    spark: Any,
    path: str,
    sink: Mapping[str, str],
    *,
    checkpoint: str,
    from_topic: str | None = None,
    keep_partitions: bool = True,
    report: Report | None = None,
) -> int:
    """Write the archive in `path` into the topic that `sink` names; the records of this run.

    Records keep key, value, headers and timestamp, and the order of their partition. With `keep_partitions`
    they go to the partition they came from, else where the producer's partitioner puts their key. Of an
    archive of several topics `from_topic` says which is restored.
    ConnectorError when `path` was moved, is a pattern, or no archive, or holds several topics or not the one
    that is asked for, or `checkpoint` is that of a restore into another topic.
    """
    refuse_connect(spark)
    refuse_pattern(path)
    _refuse_moved(path)
    files = spark.read.parquet(path)
    schema = files.schema
    missing = {*WRITTEN_COLUMNS, "partition", "offset"} - set(schema.names)
    if missing:
        raise ConnectorError(
            f"{path} is no archive of a topic: it has no column {', '.join(sorted(missing))}"
        )
    topics = _topics(files)
    archived = _archived_topic(path, topics, from_topic)
    refuse_another_target(spark, checkpoint, _target(sink, archived))
    begin_anew_if_unused(spark, checkpoint)
    columns = [*WRITTEN_COLUMNS, *(["partition"] if keep_partitions else [])]

    written = 0

    def write(rows: Any, _batch: int) -> None:
        nonlocal written
        if len(topics) > 1:
            rows = rows.where(rows["topic"] == archived)
            written += rows.count()  # of what Spark reads it counts the others' records as well
        ordered = rows.repartition(tasks, "partition").sortWithinPartitions("partition", "offset")
        target = ordered.select(*columns).write.format("kompakt").mode("append")
        target.option("includeHeaders", "true").options(**sink).save()

    tasks = spark.sparkContext.defaultParallelism
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", str(FILES_A_BATCH)).parquet(path)
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    rows_read = _finish(query, report)
    return written if len(topics) > 1 else rows_read


def _topics(files: Any) -> list[str]:
    """Whose records they are; none when there is no column that tells."""
    if "topic" not in files.columns:
        return []
    return sorted(row["topic"] for row in files.select("topic").distinct().collect())


def _archived_topic(path: str, topics: list[str], wanted: str | None) -> str:
    """The one to restore; empty when the files name none. ConnectorError when it is not to be told."""
    if wanted is None and len(topics) > 1:
        raise ConnectorError(
            f"{path} holds records of several topics, which a restore would mix into one: say which it is to "
            f"be by --from-topic (from_topic=), one of {', '.join(topics)}"
        )
    if wanted is not None and wanted not in topics:
        raise ConnectorError(
            f"{path} holds no records of {wanted}, only of {', '.join(topics) or 'no topic'}"
        )
    return wanted or "".join(topics)


def _target(sink: Mapping[str, str], archived: str) -> Target:
    from spark_connector.write_options import parse_write_options  # needs PySpark, which --help does not

    parsed = parse_write_options(sink)
    if parsed.topic is None:
        raise ConnectorError("there is no option topic to say where records go")
    return Target.look_up(parsed.client, parsed.topic, archived)


def _refuse_cutting(source: Mapping[str, str]) -> None:
    """A restore takes files in the order of their times, a limited number at once: what lay in one partition
    keeps its order only if it is in one file of a micro-batch.
    """
    for name in CUTTING:
        if name.lower() in map(str.lower, source):
            raise ConnectorError(
                f"{name} would cut a partition into files that are finished in any order, and a restore "
                f"could not write them in theirs: leave {name} out"
            )


def _refuse_moved(path: str) -> None:
    """ConnectorError when the list of files in `path` is that of another directory; local paths only."""
    local = re.sub("^file:(//)?", "", path)
    if "://" in local:
        return
    here = Path(os.path.normpath(Path(local).absolute()))  # links stay: Spark does not follow them either
    for batch in sorted(here.glob("_spark_metadata/[0-9]*")):
        for line in batch.read_text().splitlines()[1:]:  # the first one is the form's version
            listed = Path(unquote(urlsplit(json.loads(line)["path"]).path)).parent
            if listed != here:
                raise ConnectorError(
                    f"the files of {path} are listed (in _spark_metadata) under {listed}, and Spark reads "
                    f"none under another name: put the directory back there, or a symbolic link to it, and "
                    f"use that name; or archive into a new directory"
                )


def _finish(query: Any, report: Report | None) -> int:
    """Wait for the end of a query; the rows that it read. A failure stops it and is raised."""
    seen = set()
    rows = 0
    try:
        while True:
            ended = query.awaitTermination(0.2)
            for progress in query.recentProgress:
                if progress["batchId"] not in seen:
                    seen.add(progress["batchId"])
                    rows += progress["numInputRows"]
                    if report is not None:
                        report(progress)
            if ended:
                return rows
    finally:
        if query.isActive:
            query.stop()
