"""Goal: the wheel `pyspark-kompakt` serves each Spark since 4.0, as far as that one lets a source in Python.

Method: the PySpark that `locks/spark-*.txt` pins is fetched into `.cache/pyspark` and put in front of this
environment's own. One job reads, writes and streams with it, and its stream is started twice on one
checkpoint. What an older Spark cannot do has to be told.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import LOOPBACK, SUBMIT
from tests.spark.test_wheel import RECORDS, clean_environment, make_environment, topic, wheel

__all__ = ["topic", "wheel"]

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = sorted((ROOT / "locks").glob("spark-*.txt"))
FETCH_LIMIT_S = 900
JOB_LIMIT_S = 900
JOB = """
import json, os, sys
from pyspark.sql import SparkSession

bootstrap, topic, output = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for key, value in json.loads(os.environ["SETTINGS"]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
servers = {"kafka.bootstrap.servers": bootstrap}
told = {"version": spark.version}

def read(**more):
    return spark.read.format("kompakt").options(**servers, subscribe=topic, **more).load()

def run(sink, **more):
    options = {**servers, "subscribe": topic, "startingOffsets": "earliest", **more}
    sink(spark.readStream.format("kompakt").options(**options).load()).awaitTermination()

def files(stream):
    kept = stream.writeStream.format("parquet").option("checkpointLocation", output + "/checkpoint")
    return kept.trigger(availableNow=True).start(output + "/rows")

def copies(stream):
    rows = stream.select("key", "value").writeStream.format("kompakt").options(**servers)
    kept = rows.option("topic", topic + "-copy").option("checkpointLocation", output + "/copies")
    return kept.trigger(availableNow=True).start()

def refusal(what):
    try:
        what()
    except Exception as problem:
        return str(problem)
    return ""

told["batch"] = [row.offset for row in read(columns="offset").orderBy("offset").collect()]
told["table"] = read(view="latest").count()
told["nothing"] = read(view="latest", asOf="1970-01-01T00:00:00Z").count()
typed = read(valueFormat="string", columns="value").where("value = 'value 17'")
told["text"] = typed.count()
fields = spark.read.format("kompakt").options(**servers, subscribe=topic, valueFormat="json")
told["fields"] = fields.schema("n bigint, at timestamp, offset bigint").load().where("n IS NULL").count()
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
told["pushdown"] = refusal(lambda: read(pushdown="true").where("offset >= 990").count())
spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
run(files)
rows = spark.range(7).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
rows.write.format("kompakt").options(**servers, topic=topic).mode("append").save()
run(files)
told["stream"] = sorted(row.offset for row in spark.read.parquet(output + "/rows").select("offset").collect())
told["limit"] = refusal(lambda: run(files, maxOffsetsPerTrigger="100"))
told["sink"] = refusal(lambda: run(copies))
copied = spark.read.format("kompakt").options(**servers, subscribe=topic + "-copy")
told["copied"] = copied.load().count()
from pyspark_kompakt import pipelines
told["archived"] = pipelines.archive_topic(spark, {**servers, "subscribe": topic}, output + "/archive")
told["snapshot"] = pipelines.refresh_snapshot(spark, topic, servers, output + "/snapshot").rows
print("TOLD", json.dumps(told), flush=True)
spark.stop()
"""


@pytest.fixture(scope="module", params=LOCKS, ids=lambda lock: lock.stem)
def older_spark(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The version of PySpark that a lock file pins, and the directory that has it."""
    found = re.search(r"^pyspark==([\d.]+)", request.param.read_text(), re.MULTILINE)
    assert found is not None, f"{request.param} pins no pyspark"
    directory = ROOT / ".cache" / "pyspark" / found[1]
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.mkdtemp(dir=directory.parent)
        pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--quiet"]
        how = ["--no-build-isolation", "--no-deps", "--require-hashes", "--target", made]
        fetch = [*pip, *how, "-r", str(request.param)]
        subprocess.run(fetch, check=True, env=clean_environment(), timeout=FETCH_LIMIT_S)
        Path(made).rename(directory)
    return found[1], directory


@pytest.mark.slow
def test_the_wheel_on_an_older_spark(
    older_spark: tuple[str, Path], wheel: Path, topic: str, kompakt_broker: Any, tmp_path: Path
) -> None:
    version, spark = older_spark
    packages = make_environment(tmp_path / "installed")
    (packages / "libraries.pth").write_text(f"{spark}\n{sysconfig.get_paths()['purelib']}\n")
    shutil.unpack_archive(wheel, packages, "zip")
    python = str(tmp_path / "installed" / "bin" / "python")
    (tmp_path / "job.py").write_text(JOB)
    environment = {**clean_environment(), "PYSPARK_PYTHON": python, "SETTINGS": json.dumps(LOOPBACK)}
    environment.pop(SUBMIT, None)  # says how to start the Spark of this environment
    job = [python, "job.py", kompakt_broker.bootstrap, topic, str(tmp_path / "output")]
    ran = subprocess.run(
        job, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=JOB_LIMIT_S
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    (line,) = (line for line in ran.stdout.splitlines() if line.startswith("TOLD "))
    told = json.loads(line.removeprefix("TOLD "))
    assert told["version"] == version
    assert told["batch"] == list(range(RECORDS))
    assert (told["table"], told["nothing"]) == (10, 0)
    assert (told["text"], told["fields"]) == (1, RECORDS)
    assert (told["archived"], told["snapshot"]) == (RECORDS + 7, 10)
    assert told["stream"] == list(range(RECORDS + 7))
    minor = tuple(map(int, version.split(".")))[:2]
    assert ("needs Spark 4.1" in told["pushdown"]) == (minor < (4, 1)), told["pushdown"]
    assert ("maxOffsetsPerTrigger needs Spark 4.2" in told["limit"]) == (minor < (4, 2)), told["limit"]
    assert ("needs Spark 4.1 or later; write inside foreachBatch" in told["sink"]) == (minor < (4, 1))
    assert told["copied"] == (0 if minor < (4, 1) else RECORDS + 7)
