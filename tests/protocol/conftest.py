"""Apache Kafka for the tests of this folder."""

from tests.kafka.fixtures import kafka_broker, kafka_tools, start_kafka

__all__ = ["kafka_broker", "kafka_tools", "start_kafka"]
