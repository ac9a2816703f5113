"""Kafka Connect and MirrorMaker beside the broker: what moves data in, out, and on to Apache Kafka."""
