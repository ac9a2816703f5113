"""Goal: the kit that runs Apache Kafka does so, and says clearly when it cannot.

Method: one real broker killed and started again, records through the console tools; tools in the JVM that
stays, compared with the same in their own; a machine without Java or Maven is made by an empty PATH.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import classes
from tests.kafka import fixtures, jars
from tests.kafka.broker import KafkaBroker
from tests.kafka.tools import Tools
from tests.process import free_port

Start = Callable[..., KafkaBroker]


@pytest.mark.slow
@pytest.mark.java
def test_a_killed_broker_comes_back_with_its_records(kafka_tools: Tools, start_kafka: Start) -> None:
    broker = start_kafka()
    server = ("--bootstrap-server", broker.bootstrap)
    kafka_tools.run("kafka-topics", *server, "--create", "--topic", "kit")
    kafka_tools.run("kafka-console-producer", *server, "--topic", "kit", stdin="one\ntwo\n")
    broker.kill()
    broker.start()
    reading = ("--topic", "kit", "--from-beginning", "--max-messages", "2")
    assert kafka_tools.run("kafka-console-consumer", *server, *reading) == "one\ntwo\n"
    dumped = kafka_tools.run("kafka-dump-log", "--files", broker.data / "kit-0" / f"{0:020d}.log")
    assert "baseOffset: 0" in dumped
    broker.stop()


@pytest.mark.java
def test_tools_in_a_jvm_that_stays_say_what_they_would_in_their_own(kafka_tools: Tools) -> None:
    for name, *arguments in (
        ["kafka-topics", "--version"],
        ["kafka-topics", "--help"],
        ["kafka-topics"],  # refuses
        ["kafka-dump-log", "--files", "none.log"],  # throws
        ["kafka-cluster", "nothing"],  # ends its JVM
    ):
        alone = subprocess.run(
            kafka_tools.command(name, *arguments), capture_output=True, text=True, env=jars.environment()
        )
        for _ in range(2):
            done = kafka_tools.attempt(name, *arguments)
            assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout), done
            assert done.stderr.splitlines()[:1] == alone.stderr.splitlines()[:1]


@pytest.mark.java
def test_a_tool_beyond_its_limit_takes_its_jvm_along(kafka_tools: Tools) -> None:
    nobody = ("kafka-topics", "--bootstrap-server", f"127.0.0.1:{free_port()}", "--list")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(kafka_tools.attempt, *nobody, limit_s=3)
        assert kafka_tools.attempt("kafka-topics", "--version").returncode == 0  # beside it, in another
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.result()
    assert kafka_tools.attempt("kafka-topics", "--version").returncode == 0


def test_without_java_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(fixtures.REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no JVM"):
        fixtures.tools_or_skip()


def test_where_java_is_required_its_absence_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(fixtures.REQUIRE_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match="no JVM"):
        fixtures.tools_or_skip()


def test_without_jars_and_maven_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(jars.LIBRARIES_VARIABLE, raising=False)
    monkeypatch.setattr(jars, "ROOT", tmp_path)
    with pytest.raises(jars.NoKafkaError, match="no `mvn`"):
        jars.libraries()


def test_old_versions_are_resolved_by_their_own_pom(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    oldest, newest = jars.old_versions()
    assert oldest.startswith("3.0.")
    assert newest.startswith("3.9.")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(jars.LIBRARIES_VARIABLE, str(tmp_path))  # which has none of these
    monkeypatch.setattr(jars, "ROOT", tmp_path)
    with pytest.raises(
        jars.NoKafkaError, match=rf"jars of pom-3\.xml are not in .*/{oldest}/libs and .* no `mvn`"
    ):
        jars.old_libraries(oldest)


def test_a_directory_without_jars_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(jars.LIBRARIES_VARIABLE, str(tmp_path))
    with pytest.raises(jars.NoKafkaError, match="has no kafka-clients jar"):
        jars.libraries()


def test_one_run_at_a_time_makes_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each JVM of a fresh clone made its own: seconds and 50 MB each, which stayed where a worker ended
    before its JVM.
    """
    monkeypatch.setattr(classes, "DIRECTORY", tmp_path)
    monkeypatch.setattr(classes, "_version", lambda java: java)
    first, second = (classes.ClassArchive("java", "program", "jars") for _ in range(2))
    (leave,) = [one for one in first.options() if "ArchiveClassesAtExit" in one]
    made = Path(leave.partition("=")[2])
    assert second.options() == []
    made.touch()
    second.keep()
    second.drop()
    assert made.exists() and not first.is_there

    first.drop()
    assert not made.exists()
    assert leave in second.options()
    made.touch()
    second.keep()
    assert f"-XX:SharedArchiveFile={second.path}" in first.options()
    assert not first.is_made and not second.is_made
