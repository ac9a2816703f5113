"""Topic patterns: regular expressions of Python's that may have been written as Java's, for Spark's own.

Most of what only Java knows does not compile. Sets of characters within sets do, into something that matches
other topics or none: they are refused here. `re` warns of some of them only, and to make an error of a
warning is to change what all threads do with theirs.
"""

from __future__ import annotations

import re

from spark_connector.errors import ConnectorError

_COMBINING = "&-|~"  # of which two within a set may combine sets one day in Python too, as `re` warns


def check_pattern(text: str) -> None:
    """ConnectorError for a `subscribePattern` that Python does not take, or takes for something else."""
    found = set_of_sets(text)
    if found:
        raise ConnectorError(
            f"subscribePattern {text}: {found} within [...] combines sets of characters in Java and not in "
            f"Python. Write [a-z0-9] for [a-z[0-9]], (?:(?![xy])[a-z]) for [a-z&&[^xy]], and a backslash "
            f"before a character that is meant as it is"
        )
    try:
        re.compile(text)
    except re.error as problem:
        raise ConnectorError(
            f"subscribePattern {text} is not a regular expression of Python's: {problem}"
        ) from None


def set_of_sets(pattern: str) -> str:
    """What would combine sets of characters in `pattern`: `[` or two of the same; empty for nothing."""
    position = 0
    while position < len(pattern):
        if pattern[position] == "[":
            found, position = _in_set(pattern, position + 1)
            if found:
                return found
        else:
            position += 2 if pattern[position] == "\\" else 1
    return ""


def _in_set(pattern: str, position: int) -> tuple[str, int]:
    """What would combine sets in the one that begins at `position`, and the place behind it."""
    if pattern[position : position + 1] == "^":
        position += 1
    first = position
    while position < len(pattern):
        character = pattern[position]
        if character == "[":
            return character, position
        if position > first and character == "]":
            return "", position + 1
        if position > first and character in _COMBINING and pattern[position + 1 : position + 2] == character:
            return 2 * character, position
        position += 2 if character == "\\" else 1
    return "", position
