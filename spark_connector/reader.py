"""Batch reads: which ranges of which partitions, and which tasks read them.

`earliest` and `latest` are looked up by the tasks, so that a DataFrame that is used again sees what has
arrived meanwhile. A split needs the real offsets to cut by, but its first and last piece keep the words, as
in Spark's own source; only `asOf` and `view=latest` are bound to the offsets at planning time, so that all
partitions are read as of one moment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_connector.client import Cluster, connect
from spark_connector.errors import ConnectorError, DataLossError
from spark_connector.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition, split_ranges
from spark_connector.options import Options, Position
from spark_connector.planning import find_partitions, locate, pack, resolve
from spark_connector.probing import TopicSizes
from spark_connector.shape import Shape
from spark_connector.tasks import Task, lose_start, read_task
from spark_connector.worker import SentToTasks, settle

logger = logging.getLogger("kompakt.spark")

Edges = tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]


class BatchReader(SentToTasks, DataSourceReader):  # type: ignore[misc]
    """Owned by: the driver's planning process, and a pickled copy by each task."""

    def __init__(self, options: Options, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._starting = options.starting or Position("startingOffsets", EARLIEST)
        self._ending = options.ending or Position("endingOffsets", LATEST)
        if LATEST in _offsets_of(self._starting):
            raise ConnectorError(
                "startingOffsets must not be latest (-1) in a batch read: it would read nothing"
            )
        if EARLIEST in _offsets_of(self._ending):
            raise ConnectorError("endingOffsets must not be earliest (-2): it would read nothing")
        options.misplaced.judge_batch()
        if options.is_view and (options.min_partitions or options.max_records_per_partition):
            logger.warning(
                "view=latest reads each partition whole; minPartitions and maxRecordsPerPartition split none"
            )

    def partitions(self) -> Sequence[InputPartition]:
        """One input partition for each range; a list, as Spark insists."""
        cluster = connect(self._options.client)
        found = find_partitions(cluster, self._options.subscription)
        start = locate(cluster, self._starting, found, latest_if_none=not self._options.fail_on_missing_time)
        end = locate(cluster, self._ending, found, latest_if_none=True)
        options = self._options
        wants_split = not options.is_view and (
            bool(options.max_records_per_partition) or (options.min_partitions or 0) > len(found)
        )
        words = start, end
        is_of_one_moment = options.is_view or self._ending.option == "asOf"
        if wants_split or is_of_one_moment:
            start, end = resolve(cluster, start), resolve(cluster, end)
        start = self._in_order(start, end, words)
        there = self._existing_ends(cluster, end)
        end, words = {**end, **there}, (words[0], {**words[1], **there})
        ranges = [OffsetRange(partition, start[partition], end[partition]) for partition in found]
        ranges = [wanted for wanted in self._narrow(cluster, ranges) if wanted.size or not wanted.is_resolved]
        if wants_split:
            ranges = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        if not is_of_one_moment:
            known = start, end
            ranges = _bound_late(ranges, known, self._late_edges(known, words))
        groups = pack(cluster, options, ranges, TopicSizes())
        settle()
        return [InputPartition(self._task(group)) for group in groups]

    def _narrow(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges that are left when a filter has been pushed down."""
        return ranges

    def _late_edges(self, known: Edges, words: Edges) -> Edges:
        """What stands in the tasks for the edges that were `known` when the query was planned."""
        return words

    def _task(self, ranges: tuple[OffsetRange, ...]) -> Task:
        return Task(ranges, self._options.is_view)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """The Arrow record batches of one input partition. Where none was planned Spark makes one: a
        partition of None, or in its 4.0 and 4.1 None itself.
        """
        return read_task(self._options, self._shape, None if partition is None else partition.value)

    def _in_order(
        self, start: dict[TopicPartition, int], end: dict[TopicPartition, int], asked: Edges
    ) -> dict[TopicPartition, int]:
        """The starts, none behind its end. ConnectorError for one that is, DataLossError where the log's own
        start is and may not be.

        But where minPartitions cuts, Spark's own source drops a range that begins behind the end of its log
        (the end that was asked for is LATEST), whatever failOnDataLoss says. So does this one if it is false,
        and warns.
        """
        cuts = (self._options.min_partitions or 0) > len(start)
        may_be_empty = cuts and not self._options.fail_on_data_loss
        asked_start, asked_end = asked
        ordered = dict(start)
        for partition, offset in start.items():
            if not offset > end[partition] >= 0:
                continue
            if asked_start[partition] == EARLIEST and asked_end[partition] >= 0:
                lose_start(self._options, partition, offset, end[partition])
                ordered[partition] = end[partition]
                continue
            where = f"{self._starting.option} {offset} is behind {self._ending.option} {end[partition]}"
            if not may_be_empty or asked_end[partition] != LATEST:
                raise ConnectorError(f"{partition}: {where}")
            logger.warning("%s: %s; reading nothing of it, as failOnDataLoss is false", partition, where)
        return ordered

    def _existing_ends(
        self, cluster: Cluster, end: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The log's end in place of each one that a user wrote down and that does not exist: a task would
        wait for it."""
        if not self._ending.offsets:
            return {}
        latest = cluster.latest_offsets(end)
        there = {}
        for partition, offset in end.items():
            if offset <= latest[partition]:
                continue
            text = f"{partition}: {self._ending.option} {offset} is beyond the log's end {latest[partition]}"
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{text}; set failOnDataLoss=false to read what there is")
            logger.warning("%s; reading what there is", text)
            there[partition] = latest[partition]
        return there


def _bound_late(ranges: Sequence[OffsetRange], known: Edges, words: Edges) -> list[OffsetRange]:
    """The pieces at the edges of a partition with the words that were asked for, in place of offsets."""
    (starts, ends), (first, last) = known, words
    late = []
    for piece in ranges:
        place = piece.topic_partition
        start = first[place] if piece.start == starts[place] else piece.start
        late.append(replace(piece, start=start, end=last[place] if piece.end == ends[place] else piece.end))
    return late


def _offsets_of(position: Position) -> set[int]:
    """The offsets that an option gives as they are, words among them; none when it gives times."""
    if position.timestamp_ms is not None or position.timestamps:
        return set()
    return {offset for _, offset in position.offsets} or {position.offset}
