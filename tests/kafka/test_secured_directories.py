"""Goal: started on the directory of a secured Apache Kafka with its own settings, the broker knows its
users and keeps its rules.

Method: a Kafka with passwords and rules of all kinds is stopped, kompakt is started there; who could come in
comes in, and may do what it could.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.certificates import Certificates
from tests.kafka.quota_player import QuotaPlayer
from tests.kafka.test_authorization import SETS, SETTINGS, Side
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.secured import PASSWORD, PROTOCOLS, USER, SecuredBroker, SecuredKafka, add_user
from tests.waiting import wait_for


def told(side: Any) -> dict[str, Any]:
    return {name: found for name, (found, _) in side.answers(is_answered=False)}


@pytest.mark.java
@pytest.mark.parametrize("is_apart", [False, True], ids=["in log.dirs", "in metadata.log.dir"])
def test_users_and_rules_come_over(
    kafka_tools: Tools, certificates: Certificates, tmp_path: Path, is_apart: bool
) -> None:
    """And stay where they were, for when Kafka is started again."""
    apart = {"metadata.log.dir": str(tmp_path / "apart")} if is_apart else {}
    kafka = SecuredKafka(tmp_path, kafka_tools, certificates, SETTINGS | apart)
    broker: BrokerProcess | None = None
    try:
        kafka.start()
        add_user(kafka.bootstrap)
        player = QuotaPlayer(kafka.port)
        player.alter(
            ([("client-id", "c"), ("user", None)], [("producer_byte_rate", 9), ("consumer_byte_rate", 1)])
        )
        player.alter(([("user", None), ("client-id", "c")], [("consumer_byte_rate", None)]))
        player.close()
        before = Side(kafka)
        before.rule(SETS["all but one"])
        add_compacted(kafka.bootstrap)
        rules, answers = sorted(map(repr, before.rules())), told(before)
        before.admin.close()
        kafka.stop()
        broker = SecuredBroker(kafka.data, certificates, SETTINGS | apart).start()
        assert isinstance(broker, SecuredBroker)
        after = Side(broker, is_new=False)
        assert sorted(map(repr, after.rules())) == rules
        assert told(after) == answers
        assert policy(broker.bootstrap) == "compact"
        after.admin.close()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert_comes_in(broker, mechanism)
        assert "took over 2 passwords, 4 rules and 1 quotas from Apache Kafka" in broker.log()
        player = QuotaPlayer(broker.port)
        assert player.described()[2] == [
            ([("client-id", "c"), ("user", "None")], [("producer_byte_rate", 9.0)])
        ]
        player.close()
        broker.stop()
        kafka.start()
        again = Side(kafka, is_new=False)
        assert sorted(map(repr, again.rules())) == rules
        again.admin.close()
    finally:
        if broker is not None:
            broker.close()
        kafka.close()


def add_compacted(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    topic = confluent_kafka.admin.NewTopic("compacted", 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])["compacted"].result(60)


def policy(bootstrap: str) -> str:
    """That of the topic `compacted`."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    kind = confluent_kafka.admin.ConfigResource.Type.TOPIC
    (found,) = admin.describe_configs([confluent_kafka.admin.ConfigResource(kind, "compacted")]).values()
    return str(found.result(60)["cleanup.policy"].value)


def assert_comes_in(broker: SecuredBroker, mechanism: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address["SASLPLAIN"],
            "security.protocol": PROTOCOLS["SASLPLAIN"],
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "group.id": "h",
        }
    )
    found: list[Any] = []
    wait_for(lambda: found.append(consumer.list_topics("own", 20)) or found, "the topic")
    assert found[0].topics["own"].error is None
    consumer.close()
