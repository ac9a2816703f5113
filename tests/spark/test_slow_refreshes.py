"""Goal: a key that was deleted leaves the table, however long a refresh takes and whatever compaction removes
meanwhile.

Method: a log that is a list, read through a `Feed` of its own; the clock of the refresh is pushed on, and the
cleaner takes records, when a read is at a chosen place. Then a topic that kompakt itself compacts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from broker.testing import Kompakt
from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.pipelines import KeyedTable, refresh_snapshot, refreshing
from spark_connector.pipelines.log_state import LogState
from spark_connector.pipelines.refreshing import IS_DELETED, IS_MALFORMED, Feed, refresh

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
T0 = TopicPartition("t", 0)
DAY_MS = 86_400_000
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")
SCHEMA = (
    "key string, value string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


class Log:
    """One partition: offset -> key and value. `before` runs when a read starts, `amid` (once) behind the
    offset `reached`, of which the records before have been read, and those behind not."""

    def __init__(self, spark: Any, monkeypatch: pytest.MonkeyPatch, retention_ms: int = DAY_MS) -> None:
        self.records: dict[int, tuple[str, str | None]] = {}
        self.end = self.start = 0
        self.now_ms = 1_790_000_000_000
        self.retention_ms = retention_ms
        self.strategy = "offset"
        self.reads = 0
        self.reached = -1
        self.amid: Callable[[], None] | None = None
        self._spark = spark
        monkeypatch.setattr(refreshing, "_now_ms", lambda: self.now_ms)
        monkeypatch.setattr(refreshing, "look_up", lambda source, topic: self._state())

    def _state(self) -> LogState:
        return LogState("id", {T0: self.start}, {T0: self.end}, self.retention_ms, self.strategy)

    def add(self, *records: tuple[str, str | None]) -> None:
        for record in records:
            self.records[self.end] = record
            self.end += 1

    def clean(self, *offsets: int, after_ms: int) -> None:
        """What compaction has removed when `after_ms` more have gone."""
        self.now_ms += after_ms
        for offset in offsets:
            del self.records[offset]

    def read(self, positions: dict[str, str]) -> Any:
        self.reads += 1
        start, end = (json.loads(positions.get(f"{edge}Offsets", "{}")) for edge in ("starting", "ending"))
        first, last = start.get("t", {}).get("0", 0), end["t"]["0"]
        found = {offset: record for offset, record in self.records.items() if offset <= self.reached}
        if self.amid is not None:
            amid, self.amid = self.amid, None
            amid()
        found |= {offset: record for offset, record in self.records.items() if offset > self.reached}
        rows = [
            (key, value, 0, offset, None, None, value is None, False)
            for offset, (key, value) in sorted(found.items())
            if first <= offset < last
        ]
        return self._spark.createDataFrame(rows, f"{SCHEMA}, {IS_DELETED} boolean, {IS_MALFORMED} boolean")


@pytest.fixture
def log(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(spark, monkeypatch)


def refreshed(spark: Any, log: Log, path: Path, said: list[str], *, mirrors_log: bool = True) -> Any:
    feed = Feed(log.read, COLUMNS, SCHEMA, mirrors_log=mirrors_log)
    return refresh(spark, KeyedTable(path), "t", {}, feed, buckets=2, say=said.append)


def table_of(spark: Any, path: Path) -> dict[Any, Any]:
    return {row.key: row.value for row in KeyedTable(path).read(spark).collect()}


@pytest.mark.parametrize("mirrors_log", [True, False])
def test_a_tombstone_that_goes_while_the_changes_are_read(
    spark: Any, log: Log, tmp_path: Path, mirrors_log: bool
) -> None:
    """The refresh begins just before tombstones of the last one's time may go, and reads behind that."""
    said: list[str] = []
    log.add(("K", "old"), ("L", "stays"))
    refreshed(spark, log, tmp_path, said, mirrors_log=mirrors_log)
    log.add(("K", None), ("M", "new"))
    log.clean(0, after_ms=DAY_MS - 10)  # K's value, and its tombstone is seen for the first time
    log.amid = lambda: log.clean(2, after_ms=10)
    done = refreshed(spark, log, tmp_path, said, mirrors_log=mirrors_log)
    assert (done.was_full, done.version, done.rows) == (True, 2, 2)
    assert done.reason == f"the last refresh is {DAY_MS} ms old, and tombstones may go after {DAY_MS} ms"
    assert "tombstones may have gone while the changes were read: they are not taken" in said
    assert table_of(spark, tmp_path) == {"L": "stays", "M": "new"}


