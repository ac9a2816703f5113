"""Consumer groups (KIP-848): the broker assigns, members reconcile by heartbeats.

A reader goes through the room in this order:

- `member.py`     one member, and its next step towards what it shall have (pure)
- `assignors.py`  who shall have what: `uniform`, `range` (pure)
- `group.py`      one group: members, targets, who holds a partition
- `changes.py`    what can change, as records of `__consumer_offsets`, and what a change does
- `draft.py`      a group as it will be
- `heartbeats.py` the engine: a heartbeat answered, who leaves or is fenced
- `conversion.py` a group changes its protocol while it has members
- `classic_protocol.py`, `classic_members.py`  what members of the classic protocol say, and who serves them
"""
