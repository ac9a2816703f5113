"""Batch reads: one task for each topic partition, more where a user asks for smaller ones.

`earliest` and `latest` are looked up by the tasks, so that a DataFrame that is used again sees what has
arrived meanwhile; only splitting needs the real offsets at planning time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_connector.client import Cluster, connect
from spark_connector.errors import ConnectorError, DataLossError
from spark_connector.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition, split_ranges
from spark_connector.options import Options, Position
from spark_connector.planning import find_partitions, locate, resolve

logger = logging.getLogger("kompakt.spark")


def read_range(options: Options, columns: Sequence[str], wanted: OffsetRange | None) -> Iterator[Any]:
    """The record batches of one task; none for the empty task that Spark makes of no partitions."""
    if wanted is None:
        return iter(())
    from spark_connector.ranges import RangeReader  # numpy, numba and pyarrow: wanted in tasks only

    return RangeReader(options, wanted, columns).record_batches()


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Owned by: the driver's planning process, and a pickled copy by each task."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._starting = options.starting or Position("startingOffsets", EARLIEST)
        self._ending = options.ending or Position("endingOffsets", LATEST)
        if LATEST in _offsets_of(self._starting):
            raise ConnectorError(
                "startingOffsets must not be latest (-1) in a batch read: it would read nothing"
            )
        if EARLIEST in _offsets_of(self._ending):
            raise ConnectorError("endingOffsets must not be earliest (-2): it would read nothing")
        if options.stream_only:
            logger.warning("%s are for streams; a batch read ignores them", ", ".join(options.stream_only))

    def partitions(self) -> Sequence[InputPartition]:
        """One input partition for each range; a list, as Spark insists."""
        cluster = connect(self._options.client)
        found = find_partitions(cluster, self._options.subscription)
        start = locate(cluster, self._starting, found, latest_if_none=not self._options.fail_on_missing_time)
        end = locate(cluster, self._ending, found, latest_if_none=True)
        wants_split = bool(self._options.max_records_per_partition) or (
            (self._options.min_partitions or 0) > len(found)
        )
        if wants_split:
            start, end = resolve(cluster, start), resolve(cluster, end)
        self._check_order(start, end)
        self._check_ends(cluster, end)
        ranges = [OffsetRange(partition, start[partition], end[partition]) for partition in found]
        if wants_split:
            ranges = split_ranges(
                ranges, self._options.min_partitions, self._options.max_records_per_partition
            )
        return [InputPartition(wanted) for wanted in ranges if not wanted.is_resolved or wanted.size]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The Arrow record batches of one input partition."""
        return read_range(self._options, self._columns, partition.value)

    def _check_order(self, start: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> None:
        for partition, offset in start.items():
            if offset > end[partition] >= 0:
                raise ConnectorError(
                    f"{partition}: {self._starting.option} {offset} is behind "
                    f"{self._ending.option} {end[partition]}"
                )

    def _check_ends(self, cluster: Cluster, end: dict[TopicPartition, int]) -> None:
        """An end that a user wrote down must exist, else each task would wait for it."""
        if not self._ending.offsets:
            return
        latest = cluster.latest_offsets(end)
        for partition, offset in end.items():
            if offset <= latest[partition]:
                continue
            text = f"{partition}: {self._ending.option} {offset} is beyond the log's end {latest[partition]}"
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{text}; set failOnDataLoss=false to read what there is")
            logger.warning("%s; reading what there is", text)
            end[partition] = latest[partition]


def _offsets_of(position: Position) -> set[int]:
    """The offsets that an option gives as they are, words among them; none when it gives times."""
    if position.timestamp_ms is not None or position.timestamps:
        return set()
    return {offset for _, offset in position.offsets} or {position.offset}
