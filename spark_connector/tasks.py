"""What one Spark task does: read its ranges one after another.

EARLIEST and LATEST are looked up here, when the task runs, for all ranges of the task at once; a log that is
gone gives nothing, or an error, as `failOnDataLoss` says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_connector.client import Cluster, connect
from spark_connector.errors import ConnectorError, DataLossError, MissingTopicError
from spark_connector.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from spark_connector.options import Options
from spark_connector.planning import resolve_ranges
from spark_connector.shape import Shape
from spark_connector.worker import settle

logger = logging.getLogger("kompakt.spark")


@dataclass(frozen=True)
class Task:
    """The ranges of one input partition. Picklable.

    With `is_view` each range is read as a table, of which only `keys` are wanted unless that is None.
    """

    ranges: tuple[OffsetRange, ...]
    is_view: bool = False
    keys: tuple[bytes, ...] | None = None


def read_task(options: Options, shape: Shape, task: Task | None) -> Iterator[Any]:
    """The record batches of one task; none for the empty task that Spark makes of no partitions."""
    if task is None:
        return
    if task.is_view:
        from spark_connector.table import TableReader  # numpy, numba and pyarrow: wanted in tasks only
    else:
        from spark_connector.ranges import RangeReader

    settle()
    cluster = connect(options.client)
    for wanted in _resolved(options, cluster, task.ranges):
        if task.is_view:
            yield from TableReader(options, cluster, wanted, shape, task.keys).record_batches()
        else:
            yield from RangeReader(options, cluster, wanted, shape).record_batches()


def _resolved(options: Options, cluster: Cluster, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """`ranges` with offsets for words; those of topics that are gone are left out."""
    try:
        return _look_up(options, cluster, ranges)
    except MissingTopicError as problem:
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{problem}. The topic was deleted; set failOnDataLoss=false to go on with what is left"
            ) from problem
        if len(ranges) == 1:
            logger.warning("%s; going on, as failOnDataLoss is false", problem)
            return []
    return [found for wanted in ranges for found in _resolved(options, cluster, [wanted])]


def lose_start(options: Options, place: TopicPartition, start: int, end: int) -> None:
    """Of a read from the earliest offset to a given one nothing is left. DataLossError, or a warning."""
    problem = f"{place} begins at offset {start}: what was to be read up to {end} is gone"
    if options.fail_on_data_loss:
        raise DataLossError(f"{problem}; set failOnDataLoss=false to go on with what is left")
    logger.warning("%s; going on, as failOnDataLoss is false", problem)


def _look_up(options: Options, cluster: Cluster, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    result = []
    for wanted, found in zip(ranges, resolve_ranges(cluster, ranges), strict=True):
        start, end = found.start, found.end
        is_given = wanted.start >= 0 or (wanted.start == LATEST and wanted.end >= 0)
        if start > end and is_given:
            raise ConnectorError(
                f"{wanted.topic_partition}: the read starts at {start}, behind its end {end}"
            )
        if start > end and wanted.start == EARLIEST and wanted.end >= 0:
            lose_start(options, wanted.topic_partition, start, end)
            found = replace(found, start=end)
        result.append(found)
    return result
