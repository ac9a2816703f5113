"""What every stream does, whatever Spark's version: where a query begins, what has come, how a micro-batch is
cut into tasks.

One long-lived process on Spark's driver side holds a `StreamPlanner` and asks it for offsets; `read` runs in
the workers on a pickled copy. Where a micro-batch ends is left to who derives from it: `stream.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_connector.canonical import write_offsets_compactly
from spark_connector.client import Cluster, connect
from spark_connector.commits import GroupCommitter
from spark_connector.errors import DataLossError, MissingTopicError
from spark_connector.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    TopicPartition,
    from_json_object,
    split_ranges,
    to_json_object,
)
from spark_connector.options import Options, Position
from spark_connector.planning import find_existing, find_partitions, locate, pack, resolve
from spark_connector.probing import TopicSizes
from spark_connector.shape import Shape
from spark_connector.tasks import Task, read_task
from spark_connector.worker import SentToTasks

logger = logging.getLogger("kompakt.spark")

LOOK_UP_TRIES = 4
LOOK_UP_PAUSE_S = 0.1
# A checkpoint may be of a run that took records of open transactions, before which a log ends now.
PERHAPS_OPEN = (
    " (of committed records: where a transaction is open that was read before, it goes on when that has "
    "ended)"
)

Found = dict[TopicPartition, int]


class StreamPlanner(SentToTasks, DataSourceStreamReader):  # type: ignore[misc]
    """Owned by: the query's planning process, and a pickled copy by each task."""

    def __init__(self, options: Options, shape: Shape) -> None:
        options.misplaced.judge_stream(is_pushdown=options.is_pushdown)
        write_offsets_compactly()
        self._options = options
        self._shape = shape
        self._sizes = TopicSizes()
        self._latest: Found | None = None
        self._fixed_end: Found | None = None
        self._initial: Found | None = None
        self._asked: Found = {}  # `_initial` before EARLIEST and LATEST were looked up
        self._start = options.starting or Position("startingOffsets", LATEST)
        self._is_going_on = False  # a micro-batch is planned, by this run or by an earlier one
        self._topic_ids: dict[str, UUID] = {}
        self._made_again: set[str] = set()  # since the last micro-batch
        self._absent: set[TopicPartition] = set()  # of what the subscription names
        self._group: GroupCommitter | None = None
        if options.commit_group is not None:
            self._group = GroupCommitter(options.client, options.commit_group)

    # --- planning

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins.

        The same whenever it is asked: Spark asks again when it plans the first micro-batch, whose end it has
        by then, and what came in between would lie behind that end.
        """
        if self._initial is not None:
            return to_json_object(self._initial)
        cluster = connect(self._options.client)
        found = find_partitions(cluster, self._options.subscription)
        self._compare_topic_ids(cluster, found)
        start = locate(cluster, self._start, found, latest_if_none=not self._options.fail_on_missing_time)
        begin = resolve(cluster, start)
        end = self._latest if self._fixed_end is None else self._fixed_end
        if end is not None:
            begin = self._not_behind(end, begin, start)
        self._initial, self._asked = begin, start
        return to_json_object(begin)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one micro-batch."""
        begin, until = from_json_object(start), from_json_object(end)
        if self._latest is None and begin == self._initial:
            begin = self._as_planned_before(begin, until)
        self._is_going_on = True
        # That its topics are gone was told when they were found to be made again.
        begin = {one: offset for one, offset in begin.items() if one.topic not in self._made_again}
        self._made_again = set()
        gone = sorted(begin.keys() - until.keys())
        if gone:
            self._lose(f"{', '.join(map(str, gone))} are gone")
        for partition in sorted(begin.keys() & until.keys()):
            if until[partition] < begin[partition]:
                went = f"{partition} went back from offset {begin[partition]} to {until[partition]}"
                self._lose(went + (PERHAPS_OPEN if self._options.client.read_committed else ""))
        complete = self._with_new_partitions(begin, until)
        until = {partition: offset for partition, offset in until.items() if partition in complete}
        for partition in sorted(until.keys() - begin.keys()):
            if complete[partition] > 0:
                self._lose(f"the new {partition} starts at offset {complete[partition]}, not at 0")
        if self._fixed_end is not None:
            self._verify_fixed_end(until)
        ranges = [
            OffsetRange(partition, complete[partition], until[partition]) for partition in sorted(until)
        ]
        ranges = split_ranges(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        groups = pack(connect(self._options.client), self._options, ranges, self._sizes)
        return [InputPartition(Task(group)) for group in groups]

    def commit(self, end: dict[str, Any]) -> None:
        """Progress lives in the query's checkpoint; a group is told if there is one to tell."""
        self._commit(from_json_object(end))

    def _commit(self, finished: Found) -> None:
        """What Spark plans on from is finished: it asks so after the last batch of an AvailableNow too, for
        which it calls `commit` never, and after a restart, which makes up for a commit that was missed."""
        if self._group is not None and finished != self._initial:
            self._group.commit(finished)

    def stop(self) -> None:
        """Close the planning process's connections."""
        connect(self._options.client).close()

    # --- reading

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The Arrow record batches of one input partition."""
        return read_task(self._options, self._shape, partition.value)

    # --- looking up

    def _look_up(self, known: Found) -> Found:
        """The log ends now; asked again when one has gone back, as a new leader may lag for a moment."""
        for _ in _tries():
            latest = self._log_ends()
            if self._made_again or all(
                offset >= known.get(partition, 0) for partition, offset in latest.items()
            ):
                break
        return latest

    def _log_ends(self) -> Found:
        """Of all partitions. Topics that are deleted are lost data, which may be no reason to stop."""
        cluster = connect(self._options.client)
        subscription = self._options.subscription
        try:
            if self._options.fail_on_data_loss:
                found = find_partitions(cluster, subscription)
            else:
                found = find_existing(cluster, subscription, self._absent)
            self._compare_topic_ids(cluster, found)
            return cluster.latest_offsets(found)
        except MissingTopicError as problem:
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{problem}. Set failOnDataLoss=false to go on without deleted topics"
                ) from problem
        # Deleted between the two questions.
        return cluster.latest_offsets(find_existing(cluster, subscription, self._absent))

    def _compare_topic_ids(self, cluster: Cluster, found: Sequence[TopicPartition]) -> None:
        """A topic under the name of one that was deleted may have as many records: only its id tells."""
        ids = _topic_ids(cluster, found)
        for topic in self._changed(ids):
            self._lose(f"topic {topic} was deleted and made again")
            self._made_again.add(topic)
        self._topic_ids |= ids

    def _changed(self, ids: dict[str, UUID]) -> list[str]:
        """The topics that had other ids when they were seen last."""
        return sorted(topic for topic in ids if ids[topic] != self._topic_ids.get(topic, ids[topic]))

    def _not_behind(self, end: Found, begin: Found, asked: Found) -> Found:
        """`begin` for a query whose first end Spark has already: it asks where to begin after that.

        What came between is for later: records behind a start at the latest offset, and whole partitions. A
        start by time that only a later record fits moves the end of an AvailableNow up to it.
        """
        known = {partition: offset for partition, offset in begin.items() if partition in end}
        has_times = not self._start.offsets
        for partition, offset in known.items():
            is_timed = has_times and asked[partition] >= 0
            if is_timed and self._fixed_end is not None:
                self._fixed_end[partition] = max(offset, end[partition])
            elif is_timed or asked[partition] == LATEST:
                known[partition] = min(offset, end[partition])
        return known

    def _as_planned_before(self, begin: Found, until: Found) -> Found:
        """`begin` as this run found it, for a first micro-batch that an earlier run planned up to `until` and
        did not finish: Spark keeps the end of that batch, and asks anew where it begins.

        Partitions that came since are for the next batch. What began at the latest offset, or at a time that
        no record was as young as, ended there too (`_first_end`).
        """
        planned = {}
        for place in sorted(begin.keys() & until.keys()):
            offset, end = begin[place], until[place]
            asked = self._asked[place]
            if asked == EARLIEST and offset > end:
                self._lose(f"{place} begins at offset {offset}: what was to be read up to {end} is gone")
            elif asked == EARLIEST and offset > 0:
                logger.warning(
                    "%s is read from offset %d on: what went before that since an earlier run planned this "
                    "first micro-batch, if anything, is lost",
                    place,
                    offset,
                )
            elif offset > end and (asked == LATEST or not self._start.offsets):
                logger.warning(
                    "%s starts at offset %d, where an earlier run planned that this first micro-batch ends",
                    place,
                    end,
                )
            else:
                planned[place] = offset
                continue
            planned[place] = min(offset, end)
        return planned

    def _verify_fixed_end(self, until: Found) -> None:
        """What Trigger.AvailableNow was to read must still be there, as in Spark's own source.

        Whatever failOnDataLoss says: what is left would be taken for all that there was.
        """
        for _ in _tries():
            problem = self._missing_below(until)
            if not problem:
                return
        raise DataLossError(
            f"{problem}, after Trigger.AvailableNow had fixed the end of the query; start the query again: "
            f"with failOnDataLoss=false it goes on with what is left"
        )

    def _missing_below(self, until: Found) -> str:
        """What is not there any more of all that lies below `until`; one look-up."""
        cluster = connect(self._options.client)
        try:
            found = find_existing(cluster, self._options.subscription, self._absent)
            gone = sorted(until.keys() - set(found))
            if gone:
                return f"{', '.join(map(str, gone))} are gone"
            changed = self._changed(_topic_ids(cluster, found))
            if changed:
                return f"topic {', '.join(changed)} was deleted and made again"
            latest = cluster.latest_offsets(until)
        except MissingTopicError as problem:  # deleted between the two questions
            return str(problem)
        short = [place for place in sorted(until) if latest[place] < until[place]]
        return "; ".join(
            f"{place} went back from offset {until[place]} to {latest[place]}" for place in short
        )

    def _without_made_again(self, known: Found) -> Found | None:
        """The end of a micro-batch that only says, in Spark's checkpoint, that topics of `known` are gone, as
        they were made again; None unless one was.

        To the next micro-batch such a topic is new, and read from its start, whatever run plans it: of an end
        in the new log, next to a start in the old one, only this process would know what it means.
        """
        left = {place: offset for place, offset in known.items() if place.topic not in self._made_again}
        return left if len(left) < len(known) else None

    def _with_new_partitions(self, begin: Found, until: Found) -> Found:
        """`begin` and, for partitions that came since, the start of their log; without those that are gone
        again, as a topic may be when a micro-batch is planned by a later run."""
        new = sorted(until.keys() - begin.keys())
        if not new:
            return begin
        cluster = connect(self._options.client)
        try:
            return {**begin, **cluster.earliest_offsets(new)}
        except MissingTopicError as problem:
            if len(new) == 1:
                self._lose(str(problem))
                return begin
        for place in new:
            begin = self._with_new_partitions(begin, {place: until[place]})
        return begin

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}; some data may be lost. Set failOnDataLoss=false to go on with what is left"
            )
        logger.warning("%s; going on, as failOnDataLoss is false", what)


def _tries() -> Iterator[None]:
    """As many looks as it takes until what lags for a moment has caught up, with a pause between two."""
    yield
    for _ in range(LOOK_UP_TRIES - 1):
        # Blocks: the planning process answers one question at a time, and Spark waits for this answer.
        time.sleep(LOOK_UP_PAUSE_S)
        yield


def _topic_ids(cluster: Cluster, found: Sequence[TopicPartition]) -> dict[str, UUID]:
    """As they were when the topics were described; none from old brokers, which have none."""
    ids = {topic: cluster.topic_id(topic) for topic in {partition.topic for partition in found}}
    return {topic: topic_id for topic, topic_id in ids.items() if topic_id.int}