def test_a_table_of_changes_that_outlives_its_log_is_not_built_anew_by_that(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    log.add(("K", "old"), ("L", "stays"))
    refreshed(spark, log, tmp_path, [], mirrors_log=False)
    log.add(("K", None))
    log.start = 1
    log.clean(0, after_ms=DAY_MS - 10)
    log.amid = lambda: log.clean(2, after_ms=10)
    with pytest.raises(ConnectorError, match=r"tombstones may go .*, but 1 offsets at its start are gone"):
        refreshed(spark, log, tmp_path, [], mirrors_log=False)
    assert table_of(spark, tmp_path) == {"K": "old", "L": "stays"}


def test_a_refresh_that_ends_in_time_reads_once(spark: Any, log: Log, tmp_path: Path) -> None:
    log.add(("K", "old"), ("L", "stays"))
    log.amid = lambda: log.clean(after_ms=DAY_MS - 1)
    assert refreshed(spark, log, tmp_path, []).was_full
    log.now_ms -= DAY_MS - 1
    log.add(("K", None))
    log.amid = lambda: log.clean(after_ms=DAY_MS - 1)
    done = refreshed(spark, log, tmp_path, [])
    assert (done.was_full, done.offsets_read, log.reads) == (False, 1, 2)
    assert table_of(spark, tmp_path) == {"L": "stays"}


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
@pytest.mark.parametrize("retention_ms", [0, DAY_MS])
def test_a_tombstone_that_goes_while_everything_is_read(
    spark: Any, log: Log, tmp_path: Path, retention_ms: int, strategy: str
) -> None:
    """Its key's old value was read before it went; with delete.retention.ms=0 that needs no time at all."""
    log.retention_ms, log.strategy = retention_ms, strategy
    log.add(("K", "old"), ("L", "first"), ("K", None), ("L", None), ("L", "second"), ("N", "n"), ("N", None))
    log.reached = 1
    log.amid = lambda: log.clean(0, 1, 2, 3, after_ms=retention_ms)
    said: list[str] = []
    done = refreshed(spark, log, tmp_path, said)
    assert table_of(spark, tmp_path) == {"L": "second"}
    assert (done.rows, log.reads) == (1, 2)
    assert f"that took longer than tombstones stay ({retention_ms} ms)" in said[1]
    log.add(("K", "again"))
    refreshed(spark, log, tmp_path, said)
    assert table_of(spark, tmp_path) == {"K": "again", "L": "second"}


def test_a_value_that_is_read_is_not_older_than_the_refresh(spark: Any, log: Log, tmp_path: Path) -> None:
    """The time of a refresh is the one before its ends are looked up: tombstones behind them are younger."""
    times = []
    state = log._state

    def slow() -> LogState:
        log.now_ms += 1000
        times.append(log.now_ms)
        return state()

    log._state = slow  # type: ignore[method-assign]
    log.add(("K", "old"))
    refreshed(spark, log, tmp_path, [])
    manifest = KeyedTable(tmp_path).manifest()
    assert manifest is not None
    assert manifest.refreshed_ms == times[0] - 1000


def test_a_tombstone_that_a_broker_removes_while_the_changes_are_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key stayed for good, and a table that is built anew has never heard of it."""
    passed_ms = 0
    now_ms, newest = refreshing._now_ms, refreshing._newest
    monkeypatch.setattr(refreshing, "_now_ms", lambda: now_ms() + passed_ms)
    with Kompakt() as kompakt:
        kompakt.create_topic("t", cleanup_policy="compact", delete_retention_ms=str(DAY_MS))
        producer = confluent_kafka.Producer({"bootstrap.servers": kompakt.bootstrap_servers})
        source = {"kafka.bootstrap.servers": kompakt.bootstrap_servers}

        def send(**values: str | None) -> None:
            for key, value in values.items():
                producer.produce("t", value, key)
            assert producer.flush(60) == 0

        def a_slow_read(*arguments: Any) -> Any:
            nonlocal passed_ms
            if not passed_ms:
                passed_ms = DAY_MS
                kompakt.advance(days=1)
                kompakt.compact("t")
            return newest(*arguments)

        send(K="old", L="stays")
        assert refresh_snapshot(spark, "t", source, tmp_path / "table").rows == 2
        send(K=None, M="new")
        kompakt.compact("t")
        monkeypatch.setattr(refreshing, "_newest", a_slow_read)
        done = refresh_snapshot(spark, "t", source, tmp_path / "table")
        assert done.was_full
        for path in (tmp_path / "table", tmp_path / "another"):
            refresh_snapshot(spark, "t", source, path)
            assert table_of(spark, path) == {b"L": b"stays", b"M": b"new"}
