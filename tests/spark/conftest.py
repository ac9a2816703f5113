"""Fixtures of the connector's tests: fake brokers, option maps, reading a whole range into plain rows."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from spark_connector import client, producer, pyspark_archive
from spark_connector.offsets import TopicPartition
from tests.classes import ClassArchive
from tests.kafka.fixtures import REQUIRE_VARIABLE, kafka_broker, kafka_tools, or_skip, start_kafka
from tests.kafka.jars import NoKafkaError, java
from tests.process import BrokerProcess
from tests.spark import training
from tests.spark.fake_broker import FakeBroker, FakeLog
from tests.spark.fake_leader import FakeLeader
from tests.spark.peer.jars import peer_jars

__all__ = ["kafka_broker", "kafka_tools", "start_kafka"]

SUBMIT = "PYSPARK_SUBMIT_ARGS"
# Every JVM here lives for seconds: it is better off without the second compiler and threads that collect
# garbage.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
os.environ.setdefault(SUBMIT, f"--driver-java-options '{SHORT_LIVED}' pyspark-shell")

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache" / "spark"
LOOPBACK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spark's many processes start with half the work: its JVMs from an archive of classes, its Pythons from
    compiled modules. The first of the tests' processes makes both.
    """
    if SHORT_LIVED not in os.environ[SUBMIT] or not any(
        item.get_closest_marker("spark") for item in session.items
    ):
        return
    with contextlib.suppress(NoKafkaError), locked(CACHE):
        if "SPARK_HOME" not in os.environ:
            os.environ["SPARK_HOME"] = str(compiled_spark())
        archive = ClassArchive(java(), "spark", f"{pyspark.__version__} {os.environ['SPARK_HOME']}")
        if not archive.is_there:
            train(archive)
        os.environ[SUBMIT] = _started_with(archive.options())


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """For one of the tests' processes at a time."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compiled_spark() -> Path:
    """The installed Spark, but for PySpark's own modules, which are compiled (`pyspark_archive.py`): half a
    second less for each process that is forked from no other one. What is installed stays as it is.
    """
    installed = Path(pyspark.__file__).parent
    written = pyspark_archive.archive_path().stat()
    key = f"{sys.version}\0{installed}\0{written.st_mtime_ns}\0{written.st_size}"
    home = CACHE / f"home-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not home.exists():
        made = Path(tempfile.mkdtemp(dir=CACHE))
        libraries = made / "python" / "lib"
        libraries.mkdir(parents=True)
        for found in installed.iterdir():
            if found.name != "python":
                (made / found.name).symlink_to(found)
        for found in (installed / "python").glob("lib/*.zip"):
            shutil.copy(found, libraries)
        pyspark_archive.compile_archive(libraries / "pyspark.zip")
        made.rename(home)
    return home


def train(archive: ClassArchive) -> None:
    submit = _started_with(archive.options())
    environment = {**os.environ, SUBMIT: submit, "PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, str(Path(training.__file__)), directory]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        archive.drop()
        raise AssertionError(done.stderr)
    archive.keep()


def _started_with(options: list[str]) -> str:
    return f"--driver-java-options '{' '.join([SHORT_LIVED, *options])}' pyspark-shell"


@pytest.fixture
def start_broker() -> Iterator[Callable[[dict[TopicPartition, FakeLog]], FakeBroker]]:
    """Start fake brokers; their connections are closed with the test."""
    started: list[FakeBroker] = []

    def start(logs: dict[TopicPartition, FakeLog]) -> FakeBroker:
        started.append(FakeBroker(logs))
        return started[-1]

    yield start
    close_clusters()
    for broker in started:
        broker.close()


@pytest.fixture
def leader() -> Iterator[FakeLeader]:
    """A broker that takes what is written; no producer id is kept from test to test."""
    made = FakeLeader()
    producer._idle.clear()
    yield made
    close_clusters()
    producer._idle.clear()
    made.close()


def close_clusters() -> None:
    for cluster in client._clusters.values():
        cluster.close()
    client._clusters.clear()


@pytest.fixture(autouse=True)
def no_leftover_connections() -> Iterator[None]:
    """Connections are kept for a process's next task; a test is not a task."""
    yield
    close_clusters()


def options_for(broker: Any, **options: str) -> dict[str, str]:
    """Options that read the fake broker and give up after a second."""
    chosen = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.default.api.timeout.ms": "1000",
        "kafka.retry.backoff.ms": "1",
        "kafka.retry.backoff.max.ms": "20",
    }
    if not {"assign", "subscribePattern"} & options.keys():
        chosen["subscribe"] = "t"
    return {**chosen, **{name.replace("__", "."): value for name, value in options.items()}}


@pytest.fixture(scope="session")
def spark_needs_java() -> None:
    """Skip, or fail where a skip counts as one, without a JVM."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but there is no Java for Spark", pytrace=False)
        pytest.skip("Spark needs Java 17 or newer, and there is none")


@pytest.fixture(scope="session")
def spark(spark_needs_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for all tests: starting it takes longer than they do."""
    from pyspark.sql import SparkSession

    # Spark starts its workers with the first python3 on the path, and looks for sources on theirs.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    directory = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(directory))
    for key, value in LOOPBACK.items():
        builder = builder.config(key, value)
    with contextlib.suppress(NoKafkaError):  # tests that compare ask for `peer`, which says why there is none
        builder = builder.config("spark.jars", ",".join(map(str, peer_jars())))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def peer(spark: Any) -> str:
    """The name of Spark's own source, which the session has; skips with the reason when it has not."""
    or_skip(peer_jars)
    return "kafka"


@pytest.fixture(scope="session")
def kompakt_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One kompakt process, whose cleaner looks often."""
    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "0"}
    process = BrokerProcess(tmp_path_factory.mktemp("kompakt") / "data", settings)
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture(params=["kompakt", pytest.param("kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where a broker listens: kompakt, and then Apache Kafka itself."""
    address: str = request.getfixturevalue(f"{request.param}_broker").bootstrap
    return address


@pytest.fixture
def queries(spark: Any) -> Iterator[None]:
    """Stops what a test leaves running."""
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(
    scope="module", params=["kompakt", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.slow])]
)
def topics(request: pytest.FixtureRequest, spark: Any, peer: str) -> Any:
    """Topics that both sources read (`peer/topics.py`), on kompakt, and then on Apache Kafka itself."""
    from tests.spark.peer.topics import Topics  # which imports a test module, and that this one

    broker = request.getfixturevalue(f"{request.param}_broker")
    return Topics(spark, peer, broker.bootstrap, has_transactions=request.param == "kafka")
