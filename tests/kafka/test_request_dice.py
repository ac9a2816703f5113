"""Goal: what administrators and their tools ask that nobody thought of is answered as by Apache Kafka: every
code, every field, and the words of every refusal.

Method: requests whose fields dice fill in (`request_dice.py`) go to both brokers, with rules (ACLs), quotas
and users; the answers are compared field by field, but for what `differences` leaves out. After each change
both are waited for, for Apache Kafka's brokers learn of it later than it is answered.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import broker.handlers  # noqa: F401  # every handler is registered
from broker.api import Api, apis
from protocol.errors import ErrorCode
from protocol.messages.groups import FindCoordinatorRequest, HeartbeatRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.transactions import InitProducerIdRequest
from protocol.records import encode_batch
from protocol.schema import registry
from tests.kafka.both import Start, both
from tests.kafka.raw import Raw
from tests.kafka.request_dice import GROUPS, Draw
from tests.waiting import wait_for

PROTOCOLS = ("consumer", "share", "streams")
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "node.id": "1",
    "log.retention.ms": "-1",
    "log.initial.task.delay.ms": "3600000",
    "offsets.topic.num.partitions": "3",
    "offsets.retention.check.interval.ms": "86400000",  # the two do not look for old groups at once
    # where kompakt has other defaults, on purpose
    "log.flush.interval.messages": str(2**63 - 1),
    "group.streams.initial.rebalance.delay.ms": "3000",
    **{f"group.{protocol}.assignment.interval.ms": "1000" for protocol in PROTOCOLS},
    **{f"group.{protocol}.heartbeat.interval.ms": "5000" for protocol in PROTOCOLS},
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "a": (3, {}), "b": (1, {"retention.ms": "-1"}), "c": (1, {"cleanup.policy": "compact"}),
    "barrier": (1, {}),
}  # fmt: skip
CHANGING = {
    "CreateTopics": 6, "DeleteTopics": 1, "CreatePartitions": 3, "IncrementalAlterConfigs": 8,
    "AlterConfigs": 3, "CreateAcls": 4, "DeleteAcls": 2, "AlterClientQuotas": 3,
    "AlterUserScramCredentials": 3, "AlterPartitionReassignments": 1,
}  # fmt: skip
"""how often; the rest once"""
ASKING = {
    "DescribeConfigs": 6, "Metadata": 3, "DescribeTopicPartitions": 3, "OffsetCommit": 4, "OffsetFetch": 4,
    "DescribeAcls": 3, "DescribeClientQuotas": 3,
    **dict.fromkeys(
        ("AddOffsetsToTxn", "AddPartitionsToTxn", "ConsumerGroupDescribe", "DeleteGroups", "DeleteRecords",
         "DeleteShareGroupOffsets", "DescribeCluster", "DescribeGroups", "DescribeLogDirs",
         "DescribeProducers", "DescribeShareGroupOffsets", "DescribeTransactions",
         "DescribeUserScramCredentials", "ElectLeaders", "EndTxn", "FindCoordinator", "Heartbeat",
         "InitProducerId", "LeaveGroup", "ListConfigResources", "ListGroups", "ListOffsets",
         "ListPartitionReassignments", "ListTransactions", "OffsetDelete", "OffsetForLeaderEpoch",
         "ShareGroupDescribe", "StreamsGroupDescribe", "TxnOffsetCommit"), 1,
    ),
}  # fmt: skip
"""the others have dice, or tests, of their own"""
ODDS = {**CHANGING, **ASKING}
STEPS = 150
OF_KOMPAKT = {
    "__kompakt_metadata", "__share_group_state", "compaction.compression.type",
    "compaction.expired.tombstones.enable", "compaction.strategy", "compaction.strategy.header",
    "segment.idle.ms",
}  # fmt: skip
"""what Apache Kafka has not, or makes later"""
ITS_OWN = {
    "throttle_time_ms", "host", "port", "cluster_id", "log_dir", "partition_size", "total_bytes",
    "usable_bytes", "documentation",
}  # fmt: skip
ROW_NAMES = (
    "resource_type", "name", "resource_name", "topic", "topic_name", "partition_index", "group_id",
    "partition_id", "key", "user", "entity", "transactional_id",
)  # fmt: skip
FAILED = -1
"""UNKNOWN_SERVER_ERROR: Apache Kafka's own fault"""
OF_REQUEST = (
    "This most likely occurs because of a request being malformed by the client library or the message was "
    "sent to an incompatible broker. See the broker logs for more details."
)
SAYS_NOTHING = (None, "", "NONE", OF_REQUEST)
UNCOMPARED = (
    ".allow_replication_factor_change",  # of nothing that was asked for Kafka says yes
    ".synonyms",  # kompakt has fewer, and other defaults at their ends
    "[min.insync.replicas].config_source",  # a Kafka sets it for all brokers itself (KIP-966)
)


