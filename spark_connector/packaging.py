"""Build the wheel `pyspark-kompakt`: `python -m spark_connector.packaging DIRECTORY`.

A Spark worker finds a user's own `protocol.py` before any installed package of that name. The wheel therefore
has one root package, `pyspark_kompakt`: `spark_connector/` and `protocol/` lie inside it and import each
other by that name. Spark looks for sources in packages with just such names, so no `register` is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "pyspark_kompakt"
INSIDE = ("protocol", "spark_connector")
LEFT_OUT = (Path(__file__).resolve(), ROOT / "spark_connector" / "pipelines" / "cli.py")
"""This file, and the commands, which belong to `kompakt`."""
NEEDED = ("cramjam", "crc32c", "llvmlite", "lz4", "numba", "numpy", "zstandard")
"""Of the project's own dependencies those that the connector imports; pyarrow comes from its extra `spark`.

PySpark itself is not among them: a cluster brings its own.
"""

_IMPORT = re.compile(rf"^(\s*)(from|import) ({'|'.join(INSIDE)})\b", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def rewrite_imports(source: str) -> str:
    """`source` with the imports of our rooms looked up inside the package.

    Raises ValueError for `import protocol`, which would bind the bare name.
    """

    def inside(match: re.Match[str]) -> str:
        if match[2] == "import":
            raise ValueError(f"write 'from {match[3]} import ...', not '{match[0].strip()}'")
        return f"{match[1]}from {PACKAGE}.{match[3]}"

    return _IMPORT.sub(inside, source)


def stage(directory: Path) -> None:
    """Lay out the sources of the wheel in `directory`."""
    for path, place in _files():
        target = directory / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rewrite_imports(path.read_text()))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (directory / "pyproject.toml").write_text(_project_file(project))
    (directory / "README.md").write_text((ROOT / "spark_connector" / "README.md").read_text())


def build(output: Path) -> Path:
    """Build the wheel into the directory `output` and return its path."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        staging, made = Path(name) / "source", Path(name) / "wheel"
        stage(staging)
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(made)]
        command = [sys.executable, "-m", "pip", "wheel", *options, str(staging)]
        subprocess.run(command, check=True)
        (wheel,) = made.glob("*.whl")
        target = output / wheel.name
        target.write_bytes(wheel.read_bytes())
    return target


def _files() -> Iterator[tuple[Path, Path]]:
    """Every source file and its place in the wheel."""
    for path in sorted((ROOT / PACKAGE).glob("*.py")):
        yield path, Path(PACKAGE, path.name)
    for room in INSIDE:
        for path in sorted((ROOT / room).rglob("*.py")):
            if path not in LEFT_OUT:
                yield path, Path(PACKAGE) / path.relative_to(ROOT)


def _project_file(project: dict[str, Any]) -> str:
    """The wheel's own pyproject.toml: version and bounds are those of the whole project."""
    extras = project["optional-dependencies"]
    needed = _chosen(project["dependencies"], NEEDED) + _chosen(extras["spark"], ("pyarrow",))
    return f"""\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "pyspark-kompakt"
version = "{project["version"]}"
description = "Kafka topics in Spark as Arrow: read, stream, write, and tables of compacted topics."
readme = "README.md"
requires-python = "{project["requires-python"]}"
dependencies = {needed}

[project.optional-dependencies]
avro = {extras["avro"]}

[tool.setuptools.packages.find]
include = ["{PACKAGE}*"]
"""


def _chosen(requirements: Sequence[str], names: Sequence[str]) -> list[str]:
    found = {_named(requirement): requirement for requirement in requirements}
    return [found[name] for name in names]


def _named(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match is not None, requirement
    return match[0]


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))  # noqa: T201
