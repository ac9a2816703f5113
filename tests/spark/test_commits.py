"""Goal: lag tools see a stream: what it has finished stands in its consumer group, the last batch included.

Method: the committer against a leader that refuses at first, or names one that hangs; streams from a real
broker, ended and started again, with the group's offsets read by confluent-kafka's admin client, as tools do.
"""

from __future__ import annotations

import functools
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import pyspark_kompakt
from protocol.errors import ErrorCode
from protocol.messages.groups import FindCoordinatorRequest
from spark_connector import commits
from spark_connector.commits import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    GroupCommitter,
    OffsetCommitListener,
)
from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_client_settings, parse_options
from spark_connector.shape import Shape
from spark_connector.stream import StreamReader
from spark_connector.whole_stream import WholeStreamReader
from tests.kafka.tools import Tools
from tests.spark.conftest import close_clusters, options_for
from tests.spark.fake_leader import FakeLeader
from tests.spark.test_spark import create_topic, produce
from tests.waiting import wait_for

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def committer_for(leader: FakeLeader) -> GroupCommitter:
    return GroupCommitter(parse_client_settings(options_for(leader)), "g")


def test_commits_are_sent_once_and_tried_again(leader: FakeLeader) -> None:
    leader.commit_errors.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
    committer = committer_for(leader)
    committer.commit({T0: 5, T1: 7})
    committer.commit({T0: 5, T1: 7})
    committer.commit({})
    assert leader.committed == [("g", {T0: 5, T1: 7})]
    leader.closes = 1
    committer.commit({T0: 6, T1: 7})
    assert leader.committed[1:] == [("g", {T0: 6, T1: 7})]


def test_a_coordinator_that_is_not_there_yet_is_asked_for_again(leader: FakeLeader) -> None:
    """The first group of a cluster finds none: the topic of all groups' offsets is being made."""
    late = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    plain = leader.answer

    def answer(request: Any) -> Any:
        answered = plain(request)
        if isinstance(request, FindCoordinatorRequest) and late:
            answered.error_code = late.pop()
        return answered

    leader.answer = answer  # type: ignore[method-assign]
    leader.commit_errors.append(ErrorCode.NOT_COORDINATOR)
    committer_for(leader).commit({T0: 5})
    assert leader.committed == [("g", {T0: 5})]
    assert not late


