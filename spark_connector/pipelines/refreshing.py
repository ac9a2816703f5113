"""One refresh of a keyed table: which offsets to read, the last record of each key, the buckets to rewrite.

Whether a refresh must begin anew is decided here, and purely: a table that was not refreshed for longer than
tombstones are kept may have missed a deletion that compaction has since removed from the log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.pipelines.isolation import ISOLATION_LEVEL
from spark_connector.pipelines.keyed_table import BUCKET, DEFAULT_BUCKETS, KeyedTable, Manifest, Refresh
from spark_connector.pipelines.log_state import (
    HEADER,
    OFFSET,
    LogState,
    look_up,
    offsets_of,
    offsets_text,
)

IS_DELETED = "_is_deleted"
IS_MALFORMED = "_is_malformed"
FIRST_BAD = "_first_bad"
VERSION_BYTES = 8  # of a header that is a version, as the cleaner reads it
PARTITIONS = "_partitions"
PLACES = tuple(f"{edge}{kind}" for edge in ("starting", "ending") for kind in
               ("Offsets", "Timestamp", "OffsetsByTimestamp"))  # fmt: skip
Say = Callable[[str], None]


@dataclass(frozen=True)
class Feed:
    """How the records of a topic become rows: `read` gives them between two offsets.

    Its rows have the columns of the table (the key first, then partition, offset and timestamp among others),
    and the booleans IS_DELETED and IS_MALFORMED. `delete_when` is the condition that a row of the table must
    not have met. A table that `mirrors_log` holds what compaction would leave: what goes at the start of the
    log (retention, DeleteRecords) goes from it too, and the record of each key is chosen as the topic's
    `compaction.strategy` does. A table of changes outlives its log, and takes the last change.
    """

    read: Callable[[dict[str, str]], Any]
    columns: Sequence[str]
    schema: str
    delete_when: str = ""
    mirrors_log: bool = False

    def strategy(self, log: LogState) -> str:
        """By what the record of each key is chosen."""
        return log.strategy if self.mirrors_log else OFFSET


def why_full(manifest: Manifest | None, log: LogState, feed: Feed, now_ms: int) -> str:
    """Why the table must be built from the whole log; empty when the offsets since the last refresh do."""
    if manifest is None:
        return "there is no table yet"
    return (
        _why_another(manifest, log, feed)
        or _why_unread(manifest, log)
        or _why_chosen_otherwise(manifest, log, feed)
        or _why_deleted_unseen(manifest, log, feed, now_ms)
    )


def why_all_buckets(base: Manifest | None, buckets: int) -> str:
    """Why all buckets of a table that goes on from `base` must be written; empty if those with changes do."""
    if base is None or base.buckets == buckets:
        return ""
    return f"it has {base.buckets} buckets, not {buckets}"


def _why_another(manifest: Manifest, log: LogState, feed: Feed) -> str:
    """By other rules, or of another topic."""
    if manifest.schema != feed.schema:
        return "its columns changed"
    if manifest.delete_when not in (None, feed.delete_when):
        return f"rows were deleted by another condition, {manifest.delete_when}"
    if manifest.topic_id != log.topic_id:
        return "the topic was deleted and made again"
    if log.read_committed and manifest.read_committed is False:
        return f"rows may be of aborted transactions ({ISOLATION_LEVEL}=read_uncommitted)"
    return ""


def _why_unread(manifest: Manifest, log: LogState) -> str:
    """What followed the last refresh is not there any more."""
    for partition, offset in offsets_of(manifest.offsets).items():
        if offset > log.ends.get(partition, -1):
            return f"{partition} ends before offset {offset}, which was read already"
        if offset < log.starts[partition]:
            return f"{partition} begins at {log.starts[partition]}: what followed offset {offset} is gone"
    return ""


def _why_chosen_otherwise(manifest: Manifest, log: LogState, feed: Feed) -> str:
    """The last record of a key is not the one to keep, or was not."""
    if feed.strategy(log) != OFFSET:
        # The winner may be an older record than the table's, or a tombstone that no row tells of.
        return f"the topic's compaction.strategy is {log.strategy}"
    if manifest.strategy != OFFSET:
        return f"its rows were chosen by {manifest.strategy}"
    return ""


def _why_deleted_unseen(manifest: Manifest, log: LogState, feed: Feed, now_ms: int) -> str:
    """Rows may have to go of which no record that is left tells."""
    if feed.mirrors_log and manifest.starts is not None:
        then = offsets_of(manifest.starts)
        for partition, start in log.starts.items():
            if start > then.get(partition, start):
                return f"{partition} begins at {start} now: records before that were deleted"
    if _outlives_tombstones(manifest.refreshed_ms, log, feed, now_ms):
        return (
            f"the last refresh is {now_ms - manifest.refreshed_ms} ms old, and tombstones may go after "
            f"{log.delete_retention_ms} ms"
        )
    return ""


def _outlives_tombstones(since_ms: int, log: LogState, feed: Feed, now_ms: int) -> bool:
    """Whether a tombstone that came after `since_ms` may be gone by now.

    Without compaction a tombstone goes as all records do: by retention, which a table of changes outlives,
    and not unread, as `_why_unread` looks at.
    """
    return (feed.mirrors_log or log.is_compacted) and now_ms - since_ms >= log.delete_retention_ms


def refresh(
    spark: Any,
    table: KeyedTable,
    topic: str,
    source: Mapping[str, str],
    feed: Feed,
    *,
    buckets: int | None = None,
    is_full: bool = False,
    say: Say = lambda line: None,
) -> Refresh:
    """Bring `table` up to the ends that the topic's logs have now.

    `source` are the reader's options without a subscription; `say` gets a line for each step. ConnectorError
    when `source` says where to read.
    """
    _refuse_places(source)
    with table.lock():
        manifest = table.manifest()
        table.remove_unused(manifest)
        if manifest is not None and manifest.topic != topic:
            raise ConnectorError(f"{table.path} is a table of topic {manifest.topic}, not {topic}")
        count = buckets or (manifest.buckets if manifest is not None else DEFAULT_BUCKETS)
        while True:
            # Before the ends are looked up: a tombstone behind them is younger than the refresh says it is.
            now_ms = _now_ms()
            log = look_up(source, topic)
            reason = "asked for" if is_full else why_full(manifest, log, feed, now_ms)
            if reason and not is_full and manifest is not None:
                _refuse_to_lose(table, manifest, log, feed, reason)
            target = _target(manifest, log, feed, topic, count, now_ms, goes_on=not reason)
            done = _bring_up(spark, table, manifest, target, feed, log, reason, say)
            if done is not None:
                return done
            say("tombstones may have gone while the changes were read: they are not taken")


def _now_ms() -> int:
    return int(time.time() * 1000)


def _target(
    manifest: Manifest | None,
    log: LogState,
    feed: Feed,
    topic: str,
    buckets: int,
    now_ms: int,
    *,
    goes_on: bool,
) -> Manifest:
    """What the manifest will be, but for the buckets that are still to be written."""
    base = manifest if goes_on else None
    return Manifest(
        topic,
        log.topic_id,
        buckets,
        feed.schema,
        version=manifest.version + 1 if manifest is not None else 1,
        offsets=offsets_text(log.ends),
        starts=offsets_text(log.starts),
        begins=_begins(base, log),
        delete_when=feed.delete_when,
        strategy=feed.strategy(log),
        read_committed=log.read_committed and (base is None or base.read_committed),
        refreshed_ms=now_ms,
        versions=dict(base.versions) if base is not None else {},
        previous=dict(manifest.versions) if manifest is not None else {},
    )


def _bring_up(
    spark: Any,
    table: KeyedTable,
    manifest: Manifest | None,
    target: Manifest,
    feed: Feed,
    log: LogState,
    reason: str,
    say: Say,
) -> Refresh | None:
    """Read and publish, from `manifest` on unless a `reason` says why not; None, and nothing published, when
    that took so long that the changes which were read are not all."""
    base = manifest if not reason else None
    other_buckets = why_all_buckets(base, target.buckets)
    starts = {**log.starts, **(offsets_of(base.offsets) if base is not None else {})}
    offsets_read = sum(log.ends.values()) - sum(starts.values())
    say(f"{'everything' if reason else 'changes'}: {offsets_read:,} offsets of {target.topic}")
    keys_changed, written = 0, set[str]()
    if offsets_read or other_buckets:
        applied = _apply(spark, table, base, target, feed, starts, log, say)
        if applied is None:
            return None
        keys_changed, written, target = applied
        say(f"{keys_changed:,} keys changed, {len(written)} of {target.buckets} buckets written")
    table.publish(target)
    rows = table.read_buckets(spark, target, list(target.versions)).count()
    why = reason or other_buckets
    return Refresh(target.version, offsets_read, keys_changed, len(written), rows, bool(reason), why)


def _begins(base: Manifest | None, log: LogState) -> dict[str, dict[str, int]] | None:
    """Where in the logs the rows of a table come from that goes on from `base`."""
    if base is None:
        return offsets_text(log.starts)
    return None if base.begins is None else offsets_text({**log.starts, **offsets_of(base.begins)})


def _refuse_to_lose(table: KeyedTable, manifest: Manifest, log: LogState, feed: Feed, reason: str) -> None:
    """ConnectorError when a table of changes, which outlives its log, would lose rows by being built anew."""
    if feed.mirrors_log:
        return
    begins: Mapping[TopicPartition, int] = {}
    if manifest.begins is not None and manifest.topic_id == log.topic_id:
        begins = offsets_of(manifest.begins)
    gone = sum(max(start - begins.get(partition, 0), 0) for partition, start in log.starts.items())
    if gone:
        raise ConnectorError(
            f"{table.path} would have to be built from the whole log ({reason}), but {gone:,} offsets at its "
            f"start are gone, and so would be the rows that came from there; --full (is_full=True) builds it "
            f"of what is left. The table is as it was"
        )


def _refuse_places(source: Mapping[str, str]) -> None:
    """A time would go before the offsets of the refresh, which counts as read what was left out."""
    given = {name.lower() for name in source}
    for name in PLACES:
        if name.lower() in given:
            raise ConnectorError(
                f"{name} says where to read, and a refresh reads what came since the last one: leave it out"
            )


def _apply(
    spark: Any,
    table: KeyedTable,
    base: Manifest | None,
    target: Manifest,
    feed: Feed,
    starts: Mapping[TopicPartition, int],
    log: LogState,
    say: Say,
) -> tuple[int, set[str], Manifest] | None:
    """Write the buckets that have changes, or all of them where there is no base or it has another number of
    buckets; the keys with changes, the buckets, the manifest with them. None when `base` is too old now."""
    is_whole = base is None or base.buckets != target.buckets
    newest = _newest(feed, starts, log, target.buckets).persist()
    try:
        touched = {str(row[BUCKET]): row["count"] for row in newest.groupBy(BUCKET).count().collect()}
        # Asked once more, as reading took its time: a tombstone may have gone before its place was reached,
        # after the value that it covers came into the table, or was read.
        since_ms = target.refreshed_ms if base is None else base.refreshed_ms
        is_late = _outlives_tombstones(since_ms, log, feed, _now_ms())
        if is_late and base is not None:
            return None
        _refuse_bad(newest)
        rows = newest.where(f"NOT {IS_DELETED}").select(*map(quoted, feed.columns))
        if is_late:
            stay = f"that took longer than tombstones stay ({log.delete_retention_ms} ms)"
            say(f"{stay}: reading once more, to leave out what is gone by now")
            rows = _still_there(rows, feed, log)
        if base is not None:
            stored = table.read_buckets(spark, base, list(base.versions if is_whole else touched))
            rows = _merged(stored, newest, feed)
        rows = rows.withColumn(BUCKET, _bucket_of(target.buckets))
        tasks = max(
            1, min(target.buckets if is_whole else len(touched), spark.sparkContext.defaultParallelism)
        )
        written = table.write_version(rows.repartition(tasks, BUCKET), target.version)
    finally:
        newest.unpersist()
    kept = {} if is_whole else target.versions
    versions = {bucket: version for bucket, version in kept.items() if bucket not in touched}
    versions |= dict.fromkeys(written, target.version)
    return sum(touched.values()), written | set(touched), replace(target, versions=versions)


def _still_there(rows: Any, feed: Feed, log: LogState) -> Any:
    """Those of `rows` whose record the log has even now.

    Compaction takes a value before it takes the tombstone that covers it, however long both reads last: of a
    value that is still there no tombstone had gone when its place was read. A key whose value gave way to one
    behind the ends is missing until the next refresh, which reads that.
    """
    place = ["partition", "offset"]
    left = feed.read({"endingOffsets": json.dumps(offsets_text(log.ends))}).select(*place)
    return rows.join(left, place, "left_semi").select(*map(quoted, feed.columns))


def _newest(feed: Feed, starts: Mapping[TopicPartition, int], log: LogState, buckets: int) -> Any:
    """The last record of each key: by offset within a partition (or by version: `_rank`), by time between
    partitions.

    A key is in one partition unless the topic grew; PARTITIONS are those that it was found in. FIRST_BAD is
    the place of a malformed record of the key, which a later one may have followed.
    """
    from pyspark.sql import functions

    positions = {
        "startingOffsets": json.dumps(offsets_text(starts)),
        "endingOffsets": json.dumps(offsets_text(log.ends)),
    }
    row = functions.struct(*map(quoted, feed.columns[1:]), IS_DELETED)
    bad = functions.when(functions.col(IS_MALFORMED), functions.struct("partition", "offset"))
    by_partition = (
        feed.read(positions)
        .groupBy("key", "partition")
        .agg(functions.max_by(row, _rank(feed, log)).alias("r"), functions.min(bad).alias(FIRST_BAD))
    )
    by_key = by_partition.groupBy("key").agg(
        functions.max_by("r", functions.struct("r.timestamp", "r.offset")).alias("r"),
        functions.min(FIRST_BAD).alias(FIRST_BAD),
        functions.collect_set("partition").alias(PARTITIONS),
    )
    return by_key.select("key", "r.*", FIRST_BAD, PARTITIONS).withColumn(BUCKET, _bucket_of(buckets))


def _rank(feed: Feed, log: LogState) -> Any:
    """What is highest for the record that compaction keeps: its version, and among equals the offset."""
    from pyspark.sql import functions

    strategy = feed.strategy(log)
    if strategy == OFFSET:
        return functions.col("offset")
    if strategy != HEADER:
        return functions.struct("timestamp", "offset")
    named = functions.filter("headers", lambda header: header["key"] == functions.lit(log.version_header))
    version = functions.try_element_at(named, functions.lit(-1))["value"]
    digits = functions.hex(version)  # in the order of the numbers; a negative one begins with 8 to F
    is_version = (functions.length(version) == VERSION_BYTES) & (digits < "8")
    return functions.struct(functions.when(is_version, digits).otherwise("").alias("version"), "offset")


def _merged(stored: Any, newest: Any, feed: Feed) -> Any:
    """The rows of `stored` with the changes in `newest`, by the rule of `_newest`: a row from a partition in
    which its key has no change gives way to a later time only, as if all were read anew."""
    from pyspark.sql import functions

    changes = functions.struct(*map(quoted, newest.columns)).alias("new")
    both = stored.select("key", functions.struct(*map(quoted, feed.columns)).alias("old")).join(
        newest.select("key", changes), "key", "full_outer"
    )
    is_change = functions.expr(
        f"new IS NOT NULL AND (old IS NULL OR array_contains(new.{PARTITIONS}, old.partition)"
        " OR struct(new.timestamp, new.offset) >= struct(old.timestamp, old.offset))"
    )
    columns = [
        functions.when(is_change, functions.col(f"new.{quoted(name)}")).otherwise(
            functions.col(f"old.{quoted(name)}")
        )
        for name in feed.columns
    ]
    named = [column.alias(name) for column, name in zip(columns, feed.columns, strict=True)]
    return both.where(~is_change | ~functions.col(f"new.{IS_DELETED}")).select(*named)


def quoted(name: str) -> str:
    """A column's name as Spark takes it literally, dots and all."""
    return f"`{name.replace('`', '``')}`"


def _bucket_of(buckets: int) -> Any:
    from pyspark.sql import functions

    return functions.pmod(functions.xxhash64("key"), functions.lit(buckets)).cast("int")


def _refuse_bad(newest: Any) -> None:
    for condition, columns, words in (
        (f"{FIRST_BAD} IS NOT NULL", (f"{FIRST_BAD}.partition", f"{FIRST_BAD}.offset"), "does not parse"),
        ("key IS NULL", ("partition", "offset"), "has no key"),
    ):
        bad = newest.where(condition).select(*columns).head(1)
        if bad:
            place = f"offset {bad[0]['offset']} of partition {bad[0]['partition']}"
            raise ConnectorError(f"the record at {place} {words}; the table is as it was")
