"""Goal: partitions move between the directories of one broker as with Apache Kafka, to its own tool, and
whichever of the two was stopped in the middle, the other one goes on with its directories.

Method: `kafka-reassign-partitions` with `log_dirs`, held up by its throttle; the same story with both
brokers, what is printed and answered is compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from protocol.errors import ErrorCode
from protocol.messages.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = pytest.mark.java
TOPIC = "moving"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
RECORDS = 60
Either = BrokerProcess | KafkaBroker
Asked = AlterReplicaLogDirsRequest.AlterReplicaLogDir


class Story:
    """A broker with two data directories, and a topic of 6 MB in one of them."""

    def __init__(self, broker: Either, directories: list[Path], tools: Tools) -> None:
        self.broker = broker
        self.tools = tools
        self.directories = directories
        self.plan = directories[0].parent / "plan.json"

    def ask(self, request: Any, version: int) -> Any:
        raw = Raw(self.broker.port)
        try:
            return raw.ask(request, version)
        finally:
            raw.close()

    def fill(self) -> None:
        self.tool("kafka-topics", "--create", "--topic", TOPIC)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number + b"x" * 100_000, b"k")
        assert producer.flush(60) == 0
        ((self.source, _),) = self.places()
        self.target = next(one for one in self.directories if one != self.source)
        moving = {"topic": TOPIC, "partition": 0, "replicas": [1], "log_dirs": [str(self.target)]}
        self.plan.write_text(json.dumps({"version": 1, "partitions": [moving]}))

    def tool(self, name: str, *arguments: object) -> str:
        """What it prints, with other names for the directories."""
        text = self.tools.run(name, "--bootstrap-server", self.broker.bootstrap, *arguments)
        if hasattr(self, "source"):
            text = text.replace(str(self.source), "SOURCE").replace(str(self.target), "TARGET")
        return text

    def reassign(self, *arguments: object) -> str:
        return self.tool("kafka-reassign-partitions", "--reassignment-json-file", self.plan, *arguments)

    def places(self) -> list[tuple[Path, bool]]:
        """Where the partition is, and whether it is only on its way there."""
        answer = self.ask(DescribeLogDirsRequest(topics=None), 4)
        return sorted(
            (Path(result.log_dir), one.is_future_key)
            for result in answer.results
            for topic in result.topics
            if topic.name == TOPIC
            for one in topic.partitions
        )

    def is_moving(self) -> bool:
        return set(self.places()) == {(self.source, False), (self.target, True)}

    def has_moved(self) -> bool:
        return self.places() == [(self.target, False)]

    def begin_and_stand_still(self) -> str:
        printed = self.reassign("--execute", "--replica-alter-log-dirs-throttle", 1)
        assert self.is_moving()
        return printed

    def let_go(self) -> None:
        self.tool("kafka-configs", "--alter", "--broker", 1, "--delete-config", THROTTLE)
        wait_for(self.has_moved, f"{TOPIC} in {self.target}", 120)

    def codes(self) -> list[int]:
        """Of requests that move nothing."""
        codes = []
        for path, topic, index in (
            ("/nowhere", TOPIC, 0), (f"{self.target}/", TOPIC, 0), (self.target.name, TOPIC, 0),
            (self.target, "none", 0), (self.target, TOPIC, 7), (self.target, "l" * 249, 0),
            (self.source, TOPIC, 0),
        ):  # fmt: skip
            asked = Asked(
                path=str(path), topics=[Asked.AlterReplicaLogDirTopic(name=topic, partitions=[index])]
            )
            for version in (1, 2):
                answer = self.ask(AlterReplicaLogDirsRequest(dirs=[asked]), version)
                codes += [one.error_code for result in answer.results for one in result.partitions]
        return codes

    def values(self) -> list[bytes]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": "g", "enable.partition.eof": True}
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        values = []
        while (message := consumer.poll(60)) is not None and message.error() is None:
            values.append((message.value() or b"").rstrip(b"x"))
        consumer.close()
        return values


def told(story: Story) -> list[object]:
    """A move from its begin to its end, with all that is said of it."""
    found: list[object] = [story.codes(), story.begin_and_stand_still()]
    found.append(story.reassign("--verify", "--preserve-throttles"))
    story.let_go()
    found.append(story.reassign("--verify"))
    found.append(story.reassign("--execute"))
    assert story.has_moved()
    assert story.values() == [b"%d" % number for number in range(RECORDS)]
    return found


@pytest.fixture
def kompakt(kafka_tools: Tools, tmp_path: Path) -> Iterator[Story]:
    directories = [tmp_path / "kompakt" / name for name in ("a", "b")]
    directories[0].parent.mkdir()
    broker = BrokerProcess(directories[0], {"node.id": "1"}, more_data=directories[1:])
    yield Story(broker, directories, kafka_tools)
    broker.close()


@pytest.fixture
def kafka(kafka_tools: Tools, tmp_path: Path) -> Iterator[Story]:
    directory = tmp_path / "kafka"
    directory.mkdir()
    broker = KafkaBroker(directory, tools=kafka_tools)
    directories = [broker.data, directory / "b"]
    broker.settings["log.dirs"] = ",".join(map(str, directories))
    yield Story(broker, directories, kafka_tools)
    broker.close()


def test_kafkas_tool_moves_a_partition(kompakt: Story) -> None:
    kompakt.broker.start()
    kompakt.fill()
    codes, begun, standing, ended, _ = told(kompakt)
    not_found, unknown = ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expected = (*3 * (not_found,), unknown, unknown, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE)
    assert codes == [code for code in expected for _ in range(2)]
    assert "Successfully started moving log directory to TARGET for replica moving-0" in str(begun)
    assert "Reassignment of replica moving-0-1 is still in progress." in str(standing)
    assert "Reassignment of replica moving-0-1 completed successfully." in str(ended)


@pytest.mark.slow
def test_all_that_is_said_of_a_move_is_as_with_kafka(kompakt: Story, kafka: Story) -> None:
    stories = []
    for story in (kompakt, kafka):
        story.broker.start()
        story.fill()
        stories.append(told(story))
        story.broker.stop()
    assert stories[0] == stories[1]


def taken_over(story: Story, other: Callable[[], Either]) -> None:
    """Stopped in the middle, by the one broker, and started by another one."""
    story.broker.start()
    story.fill()
    story.begin_and_stand_still()
    story.broker.stop()
    story.broker = other()
    try:
        story.broker.start()
        wait_for(story.has_moved, f"{TOPIC} in {story.target}", 120)
        assert story.values() == [b"%d" % number for number in range(RECORDS)]
        story.broker.stop()
    finally:
        story.broker.close()


@pytest.mark.slow
def test_a_move_of_kafkas_goes_on_here(kafka: Story) -> None:
    first, *more = kafka.directories
    taken_over(kafka, lambda: BrokerProcess(first, {"node.id": "1"}, more_data=more))


@pytest.mark.slow
def test_a_move_of_ours_goes_on_with_kafka(kafka: Story) -> None:
    """Its directories are Kafka's own, which keeps its topics in a log of its quorum."""
    theirs = kafka.broker
    theirs.start()
    kafka.fill()
    theirs.stop()
    first, *more = kafka.directories
    ours = kafka.broker = BrokerProcess(first, {"node.id": "1", THROTTLE: "1"}, more_data=more)
    try:
        ours.start()
        wanted = Asked.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
        asked = Asked(path=str(kafka.target), topics=[wanted])
        kafka.ask(AlterReplicaLogDirsRequest(dirs=[asked]), 2)
        wait_for(lambda: list(kafka.target.glob("*-future/*.log")), "a part of the copy")
        assert kafka.is_moving()
        ours.stop()
        kafka.broker = theirs
        theirs.start()
        wait_for(kafka.has_moved, f"{TOPIC} in {kafka.target}", 60)
        assert kafka.values() == [b"%d" % number for number in range(RECORDS)]
        theirs.stop()
    finally:
        kafka.broker = theirs
        ours.close()