class Asker:
    """One broker, asked and changed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.raw = Raw(port)
        self._ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}
        self._changes = 0

    def prepare(self) -> None:
        raw = self.raw
        for topic, (partitions, settings) in TOPICS.items():
            raw.create(topic, settings, partitions)
        records = [(1_700_000_000_000 + number, b"k%d" % number, b"v", ()) for number in range(4)]
        assert raw.produce("a", encode_batch(records)).error_code == 0
        for kind, keys in ((0, GROUPS[:-1]), (1, ("t", "u", "none"))):
            wait_for(partial(self._has_coordinators, kind, keys), "coordinators")
        for group in GROUPS[:-1]:
            wait_for(partial(self._is_loaded, group), f"{group} is loaded")
        for name in ("t", "u", "none"):
            wait_for(partial(self._has_producer, name), f"{name} is loaded")

    def _has_coordinators(self, kind: int, keys: tuple[str, ...]) -> bool:
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
        return not any(one.error_code for one in self.raw.ask(asked, 4).coordinators)

    def _is_loaded(self, group: str) -> bool:
        asked = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
        return bool(self.raw.ask(asked, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID)

    def _has_producer(self, transactional_id: str) -> bool:
        asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        return bool(self.raw.ask(asked, 2).error_code == ErrorCode.NONE)

    def again(self) -> None:
        """The topics are there that every seed begins with."""
        self.settle()
        for topic, (partitions, settings) in TOPICS.items():
            if topic not in self._ids:
                self.raw.create(topic, settings, partitions)
        self.settle()

    def settle(self) -> None:
        """Return when what was changed is known. A change is told when it is published; what its publication
        brings about is over when another one is.
        """
        for _ in range(2):
            self._changes += 1
            self.raw.configure("barrier", {"retention.ms": str(10**9 + self._changes)})
        told = self.raw.ask(MetadataRequest(topics=None), 12)
        self._ids = {topic.name: topic.topic_id for topic in told.topics}
        self._names |= {topic.topic_id: f"id of {topic.name}" for topic in told.topics}

    def ask(self, api: Api, version: int, seed: int) -> tuple[Any, Any]:
        """The request, and what is compared of its answer; a text where there is none."""
        request = Draw(seed, self._ids).request(api, version)
        try:
            return request, self._comparable(self.raw.ask(request, version))
        except (AssertionError, OSError) as problem:
            self.raw.close()
            self.raw = Raw(self.port)
            return request, f"no answer: {problem}"

    def _comparable(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            names = (field.name for field in dataclasses.fields(value))
            return {name: self._comparable(getattr(value, name)) for name in names if name not in ITS_OWN}
        if isinstance(value, list):
            rows = [self._comparable(one) for one in value if not is_of_kompakt(one)]
            return sorted(rows, key=lambda row: (row_name(row), repr(row)))
        return self._names.get(value, "another id") if isinstance(value, UUID) else value


def is_of_kompakt(row: Any) -> bool:
    return any(
        getattr(row, name, None) in OF_KOMPAKT for name in ("name", "topic", "resource_name", "topic_name")
    )


def differences(kafkas: Any, ours: Any, place: str = "") -> Iterator[str]:
    """Where two answers part, in words; but where Apache Kafka failed, or says less than kompakt."""
    if place.endswith(UNCOMPARED) or (isinstance(kafkas, str) and kafkas.startswith("no answer")):
        return
    if place.endswith("error_message") and (kafkas in SAYS_NOTHING or (ours or "").startswith(kafkas)):
        return
    if isinstance(kafkas, dict) and isinstance(ours, dict):
        if kafkas.get("error_code") != FAILED:
            for name in kafkas:
                yield from differences(kafkas[name], ours[name], f"{place}.{name}")
    elif isinstance(kafkas, list) and isinstance(ours, list):
        names, own_names = ([row_name(row) for row in rows] for rows in (kafkas, ours))
        if names == own_names:
            for name, row, own in zip(names, kafkas, ours, strict=True):
                yield from differences(row, own, f"{place}[{name}]")
        else:
            yield f"{place}: rows {names} and {own_names}"
    elif kafkas != ours:
        yield f"{place}: {kafkas!r}, kompakt {ours!r}"


def row_name(row: Any) -> str:
    if not isinstance(row, dict):
        return str(row)
    return "/".join(str(row[name]) for name in ROW_NAMES if row.get(name) not in (None, ""))


def is_choice(api: Api, request: Any, difference: str) -> bool:
    """Of several mistakes each names one; which, is a matter of Java's hash maps."""
    if ".error_message" not in difference:
        return False
    rows = getattr(request, "resources", None) or getattr(request, "topics", None) or ()
    return api.name == "AlterClientQuotas" or any(len(getattr(row, "configs", ())) > 1 for row in rows)


@pytest.mark.java
def test_random_requests_are_answered_as_by_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(2))


@pytest.mark.slow
@pytest.mark.java
def test_many_random_requests_are_answered_as_by_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(2, 80))


def play_at_random(start_kafka: Start, directory: Path, seeds: range) -> None:
    with both(start_kafka, directory, SETTINGS) as brokers:
        askers = [Asker(broker.port) for broker in brokers]
        for one in askers:
            one.prepare()
        told = askers[0].raw.ask(
            registry[18].request(client_software_name="x", client_software_version="1"), 3
        )
        newest = {row.api_key: row.max_version for row in told.api_keys}
        for seed in seeds:
            play_seed(askers, newest, seed)
        for one in askers:
            one.raw.close()


def play_seed(askers: list[Asker], newest: dict[int, int], seed: int) -> None:
    dice = random.Random(seed)
    for one in askers:
        one.again()
    by_name = {api.name: api for api in apis.values()}
    for step in range(STEPS):
        api = by_name[dice.choices([*ODDS], [*ODDS.values()])[0]]
        version = dice.randint(api.min_version, min(api.max_version, newest[api.key]))
        drawn = dice.getrandbits(60)
        (request, expected), (_, found) = (one.ask(api, version, drawn) for one in askers)
        if api.name in CHANGING:
            for one in askers:
                one.settle()
        parted = [one for one in differences(expected, found) if not is_choice(api, request, one)]
        assert not parted, "\n".join(
            (f"seed {seed}, step {step}: {api.name} v{version}", str(request), *parted)
        )
