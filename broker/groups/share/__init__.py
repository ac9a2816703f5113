"""Share groups (KIP-932): several members read one partition, each record goes to one of them.

A reader goes through the room in this order:

- `group.py`      one group and its members
- `assignor.py`   who shall have what (pure)
- `changes.py`    what can change, as records of `__consumer_offsets`, and what a change does
- `draft.py`      a group as it will be
- `heartbeats.py` the engine: a heartbeat answered, who leaves or is fenced, where a group begins

What members do with records is in `broker/share/`.
"""
