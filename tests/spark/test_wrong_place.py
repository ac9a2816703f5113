"""Goal: an option that only batches or only streams have is not silently passed over by the other.

Method: readers are made of options as Spark makes them; a stream refuses by name, a batch warns by name and
reads as it would without. No broker.
"""

from __future__ import annotations

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
VALUE = schema_of("value binary")


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
    source = KompaktDataSource({**BASE, option: STREAM_ONLY[option], "groupId": "g"})
    with caplog.at_level(logging.WARNING, "kompakt.spark"):
        source.reader(VALUE)
    assert caplog.messages == [f"{option} are for streams; a batch read ignores them"]


def test_a_batch_says_so_once_for_all_of_them(caplog: pytest.LogCaptureFixture) -> None:
    source = KompaktDataSource({**BASE, **STREAM_ONLY, "groupId": "g"})
    source.reader(VALUE)
    (message,) = caplog.messages
    assert message.endswith(" are for streams; a batch read ignores them")
    assert set(message.partition(" are ")[0].split(", ")) == set(STREAM_ONLY)


def test_neither_is_said_of_what_fits(caplog: pytest.LogCaptureFixture) -> None:
    batch = KompaktDataSource({**BASE, "endingOffsets": "latest", "minPartitions": "3"})
    batch.reader(VALUE)
    stream = KompaktDataSource({**BASE, **STREAM_ONLY, "groupId": "g"})
    stream.streamReader(VALUE)
    assert caplog.messages == []
