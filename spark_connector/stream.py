"""Streams of Spark 4.2 and later: where the next micro-batch ends, by the limits that the user set.

Limits count offsets, as in Spark's own source: on a cleaned log a batch can hold fewer records.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from spark_connector.byte_limits import within_bytes
from spark_connector.client import connect
from spark_connector.offsets import (
    EARLIEST,
    LATEST,
    backlogs,
    from_json_object,
    limit_offsets,
    to_json_object,
)
from spark_connector.options import Options
from spark_connector.probing import probe
from spark_connector.shape import Shape
from spark_connector.stream_planning import Found, StreamPlanner


class StreamReader(StreamPlanner, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Owned by: the query's planning process, and a pickled copy by each task."""

    def __init__(self, options: Options, shape: Shape) -> None:
        super().__init__(options, shape)
        # Spark's own source, too, lets the first trigger of a run go without waiting.
        self._last_batch_s = float("-inf")

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the whole query: what arrives from now on is for the next run."""
        self._fixed_end = self._look_up({})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tells Spark whether there is a limit; what it is, `latestOffset` knows by itself."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself when there is to be none."""
        begin = from_json_object(start)
        self._commit(begin)
        if self._group is not None and begin == self._fixed_end:
            self._group.catch_up()  # the query ends with this question
        is_first = not self._is_going_on and begin == self._initial
        latest = self._look_up(begin) if self._fixed_end is None else dict(self._fixed_end)
        self._latest, self._is_going_on = latest, True
        left = self._without_made_again(begin)
        if left is not None:
            return to_json_object(left)
        if is_first:
            latest = self._first_end(begin, latest)
        if isinstance(limit, ReadAllAvailable):
            return start if latest == begin else to_json_object(latest)
        complete = self._with_new_partitions(begin, latest)
        if self._should_wait(complete, latest):
            return start
        self._last_batch_s = time.monotonic()
        if latest == begin:  # a partition that came since is noted, too, though it may be empty
            return start  # as it was written, to the character
        begin = complete
        if self._options.max_offsets_per_trigger is not None:
            latest = limit_offsets(begin, latest, self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            look = partial(probe, connect(self._options.client))
            latest = within_bytes(begin, latest, self._options.max_bytes_per_trigger, look)
        return to_json_object(latest)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The log ends that `latestOffset` saw last, for the progress report."""
        return None if self._latest is None else to_json_object(self._latest)

    def stop(self) -> None:
        """Tell the group what was left out; close the planning process's connections."""
        if self._group is not None:
            self._group.catch_up()
        super().stop()

    def _first_end(self, begin: Found, latest: Found) -> Found:
        """Where the first micro-batch of a query ends: where it begins, for all that starts at the latest
        offset or came since.

        Of a batch that fails Spark's checkpoint has the end alone: a later run learns from it where such
        partitions began. What arrived in between is for the second batch.
        """
        if self._start.offset == EARLIEST:  # of which a later run finds the start again
            return latest
        ends = {}
        for place, offset in latest.items():
            if place in begin:
                ends[place] = begin[place] if self._asked[place] == LATEST else offset
        return ends

    def _should_wait(self, begin: Found, latest: Found) -> bool:
        """Whether too little came (minOffsetsPerTrigger) in too little time (maxTriggerDelay)."""
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._fixed_end is not None:
            return False
        if sum(backlogs(begin, latest).values()) >= minimum:
            return False
        return time.monotonic() - self._last_batch_s < self._options.max_trigger_delay_ms / 1000
