"""A throw-away broker for tests of programs that use Kafka: in the test's own process, ready in a blink, its
cleaner at the test's command and its time as well.

    with Kompakt() as kompakt:
        kompakt.create_topic("prices", cleanup_policy="compact")
        ...                                    # any Kafka client at kompakt.bootstrap_servers
        kompakt.compact("prices")              # now, the active segment too
        kompakt.advance(days=8)                # retention, tombstones, sessions: all see the time pass

`plugin.py` has the same as fixtures of pytest. Files are in a directory that goes when it ends, and nothing
is flushed to disk unless a test asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.testing.throwaway import CompactionRefused, Kompakt

__all__ = ["CompactionRefused", "Kompakt"]


def __getattr__(name: str) -> Any:
    """What lies in `throwaway.py`, when somebody asks for it: every run of pytest in an environment with
    kompakt imports this package for its plugin, most of them without a test that needs a broker.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from broker import system
    from broker.testing import names

    names.check()
    problem = system.why_not()
    if problem is not None:
        raise ImportError(f"kompakt cannot run in this process: {problem}.")
    from broker.testing import throwaway

    return getattr(throwaway, name)
