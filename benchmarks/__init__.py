"""kompakt beside Apache Kafka: the same work, on the same machine, in the same run, turn by turn.

`goals.py` says what is measured and what is aimed at, `sections/` measure it, `bench.py` is what they share:
the brokers, the turns, the figures. `systems.py` starts both brokers; `wire.py` is a load generator on bare
sockets, so that a figure is the broker's and not a client's; `perf_tools.py` uses Kafka's own measuring
tools. `results.py` keeps figures and judges them, `tables.py`, `report.py`, `plot.py` show them. `make
bench`, `make bench-long` and `make bench-quick` run it. `cleaner.py` and `spark.py` are benches of their own;
`command.py` is what the three have in common as programs. Needs a JVM and Maven, as `tests/kafka/` does.
"""
