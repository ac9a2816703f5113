"""Goal: a keyed table is always one finished version, and knows when changes alone are not enough.

Method: the decision by itself, state by state; the files by hand, without Spark: what a refresh that was
killed leaves behind, what readers of the version before need, damaged manifests, two refreshes at once.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.pipelines.keyed_table import KeyedTable, Manifest
from spark_connector.pipelines.log_state import LogState
from spark_connector.pipelines.refreshing import Feed, refresh, why_all_buckets, why_full

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
DAY_MS = 86_400_000
FEED = Feed(lambda positions: None, ("key", "value"), "key binary, value binary")
MANIFEST = Manifest(
    "t",
    "id",
    4,
    FEED.schema,
    version=3,
    offsets={"t": {"0": 50}},
    refreshed_ms=1000,
    versions={"0": 3, "2": 1},
)
STARTED = dataclasses.replace(MANIFEST, starts={"t": {"0": 7}}, delete_when="")
FOLLOWING = dataclasses.replace(FEED, mirrors_log=True)
LOG = LogState("id", {A: 0}, {A: 80}, DAY_MS)
BY_TIME = dataclasses.replace(LOG, strategy="timestamp")


def test_changes_are_enough_after_a_refresh() -> None:
    assert why_full(MANIFEST, LOG, FEED, 1000 + DAY_MS - 1) == ""
    grown = dataclasses.replace(LOG, starts={A: 50, B: 7}, ends={A: 50, B: 9})
    assert why_full(MANIFEST, grown, FEED, 2000) == ""
    assert why_full(STARTED, grown, FEED, 2000) == ""  # a table of changes outlives its log
    assert why_full(MANIFEST, BY_TIME, FEED, 2000) == ""  # and takes the last change


def test_a_log_of_changes_that_is_not_compacted_loses_no_tombstone_unread() -> None:
    """However old the last refresh is; a compacted one may, and a snapshot follows what is left."""
    plain = dataclasses.replace(LOG, is_compacted=False)
    assert why_full(STARTED, plain, FEED, 1000 + DAY_MS) == ""
    assert "tombstones may go" in why_full(STARTED, LOG, FEED, 1000 + DAY_MS)
    following = dataclasses.replace(FOLLOWING, delete_when="")
    assert "tombstones may go" in why_full(STARTED, plain, following, 1000 + DAY_MS)


def test_buckets_are_written_anew_from_the_table() -> None:
    """Not from the log, of which retention may have taken what the table still has."""
    assert why_full(MANIFEST, LOG, FEED, 2000) == ""
    assert why_all_buckets(MANIFEST, 8) == "it has 4 buckets, not 8"
    assert why_all_buckets(MANIFEST, 4) == why_all_buckets(None, 4) == ""


def test_a_manifest_from_before_its_last_fields_is_believed() -> None:
    feed = dataclasses.replace(FOLLOWING, delete_when="false")
    assert why_full(MANIFEST, dataclasses.replace(LOG, starts={A: 50}), feed, 2000) == ""


@pytest.mark.parametrize(
    ("manifest", "log", "feed", "now_ms", "reason"),
    [
        (None, LOG, FEED, 2000, "no table yet"),
        (MANIFEST, LOG, dataclasses.replace(FEED, schema="key binary"), 2000, "columns changed"),
        (
            dataclasses.replace(MANIFEST, delete_when="op = 'd'"),
            LOG,
            dataclasses.replace(FEED, delete_when="op = 'x'"),
            2000,
            "another condition, op = 'd'",
        ),
        (STARTED, dataclasses.replace(LOG, starts={A: 8, B: 9}), FOLLOWING, 2000, "t-0 begins at 8 now"),
        (MANIFEST, dataclasses.replace(LOG, topic_id="other"), FEED, 2000, "made again"),
        (MANIFEST, dataclasses.replace(LOG, ends={A: 49}), FEED, 2000, "ends before offset 50"),
        (MANIFEST, dataclasses.replace(LOG, ends={B: 49}), FEED, 2000, "t-0 ends before offset 50"),
        (MANIFEST, dataclasses.replace(LOG, starts={A: 51}), FEED, 2000, "begins at 51"),
        (MANIFEST, LOG, FEED, 1000 + DAY_MS, "tombstones may go"),
        (MANIFEST, BY_TIME, FOLLOWING, 2000, "compaction.strategy is timestamp"),
        (dataclasses.replace(MANIFEST, strategy="header"), LOG, FOLLOWING, 2000, "chosen by header"),
    ],
)
def test_changes_are_not_enough(
    manifest: Manifest | None, log: LogState, feed: Feed, now_ms: int, reason: str
) -> None:
    assert reason in why_full(manifest, log, feed, now_ms)


@pytest.mark.parametrize("name", ["endingTimestamp", "startingoffsetsbytimestamp", "startingOffsets"])
def test_a_refresh_is_not_told_where_to_read(tmp_path: Path, name: str) -> None:
    """Records behind an endingTimestamp counted as read, and never came into the table."""
    with pytest.raises(ConnectorError, match=f"(?i)^{name} says where to read"):
        refresh(None, KeyedTable(tmp_path / "table"), "t", {name: "1"}, FEED)
    assert not (tmp_path / "table").exists()


def lay_out(table: KeyedTable, *places: tuple[int, int]) -> None:
    for version, bucket in places:
        place = table.path / f"version={version}" / f"bucket={bucket}"
        place.mkdir(parents=True)
        (place / "part.parquet").write_bytes(b"rows")


def found(table: KeyedTable) -> set[tuple[int, int]]:
    return {
        (int(place.parent.name.removeprefix("version=")), int(place.name.removeprefix("bucket=")))
        for place in table.path.glob("version=*/bucket=*")
    }


def test_what_no_manifest_names_is_removed(tmp_path: Path) -> None:
    """Version 4 was cut short; readers of version 2 go on with bucket 0 of version 1 and 2 of version 2."""
    table = KeyedTable(tmp_path / "table")
    lay_out(table, (1, 0), (1, 1), (2, 2), (3, 0), (4, 0), (4, 1))
    table.publish(dataclasses.replace(MANIFEST, versions={"0": 3, "2": 2}, previous={"0": 1, "2": 2}))
    assert found(table) == {(1, 0), (2, 2), (3, 0)}
    assert not (table.path / "version=4").exists()
    manifest = table.manifest()
    assert manifest is not None
    assert manifest.versions == {"0": 3, "2": 2}


def test_a_damaged_manifest_says_what_to_do(tmp_path: Path) -> None:
    table = KeyedTable(tmp_path)
    assert table.manifest() is None
    for text in ("{", "[]", '{"version": 1}', '{"unknown": 2}'):
        (tmp_path / "_table.json").write_text(text)
        with pytest.raises(ConnectorError, match=r"damaged .* remove it"):
            table.manifest()
    table.publish(dataclasses.replace(MANIFEST, format=9))
    with pytest.raises(ConnectorError, match="format 9; this release reads 1"):
        table.manifest()


def test_one_refresh_at_a_time(tmp_path: Path) -> None:
    with (
        KeyedTable(tmp_path).lock(),
        pytest.raises(ConnectorError, match="by another process"),
        KeyedTable(tmp_path).lock(),
    ):
        pytest.fail("two refreshes hold the table")
    with KeyedTable(tmp_path).lock():
        pass
