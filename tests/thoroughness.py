"""Tests that try a damage at every place: some places in `make test`, all of them in `make test-slow`."""

from __future__ import annotations

import pytest


def some_or_all(name: str, some: int, every: int) -> pytest.MarkDecorator:
    """The parameter `name`: `some` where a push waits for the tests, `every` in the slow suite."""
    return pytest.mark.parametrize(
        name, [pytest.param(some, id="some"), pytest.param(every, id="all", marks=pytest.mark.slow)]
    )
