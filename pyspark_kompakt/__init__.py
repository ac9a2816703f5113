"""Where PySpark finds the format `kompakt` by itself.

Spark imports every top-level module whose name begins with `pyspark_`, once for each session, and registers
its `DefaultSource`: no `spark.dataSource.register` is needed, in SQL neither. The import is light (see
`source.py`); `commit_offsets` and `pipelines`, which need more, are looked up when a program asks for them.
"""

from importlib import import_module
from typing import Any

from spark_connector.source import KompaktDataSource as DefaultSource

__all__ = ["DefaultSource", "commit_offsets", "pipelines"]


def __getattr__(name: str) -> Any:
    if name == "commit_offsets":
        from spark_connector.commits import commit_offsets

        return commit_offsets
    if name == "pipelines":
        return import_module(f"{__name__}.pipelines")
    raise AttributeError(f"module {__name__} has no attribute {name}")
