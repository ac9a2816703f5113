"""What members of the newer protocols say by their epochs (KIP-848)."""

from __future__ import annotations

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""a static member that will be back: its partitions stay with it"""

FIRST_EPOCH = 1
"""of a group without anybody; as in Kafka 4.3 the first member that joins begins the next one"""
MEMBER_EPOCH_VERSION = 9
"""OffsetCommit says a member's epoch from this version on"""
