"""Goal: a pipeline works in the directory that its path says, or says why it cannot.

Method: paths as people write them, without a Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.paths import local_directory


@pytest.mark.parametrize("path", ["/data/t", "file:/data/t", "file:///data/t"])
def test_a_local_path_may_be_an_address(path: str) -> None:
    assert local_directory(path) == Path("/data/t")


@pytest.mark.parametrize("path", ["s3a://lake/t", "hdfs://host:8020/t", "hdfs:/t", "file://host/t"])
def test_another_file_system_or_machine_is_refused(path: str) -> None:
    """Of the last one the machine would be a part of the path, without its first slash."""
    with pytest.raises(ConnectorError, match="is an address"):
        local_directory(path)
