"""Goal: pipelines, and views of a topic as a table, have what transactions have committed, as a consumer
with read_committed would.

Method: confluent-kafka commits, aborts and leaves open; archives, tables and views hold what was committed
and not a record more. A table that was told to take everything is built anew for who is not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest

from spark_connector.pipelines import KeyedTable, apply_changes, archive_topic, refresh_snapshot
from tests.spark.test_spark import create_topic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SCHEMA = "id long, name string"
EVERYTHING = {"Kafka.Isolation.Level": "read_uncommitted"}  # Spark's options have any case


class Ledger:
    """A topic of one partition that is written in transactions, one after the other."""

    def __init__(self, servers: str) -> None:
        self.topic = create_topic(servers)
        self.source = {"kafka.bootstrap.servers": servers}
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "transactional.id": f"ledger-{uuid4()}"}
        )
        self.producer.init_transactions(60)

    def write(self, **names: str) -> None:
        """Leave a transaction open that changes these."""
        self.producer.begin_transaction()
        for key, name in names.items():
            value = json.dumps({"id": 1, "name": name}).encode()
            self.producer.produce(self.topic, value, key.encode(), partition=0)
        assert self.producer.flush(60) == 0

    def commit(self, **names: str) -> None:
        self.write(**names)
        self.producer.commit_transaction(60)

    def abort(self, **names: str) -> None:
        self.write(**names)
        self.producer.abort_transaction(60)


@pytest.fixture
def ledger(kompakt_broker: Any) -> Ledger:
    return Ledger(kompakt_broker.bootstrap)


def named(value: bytes) -> Any:
    return json.loads(value)["name"]


def test_an_archive_has_what_was_committed(spark: Any, ledger: Ledger, tmp_path: Path) -> None:
    path = str(tmp_path)
    source = {**ledger.source, "subscribe": ledger.topic}
    ledger.commit(a="Anna", b="Bert")
    ledger.abort(a="never", c="Cleo")
    ledger.write(b="Bob")
    assert archive_topic(spark, source, path) == 2
    ledger.producer.abort_transaction(60)
    ledger.commit(c="Carl")
    assert archive_topic(spark, source, path) == 1
    rows = spark.read.parquet(path).orderBy("offset").collect()
    assert [named(row.value) for row in rows] == ["Anna", "Bert", "Carl"]


def test_a_view_has_what_was_committed(spark: Any, ledger: Ledger) -> None:
    """Unless it is told to take everything."""

    def rows(**more: str) -> dict[str, str]:
        view = spark.read.format("kompakt").options(**ledger.source, subscribe=ledger.topic, view="latest")
        return {row.key.decode(): named(row.value) for row in view.options(**more).load().collect()}

    ledger.commit(a="Anna", b="Bert")
    ledger.abort(a="never", c="Cleo")
    ledger.write(b="Bob")
    assert rows() == {"a": "Anna", "b": "Bert"}
    assert rows(**EVERYTHING) == {"a": "never", "b": "Bob", "c": "Cleo"}
    ledger.producer.commit_transaction(60)
    assert rows() == {"a": "Anna", "b": "Bob"}


def test_tables_have_what_was_committed(spark: Any, ledger: Ledger, tmp_path: Path) -> None:
    def refresh() -> tuple[dict[str, str], dict[str, str]]:
        refresh_snapshot(spark, ledger.topic, ledger.source, tmp_path / "snapshot")
        apply_changes(spark, ledger.topic, ledger.source, tmp_path / "changes", SCHEMA)
        snapshot = KeyedTable(tmp_path / "snapshot").read(spark).collect()
        changes = KeyedTable(tmp_path / "changes").read(spark).collect()
        return (
            {row.key.decode(): named(row.value) for row in snapshot},
            {row.key.decode(): row["name"] for row in changes},
        )

    ledger.commit(a="Anna", b="Bert")
    ledger.write(a="never", c="Cleo")
    assert refresh() == ({"a": "Anna", "b": "Bert"},) * 2
    ledger.producer.abort_transaction(60)
    assert refresh() == ({"a": "Anna", "b": "Bert"},) * 2
    ledger.commit(b="Bob")
    assert refresh() == ({"a": "Anna", "b": "Bob"},) * 2


def test_a_table_that_took_everything_is_built_anew_of_what_was_committed(
    spark: Any, ledger: Ledger, tmp_path: Path
) -> None:
    def refresh(**more: str) -> tuple[Any, dict[str, str]]:
        done = apply_changes(spark, ledger.topic, {**ledger.source, **more}, tmp_path, SCHEMA)
        rows = KeyedTable(tmp_path).read(spark).collect()
        return done, {row.key.decode(): row["name"] for row in rows}

    ledger.commit(a="Anna")
    ledger.abort(a="never")
    for was_full in (True, False):
        done, rows = refresh(**EVERYTHING)
        assert (done.was_full, rows) == (was_full, {"a": "never"})
    done, rows = refresh()
    assert (done.was_full, rows) == (True, {"a": "Anna"})
    assert done.reason == "rows may be of aborted transactions (kafka.isolation.level=read_uncommitted)"
    done, _ = refresh()
    assert not done.was_full
    _forget_how_it_was_read(tmp_path)
    for was_full, more in ((False, {}), (False, EVERYTHING), (True, {})):
        done, rows = refresh(**more)
        assert (done.was_full, rows) == (was_full, {"a": "Anna"})


def _forget_how_it_was_read(path: Path) -> None:
    """As of a release that did not note it."""
    manifest = json.loads((path / "_table.json").read_text())
    del manifest["read_committed"]
    (path / "_table.json").write_text(json.dumps(manifest))
