"""`from pyspark_kompakt.pipelines import archive_topic`: the functions behind `kompakt spark ...`."""

from spark_connector.pipelines import (
    KeyedTable,
    Refresh,
    apply_changes,
    archive_topic,
    refresh_snapshot,
    restore_topic,
)

__all__ = ["KeyedTable", "Refresh", "apply_changes", "archive_topic", "refresh_snapshot", "restore_topic"]
