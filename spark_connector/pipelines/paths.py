"""Which directories pipelines work in."""

from __future__ import annotations

import re
from pathlib import Path

from spark_connector.errors import ConnectorError

PATTERN = frozenset("{}[]*?\\")


def refuse_pattern(path: str) -> None:
    """ConnectorError when Spark would take `path` for a pattern of many: it writes into the directory of that
    name, and then reads nothing, or the files of others that fit.
    """
    found = sorted(PATTERN.intersection(path))
    if found:
        raise ConnectorError(
            f"{path} has {' and '.join(found)} in it, and Spark reads such a path as a pattern, not as a "
            f"directory's name: choose one without any of {{ }} [ ] * ? \\"
        )


def local_directory(path: str | Path) -> Path:
    """What `path` names, which may begin with `file:`, seen from anywhere; ConnectorError for an address of
    another file system or machine, whose files only Spark could see.
    """
    text = str(path)
    local = re.sub("^file:(//(?=/))?", "", text)
    names_host = re.match("file://[^/]", text)
    if names_host or re.match("[A-Za-z][A-Za-z0-9+.-]+:/", local):
        raise ConnectorError(
            f"{text} is an address, and a table lies in a directory of this machine or one that is mounted "
            f"there: give its path"
        )
    return Path(local).absolute()


def address(directory: Path) -> str:
    """A local directory in Spark's words, whose file system may be another unless told (fs.defaultFS)."""
    return f"file:{directory}"
