"""The jars of Spark's own Kafka source: where they are, and how they get there.

`mvn` resolves `pom.xml` once into `.cache/` of the repository, or KOMPAKT_SPARK_KAFKA_LIBS names a directory
that has them already.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.kafka.jars import ROOT, NoKafkaError, resolved

POM = Path(__file__).resolve().parent / "pom.xml"
LIBRARIES_VARIABLE = "KOMPAKT_SPARK_KAFKA_LIBS"


def connector_version() -> str:
    found = re.search(r"<connector\.version>([^<]+)<", POM.read_text())
    assert found is not None, "tests/spark/peer/pom.xml pins no connector.version"
    return found[1]


def peer_jars() -> list[Path]:
    """The files for `spark.jars`; NoKafkaError when they are not there and cannot be had."""
    given = os.environ.get(LIBRARIES_VARIABLE)
    if given:
        directory = Path(given)
    else:
        directory = resolved(POM, ROOT / ".cache" / "spark-kafka" / connector_version() / "libs")
    jars = sorted(directory.glob("*.jar"))
    if not any(jar.name.startswith("spark-sql-kafka-") for jar in jars):
        raise NoKafkaError(f"{directory} has no spark-sql-kafka jar")
    return jars


if __name__ == "__main__":
    peer_jars()
