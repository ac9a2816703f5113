"""Kafka Streams beside the broker: stores in changelogs, repartitioned streams, instances that end."""
