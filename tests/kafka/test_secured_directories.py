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
def test_users_and_rules_come_over(kafka_tools: Tools, certificates: Certificates, tmp_path: Path) -> None:
    kafka = SecuredKafka(tmp_path, kafka_tools, certificates, SETTINGS)
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
        rules, answers = sorted(map(repr, before.rules())), told(before)
        before.admin.close()
        kafka.stop()
        broker = SecuredBroker(kafka.data, certificates, SETTINGS).start()
        assert isinstance(broker, SecuredBroker)
        after = Side(broker, is_new=False)
        assert sorted(map(repr, after.rules())) == rules
        assert told(after) == answers
        after.admin.close()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert_comes_in(broker, mechanism)
        assert "took over 2 passwords, 4 rules and 1 quotas from Apache Kafka" in broker.log()
        player = QuotaPlayer(broker.port)
        assert player.described()[2] == [
            ([("client-id", "c"), ("user", "None")], [("producer_byte_rate", 9.0)])
        ]
        player.close()
    finally:
        if broker is not None:
            broker.close()
        kafka.close()


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
