"""Goal: an option that does nothing where it stands, or contradicts another one, is not silently passed over.

Method: readers are made of options as Spark makes them; a stream refuses an end by name, a batch warns by
name and reads as it would without. No broker.
"""

from __future__ import annotations

import json
import logging

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.source import KompaktDataSource
from tests.spark.ddl import schema_of

BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
STREAM_ONLY = {
    "maxOffsetsPerTrigger": "5",
    "minOffsetsPerTrigger": "2",
    "maxBytesPerTrigger": "1000",
    "maxTriggerDelay": "1m",
    "commitOffsets": "true",
}
GROUP = {"commitOffsets": "true", "groupId": "g"}
VALUE = schema_of("value binary")


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "kompakt.spark")
    return caplog


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingOffsets", '{"t":{"0":5}}'),
        ("endingTimestamp", "1800000000000"),
        ("endingOffsetsByTimestamp", '{"t":{"0":1800000000000}}'),
        ("asOf", "2026-02-01T12:00:00Z"),
        ("view", "latest"),
    ],
)
def test_a_stream_refuses_an_end(option: str, value: str) -> None:
    source = KompaktDataSource({**BASE, option: value})
    with pytest.raises(ConnectorError, match=f"^{option}: a stream has no end; such options are for batch"):
        source.streamReader(VALUE)
    source.reader(VALUE)


@pytest.mark.parametrize("option", STREAM_ONLY)
def test_a_batch_says_which_limit_it_ignores(option: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once: that one of them needs another one is not said besides."""
    options = GROUP if option in GROUP else {option: STREAM_ONLY[option]}
    KompaktDataSource({**BASE, **options}).reader(VALUE)
    assert caplog.messages == [f"{option} are for streams; a batch read ignores them"]


def test_a_batch_says_so_once_for_all_of_them(caplog: pytest.LogCaptureFixture) -> None:
    source = KompaktDataSource({**BASE, **STREAM_ONLY, "groupId": "g"})
    source.reader(VALUE)
    (message,) = caplog.messages
    assert message.endswith(" are for streams; a batch read ignores them")
    assert set(message.partition(" are ")[0].split(", ")) == set(STREAM_ONLY)


def test_a_stream_says_that_it_ignores_pushdown(caplog: pytest.LogCaptureFixture) -> None:
    KompaktDataSource({**BASE, "pushdown": "True"}).streamReader(VALUE)
    assert caplog.messages == ["pushdown is for batch reads; a stream ignores it, and Spark filters"]
    caplog.clear()
    KompaktDataSource({**BASE, "pushdown": "false"}).streamReader(VALUE)
    KompaktDataSource({**BASE, "pushdown": "true"}).reader(VALUE)
    assert caplog.messages == []


BY_TIME = "startingTimestamp or startingOffsetsByTimestamp"


@pytest.mark.parametrize(
    ("option", "value", "needed"),
    [
        ("keylessRecords", "absent", "view=latest"),
        ("viewMemoryBytes", "1000", "view=latest"),
        ("groupId", "g", "commitOffsets=true"),
        ("startingOffsetsByTimestampStrategy", "latest", BY_TIME),
    ],
)
def test_what_does_nothing_by_itself(
    option: str, value: str, needed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In a batch and in a stream."""
    source = KompaktDataSource({**BASE, option: value})
    source.reader(VALUE)
    source.streamReader(VALUE)
    assert caplog.messages == [f"{option} means nothing without {needed} and is ignored"] * 2


def test_a_delay_without_a_limit_to_wait_for(caplog: pytest.LogCaptureFixture) -> None:
    KompaktDataSource({**BASE, "maxTriggerDelay": "1m"}).streamReader(VALUE)
    assert caplog.messages == ["maxTriggerDelay means nothing without minOffsetsPerTrigger and is ignored"]


def test_a_group_without_commits_that_are_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    KompaktDataSource({**BASE, "groupId": "g", "commitOffsets": "false"}).streamReader(VALUE)
    assert caplog.messages == ["groupId means nothing without commitOffsets=true and is ignored"]


@pytest.mark.parametrize(
    "time", [{"startingTimestamp": "5"}, {"startingOffsetsByTimestamp": json.dumps({"t": {"0": 5}})}]
)
def test_nothing_is_said_of_what_fits(time: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    batch = KompaktDataSource({**BASE, "endingOffsets": "latest", "minPartitions": "3"})
    batch.reader(VALUE)
    view = {"view": "Latest", "keylessRecords": "absent", "viewMemoryBytes": "1000"}
    KompaktDataSource({**BASE, **view}).reader(VALUE)
    stream = KompaktDataSource({**BASE, **STREAM_ONLY, "groupId": "g"})
    stream.streamReader(VALUE)
    KompaktDataSource({**BASE, **time, "startingOffsetsByTimestampStrategy": "latest"}).reader(VALUE)
    assert caplog.messages == []


# --- columns


def read(options: dict[str, str], schema: str) -> None:
    source = KompaktDataSource({**BASE, **options})
    source.reader(schema_of(schema or source.schema()))


HEADERS = "headers array<struct<key:string,value:binary>>"
NO_HEADERS = [
    "includeHeaders=true adds nothing to the columns that the option columns or a schema names; name headers "
    "there"
]


@pytest.mark.parametrize(
    ("options", "schema"),
    [
        ({"columns": "key"}, ""),
        ({}, "value binary"),
        ({"valueFormat": "json"}, "id int"),
        ({"valueFormat": "json"}, "headers string"),
    ],
)
def test_headers_that_are_asked_for_and_not_named(
    options: dict[str, str], schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    read({**options, "includeHeaders": "true"}, schema)
    assert caplog.messages == NO_HEADERS


@pytest.mark.parametrize(
    ("options", "schema"), [({"columns": "key,headers"}, ""), ({}, ""), ({}, f"value binary, {HEADERS}")]
)
def test_headers_that_are_named(
    options: dict[str, str], schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    read({**options, "includeHeaders": "true"}, schema)
    read({**options, "includeHeaders": "false"}, schema)
    assert caplog.messages == []


@pytest.mark.parametrize("schema", ["value binary", "key binary, value binary"])
def test_a_schema_with_other_columns_is_refused(schema: str) -> None:
    """Which of the two is meant, nobody can tell."""
    said = "^the schema has value, the option columns only key; leave out one of the two"
    with pytest.raises(ConnectorError, match=said):
        read({"columns": "key"}, schema)


def test_a_schema_with_fewer_columns_is_a_choice_of_them(caplog: pytest.LogCaptureFixture) -> None:
    read({"columns": "key,value,offset"}, "offset bigint, key binary")
    assert caplog.messages == ["value: named by the option columns, not by the schema, and not read"]
    caplog.clear()
    read({"columns": "key, OFFSET"}, "offset bigint, key binary")
    assert caplog.messages == []


def test_fields_of_a_value_are_no_other_columns(caplog: pytest.LogCaptureFixture) -> None:
    """With JSON `columns` says which names of the schema are not fields."""
    read(
        {"valueFormat": "json", "columns": "key"}, "key binary, offset bigint, id int, _corrupt_record string"
    )
    assert caplog.messages == []
    read({"valueFormat": "json", "columns": "key"}, "id int")
    assert caplog.messages == ["key: named by the option columns, not by the schema, and not read"]
