"""Apache Kafka's jars: where they are, and how they get there.

`mvn` resolves `pom.xml` into a directory named after the pinned version, under `.cache/kafka/` of the
repository, or KOMPAKT_KAFKA_LIBS names a directory that has them already. A lock file makes several test
processes side by side resolve once; the directory appears by one rename, so that it is whole or not there.
Versions 3.x, which few tests start, are pinned in `pom-3.xml`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
POM = HERE / "pom.xml"
OLD_POM = HERE / "pom-3.xml"
LIBRARIES_VARIABLE = "KOMPAKT_KAFKA_LIBS"
OLDEST_JAVA = 17
RESOLVE_LIMIT_SECONDS = 900


class NoKafkaError(Exception):
    """Why Apache Kafka cannot be run here, in words that a skipped test shows."""


def kafka_version() -> str:
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text())
    assert found is not None, "tests/kafka/pom.xml pins no kafka.version"
    return found[1]


def old_versions() -> list[str]:
    """The versions of Apache Kafka 3.x that tests start, the oldest first."""
    found = re.findall(r"<(?:oldest|newest)\.version>([^<]+)<", OLD_POM.read_text())
    assert len(found) == 2, "tests/kafka/pom-3.xml pins no oldest.version and newest.version"
    return found


def java() -> str:
    """The program `java`, of JAVA_HOME first; NoKafkaError when there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        raise NoKafkaError("no JVM: `java` is not on the PATH and JAVA_HOME is not set")
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, env=environment()
        )
    except OSError as problem:
        raise NoKafkaError(f"no JVM: {program}: {problem}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None or int(found[1]) < OLDEST_JAVA:
        raise NoKafkaError(f"{program} is older than Java {OLDEST_JAVA}")
    return program


def environment() -> dict[str, str]:
    """This process's environment without what would put a proxy or other options into each JVM."""
    return {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}


def libraries() -> Path:
    """The directory with all jars, resolved now when it is not there yet; or NoKafkaError."""
    given = os.environ.get(LIBRARIES_VARIABLE)
    if given:
        if not any(Path(given).glob("kafka-clients-*.jar")):
            raise NoKafkaError(f"{LIBRARIES_VARIABLE}={given} has no kafka-clients jar")
        return Path(given)
    return resolved(POM, ROOT / ".cache" / "kafka" / kafka_version() / "libs")


def old_libraries(version: str) -> Path:
    """As `libraries`, for one of `old_versions`."""
    target = ROOT / ".cache" / "kafka" / version / "libs"
    return resolved(OLD_POM, target, f"-Dkafka.version={version}")


def resolved(pom: Path, target: Path, *definitions: str) -> Path:
    """`target` with the jars that `pom` pins, given Maven's `definitions`; NoKafkaError without them."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _resolve(pom, target, definitions)
    return target


def _resolve(pom: Path, target: Path, definitions: Sequence[str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoKafkaError(f"the jars of {pom.name} are not in {target} and there is no `mvn` to fetch them")
    unfinished = target.with_name("libs.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={unfinished}", "-DincludeScope=runtime", *definitions]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise NoKafkaError(f"`mvn` did not finish in {RESOLVE_LIMIT_SECONDS} s") from None
    if done.returncode != 0:
        raise NoKafkaError("`mvn` could not resolve the jars: " + (done.stdout + done.stderr)[-500:])
    unfinished.rename(target)


if __name__ == "__main__":
    libraries()
