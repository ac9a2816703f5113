"""Goal: a pipeline that is given a session of Spark Connect says what to do instead, and does nothing.

Method: a session object of the real class, without a server behind it: whatever it were asked would fail.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.pipelines import apply_changes, archive_topic, refresh_snapshot, restore_topic
from spark_connector.pipelines.session import refuse_connect

SOURCE = {"kafka.bootstrap.servers": "127.0.0.1:1"}
Pipeline = Callable[[Any, str], Any]


@pytest.fixture
def session() -> Any:
    connect = pytest.importorskip("pyspark.sql.connect.session", reason="Spark Connect needs grpc")
    return object.__new__(connect.SparkSession)


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda spark, path: archive_topic(spark, {**SOURCE, "subscribe": "t"}, path),
        lambda spark, path: restore_topic(spark, path, {**SOURCE, "topic": "t"}, checkpoint=f"{path}-done"),
        lambda spark, path: refresh_snapshot(spark, "t", SOURCE, path),
        lambda spark, path: apply_changes(spark, "t", SOURCE, path, "id long"),
    ],
    ids=["archive", "restore", "snapshot", "apply"],
)
def test_a_session_of_connect_is_refused(session: Any, pipeline: Pipeline, tmp_path: Path) -> None:
    expected = r"^pipelines need a session in Spark's own driver, .* run them by spark-submit, .*--master"
    with pytest.raises(ConnectorError, match=expected):
        pipeline(session, str(tmp_path / "files"))
    assert list(tmp_path.iterdir()) == []


def test_a_session_in_the_driver_is_not() -> None:
    from pyspark.sql import SparkSession

    refuse_connect(object.__new__(SparkSession))
