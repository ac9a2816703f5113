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

from broker.testing.throwaway import CompactionRefused, Kompakt

__all__ = ["CompactionRefused", "Kompakt"]
