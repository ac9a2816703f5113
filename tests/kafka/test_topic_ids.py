"""Goal: who names topics by their ids (KIP-516) is answered as by Apache Kafka, whatever became of the topic.

Method: both brokers have a topic that was deleted and made again, and one that was deleted, each with
offsets that a group had committed; the same requests by ids go to both, of records, of commits, of offsets,
and the answers must agree field by field, the ids by the topics' labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records import encode_batch
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = pytest.mark.java
SETTINGS = {"node.id": "1", "auto.create.topics.enable": "false", "log.retention.ms": "-1"}
GROUP = "g"
BATCH = encode_batch([(1_700_000_000_000, b"k", b"v", ())])
IRRELEVANT = ("throttle_time_ms", "error_message", "log_append_time_ms", "session_id", "current_leader")
"""words are not compared, and what is told of leaders only helps to find them"""
Ids = dict[str, UUID]
Question = tuple[str, Any, int]


@dataclasses.dataclass
class Side:
    """One of the two brokers, and the ids of its topics by what is asked of them."""

    raw: Raw
    ids: Ids

    def answer(self, request: Any, version: int) -> Any:
        labels = {topic_id: label for label, topic_id in self.ids.items()}
        return told(self.raw.ask(request, version), labels)


def told(value: Any, labels: dict[UUID, str]) -> Any:
    """An answer without what may differ; rows in an order of their own."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name not in IRRELEVANT]
        return {name: told(getattr(value, name), labels) for name in names}
    if isinstance(value, list):
        return sorted((told(one, labels) for one in value), key=repr)
    if isinstance(value, UUID):
        return labels.get(value, "another id")
    return bytes(value) if isinstance(value, memoryview) else value


def prepared(port: int) -> Side:
    """`again` was deleted and made anew, `gone` deleted; the group had committed offsets of both."""
    raw = Raw(port)
    asked = FindCoordinatorRequest(coordinator_keys=[GROUP])
    wait_for(lambda: not raw.ask(asked, 4).coordinators[0].error_code, "a coordinator")
    ids: Ids = {"none": UUID(int=0), "never": UUID(int=7)}
    for label, topics in (("before", ("again", "gone")), ("now", ("again", "plain"))):
        for topic in topics:
            raw.create(topic, {}, partitions=2)
            assert raw.produce(topic, BATCH).error_code == 0
        ids |= {f"{topic} {label}": topic_id for topic, topic_id in ids_of(raw).items() if topic in topics}
        if label == "before":
            offsets = {ids[f"{topic} before"]: [0] for topic in topics}

            def is_taken(offsets: dict[UUID, list[int]] = offsets) -> bool:
                answer = raw.ask(committed(offsets), 10)
                return not any(row.error_code for topic in answer.topics for row in topic.partitions)

            wait_for(is_taken, "a group that is loaded")
            deleted = [DeleteTopicsRequest.DeleteTopicState(name=topic) for topic in topics]
            raw.ask(DeleteTopicsRequest(topics=deleted, timeout_ms=30_000), 6)
            wait_for(lambda: not {"again", "gone"} & ids_of(raw).keys(), "the end of the topics")
    return Side(raw, ids)


def ids_of(raw: Raw) -> dict[str, UUID]:
    return {row.name: row.topic_id for row in raw.ask(MetadataRequest(topics=None), 12).topics}


def committed(offsets: dict[UUID, list[int]], **fields: Any) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    return OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            topic(
                topic_id=topic_id,
                partitions=[
                    topic.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
                    for index in indexes
                ],
            )
            for topic_id, indexes in offsets.items()
        ],
        **fields,
    )


def produced(topic_id: UUID, *indexes: int, acks: int = -1) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    parts = [data.PartitionProduceData(index=index, records=memoryview(BATCH)) for index in indexes]
    row = data(topic_id=topic_id, partition_data=parts)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[row])


def fetched(topic_id: UUID, index: int, **fields: Any) -> FetchRequest:
    topic = FetchRequest.FetchTopic
    wanted = topic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1, high_watermark=0)
    rows = [topic(topic_id=topic_id, partitions=[wanted])]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 0, "session_id": 0, "topics": rows, **fields})


