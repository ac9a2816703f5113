"""InitProducerId: the identity under which a producer's batches are numbered.

v2: flexible. v3: a producer may bring the id and epoch it has (KIP-360). v4: PRODUCER_FENCED. v5:
transaction errors (KIP-890).
"""

from __future__ import annotations

from protocol.schema import int16, int32, int64, request, response, string


@request(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    """Ask for a producer id, or for the next epoch of a transactional one."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@response(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    """The producer id and epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
