"""Goal: clients and tools see the features of an Apache Kafka 4.3, at its levels. Who sets them to what
they are succeeds, as `kafka-features upgrade` at the end of a cluster's upgrade does; who asks for
what cannot be, or unregisters a broker that is not there, is told so in Kafka's words.

Method: the same requests to both brokers, in every version; their answers are compared field by field.
What Kafka takes and kompakt does not (another level, the broker itself unregistered) is asked of kompakt
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from protocol.messages.metadata import ApiVersionsRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.kafka.tools import Tools
from tests.process import BrokerProcess

pytestmark = pytest.mark.java
Start = Callable[..., KafkaBroker]
Update = UpdateFeaturesRequest.FeatureUpdateKey
Sides = list[tuple[str, Raw]]
UNKNOWN_TYPE = 9


@pytest.fixture
def sides(start_kafka: Start, tmp_path: Path) -> Iterator[Sides]:
    """Kafka's and ours: where each is, and a connection."""
    kafka = start_kafka({})
    own = BrokerProcess(tmp_path / "data", {"node.id": "1"}).start()
    started = [(broker.bootstrap, Raw(broker.port)) for broker in (kafka, own)]
    yield started
    for _, raw in started:
        raw.close()
    own.close()


def test_features_and_their_apis_are_told_as_by_kafka(sides: Sides) -> None:
    for version in (3, 4):
        told = []
        for _, raw in sides:
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
            answer = raw.ask(request, version)
            supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
            finalized = [
                (one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features
            ]
            apis = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
            epoch_is_known = answer.finalized_features_epoch >= 0
            told.append((sorted(supported), sorted(finalized), epoch_is_known, apis[57], apis[64]))
        assert told[0] == told[1]


def updates() -> Iterator[tuple[UpdateFeaturesRequest, int]]:
    """Nothing that would change Kafka."""
    asked: list[tuple[str, int, int]] = [
        ("share.version", 1, UPGRADE), ("share.version", 1, SAFE_DOWNGRADE), ("share.version", 2, UPGRADE),
        ("share.version", 0, UPGRADE), ("share.version", -1, UNSAFE_DOWNGRADE),
        ("share.version", 1, UNKNOWN_TYPE), ("metadata.version", 30, UPGRADE),
        ("metadata.version", 6, SAFE_DOWNGRADE), ("metadata.version", 31, UPGRADE),
        ("metadata.version", 7, UPGRADE), ("kraft.version", 1, UPGRADE), ("nope", 1, UPGRADE),
        ("", 1, UPGRADE),
    ]  # fmt: skip
    for version in (0, 1, 2):
        for name, level, kind in asked:
            if version or kind == UPGRADE:  # version 0 tells no other
                update = Update(feature=name, max_version_level=level, upgrade_type=kind)
                yield UpdateFeaturesRequest(feature_updates=[update]), version
        yield UpdateFeaturesRequest(feature_updates=[]), version
        both = [
            Update(feature="group.version", max_version_level=1),
            Update(feature="transaction.version", max_version_level=9),
        ]
        yield UpdateFeaturesRequest(feature_updates=both), version
        yield UpdateFeaturesRequest(feature_updates=both[:1], validate_only=version > 0), version


def test_updates_that_change_nothing_are_answered_as_by_kafka(sides: Sides) -> None:
    (_, kafka), (_, own) = sides
    codes = set()
    for request, version in updates():
        expected = kafka.ask(request, version)
        assert own.ask(request, version) == expected, (request, version)
        codes.add(expected.error_code)
    assert codes == {ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION}


def test_a_broker_that_is_not_there_is_unregistered_as_in_kafka(sides: Sides) -> None:
    (_, kafka), (_, own) = sides
    for broker_id in (2, 0, -1):
        request = UnregisterBrokerRequest(broker_id=broker_id)
        answer = own.ask(request, 0)
        assert answer == kafka.ask(request, 0)
        assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_end_of_an_upgrade_goes_through_kafkas_tools(sides: Sides, kafka_tools: Tools) -> None:
    told = []
    for bootstrap, _ in sides:
        at = ("--bootstrap-server", bootstrap)
        upgraded = kafka_tools.run("kafka-features", *at, "upgrade", "--release-version", "4.3")
        described = kafka_tools.run("kafka-features", *at, "describe")
        told.append((upgraded, [line.partition("Epoch")[0] for line in described.splitlines()]))
    assert told[0] == told[1]
    assert "metadata.version was upgraded to 30" in told[0][0]


def test_what_kompakt_does_not_take(sides: Sides, kafka_tools: Tools) -> None:
    _, (bootstrap, own) = sides
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        update = Update(feature="transaction.version", max_version_level=1, upgrade_type=kind)
        answer: Any = own.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "serves no other version of it than 2" in answer.error_message
    done = kafka_tools.attempt("kafka-cluster", "unregister", "--bootstrap-server", bootstrap, "--id", "1")
    assert done.returncode == 1
    assert "Broker 1 is the only one of this cluster, and it runs: stop it" in done.stderr
    assert own.ask(ApiVersionsRequest(), 0).error_code == 0, "it serves on"
