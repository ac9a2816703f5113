"""Where PySpark finds the format `kompakt` by itself.

Spark imports every top-level module whose name begins with `pyspark_`, once for each session, and registers
its `DefaultSource`: no `spark.dataSource.register` is needed, in SQL neither. The import is light (see
`source.py`).
"""

from spark_connector.source import KompaktDataSource as DefaultSource

__all__ = ["DefaultSource"]