def test_a_commit_that_fails_is_a_warning(
    leader: FakeLeader, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query goes on, its position being its checkpoint; the next commit is tried."""
    monkeypatch.setattr(commits, "COMMIT_LIMIT_MS", 100)
    leader.commit_errors.extend([ErrorCode.GROUP_AUTHORIZATION_FAILED])
    committer = committer_for(leader)
    committer.commit({T0: 5})
    assert leader.committed == []
    assert "GROUP_AUTHORIZATION_FAILED; the next commit catches up" in caplog.text
    committer.commit({T0: 5})
    assert leader.committed == [("g", {T0: 5})]


def test_who_may_not_find_the_coordinator_is_told_so(
    leader: FakeLeader, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer then names no place; that it cannot be reached would say nothing."""
    monkeypatch.setattr(commits, "COMMIT_LIMIT_MS", 100)
    plain = leader.answer

    def answer(request: Any) -> Any:
        answered = plain(request)
        if isinstance(request, FindCoordinatorRequest):
            answered.error_code, answered.host, answered.port = ErrorCode.GROUP_AUTHORIZATION_FAILED, "", -1
        return answered

    leader.answer = answer  # type: ignore[method-assign]
    committer_for(leader).commit({T0: 5})
    assert leader.committed == []
    assert "the coordinator of group g" in caplog.text
    assert "GROUP_AUTHORIZATION_FAILED" in caplog.text


class Hung:
    """A coordinator that takes connections and never answers, for all groups. Owned by: the test."""

    def __init__(self, leader: FakeLeader, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
        self.asked = 0  # where it is: once for each try to commit
        self._port: int | None = port
        self._answer, self._patch = leader.answer, monkeypatch
        monkeypatch.setattr(commits, "COMMIT_LIMIT_MS", 100)
        monkeypatch.setattr(leader, "answer", self.answer)

    def answer(self, request: Any) -> Any:
        answered = self._answer(request)
        if isinstance(request, FindCoordinatorRequest):
            self.asked += 1
            answered.port = self._port or answered.port
        return answered

    def heal(self) -> None:
        """The leader is the coordinator from now on."""
        self._port = None
        self._patch.setattr(commits, "COMMIT_LIMIT_MS", 60_000)


@pytest.fixture
def hung(leader: FakeLeader, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        yield Hung(leader, monkeypatch, silent.getsockname()[1])
        close_clusters()


def test_a_coordinator_that_hangs_is_left_alone_for_longer_and_longer(
    leader: FakeLeader, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trigger waited 30 s for it, the request timeout, those with nothing new too."""
    passed_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s[0])
    monkeypatch.setattr(commits, "time", clock)
    committer, begun_s = committer_for(leader), time.monotonic()
    committer.commit({T0: 5})
    assert time.monotonic() - begun_s < 20
    assert hung.asked == 1
    for tried, pause_s in enumerate([FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S], 1):
        passed_s[0] += pause_s - 5
        committer.commit({T0: 5 + tried})
        assert hung.asked == tried
        passed_s[0] += 5
        committer.commit({T0: 5 + tried})
        assert hung.asked == tried + 1
    hung.heal()
    passed_s[0] += LONGEST_PAUSE_S
    committer.commit({T0: 9})
    committer.commit({T0: 10})
    assert leader.committed == [("g", {T0: 9}), ("g", {T0: 10})]


def test_what_was_left_out_is_committed_in_the_end(leader: FakeLeader, hung: Hung) -> None:
    """Of a listener, a stream that is stopped, and one that ends by itself, as AvailableNow does."""
    listener = OffsetCommitListener(committer_for(leader), None)
    options = options_for(leader, groupId="g", commitOffsets="true", startingOffsets="earliest")
    parsed = parse_options(options)
    stopped, ended = (StreamReader(parsed, Shape.of(parsed.columns)) for _ in range(2))
    older = WholeStreamReader(parsed, Shape.of(parsed.columns))
    for log in leader.logs.values():
        log.high_watermark = 4
    ended.prepareForTriggerAvailableNow()
    for offset in (1, 2):
        listener.onQueryProgress(progress_of("any", f'{{"t":{{"0":{offset}}}}}'))
        for reader in (stopped, ended):
            reader.latestOffset({"t": {"0": offset, "1": 4}}, ReadAllAvailable())
        older.commit({"t": {"0": offset, "1": 4}})
    hung.heal()
    assert leader.committed == []
    listener.onQueryTerminated(None)
    assert leader.committed == [("g", {T0: 2})]
    for reader in (stopped, older):
        reader.stop()
    assert leader.committed[1:] == [("g", {T0: 2, T1: 4})] * 2
    end = {"t": {"0": 4, "1": 4}}
    assert ended.latestOffset(end, ReadAllAvailable()) == end
    assert leader.committed[3:] == [("g", {T0: 4, T1: 4})]


def test_the_reader_commits_what_the_next_plan_starts_from(leader: FakeLeader) -> None:
    """Not the start of a new query: it has read nothing yet."""
    options = options_for(leader, groupId="g", commitOffsets="true", startingOffsets="earliest")
    parsed = parse_options(options)
    reader = StreamReader(parsed, Shape.of(parsed.columns))
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    reader.latestOffset(start, limit)
    assert leader.committed == []
    for log in leader.logs.values():
        log.high_watermark = 9
    reader.latestOffset({"t": {"0": 4, "1": 2}}, limit)
    reader.commit({"t": {"0": 4, "1": 2}})
    assert leader.committed == [("g", {T0: 4, T1: 2})]
    again = StreamReader(parsed, Shape.of(parsed.columns))
    again.latestOffset({"t": {"0": 9, "1": 9}}, limit)
    assert leader.committed[1:] == [("g", {T0: 9, T1: 9})]


def test_a_group_is_needed() -> None:
    fake = SimpleNamespace(bootstrap="127.0.0.1:1")
    with pytest.raises(ConnectorError, match="commitOffsets=true needs the option groupId"):
        parse_options(options_for(fake, commitOffsets="true"))
    with pytest.raises(ConnectorError, match="commit_offsets needs the option groupId"):
        pyspark_kompakt.commit_offsets(None, options_for(fake))


def progress_of(name: str, *ends: str | None) -> Any:
    sources = [SimpleNamespace(endOffset=end) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(name=name, sources=sources))


def test_the_listener_takes_kafka_sources_of_the_query_it_is_for(leader: FakeLeader) -> None:
    listener = OffsetCommitListener(committer_for(leader), "mine")
    listener.onQueryProgress(progress_of("other", '{"t":{"0":1}}'))
    listener.onQueryProgress(
        progress_of("mine", '{"t":{"0":5}}', '{"t":{"1":6}}', "17", '{"logOffset":3}', None)
    )
    assert leader.committed == [("g", {T0: 5, T1: 6})]


# --- with Spark and a broker


def in_spark(test: Any) -> Any:
    """What all tests with a session are marked with."""
    for warning in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        test = pytest.mark.filterwarnings(f"ignore::{warning}")(test)
    return pytest.mark.spark(test)


@functools.cache
def admin_of(bootstrap: str) -> Any:
    """Kept: a client that is gone while one of its answers is on the way takes the process with it."""
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})


def lag_of(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    """As kafka-consumer-groups shows it: log end minus committed offset, by partition."""
    request = confluent_kafka.ConsumerGroupTopicPartitions(group)
    (answer,) = admin_of(bootstrap).list_consumer_group_offsets([request]).values()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
    found = {}
    for place in answer.result(30).topic_partitions:
        assert place.topic == topic
        found[place.partition] = consumer.get_watermark_offsets(place, 30)[1] - place.offset
    consumer.close()
    return found


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where a broker listens: kompakt, unless a test asks for Apache Kafka."""
    name = getattr(request, "param", "kompakt")
    address: str = request.getfixturevalue(f"{name}_broker").bootstrap
    return address


@pytest.fixture
def run(spark: Any, bootstrap: str, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Run a stream over what there is, from its checkpoint on; one with a pause is left running."""
    started = []

    def start(topic: str, name: str, trigger: dict[str, Any] | None = None, **options: str) -> Any:
        source = spark.readStream.format("kompakt").option("subscribe", topic)
        source = source.option("kafka.bootstrap.servers", bootstrap)
        frame = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="60", **options).load()
        sink = frame.writeStream.format("noop").queryName(name)
        trigger = trigger or {"availableNow": True}
        query = sink.option("checkpointLocation", str(tmp_path / name)).trigger(**trigger).start()
        started.append(query)
        if "processingTime" not in trigger:
            assert query.awaitTermination(120)
            assert query.exception() is None
        return query

    yield start
    for query in started:
        query.stop()


@in_spark
def test_available_now_commits_its_last_batch(run: Callable[..., Any], bootstrap: str) -> None:
    """And a query without the option, started again with it, catches up with what it had read before."""
    group = f"g-{uuid.uuid4().hex}"
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 150)
    run(topic, "first")
    assert lag_of(bootstrap, topic, group) == {}
    run(topic, "first", groupId=group, commitOffsets="true")
    assert lag_of(bootstrap, topic, group) == {0: 0, 1: 0, 2: 0}
    produce(bootstrap, topic, 30, first=150)
    assert lag_of(bootstrap, topic, group) == {0: 10, 1: 10, 2: 10}
    run(topic, "first", groupId=group, commitOffsets="true")
    assert lag_of(bootstrap, topic, group) == {0: 0, 1: 0, 2: 0}


@in_spark
@pytest.mark.java
@pytest.mark.parametrize("bootstrap", ["kafka"], indirect=True)
def test_apache_kafka_takes_the_commits_too(
    run: Callable[..., Any], bootstrap: str, kafka_tools: Tools
) -> None:
    """As its own tool says: partition, committed offset, log end, lag."""
    group = f"g-{uuid.uuid4().hex}"
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 150)
    run(topic, "at-kafka", groupId=group, commitOffsets="true")
    produce(bootstrap, topic, 30, first=150)
    asked = ("--bootstrap-server", bootstrap, "--describe", "--group", group)
    lines = kafka_tools.run("kafka-consumer-groups", *asked).splitlines()
    rows = sorted(line.split()[2:6] for line in lines if line.startswith(group))
    assert rows == [[str(partition), "50", "60", "10"] for partition in range(3)]


@in_spark
def test_once_commits_its_batch_with_the_next_run(run: Callable[..., Any], bootstrap: str) -> None:
    """Spark plans nothing behind the one batch, so that the source cannot know that it has ended well."""
    group = f"g-{uuid.uuid4().hex}"
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 90)
    assert lag_of(bootstrap, topic, group) == {}
    once = {"trigger": {"once": True}, "groupId": group, "commitOffsets": "true"}
    run(topic, "once", **once)
    assert lag_of(bootstrap, topic, group) == {}
    produce(bootstrap, topic, 30, first=90)
    run(topic, "once", **once)
    assert lag_of(bootstrap, topic, group) == {0: 10, 1: 10, 2: 10}


@in_spark
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}, {"processingTime": "1 hour"}])
def test_the_listener_commits_as_batches_end(
    spark: Any, run: Callable[..., Any], bootstrap: str, trigger: dict[str, Any]
) -> None:
    """The only batch of Trigger.Once, too, and that of a query whose next trigger is far away."""
    group = f"g-{uuid.uuid4().hex}"
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 60)
    assert lag_of(bootstrap, topic, group) == {}
    options = {"kafka.bootstrap.servers": bootstrap, "groupId": group}
    listener = pyspark_kompakt.commit_offsets(spark, options, query_name="heard")
    try:
        run(topic, "heard", trigger)
        wait_for(lambda: lag_of(bootstrap, topic, group) == {0: 0, 1: 0, 2: 0}, "the last batch's event")
    finally:
        spark.streams.removeListener(listener)
