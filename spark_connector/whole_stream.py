"""Streams of Spark 4.0 and 4.1: each micro-batch has all that is there.

These versions ask a source in Python where its log ends and nothing else. Where the last micro-batch ended
they tell nobody, so that none can be limited: after a restart a limit would count from the wrong place.
"""

from __future__ import annotations

from typing import Any

from spark_connector.errors import ConnectorError
from spark_connector.offsets import to_json_object
from spark_connector.options import Options
from spark_connector.shape import Shape
from spark_connector.stream_planning import StreamPlanner

LIMITS = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger")


class WholeStreamReader(StreamPlanner):
    """Owned by: the query's planning process, and a pickled copy by each task."""

    def __init__(self, options: Options, shape: Shape) -> None:
        refuse_limits(options)
        super().__init__(options, shape)

    def latestOffset(self) -> dict[str, Any]:
        """Where the next micro-batch ends: where the log does; none is planned when the last ended there.

        Of a new query Spark asks this before it asks where to begin, so what comes in between lies behind it.
        """
        known = self._latest or {}
        latest = self._look_up(known)
        left = self._without_made_again(known)
        if left is not None:
            latest = left
        self._latest, self._is_going_on = latest, True
        return to_json_object(latest)

    def stop(self) -> None:
        """As in Spark 4.2 and later."""
        if self._group is not None:
            self._group.catch_up()
        super().stop()


def refuse_limits(options: Options) -> None:
    """ConnectorError for an option that this Spark gives a source in Python no way to keep."""
    given = (
        options.min_offsets_per_trigger,
        options.max_offsets_per_trigger,
        options.max_bytes_per_trigger,
    )
    for name, value in zip(LIMITS, given, strict=True):
        if value is not None:
            raise ConnectorError(
                f"option {name} needs Spark 4.2 or later: earlier ones do not tell a source in Python where "
                f"the last micro-batch ended. Leave it out, and each micro-batch has all that is there"
            )
