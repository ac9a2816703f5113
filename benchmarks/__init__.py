"""kompakt beside Apache Kafka: the same work, on the same machine, in the same run, turn by turn.

`systems.py` starts both; `wire.py` is a producer on a bare socket, so that a latency is the broker's and not
a client's; `perf_tools.py` uses Kafka's own measuring tools; `cleaning.py` measures compaction; `report.py`
makes ratios. `make bench` runs the quick form. Needs a JVM and Maven, as the tests in `tests/kafka/` do.
"""
