"""What a push waits for: tests that try a damage at every place, or ways that each take long, try some of
them in `make test`, and all in `make test-slow`.
"""

from __future__ import annotations

from typing import Any

import pytest


def some_or_all(name: str, some: int, every: int) -> pytest.MarkDecorator:
    """The parameter `name`: `some` where a push waits for the tests, `every` in the slow suite."""
    return pytest.mark.parametrize(
        name, [pytest.param(some, id="some"), pytest.param(every, id="all", marks=pytest.mark.slow)]
    )


def slow(*values: Any) -> Any:
    """The values of a parameter that only the slow suite tries."""
    return pytest.param(*values, marks=pytest.mark.slow)
