"""Streams groups (KIP-1071): the broker divides the tasks of a Kafka Streams application, members reconcile.

A reader goes through the room in this order:

- `member.py`     one member, and its next step towards what it shall have (pure)
- `topology.py`   what the application runs: tasks, internal topics, what stands in the way (pure)
- `assignor.py`   who shall have which task: `sticky` (pure)
- `group.py`      one group: members, targets, which process holds a task
- `changes.py`    what can change, as records of `__consumer_offsets`, and what a change does
- `draft.py`      a group as it will be
- `endpoints.py`  what instances tell each other for interactive queries
- `heartbeats.py` the engine: a heartbeat answered, who leaves or is fenced
"""
