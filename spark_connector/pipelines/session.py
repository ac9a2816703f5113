"""Which Spark sessions the pipelines run on."""

from __future__ import annotations

from typing import Any

from spark_connector.errors import ConnectorError

CONNECT = "pyspark.sql.connect"


def refuse_connect(spark: Any) -> None:
    """ConnectorError when `spark` is a session of Spark Connect: pipelines look at the cluster's cores and at
    the files of their tables from the driver.
    """
    # By its module's name: importing the class needs grpc, which a classic session does without.
    if any(made.__module__.startswith(CONNECT) for made in type(spark).__mro__):
        raise ConnectorError(
            "pipelines need a session in Spark's own driver, and this one is of Spark Connect: run them by "
            "spark-submit, with SparkSession.builder.master(...), or as `kompakt spark ... --master ...`"
        )