def offsets_asked(*topic_ids: UUID, group: str = GROUP, of_all: bool = False) -> OffsetFetchRequest:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    rows = [asked.OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0, 1, 9]) for one in topic_ids]
    return OffsetFetchRequest(groups=[asked(group_id=group, topics=None if of_all else rows)])


def questions(ids: Ids) -> Iterator[Question]:
    ids = dict(sorted(ids.items()))  # a broker tells them in any order
    every = list(ids.values())
    for label, topic_id in ids.items():
        yield f"OffsetFetch of {label}", offsets_asked(topic_id), 10
    yield "OffsetFetch of all before a commit", offsets_asked(of_all=True), 10
    yield "OffsetFetch of another group", offsets_asked(*every, group="nobody"), 10
    for label, topic_id in ids.items():
        for indexes in ((0,), (0, 1), (9,), (0, 9)):
            yield f"Produce to {label} {indexes}", produced(topic_id, *indexes), 13
        yield f"Produce to {label} with acks 2", produced(topic_id, 0, acks=2), 13
        for index in (0, 1, 9):
            yield f"Fetch of {label} {index}", fetched(topic_id, index), 18
        yield f"OffsetCommit of {label}", committed({topic_id: [0, 9]}), 10
        member = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}
        yield f"OffsetCommit of {label} by nobody", committed({topic_id: [0, 9]}, **member), 10
    yield "OffsetCommit of all", committed({topic_id: [0, 1] for topic_id in every}), 10
    yield "OffsetFetch of every one", offsets_asked(*every), 10
    yield "OffsetFetch of all", offsets_asked(of_all=True), 10


@pytest.fixture
def sides(start_kafka: Callable[..., KafkaBroker], tmp_path: Path) -> Iterator[list[Side]]:
    own = BrokerProcess(tmp_path / "data", SETTINGS).start()
    kafka = start_kafka(SETTINGS)
    made = [prepared(broker.port) for broker in (kafka, own)]
    yield made
    for side in made:
        side.raw.close()
    own.stop()
    own.close()


def test_g6_topics_that_came_and_went_are_known_by_their_ids(sides: list[Side]) -> None:
    asked = [list(questions(side.ids)) for side in sides]
    assert {"again before", "again now", "gone before", "plain now"} < sides[0].ids.keys()
    parted = []
    for (name, *kafkas), (_, *own) in zip(*asked, strict=True):
        expected, found = sides[0].answer(*kafkas), sides[1].answer(*own)
        if expected != found:
            parted.append(f"{name}\n  Kafka   {expected}\n  kompakt {found}")
    assert not parted, "\n".join(parted)
    stale = sides[1].answer(produced(sides[1].ids["again before"], 0), 13)
    (row,) = stale["responses"][0]["partition_responses"]
    assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


def of_a_session(side: Side) -> list[int]:
    """What a session, and who begins anew, are told of a topic that is deleted, and then made again."""
    raw = side.raw

    def make() -> None:
        raw.create("short", {}, partitions=1)
        wait_for(lambda: not raw.produce("short", BATCH).error_code, "a leader")

    make()
    old = ids_of(raw)["short"]
    session_id = raw.ask(fetched(old, 0, session_epoch=0), 18).session_id
    error_codes = []
    for epoch in (1, 2):
        if epoch == 1:
            gone = [DeleteTopicsRequest.DeleteTopicState(name="short")]
            raw.ask(DeleteTopicsRequest(topics=gone, timeout_ms=30_000), 6)
            wait_for(lambda: "short" not in ids_of(raw), "the end of the topic")
        else:
            make()
        for asked in (
            {"session_id": session_id, "session_epoch": epoch, "topics": []},
            {"session_epoch": -1},
        ):
            (topic,) = raw.ask(fetched(old, 0, **asked), 18).responses
            error_codes += [row.error_code for row in topic.partitions]
    return error_codes


def test_a_session_goes_on_with_the_name_of_a_topic_that_is_gone(sides: list[Side]) -> None:
    expected, found = [of_a_session(side) for side in sides]
    assert found == expected
    assert found[::2] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INCONSISTENT_TOPIC_ID]
