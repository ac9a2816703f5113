"""Goal: the house stays readable.

Method: every Python file of the project is parsed and measured against the style of CONTRIBUTING.md: function
and file length (tests may be longer), line length, a module docstring, no leftover markers, no sleeping.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_connector import packaging

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "broker",
    "cleaner",
    "config",
    "protocol",
    "spark_connector",
    "storage",
    "pyspark_kompakt",
    "demo",
    "benchmarks",
)
FUNCTION_LINES = 70
FILE_LINES = 500
LINE_LENGTH = 110
LEFTOVERS = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")


def python_files() -> list[Path]:
    return sorted(path for package in (*PACKAGES, "tests") for path in (ROOT / package).rglob("*.py"))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def problems(path: Path, text: str) -> Iterator[str]:
    lines = text.splitlines()
    tree = ast.parse(text)
    if len(lines) > FILE_LINES and "tests" not in path.parts:
        yield f"{len(lines)} lines; {FILE_LINES} are allowed"
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_LENGTH:
            yield f"line {number} is {len(line)} characters long"
        if LEFTOVERS.search(line):
            yield f"line {number} carries a leftover marker"
        if re.search(r"\btime\.sleep\(", line) and "tests" in path.parts:
            yield f"line {number} sleeps; wait for a condition instead (tests/waiting.py)"
    for function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES:
            yield f"{function.name} is {length} lines long; {FUNCTION_LINES} are allowed"
    if lines and ast.get_docstring(tree) is None:
        yield "no module docstring that says what lives here"


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_tidy(path: Path) -> None:
    found = list(problems(path.relative_to(ROOT), path.read_text()))
    assert not found, "\n".join(f"{path.relative_to(ROOT)}: {problem}" for problem in found)


def console_files() -> list[Path]:
    static = ROOT / "broker" / "console" / "static"
    return sorted(path for path in static.rglob("*") if path.suffix in (".js", ".css", ".html"))


def console_problems(path: Path, text: str) -> Iterator[str]:
    """As `problems`, of what a browser reads; a function ends where its brace stands at the left edge."""
    lines = text.splitlines()
    if len(lines) > FILE_LINES:
        yield f"{len(lines)} lines; {FILE_LINES} are allowed"
    if path.suffix != ".html" and not lines[0].startswith(("//", "/*")):
        yield "no first line that says what lives here"
    begun = 0
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_LENGTH:
            yield f"line {number} is {len(line)} characters long"
        if LEFTOVERS.search(line):
            yield f"line {number} carries a leftover marker"
        if re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", line):
            yield f"line {number} makes markup or code of text"
        if re.match(r"(export )?(async )?function", line):
            begun = number
        if line == "}" and begun and number - begun + 1 > FUNCTION_LINES:
            yield f"the function of line {begun} is too long; {FUNCTION_LINES} lines are allowed"


@pytest.mark.parametrize("path", console_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_of_the_console_is_tidy(path: Path) -> None:
    found = list(console_problems(path, path.read_text()))
    assert not found, "\n".join(f"{path.relative_to(ROOT)}: {problem}" for problem in found)


def test_the_measure_of_the_console_finds_faults() -> None:
    bad = "function long() {\n" + "  x();\n" * 80 + "}\n" + "y" * 111 + "\na.innerHTML = b\n// TO" + "DO\n"
    assert len(list(console_problems(Path("x.js"), bad))) == 5


def test_the_measure_itself_finds_faults() -> None:
    bad = '"""Doc."""\ndef long() -> None:\n' + "    x = 1\n" * 80 + "# TO" + "DO later\n" + "y" * 111 + "\n"
    found = list(problems(Path("broker/x.py"), bad))
    assert len(found) == 3
    assert list(problems(Path("broker/x.py"), "x = 1\n")) == ["no module docstring that says what lives here"]


def test_every_import_can_be_rewritten_for_the_wheel(tmp_path: Path) -> None:
    """Told by `make check` at once, not by the build of the wheel in the whole suite."""
    packaging.stage(tmp_path)
    staged = list(tmp_path.rglob("*.py"))
    assert tmp_path / packaging.PACKAGE / "protocol" / "codegen.py" in staged
    for path in staged:
        imports = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
        rooms = {(node.module or "").split(".")[0] for node in imports}
        assert not rooms & set(packaging.INSIDE), path


def test_no_machine_is_named() -> None:
    """Files that travel name neither a person's machine nor a package registry's host."""
    hosts = re.compile(
        "|".join((r"pypi\.org", r"python[h]osted", r"repo1\.maven", r"/work/[m]ain", r"(?<!\w)/[r]oot/"))
    )
    asked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in asked.stdout.decode().splitlines():
        path = ROOT / name
        if path.is_file():
            match = hosts.search(path.read_text(errors="ignore"))
            assert match is None, f"{name} names {match and match[0]}"
