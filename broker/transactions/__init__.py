"""Transactions: who may write under a transactional id, what a transaction takes part in, how it ends.

A reader goes through the room in this order:

- `state.py`       one transactional id: what may follow on what, who is fenced (pure)
- `records.py`     states <-> bytes of `__transaction_state`
- `coordinator.py` the door: every transaction request enters here, and what ends by itself

What is decided is a record in `__transaction_state` before anybody is told, and before the markers that
carry it out: a crash between two of them is finished at the next start. One node has all partitions, so that
a commit is answered when its markers are on disk, where Apache Kafka's is when it is decided: who committed
reads what was committed, and the next transaction need not wait.

It mirrors Kafka's TransactionCoordinator, TransactionMetadata and TransactionStateManager (KIP-98, KIP-360,
KIP-447, KIP-664, KIP-890). Everything is owned by the event loop.
"""
