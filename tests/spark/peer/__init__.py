"""Spark's own Kafka source, to stand beside ours in tests and benchmarks."""
