"""One Spark session and the same work done in it by either source: reads, streams, small triggers, writes.

The seconds are those of the action alone; each checks that it saw every record.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.spark_goals import ALL, BEST, OURS, OWN
from tests.spark.peer.jars import peer_jars
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
FORMATS = {OWN: "kafka", BEST: "kafka", OURS: "kompakt"}
TUNED_READ = {
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": str(16 << 20),
}
TUNED_WRITE = {"kafka.linger.ms": "5", "kafka.batch.size": str(128 << 10)}
TRIGGER_RECORDS = 20
FIRST_TRIGGERS = 5  # start-up; they do not count
LIMIT_SECONDS = 300.0


class Work:
    """Owned by: the thread that measures."""

    def __init__(self, directory: Path) -> None:
        from pyspark.sql import SparkSession

        # Spark starts its workers with the first python3 on the path, and looks for sources on theirs.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        builder = SparkSession.builder.master("local[2]").config(
            "spark.jars", ",".join(map(str, peer_jars()))
        )
        builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        self.spark: Any = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")
        self._directory = directory
        self._queries = 0

    def close(self) -> None:
        self.spark.stop()

    # Reads

    def _options(self, side: str, bootstrap: str, topic: str) -> dict[str, str]:
        tuning = TUNED_READ if side == BEST else {}
        return {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **tuning,
        }

    def _load(self, reader: Any, side: str, columns: str, options: Mapping[str, str]) -> Any:
        """Spark's own source takes no schema: it makes all columns, and the query drops them."""
        reader = reader.format(FORMATS[side]).options(**options)
        if columns == ALL:
            return reader.load()
        return reader.schema("value binary").load() if side == OURS else reader.load().select("value")

    def batch(self, side: str, bootstrap: str, topic: str, columns: str, records: int) -> float:
        """Seconds of count(*) and sum(length(value))."""
        from pyspark.sql import functions

        frame = self._load(self.spark.read, side, columns, self._options(side, bootstrap, topic))
        counted = frame.agg(functions.count("*"), functions.sum(functions.length("value")))
        began = time.perf_counter()
        ((count, _),) = counted.collect()
        seconds = time.perf_counter() - began
        check(count, records, side, topic)
        return seconds

    def stream(self, side: str, bootstrap: str, topic: str, columns: str, records: int) -> float:
        """Seconds of a query that reads what there is in one micro-batch, from its start to its end."""
        with self._query(side, bootstrap, topic, columns, {}) as writer:
            began = time.perf_counter()
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seconds = time.perf_counter() - began
            check(sum(one["numInputRows"] for one in query.recentProgress), records, side, topic)
        return seconds

    def trigger(self, side: str, bootstrap: str, topic: str, count: int) -> float:
        """The median time in ms of `count` micro-batches of few records, one after another."""
        options = {"maxOffsetsPerTrigger": str(TRIGGER_RECORDS)}
        with self._query(side, bootstrap, topic, ALL, options) as writer:
            query = writer.trigger(processingTime="0 seconds").start()
            try:
                wanted = FIRST_TRIGGERS + count

                def are_done() -> list[int]:
                    done = [
                        one["durationMs"]["triggerExecution"]
                        for one in query.recentProgress
                        if one["numInputRows"] == TRIGGER_RECORDS
                    ]
                    return done if len(done) >= wanted or not query.isActive else []

                times = wait_for(are_done, f"{wanted} triggers", LIMIT_SECONDS)
            finally:
                query.stop()
        check(min(len(times), wanted), wanted, side, topic)
        return statistics.median(times[FIRST_TRIGGERS:wanted])

    @contextmanager
    def _query(
        self, side: str, bootstrap: str, topic: str, columns: str, options: Mapping[str, str]
    ) -> Iterator[Any]:
        """A writer into noop with a checkpoint of its own."""
        self._queries += 1
        checkpoint = self._directory / f"checkpoint-{self._queries}"
        given = {**self._options(side, bootstrap, topic), **options}
        frame = self._load(self.spark.readStream, side, columns, given)
        yield frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))

    # Writes

    def rows(self, count: int, record_bytes: int) -> Any:
        """A cached table of `count` rows with a key of 12 bytes, in 2 partitions."""
        from pyspark.sql import functions

        key = functions.lpad(functions.col("id").cast("string"), 12, "0")
        text = functions.concat(*[functions.sha2(functions.col("id").cast("string"), 256)] * 20)
        value = functions.substring(text, 1, record_bytes - 12)
        made = self.spark.range(0, count, 1, 2).select(
            key.cast("binary").alias("key"), value.cast("binary").alias("value")
        )
        cached = made.cache()
        cached.count()
        return cached

    def write(self, side: str, bootstrap: str, topic: str, rows: Any) -> float:
        """Seconds until all rows are acknowledged."""
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": topic,
            **(TUNED_WRITE if side == BEST else {}),
        }
        writer = rows.write.format(FORMATS[side]).options(**options).mode("append")
        began = time.perf_counter()
        writer.save()
        return time.perf_counter() - began

    # Memory

    def workers(self) -> list[int]:
        """The Python processes under this session's JVM."""
        return list(descendants(self.spark.sparkContext._gateway.proc.pid))

    def forget_peaks(self) -> None:
        """From now on a worker's peak is that of what follows."""
        for pid in self.workers():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_mb(self) -> float:
        """The most memory that any of the workers has had."""
        return max((peak for pid in self.workers() if (peak := resident_peak(pid))), default=0) / 1e6


def check(found: int, expected: int, side: str, topic: str) -> None:
    """A source that loses records is not faster."""
    if found != expected:
        raise AssertionError(f"{side} gave {found} records of {topic}, not {expected}")


def descendants(pid: int) -> Iterable[int]:
    """Children of a process, theirs, and so on."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    left = list(parents.get(pid, ()))
    while left:
        yield (child := left.pop())
        left += parents.get(child, ())


def resident_peak(pid: int) -> int:
    """VmHWM in bytes; 0 for a process that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = status.split("VmHWM:")
    return int(found[1].split()[0]) * 1024 if len(found) > 1 else 0
