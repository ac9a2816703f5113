"""Which test shows which promise: the numbers that tests carry in their names and docstrings, as a table.

S-numbers are promises to users, T-numbers cases of Kafka's semantics, G-numbers traps of the protocol,
W-numbers wishes that no other broker serves.
`python -m tests.promises` writes the table into tests/README.md; tests/test_docs.py compares.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).resolve().parent
README = TESTS / "README.md"
START, END = "<!-- table: start -->", "<!-- table: end -->"
IN_NAME = re.compile(r"(?<![a-z0-9])([stgw])(\d{1,3})(?:b)?(?=_|$)")
IN_TEXT = re.compile(r"\b([STGW])(\d{1,3})b?\b(?:\s*(?:-|–|to)\s*\1?(\d{1,3})\b)?")
LATER = {21: "replicas on other nodes", 22: "replicas on other nodes"}
S_NUMBERS = range(1, 75)
COMPACTION = (*range(1, 144), *range(162, 185))
"""the T-numbers of cleaning, retention, producer state and recovery: none may be missing"""
KNOWN = {"S": 74, "T": 204, "G": 34, "W": 23}
"""how many numbers of each kind there are"""


def _numbers(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    found = {f"{kind.upper()}{int(number)}" for kind, number in IN_NAME.findall(function.name)}
    for kind, first, last in IN_TEXT.findall(ast.get_docstring(function) or ""):
        found.update(f"{kind}{number}" for number in range(int(first), int(last or first) + 1))
    return found


def tests_by_number() -> dict[str, list[str]]:
    """Number to the tests that carry it, as `path::function`, in order of their files."""
    carried: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in _numbers(node):
                    carried[number].append(f"{path.relative_to(TESTS)}::{node.name}")
    return carried


def _order(number: str) -> tuple[str, int]:
    return number[0], int(number[1:])


def render() -> str:
    """The table's lines: each number with the tests that carry it."""
    carried = tests_by_number()
    lines = ["| number | tests |", "| --- | --- |"]
    for number in sorted(carried, key=_order):
        lines.append(f"| {number} | {', '.join(f'`{test}`' for test in sorted(carried[number]))} |")
    return "\n".join(lines)


def current() -> str:
    """The table as it stands in tests/README.md."""
    return README.read_text().split(START)[1].split(END)[0].strip()


def main() -> None:
    """Write the table anew."""
    before, rest = README.read_text().split(START)
    README.write_text(f"{before}{START}\n{render()}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
