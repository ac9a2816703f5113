"""Where replicas may lie: there is one node."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode, KafkaError

_ASSIGNMENT = "The manual partition assignment includes"


def check_placement(broker_ids: Sequence[int], node_id: int) -> None:
    """INVALID_REPLICA_ASSIGNMENT unless it is this node alone (ReplicationControlManager's words)."""
    if not broker_ids:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{_ASSIGNMENT} an empty replica list.")
    ascending = sorted(broker_ids)
    for before, broker_id in zip([None, *ascending], ascending, strict=False):
        if broker_id != node_id:
            words = f"{_ASSIGNMENT} broker {broker_id}, but no such broker is registered."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, words)
        if broker_id == before:
            words = f"{_ASSIGNMENT} the broker {broker_id} more than once."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, words)
