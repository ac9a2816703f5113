"""How records get to share groups (KIP-932): who has which, how often it was sent, how it went.

A reader goes through the room in this order:

- `state_batches.py` runs of offsets that fare alike (pure)
- `batches.py`       how far the delivery of a batch's offsets is, by runs that fare alike (pure)
- `overview.py`      what must be known of all of them without walking them (pure)
- `delivery.py`      the records of a partition that are on their way to a group (pure)
- `acquiring.py`     what a member gets of records that were read for it (pure)
- `partition.py`     a partition as one group sees it, and what is written down of that
- `records.py`       that <-> bytes of `__share_group_state`
- `coordinator.py`   all of these partitions: read at start, begun, acknowledged, written down, forgotten
- `sessions.py`      what each member fetches

Groups and their members are in `broker/groups/share/`, the requests in `broker/handlers/share_fetch.py`.
Mirrors what SharePartitionManager, SharePartition and ShareCoordinator share in Kafka. Everything is owned by
the event loop; only the scan at start runs on a thread.
"""
