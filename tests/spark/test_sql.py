"""Goal: SQL writes a topic as it reads it, and where Spark keeps a table's options to itself we say so.

Method: temporary views and tables of the session's catalog; what INSERT has written is read back by another
client. (Reads of a view: `test_spark.py`.)
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.source import KompaktDataSource
from tests.spark.test_spark import create_topic, produce
from tests.spark.test_writer import KEYED
from tests.spark.test_writer_spark import read_back

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NO_OPTIONS = r"option kafka.bootstrap.servers is needed: .*CREATE TEMPORARY VIEW .*SELECT ... FROM t WITH \("


@pytest.mark.parametrize(
    "use",
    [
        lambda source: source.schema(),
        lambda source: source.reader(KEYED),
        lambda source: source.streamReader(KEYED),
        lambda source: source.writer(KEYED, False),
        lambda source: source.streamWriter(KEYED, False),
    ],
    ids=["schema", "reader", "streamReader", "writer", "streamWriter"],
)
def test_no_option_at_all_is_told_apart(use: Any) -> None:
    """From one that is missing: it is what Spark makes of a table."""
    with pytest.raises(ConnectorError, match=NO_OPTIONS):
        use(KompaktDataSource({}))
    with pytest.raises(ConnectorError, match=r"kafka.bootstrap.servers is needed: .* brokers$"):
        use(KompaktDataSource({"subscribe": "t", "topic": "t"}))


class Sql:
    """One topic, and what SQL calls it. Owned by: one test."""

    def __init__(self, spark: Any, bootstrap: str) -> None:
        self.spark, self.bootstrap, self.topic = spark, bootstrap, create_topic(bootstrap)
        self.name = f"sql_{uuid.uuid4().hex}"

    def view(self, **options: str) -> str:
        """The options of a read and of a write, as one view has them for SELECT and INSERT."""
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "topic": self.topic}
        listed = ", ".join(f"`{name}` '{value}'" for name, value in {**given, **options}.items())
        self.spark.sql(f"CREATE TEMPORARY VIEW {self.name} USING kompakt OPTIONS ({listed})")
        return self.name

    def table(self) -> str:
        """As `view`, in the catalog."""
        options = f"`kafka.bootstrap.servers` '{self.bootstrap}', subscribe '{self.topic}'"
        self.spark.sql(f"CREATE TABLE {self.name} USING kompakt OPTIONS ({options})")
        return self.name


@pytest.fixture
def sql(spark: Any, kompakt_broker: Any) -> Iterator[Sql]:
    made = Sql(spark, kompakt_broker.bootstrap)
    yield made
    spark.sql(f"DROP TABLE IF EXISTS {made.name}")
    spark.catalog.dropTempView(made.name)


def pairs(sql: Sql, count: int) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((key, value) for _, key, value, _, _ in read_back(sql.bootstrap, sql.topic, count))


@pytest.mark.parametrize("is_text", [False, True], ids=["bytes", "text"])
def test_insert_into_a_view_of_keys_and_values(sql: Sql, is_text: bool) -> None:
    """INSERT casts no text to bytes; a view can say that it is text."""
    words = {"keyFormat": "string", "valueFormat": "string"} if is_text else {}
    view = sql.view(columns="key,value", **words)
    rows = "('a', 'b'), ('c', NULL)" if is_text else "(X'61', X'62'), (X'63', NULL)"
    sql.spark.sql(f"INSERT INTO {view} VALUES {rows}")
    assert pairs(sql, 2) == [(b"a", b"b"), (b"c", None)]
    found = sql.spark.sql(f"SELECT * FROM {view} WHERE value IS NOT NULL").collect()
    assert [tuple(row) for row in found] == [("a", "b") if is_text else (b"a", b"b")]


def test_insert_into_a_view_of_all_columns(sql: Sql) -> None:
    """Columns that are not named are null: the key places the row, now is its time."""
    view = sql.view()
    before = time.time() * 1000
    sql.spark.sql(f"INSERT INTO {view} (key, value) VALUES (X'61', X'62')")
    ((_, key, value, _, written_ms),) = read_back(sql.bootstrap, sql.topic, 1)
    assert (key, value) == (b"a", b"b")
    assert before - 1000 <= written_ms <= time.time() * 1000 + 1000
    sql.spark.sql(f"INSERT INTO {view} SELECT * FROM {view}")
    first, second = read_back(sql.bootstrap, sql.topic, 2)
    assert first == second, "the same key, value, partition and time"


def test_insert_overwrite_is_refused(sql: Sql) -> None:
    view = sql.view(columns="key,value")
    with pytest.raises(Exception, match="a topic cannot be overwritten, only appended to"):
        sql.spark.sql(f"INSERT OVERWRITE {view} VALUES (X'61', X'62')")


def test_a_table_of_the_catalog_needs_its_options_again(sql: Sql) -> None:
    """Spark asks for the columns with the options of CREATE TABLE, and reads and writes without them."""
    produce(sql.bootstrap, sql.topic, 30)
    table = sql.table()
    for statement in (f"SELECT * FROM {table}", f"INSERT INTO {table} (value) VALUES (X'61')"):
        with pytest.raises(Exception, match=NO_OPTIONS):
            sql.spark.sql(statement).collect()
    servers = f"`kafka.bootstrap.servers` = '{sql.bootstrap}'"
    sql.spark.sql(f"INSERT INTO {table} WITH ({servers}, topic = '{sql.topic}') (value) VALUES (X'61')")
    (row,) = sql.spark.sql(
        f"SELECT count(*) AS n FROM {table} WITH ({servers}, subscribe = '{sql.topic}')"
    ).collect()
    assert row.n == 31
