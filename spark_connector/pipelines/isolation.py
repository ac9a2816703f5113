"""Which records of transactions pipelines take: committed ones, unless told otherwise.

The format has the default of Spark's own Kafka source, read_uncommitted. Of what a pipeline keeps, nobody
could tell any more what was aborted: an archive would be restored with it, and a table would have it in place
of the value that compaction leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

ISOLATION_LEVEL = "kafka.isolation.level"


def committed_unless_told(source: Mapping[str, str]) -> dict[str, str]:
    """The options `source`, with isolation level read_committed where they say none."""
    if any(name.lower() == ISOLATION_LEVEL for name in source):
        return dict(source)
    return {ISOLATION_LEVEL: "read_committed", **source}
