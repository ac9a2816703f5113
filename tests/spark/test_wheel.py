"""Goal: the wheel `pyspark-kompakt` is all that a Spark installation needs, whatever lies beside the job.

Method: the wheel is built as a user gets it and installed by pip into an environment that has PySpark, but
nothing of this project. Jobs run there in directories with a `protocol.py`, `config.py` and `storage.py` of
their own, which end the process that imports them: installed, sent along by `--py-files`, through Spark
Connect, in SQL, and as one of Spark's declarative pipelines.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import uuid
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pyarrow.dataset
import pyspark
import pytest

from spark_connector import packaging
from tests.spark.conftest import LOOPBACK, SUBMIT
from tests.thoroughness import slow

RECORDS = 1000
_NAME = re.compile(r"[^\w-]")
JOB = """
import json, os, sys
from pyspark.sql import SparkSession

way, bootstrap, topic, output = sys.argv[1:]
builder = SparkSession.builder
builder = builder.remote("local[2]") if way == "connect" else builder.master("local[2]")
for key, value in json.loads(os.environ["SETTINGS"]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
if way == "py-files":
    from pyspark_kompakt import DefaultSource
    spark.dataSource.register(DefaultSource)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
counts = {"batch": spark.read.format("kompakt").options(**options).load().count()}
spark.sql(
    "CREATE TEMPORARY VIEW v USING kompakt OPTIONS "
    f"(`kafka.bootstrap.servers` '{bootstrap}', subscribe '{topic}', columns 'key,offset')"
)
(row,) = spark.sql("SELECT count(*), sum(offset), count(DISTINCT key) FROM v").collect()
counts["sql"] = list(row)
if way != "py-files":  # Spark 4.3 looks for a stream's py-files in a directory that does not exist
    stream = spark.readStream.format("kompakt").options(**options).option("startingOffsets", "earliest")
    query = (
        stream.load().writeStream.format("parquet").option("checkpointLocation", output + "/checkpoint")
        .trigger(availableNow=True).start(output + "/rows")
    )
    query.awaitTermination()
    counts["stream"] = spark.read.parquet(output + "/rows").count()
rows = spark.range(7).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
rows.write.format("kompakt").options(**{**options, "topic": topic + "-copy"}).mode("append").save()
options["subscribe"] = topic + "-copy"
counts["written"] = spark.read.format("kompakt").options(**options).load().count()
print("COUNTS", json.dumps(counts), flush=True)
spark.stop()
"""
TRANSFORMATIONS = """
import os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
kompakt, topic = {"kafka.bootstrap.servers": os.environ["BROKER"]}, os.environ["TOPIC"]

@dp.table
def events():
    source = spark.readStream.format("kompakt").options(**kompakt, subscribe=topic)
    return source.option("startingOffsets", "earliest").load().selectExpr("key", "value", "offset")

@dp.materialized_view
def latest():
    return spark.read.format("kompakt").options(**kompakt, subscribe=topic, view="latest").load()

dp.create_sink("copy", "kompakt", {**kompakt, "topic": topic + "-copy"})

@dp.append_flow(target="copy")
def copied():
    return spark.readStream.table("events").selectExpr("key", "value")
"""
EXPECTED = {"batch": RECORDS, "sql": [RECORDS, sum(range(RECORDS)), 10], "written": 7}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packaging.build(tmp_path_factory.mktemp("wheel"))


def make_environment(directory: Path) -> Path:
    """An environment with this one's libraries (PySpark among them), not this project; its modules' place.

    A directory that a .pth file names is searched for modules; .pth files inside it, such as the one that
    makes this project importable, are not read.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return packages


def clean_environment() -> dict[str, str]:
    """The variables of this process but those that lead to this project, as the tests' Spark session sets."""
    dropped = ("PYTHONPATH", "SPARK_HOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in dropped}


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that knows nothing of kompakt."""
    directory = tmp_path_factory.mktemp("bare")
    make_environment(directory)
    return directory / "bin" / "python"


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel in it, its kernels compiled beforehand."""
    directory = tmp_path_factory.mktemp("installed")
    make_environment(directory)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--isolated", "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, cwd=directory, env=clean_environment(), timeout=240)
    warm_up = [str(python), "-m", "pyspark_kompakt.spark_connector.warm_up"]
    subprocess.run(warm_up, check=True, cwd=directory, env=clean_environment(), timeout=600)
    return python


@pytest.fixture
def topic(kompakt_broker: Any) -> str:
    name = f"wheel-{uuid.uuid4().hex[:12]}"
    servers = {"bootstrap.servers": kompakt_broker.bootstrap}
    admin = confluent_kafka.admin.AdminClient(servers)
    topics = [confluent_kafka.admin.NewTopic(each, 1, 1) for each in (name, f"{name}-copy")]
    for done in admin.create_topics(topics).values():
        done.result(30)
    producer = confluent_kafka.Producer(servers)
    for number in range(RECORDS):
        producer.produce(name, b"value %d" % number, key=b"%d" % (number % 10), partition=0)
    assert producer.flush(60) == 0
    return name


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job beside files of its user's own, whose names nobody may take for ours."""
    directory = tmp_path / "job"
    directory.mkdir()
    (directory / "main.py").write_text(JOB)
    for name in ("protocol", "config", "storage", "spark_connector"):
        (directory / f"{name}.py").write_text("raise SystemExit(f'{__name__} belongs to the user')\n")
    return directory


def run(python: Path, job: Path, command: Sequence[str], *arguments: str) -> dict[str, Any]:
    """Run the job by `command` and return what it counted."""
    environment = clean_environment()
    environment["PYSPARK_PYTHON"] = str(python)
    environment["SPARK_TESTING"] = "1"  # Spark Connect takes a free port then
    environment["SETTINGS"] = json.dumps(LOOPBACK)
    done = subprocess.run(
        [*command, "main.py", *arguments],
        cwd=job,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    (counts,) = (line for line in done.stdout.splitlines() if line.startswith("COUNTS "))
    found: dict[str, Any] = json.loads(counts.removeprefix("COUNTS "))
    return found


def test_imports_are_looked_up_inside_the_package() -> None:
    text = "from protocol.batch import x\nfrom protocols import y\n    from spark_connector import z\n"
    assert packaging.rewrite_imports(text) == (
        "from pyspark_kompakt.protocol.batch import x\nfrom protocols import y\n"
        "    from pyspark_kompakt.spark_connector import z\n"
    )
    with pytest.raises(ValueError, match="from protocol import"):
        packaging.rewrite_imports("import protocol.batch\n")


def test_the_wheel_asks_for_what_it_imports(wheel: Path) -> None:
    """Nothing outside the package, the standard library, PySpark and the wheel's own requirements."""
    archive = zipfile.ZipFile(wheel)
    imported = set()
    for name in archive.namelist():
        if not name.endswith(".py"):
            assert ".dist-info/" in name, name
            continue
        assert name.startswith("pyspark_kompakt/"), name
        for node in ast.walk(ast.parse(archive.read(name))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None
                imported.add(node.module.split(".")[0])
    (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    lines = archive.read(metadata).decode().splitlines()
    asked = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    always = {_NAME.split(line)[0] for line in asked if "extra ==" not in line}
    foreign = imported - set(sys.stdlib_module_names) - {"pyspark_kompakt", "pyspark"}
    assert always <= foreign <= {_NAME.split(line)[0] for line in asked}


def test_the_pipelines_are_imported_by_the_name_that_the_readme_says(
    bare: Path, wheel: Path, tmp_path: Path
) -> None:
    program = (
        "from pyspark_kompakt.pipelines import KeyedTable, archive_topic, restore_topic, refresh_snapshot\n"
        "import pyspark_kompakt\n"
        "assert pyspark_kompakt.pipelines.KeyedTable is KeyedTable\n"
    )
    environment = {**clean_environment(), "PYTHONPATH": str(wheel)}
    done = subprocess.run(
        [bare, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("spark_needs_java")
@pytest.mark.parametrize("way", ["classic", slow("connect")])
def test_an_installed_wheel(installed: Path, way: str, job: Path, kompakt_broker: Any, topic: str) -> None:
    output = str(job.parent / "output")
    counts = run(installed, job, [str(installed)], way, kompakt_broker.bootstrap, topic, output)
    assert counts == {**EXPECTED, "stream": RECORDS}


@pytest.mark.usefixtures("spark_needs_java")
def test_a_wheel_that_travels_with_the_job(
    bare: Path, wheel: Path, job: Path, kompakt_broker: Any, topic: str
) -> None:
    """Spark takes zip files only: the wheel is one, under another name.

    It looks for sources before it knows of such files, so the job registers this one, and it does not find
    them for streams.
    """
    archive = job.parent / "pyspark_kompakt.zip"
    archive.write_bytes(wheel.read_bytes())
    output = str(job.parent / "output")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    *short_lived, _ = shlex.split(os.environ[SUBMIT])  # as PySpark starts the other ones
    address = ["--conf", "spark.driver.bindAddress=127.0.0.1"]
    command = [str(submit), *short_lived, *address, "--py-files", str(archive)]
    assert run(bare, job, command, "py-files", kompakt_broker.bootstrap, topic, output) == EXPECTED


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_needs_java")
def test_a_declarative_pipeline(installed: Path, job: Path, kompakt_broker: Any, topic: str) -> None:
    """`spark-pipelines run` (Spark Connect): a stream, a table of the latest values, a sink."""
    (job / "main.py").unlink()
    (job / "transformations.py").write_text(TRANSFORMATIONS)
    warehouse = job / "spark-warehouse"
    spec = {
        "name": "orders",
        "storage": (job.parent / "storage").as_uri(),
        "libraries": [{"glob": {"include": "transformations.py"}}],
    }
    (job / "spark-pipeline.yml").write_text(json.dumps(spec))  # JSON is YAML
    environment = {**clean_environment(), "PYSPARK_PYTHON": str(installed), "SPARK_TESTING": "1"}
    environment |= {"BROKER": kompakt_broker.bootstrap, "TOPIC": topic, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [Path(pyspark.__file__).parent / "bin" / "spark-pipelines", "run"],
        cwd=job,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    (events, latest) = (pyarrow.dataset.dataset(warehouse / name).to_table() for name in ("events", "latest"))
    assert sorted(events["offset"].to_pylist()) == list(range(RECORDS))
    values = [b"value %d" % number for number in range(RECORDS)]
    assert sorted(latest["value"].to_pylist()) == values[-10:]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kompakt_broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(f"{topic}-copy", 0, 0)])
        found = consumer.consume(RECORDS, 60)
        assert sorted(one.value() or b"" for one in found) == sorted(values)
    finally:
        consumer.close()
