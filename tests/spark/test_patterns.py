"""Goal: a topic pattern that Java reads in another way than Python is refused, with what to write instead.

Method: patterns in, message or nothing out; that none is forgotten, Python's own warnings tell, for patterns
of all kinds.
"""

from __future__ import annotations

import re
import threading
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.errors import ConnectorError
from spark_connector.patterns import check_pattern, set_of_sets


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("x-[a-f0-9&&[^z]]+", "&&"),
        ("[a-z&&[def]]", "&&"),
        ("[a-z[0-9]]+", r"\["),
        ("[[a-z]0-9]+", r"\["),
        ("[[:alpha:]]", r"\["),
        (r"a\[b[^]c[d]]", r"\["),
        ("[a][b[c]]", r"\["),
        ("[^[a]b]", r"\["),
        ("[a-z--x]", "--"),
        ("[a||b]", r"\|\|"),
        ("[a~~b]", "~~"),
    ],
)
def test_sets_within_sets_are_refused(pattern: str, found: str) -> None:
    said = (
        rf"{found} within \[\.\.\.\] combines sets of characters in Java and not in Python\. Write \[a-z0-9\]"
    )
    with pytest.raises(ConnectorError, match=f"^subscribePattern {re.escape(pattern)}: {said} for"):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", [r"\p{Alpha}+", r"\Qa.b\E", "(?<name>a)", "(", "[a-", "[a-z&&"])
def test_what_python_does_not_compile_is_refused(pattern: str) -> None:
    with pytest.raises(ConnectorError, match=f"^subscribePattern {re.escape(pattern)}"):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "orders",
        "^orders-[a-z0-9_.-]+$",
        r"[\[\]&a|b-]",
        r"\[a&&b\]",
        "a||b&&c--d",
        "[]a]",
        "[^]a]",
        "[-a]",
        "a++",
    ],
)
def test_what_both_read_alike_is_taken(pattern: str) -> None:
    check_pattern(pattern)


def test_what_is_to_be_written_instead_says_the_same() -> None:
    """The examples of the message, as Java reads what they stand for."""
    letters = "".join(map(chr, range(33, 127)))
    assert re.findall(r"(?:(?![xy])[a-z])+", letters) == ["abcdefghijklmnopqrstuvw", "z"]
    with pytest.raises(ConnectorError) as refused:
        check_pattern("[a&&b]")
    for written in ("(?:(?![xy])[a-z])", "[a-z0-9]"):
        assert f"{written} for " in str(refused.value)
        check_pattern(written)


@given(st.text("ab[]^-&|~\\().+", max_size=12))
def test_none_is_forgotten_that_python_warns_of(pattern: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        re.purge()  # a pattern that is kept is compiled without a warning
        try:
            re.compile(pattern)
        except re.error:
            return
    assert set_of_sets(pattern) or not caught


def test_the_warnings_of_others_stay_theirs() -> None:
    """Many threads look at patterns at once; what the process does with warnings is as it was."""
    before = list(warnings.filters)

    def look() -> None:
        for number in range(200):
            with pytest.raises(ConnectorError):
                check_pattern(f"[a-z&&[{number}]]")
            check_pattern(f"[a-z]{number}")

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before
