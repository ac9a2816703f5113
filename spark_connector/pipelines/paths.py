"""Which directories pipelines work in."""

from __future__ import annotations

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
