"""Fixtures for pytest: `kompakt`, a broker for one test, and `kompakt_session`, one for all of them.

pytest loads this by itself where the distribution is installed; a broker is made only where a test asks for
one. Settings come from a fixture `kompakt_settings` of your own; for `kompakt_session` its scope must be the
session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from broker.testing import Kompakt


@pytest.fixture(scope="session")
def kompakt_settings() -> Mapping[str, str]:
    """Settings of the brokers, by Kafka's names: override it."""
    return {}


@pytest.fixture
def kompakt(kompakt_settings: Mapping[str, str]) -> Iterator[Kompakt]:
    """A broker with nothing in it, for this test alone."""
    yield from _serving(kompakt_settings)


@pytest.fixture(scope="session")
def kompakt_session(kompakt_settings: Mapping[str, str]) -> Iterator[Kompakt]:
    """One broker for the whole session: give topics and groups names of their own."""
    yield from _serving(kompakt_settings)


def _serving(settings: Mapping[str, str]) -> Iterator[Kompakt]:
    from broker.testing import Kompakt

    with Kompakt(settings) as broker:
        yield broker
