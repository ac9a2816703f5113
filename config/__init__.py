"""What can be set: one table row a key, read by broker, describe APIs, documentation and tests.

- `definition.py`  what a row is: type, default, range, words; text <-> value
- `topic.py`       the keys of a topic, and how a topic's value is found (override, broker, default)
- `broker.py`      the keys of the broker, the limits table among them
- `connections.py` how many connections there may be, and how fast they may come
- `listeners.py`   listener addresses
- `harmless.py`    keys of Kafka that mean nothing on one node
- `load.py`        defaults < file < environment < flags

Mirrors Kafka's `ConfigDef`, `LogConfig` and `KafkaConfig`. A leaf: it imports nothing of the project.
"""
