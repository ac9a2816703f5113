"""What one request may change of topics: each partition that it makes or deletes takes a token of its
client's bucket (KIP-599).

A strict quota refuses what comes when the bucket is overdrawn; clients of the versions that know the error
try again when the time is over. A permissive one, for those that do not, lets all through and has them wait.
Mirrors Kafka's `StrictControllerMutationQuota` and `PermissiveControllerMutationQuota`.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.quotas.rates import TokenBucket
from protocol.errors import ErrorCode, KafkaError


class Unbounded:
    """For a client without a quota. Owned by: event loop."""

    def take(self, partitions: int) -> None:
        """So many partitions are made or deleted. KafkaError: not now."""

    def wait_ms(self) -> int:
        """How long the client has to wait, from now on."""
        return 0


class Mutations(Unbounded):
    """Owned by: event loop."""

    def __init__(
        self, bucket: TokenBucket, limit: float, is_strict: bool, passed_ms: Callable[[], int]
    ) -> None:
        self._bucket, self._limit = bucket, limit
        self._is_strict = is_strict
        self._passed_ms = passed_ms
        self._until_ms = 0

    def take(self, partitions: int) -> None:
        now_ms = self._passed_ms()
        if self._is_strict and self._is_overdrawn(now_ms):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._bucket.add(partitions, self._limit, now_ms)
        if not self._is_strict:
            self._is_overdrawn(now_ms)

    def _is_overdrawn(self, now_ms: int) -> bool:
        wait_ms = self._bucket.wait_ms(self._limit, now_ms)
        if wait_ms:
            self._until_ms = now_ms + wait_ms
        return wait_ms > 0

    def wait_ms(self) -> int:
        return max(0, self._until_ms - self._passed_ms())
