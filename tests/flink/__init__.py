"""Flink beside the broker: streams kept as tables in compacted topics."""
