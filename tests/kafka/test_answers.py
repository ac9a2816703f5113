"""Goal: whatever is asked, kompakt's error codes (and offsets) are Apache Kafka's.

Method: the requests of `questions.py` go to both, in the same order; every field of the answers that names an
error or an offset must agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.groups import FindCoordinatorRequest, HeartbeatRequest
from protocol.records import encode_batch
from tests.kafka.broker import KafkaBroker
from tests.kafka.questions import NOW_MS, questions
from tests.kafka.raw import Raw
from tests.process import BrokerProcess
from tests.waiting import wait_for

Start = Callable[..., KafkaBroker]
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
# Where the answers differ, and why that is right.
EXPLAINED = {
    "ListOffsets of one partition twice": "both say INVALID_REQUEST; Kafka in one row, kompakt in a row each",
    "IncrementalAlterConfigs operation 9": "Kafka has UNKNOWN_SERVER_ERROR, here it is INVALID_REQUEST",
    "DescribeTopicPartitions ''": "Kafka has UNKNOWN_SERVER_ERROR, here it is INVALID_TOPIC_EXCEPTION",
    "Produce codec 5": "Kafka fails with UNKNOWN_SERVER_ERROR, here it is UNSUPPORTED_COMPRESSION_TYPE",
    "Produce codec 7": "Kafka fails with UNKNOWN_SERVER_ERROR, here it is UNSUPPORTED_COMPRESSION_TYPE",
    "Produce said to be gzip": "Kafka fails with UNKNOWN_SERVER_ERROR, here it is INVALID_RECORD",
    "Produce lz4 of linked blocks": "Kafka fails with UNKNOWN_SERVER_ERROR, here it is INVALID_RECORD",
    "Produce lz4 behind what readers skip": "as of linked blocks",
    "Produce LogAppendTime from a client": "Kafka takes it as CreateTime; no client sends it, here refused",
    "Produce horizon": "Kafka stores it, and takes the base timestamp for a horizon; here it is refused",
}
SETTINGS = {"node.id": "1", "auto.create.topics.enable": "false"}
COMPARED = (
    "offset", "base_offset", "end_offset", "low_watermark", "committed_offset", "timestamp", "producer_id",
    "producer_epoch", "last_sequence", "coordinator_epoch", "current_txn_start_offset",
    "topic_authorized_operations", "log_start_offset", "high_watermark", "last_stable_offset",
)  # fmt: skip


def facts(answer: Any) -> Iterator[tuple[str, Any]]:
    """Every error code and offset of an answer, in order."""
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if dataclasses.is_dataclass(value):
            yield from facts(value)
        elif isinstance(value, list):
            for one in value:
                if dataclasses.is_dataclass(one):
                    yield from facts(one)
        elif field.name.endswith("error_code") or field.name in COMPARED:
            yield field.name, value


def prepare(raw: Raw) -> None:
    raw.create("plain", {"retention.ms": "-1"}, partitions=3)
    raw.create("apart", {})
    raw.create("marked", {}, partitions=2)
    raw.create("compacted", {"cleanup.policy": "compact"})
    raw.create("no-policy", {"cleanup.policy": ""})
    raw.create("both-policies", {"cleanup.policy": "compact,delete"})
    raw.create("zipped", {"compression.type": "zstd"})
    raw.create("asks-for-two", {"min.insync.replicas": "2"})
    raw.create("stamped", {"message.timestamp.type": "LogAppendTime"})
    records = [(NOW_MS + number, b"k%d" % number, b"v", ()) for number in range(4)]
    assert raw.produce("plain", encode_batch(records)).error_code == 0
    asked = FindCoordinatorRequest(coordinator_keys=["simple", "g", "none", "nobody"])
    wait_for(lambda: not any(one.error_code for one in raw.ask(asked, 4).coordinators), "a coordinator")
    wait_for(lambda: 16 not in [code for _, code in facts(raw.ask(HEARTBEAT, 4))], "loaded groups")


def told(raw: Raw, request: Any, version: int) -> Any:
    try:
        return list(facts(raw.ask(request, version)))
    except (AssertionError, OSError) as problem:
        return f"no answer: {problem}"


@pytest.mark.java
def test_error_codes_are_kafkas(start_kafka: Start, tmp_path: Path) -> None:
    own = BrokerProcess(tmp_path / "data", SETTINGS).start()
    kafka = start_kafka({"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "100"})
    raws = [Raw(kafka.port), Raw(own.port)]
    for raw in raws:
        prepare(raw)
    parted = []
    for name, request, version in questions():
        expected, found = (told(raw, request, version) for raw in raws)
        for index, broker in enumerate((kafka, own)):
            if isinstance((expected, found)[index], str):
                raws[index].close()
                raws[index] = Raw(broker.port)
        if (expected == found) == (name in EXPLAINED):
            parted.append(f"{name}\n  Kafka   {expected}\n  kompakt {found}")
    for raw in raws:
        raw.close()
    own.stop()
    log = own.log()
    own.close()
    assert "Traceback" not in log, log
    assert not parted, "\n".join(parted)
