"""A small blocking Kafka client: metadata, offset look-ups, retries, and connections that are kept.

A `Cluster` lives in its Python worker process and is found again by the next task (`connect`): tasks are
short and connections are not. A connection is taken out of the cache while it is used, so that no two tasks
share one, and dropped, not given back, when anything about it is in doubt.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from spark_connector.connection import LIST_OFFSETS, METADATA, Connection, Unavailable
from spark_connector.errors import AuthenticationError, ConnectorError, MissingTopicError, TopicError
from spark_connector.offsets import EARLIEST, LATEST, TopicPartition
from spark_connector.options import ClientSettings

logger = logging.getLogger("kompakt.spark")
T = TypeVar("T")

IDLE_CONNECTIONS = 8  # kept for each broker
MISSING_TRIES = 4
CREATING_TRIES = 8  # a broker that makes a topic says meanwhile that there is none

TRANSIENT = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,  # while the topic of all groups' offsets is being made
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


def any_name(name: str) -> bool:
    """For those who want all topics."""
    return True


class TopicMissing(Unavailable):
    """The broker knows no such topic or partition: it may just have been made, but hardly for a minute."""


class Backoff:
    """Waits that grow from `retry_backoff_ms` to `retry_backoff_max_ms` until the limit is over.

    The limit is `api_timeout_ms` unless another one is given, with the name of its option. It counts from
    when this was made or restarted: just before a broker is asked. What was missing for `missing_tries` tries
    is given up earlier, unless `is_missing` says that it is there.
    """

    def __init__(
        self,
        settings: ClientSettings,
        limit_ms: int | None = None,
        option: str = "kafka.default.api.timeout.ms",
        missing_tries: int = MISSING_TRIES,
        is_missing: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings = settings
        self._limit_s = (settings.api_timeout_ms if limit_ms is None else limit_ms) / 1000
        self._option = option
        self._missing_tries = missing_tries
        self._is_missing = is_missing
        self.restart()

    def restart(self) -> None:
        """After progress, before the broker is asked again: the next trouble has all the time."""
        self._deadline = time.monotonic() + self._limit_s
        self._wait_s = self._settings.retry_backoff_ms / 1000
        self._missing = 0

    def wait(self, reason: Exception, what: str) -> None:
        """Sleep before another try; ConnectorError when the time is over."""
        if isinstance(reason, TopicMissing):
            self._missing += 1
            if self._missing >= self._missing_tries and self._is_missing():
                raise MissingTopicError(f"{what}: {reason}") from reason
        wait_s = self._wait_s * random.uniform(0.8, 1.2)
        if time.monotonic() + wait_s > self._deadline:
            servers = ",".join(f"{host}:{port}" for host, port in self._settings.bootstrap_servers)
            raise ConnectorError(
                f"{what} failed for {self._limit_s:g} s ({self._option}) at {servers}: {reason}"
            ) from reason
        logger.info("%s: %s; trying again in %.1f s", what, reason, wait_s)
        # Blocks, as all of this client does: the caller is a task or a planning process of Spark, alone in
        # its thread, and has nothing to do before the broker is back.
        time.sleep(wait_s)
        self._wait_s = min(self._wait_s * 2, self._settings.retry_backoff_max_ms / 1000)


class Cluster:
    """The brokers behind one set of settings. Owned by: any thread; the idle lists change atomically."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._idle: defaultdict[tuple[str, int], list[Connection]] = defaultdict(list)
        self._failures: dict[tuple[str, int], int] = {}  # to connect, since it was last done
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self.cluster_id: str | None = None  # as the last description said

    # --- connections

    @contextlib.contextmanager
    def connection(self, address: tuple[str, int]) -> Iterator[Connection]:
        """A connection to `address` for the time of the block; given back unless the block fails."""
        idle = self._idle[address]
        connection = _usable(idle) or self._open(address)
        try:
            yield connection
        except BaseException:
            connection.close()
            # The others to this address are as old: after a restart of the broker they are dead too.
            for other in self._drain(address):
                other.close()
            raise
        if connection.is_idle and len(idle) < IDLE_CONNECTIONS:
            idle.append(connection)
        else:
            connection.close()

    def _open(self, address: tuple[str, int]) -> Connection:
        failures = self._failures.get(address, 0)
        try:
            made = Connection(*address, self.settings, failures)
        except Unavailable:
            self._failures[address] = failures + 1
            raise
        self._failures.pop(address, None)
        return made

    def _drain(self, address: tuple[str, int]) -> list[Connection]:
        drained, self._idle[address] = self._idle[address], []
        return drained

    def close(self) -> None:
        for address in list(self._idle):
            for connection in self._drain(address):
                connection.close()

    def hurried(self, limit_ms: int) -> Cluster:
        """The same cluster, with connections of its own, for who waits for no answer longer than that."""
        timeout_ms = min(self.settings.request_timeout_ms, limit_ms)
        found = connect(replace(self.settings, request_timeout_ms=timeout_ms))
        found._brokers = dict(self._brokers)
        return found

    @contextlib.contextmanager
    def any_connection(self) -> Iterator[Connection]:
        """A connection to any broker that can be reached.

        One that did not answer is asked last: a dead one may say nothing for all the time that a connection
        may take to be made. Then those with an idle connection come first, and known ones before bootstrap
        servers, which stand in no order, as not each process that Spark starts should wait for the same one.
        """
        servers = random.sample(self.settings.bootstrap_servers, len(self.settings.bootstrap_servers))
        addresses = sorted(
            dict.fromkeys([*self._brokers.values(), *servers]),
            key=lambda address: (self._failures.get(address, 0), not self._idle.get(address)),
        )
        reasons = []
        for address in addresses:
            stack = contextlib.ExitStack()
            try:
                connection = stack.enter_context(self.connection(address))
            except Unavailable as problem:
                reasons.append(str(problem))
                continue
            with stack:
                yield connection
            return
        raise Unavailable("; ".join(reasons))

    def retrying(self, what: str, action: Callable[[], T], missing_tries: int = MISSING_TRIES) -> T:
        """Run `action` until it is not `Unavailable`, or too much time has gone."""
        backoff = Backoff(self.settings, missing_tries=missing_tries)
        while True:
            try:
                return action()
            except Unavailable as problem:
                backoff.wait(problem, what)

    def _looking_up(self, what: str, action: Callable[[], T]) -> T:
        """Run `action`, after an error again as often as fetchOffset.numRetries says, as Spark's own does."""
        for attempt in range(1, self.settings.look_up_tries):
            try:
                return action()
            except AuthenticationError:
                raise
            except ConnectorError as problem:
                logger.warning("%s, try %d of %d: %s", what, attempt, self.settings.look_up_tries, problem)
            # Blocks, as in `Backoff`.
            time.sleep(self.settings.look_up_pause_ms / 1000)
        return action()

    # --- metadata

    def describe(
        self, topics: Iterable[str] | None, is_wanted: Callable[[str], bool] = any_name
    ) -> dict[str, list[int]]:
        """Topic -> its partitions: of `topics`, which must all exist, or (None) of all that are not internal
        and whose name `is_wanted`. ConnectorError for trouble with one of these; others may be in any."""
        names = None if topics is None else sorted(topics)
        what = "looking up topics"
        return self._looking_up(what, lambda: self.retrying(what, lambda: self._describe(names, is_wanted)))

    def describe_or_create(self, topic: str) -> list[int]:
        """The partitions of `topic`, to which somebody is going to write: a broker may make it now."""
        return self.retrying(
            "looking up topics", lambda: self._describe([topic], may_create=True)[topic], CREATING_TRIES
        )

    def _describe(
        self,
        names: list[str] | None,
        is_wanted: Callable[[str], bool] = any_name,
        *,
        may_create: bool = False,
    ) -> dict[str, list[int]]:
        answer = self._metadata(names, may_create=may_create)
        found: dict[str, list[int]] = {}
        for topic in answer.topics:
            if names is None and (topic.is_internal or not is_wanted(topic.name or "")):
                continue
            if topic.error_code:
                problem = refusal(topic.error_code, f"topic {topic.name}")
                raise problem if isinstance(problem, Unavailable) else TopicError(str(problem))
            found[topic.name or ""] = sorted(partition.partition_index for partition in topic.partitions)
        return found

    def _metadata(self, names: list[str] | None, *, may_create: bool = False) -> MetadataResponse:
        topics = (
            None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        )
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)
        with self.any_connection() as connection:
            answer = connection.call(request, METADATA, MetadataResponse)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self.cluster_id = answer.cluster_id
        for topic in answer.topics:
            self._topic_ids[topic.name or ""] = topic.topic_id
            for partition in topic.partitions:
                leader = TopicPartition(topic.name or "", partition.partition_index)
                self._leaders[leader] = partition.leader_id
        return answer

    def topic_id(self, topic: str) -> UUID:
        """The id that `topic` had when it was last described; zero from brokers without ids (before 2.8)."""
        return self._topic_ids.get(topic, UUID(int=0))

    def leader_of(self, topic_partition: TopicPartition) -> tuple[str, int]:
        """The address of the partition's leader, asked for unless known; `Unavailable` without one."""
        address = self._brokers.get(self._leaders.get(topic_partition, -1))
        if address is not None:
            return address
        answer = self._metadata([topic_partition.topic])
        for topic in answer.topics:
            if topic.error_code:
                raise refusal(topic.error_code, f"topic {topic.name}")
        address = self._brokers.get(self._leaders.get(topic_partition, -1))
        if address is None:
            raise Unavailable(f"{topic_partition} has no leader")
        return address

    def is_missing(self, *topic_partitions: TopicPartition) -> bool:
        """Whether the metadata is without one of these; a leader may say so for a moment, while it starts or
        the partition is on the move. False where nobody answers."""
        try:
            found = self._describe(sorted({place.topic for place in topic_partitions}))
        except TopicMissing:
            return True
        except Unavailable:
            return False
        return any(place.partition not in found.get(place.topic, []) for place in topic_partitions)

    def forget_leaders(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Ask again who leads them before the next request."""
        for topic_partition in topic_partitions:
            self._leaders.pop(topic_partition, None)

    # --- offsets

    def earliest_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each log."""
        return self.list_offsets(dict.fromkeys(topic_partitions, EARLIEST))

    def latest_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of what the isolation level lets be seen: high watermark or last stable offset."""
        return self.list_offsets(dict.fromkeys(topic_partitions, LATEST))

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Timestamp, EARLIEST or LATEST of each partition -> its offset; -1 where no record is that young."""
        return self._looking_up("looking up offsets", lambda: self._list_all_offsets(timestamps))

    def _list_all_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        left = dict(timestamps)
        found: dict[TopicPartition, int] = {}
        backoff = Backoff(self.settings, is_missing=lambda: self.is_missing(*left))
        while left:
            try:
                self._list_offsets(left, found)
            except Unavailable as problem:
                self.forget_leaders(left)
                backoff.wait(problem, "looking up offsets")
        return found

    def _list_offsets(self, left: dict[TopicPartition, int], found: dict[TopicPartition, int]) -> None:
        """One request to each leader; answers move from `left` to `found`."""
        by_leader: defaultdict[tuple[str, int], list[TopicPartition]] = defaultdict(list)
        for topic_partition in sorted(left):
            by_leader[self.leader_of(topic_partition)].append(topic_partition)
        for address, partitions in by_leader.items():
            with self.connection(address) as connection:
                request = self._list_offsets_request(partitions, left)
                answer = connection.call(request, LIST_OFFSETS, ListOffsetsResponse)
            for topic in answer.topics:
                for partition in topic.partitions:
                    topic_partition = TopicPartition(topic.name, partition.partition_index)
                    if partition.error_code:
                        raise refusal(partition.error_code, f"the offsets of {topic_partition}")
                    found[topic_partition] = partition.offset
                    left.pop(topic_partition, None)

    def _list_offsets_request(
        self, partitions: list[TopicPartition], timestamps: Mapping[TopicPartition, int]
    ) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for topic_partition in partitions:
            topic = topics.setdefault(
                topic_partition.topic,
                ListOffsetsRequest.ListOffsetsTopic(name=topic_partition.topic, partitions=[]),
            )
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=topic_partition.partition,
                    current_leader_epoch=-1,
                    timestamp=timestamps[topic_partition],
                )
            )
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=int(self.settings.read_committed), topics=list(topics.values())
        )


def _usable(idle: list[Connection]) -> Connection | None:
    """One taken off the list; those whose session has ended are closed."""
    while idle:
        with contextlib.suppress(IndexError):  # another thread took the last one
            connection = idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
    return None


def refusal(error_code: int, what: str) -> Exception:
    """The exception for an error code: `Unavailable` when another try may help, else a ConnectorError."""
    try:
        code = ErrorCode(error_code)
    except ValueError:
        return ConnectorError(f"{what}: the broker answered with the unknown error {error_code}")
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return TopicMissing(f"{what}: {code.name}")
    if code in TRANSIENT:
        return Unavailable(f"{what}: {code.name}")
    return ConnectorError(f"{what}: {code.name}")


_clusters: dict[tuple[int, ClientSettings], Cluster] = {}


def connect(settings: ClientSettings) -> Cluster:
    """The cluster of this process for `settings`: a worker's later tasks find earlier connections.

    The process id keeps a forked worker from using the sockets of its parent.
    """
    key = (os.getpid(), settings)
    if key not in _clusters:
        _clusters[key] = Cluster(settings)
    return _clusters[key]
