"""Offsets of finished micro-batches into a consumer group, so that lag tools see how far a query is.

A query's own position is its checkpoint; the group only shows it, so a commit that fails is a warning and the
next one catches up. Two ways lead here. The stream reader commits what Spark calls finished: the start of the
batch that is planned next, which Spark asks for after the last batch of an AvailableNow too. A
`StreamingQueryListener` (`commit_offsets`) does so as soon as a batch is done: for Trigger.Once, which plans
nothing behind its batch (that a source is stopped does not say that the batch ended well), for queries with
long pauses between triggers, and for those that read with Spark's own source.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_connector.client import Backoff, Cluster, connect, refusal
from spark_connector.connection import FIND_COORDINATOR, OFFSET_COMMIT, Unavailable
from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition, from_json_object
from spark_connector.options import ClientSettings, parse_client_settings

logger = logging.getLogger("kompakt.spark")

NO_GENERATION = -1  # a group without members: whoever commits does not belong to it
COMMIT_LIMIT_MS = 5_000  # a trigger waits for no longer, and for no answer either
# After a commit for which all this time went by in vain, none is tried for a while: it doubles each time.
FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 300.0


class GroupCommitter:
    """Commits offsets to one group. Owned by: the planning process, or the driver's listener thread."""

    def __init__(self, settings: ClientSettings, group_id: str) -> None:
        self._settings = settings
        self._group_id = group_id
        self._committed: Mapping[TopicPartition, int] = {}
        self._left_out: Mapping[TopicPartition, int] = {}
        self._pause_s = FIRST_PAUSE_S
        self._next_try_s = float("-inf")

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit where reading goes on; a warning when the group could not be told. Soon after one that took
        long in vain nothing is tried."""
        self._left_out = {}
        if not offsets or offsets == self._committed:
            return
        if time.monotonic() < self._next_try_s:
            self._left_out = dict(offsets)
        else:
            self._try(offsets)

    def catch_up(self) -> None:
        """Commit what was left out, if anything, now: no later commit will."""
        if self._left_out:
            self._try(self._left_out)
            self._left_out = {}

    def _try(self, offsets: Mapping[TopicPartition, int]) -> None:
        cluster = connect(self._settings).hurried(COMMIT_LIMIT_MS)
        backoff = Backoff(self._settings, COMMIT_LIMIT_MS, "the limit for commits")
        what = f"committing offsets to group {self._group_id}"
        try:
            while True:
                try:
                    self._commit(cluster, offsets)
                    break
                except Unavailable as problem:
                    backoff.wait(problem, what)
        except ConnectorError as problem:
            logger.warning("%s; the next commit catches up", problem)
            if isinstance(problem.__cause__, Unavailable):  # and was waited for; a refusal comes at once
                self._next_try_s = time.monotonic() + self._pause_s
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            return
        self._committed = dict(offsets)
        self._pause_s = FIRST_PAUSE_S

    def _commit(self, cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> None:
        from protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse

        topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
        topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
        for place, offset in sorted(offsets.items()):
            topic = topics.setdefault(place.topic, topic_type(name=place.topic, partitions=[]))
            topic.partitions.append(
                topic_type.OffsetCommitRequestPartition(
                    partition_index=place.partition, committed_offset=offset, committed_metadata=""
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            topics=list(topics.values()),
        )
        with cluster.connection(self._coordinator(cluster)) as connection:
            answer = connection.call(request, OFFSET_COMMIT, OffsetCommitResponse)
        for answered in answer.topics:
            for partition in answered.partitions:
                if partition.error_code:
                    place = TopicPartition(answered.name, partition.partition_index)
                    raise refusal(partition.error_code, f"the offset of {place} for group {self._group_id}")

    def _coordinator(self, cluster: Cluster) -> tuple[str, int]:
        from protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

        request = FindCoordinatorRequest(key=self._group_id, key_type=0)
        with cluster.any_connection() as connection:
            answer = connection.call(request, FIND_COORDINATOR, FindCoordinatorResponse)
        if answer.error_code:
            raise refusal(answer.error_code, f"the coordinator of group {self._group_id}")
        return answer.host, answer.port


class OffsetCommitListener(StreamingQueryListener):  # type: ignore[misc]
    """Commits the end of each micro-batch that is done. Owned by: Spark's listener thread."""

    def __init__(self, committer: GroupCommitter, query_name: str | None) -> None:
        self._committer = committer
        self._query_name = query_name

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is read yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A micro-batch is done."""
        progress = event.progress
        if self._query_name is not None and progress.name != self._query_name:
            return
        offsets: dict[TopicPartition, int] = {}
        for source in progress.sources:
            offsets.update(_kafka_offsets(source.endOffset))
        self._committer.commit(offsets)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has been read."""

    def onQueryTerminated(self, event: Any) -> None:
        """The last micro-batch had its progress event; its commit may have been left out."""
        self._committer.catch_up()


def commit_offsets(
    spark: Any, options: Mapping[str, str], query_name: str | None = None
) -> StreamingQueryListener:
    """Commit to the group `groupId` of `options` what queries of this session have read, batch by batch.

    `options` are those of the source (`kafka.bootstrap.servers`, security); `query_name` picks one query
    where there are several. Returns the listener, for `spark.streams.removeListener`.
    """
    values = {name.lower(): value for name, value in options.items()}
    group_id = values.get("groupid", "").strip()
    if not group_id:
        raise ConnectorError("commit_offsets needs the option groupId: the group to commit to")
    listener = OffsetCommitListener(GroupCommitter(parse_client_settings(values), group_id), query_name)
    spark.streams.addListener(listener)
    return listener


def _kafka_offsets(text: str | None) -> dict[TopicPartition, int]:
    """The offsets of a source of ours or of Spark's own for Kafka; none for any other source."""
    try:
        return from_json_object(json.loads(text or "{}"))
    except (ValueError, ConnectorError):
        return {}
