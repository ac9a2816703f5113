"""Ready pipelines between topics and Parquet: each a function here and a command `kompakt spark ...`.

`archive.py` appends a topic to Parquet and writes Parquet back; `keyed_table.py` keeps a Parquet table of
one row a key, which `snapshot.py` feeds from a compacted topic and `change_log.py` from parsed changes.
Each can be killed at any moment and started again: what is in the files is there once. All of them refuse a
session of Spark Connect (`session.py`) by a ConnectorError.
"""

from spark_connector.pipelines.archive import archive_topic, restore_topic
from spark_connector.pipelines.change_log import apply_changes
from spark_connector.pipelines.keyed_table import KeyedTable, Refresh
from spark_connector.pipelines.snapshot import refresh_snapshot

__all__ = ["KeyedTable", "Refresh", "apply_changes", "archive_topic", "refresh_snapshot", "restore_topic"]
