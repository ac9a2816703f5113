"""Goal: what librdkafka concludes from our versions is what it concludes from Kafka's.

Method: its own log of enabled features, and a zstd record that arrives compressed in the log.
"""

from __future__ import annotations

import logging
import re

import confluent_kafka
import pytest

from protocol.batch import iterate_headers
from protocol.compression import Codec
from tests.clients.adaptors import Client
from tests.process import BrokerProcess

FEATURES = {
    "MsgVer1", "MsgVer2", "ApiVersion", "BrokerBalancedConsumer", "ThrottleTime", "BrokerGroupCoordinator",
    "LZ4", "OffsetTime", "IdempotentProducer", "ZSTD", "SaslHandshake", "SaslAuthReq",
}  # fmt: skip


def test_g3_librdkafka_enables_its_features(
    broker: BrokerProcess, confluent: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("librdkafka")
    with caplog.at_level(logging.DEBUG, logger.name):
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "debug": "feature",
                "compression.codec": "zstd",
                "linger.ms": 50,
            },
            logger=logger,
        )
        for number in range(100):
            producer.produce(topic, b"v" * 100, b"%d" % number, 0)
        assert producer.flush(60) == 0
        producer.poll(0)
    enabled = set(re.findall(r"Enabling feature (\w+)", caplog.text))
    assert enabled >= FEATURES
    (segment,) = (broker.data / f"{topic}-0").glob("*.log")
    assert {header.codec for _, header in iterate_headers(segment.read_bytes())} == {Codec.ZSTD}
