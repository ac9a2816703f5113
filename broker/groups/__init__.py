"""Group coordination: the rebalance protocols and committed offsets.

A reader goes through the room in this order:

- `state.py`       what states a group has, which event leads where, what each state answers (pure tables)
- `membership.py`  one group: its members, votes, static instances, pending members (no input or output)
- `rebalance.py`   the engine: join phase, sync phase, sessions
- `joining.py`     JoinGroup decided: who may join under which id; static members
- `offsets.py`     the committed offsets of one group: pending, visible, expired (pure)
- `records.py`     group and offset records <-> bytes of `__consumer_offsets`
- `kinds.py`       the records of groups of the newer protocols <-> bytes
- `contents.py`    what `__consumer_offsets` says at start
- `commits.py`     commit, fetch, delete, expiry and lag of offsets over all groups
- `epochs.py`, `epoch_group.py`  what members of the newer protocols say by their epochs; what their groups
  have in common
- `fencing.py`     members that miss a deadline are fenced
- `topics.py`, `storing.py`  the topics that groups divide; how their records are stored
- `consumer/`      groups of the consumer protocol (KIP-848)
- `streams/`       streams groups (KIP-1071), `share/` share groups (KIP-932)
- `restoring.py`   groups as they were read come to life
- `coordinator.py` the door: every group and offset request enters here

It mirrors Kafka's GroupCoordinator and GroupMetadataManager (KIP-62, KIP-134, KIP-345, KIP-394, KIP-429,
KIP-559, KIP-800, KIP-814, KIP-848, KIP-932, KIP-1071). Everything is owned by the event loop; only the scan
at start runs on a thread.
"""
