"""What clients are told that a broker can do as a whole (KIP-584), by the names and levels of Apache
Kafka 4.3: the levels are those that this broker serves, and they stand.

`transaction.version` says that transactions v2 are served (KIP-890, G15), `group.version` the consumer
groups of KIP-848, `share.version` share groups (KIP-932), `streams.version` streams groups (KIP-1071).
The others are about a cluster's metadata and its quorum: of one node they hold by themselves, and tools
tell from `metadata.version` which release they talk to. Mirrors Kafka's `FeatureControlManager`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.transactions.state import V2
from protocol.messages.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    UpdateFeaturesRequest,
)

Update = UpdateFeaturesRequest.FeatureUpdateKey


@dataclass(frozen=True)
class Feature:
    """The levels between which a cluster of such brokers may choose; chosen is the highest."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest}-{self.highest}"


FEATURES = {
    "eligible.leader.replicas.version": Feature(0, 1),
    "group.version": Feature(0, 1),
    "kraft.version": Feature(0, 1),
    "metadata.version": Feature(7, 30),  # 3.3-IV3 to 4.3-IV0
    "share.version": Feature(0, 1),
    "streams.version": Feature(0, 1),
    "transaction.version": Feature(0, V2),
}


def why_not(updates: Iterable[Update], node_id: int) -> str | None:
    """Why not all of these can be; None where each of them already is."""
    for update in updates:
        reason = _why_not(update, FEATURES.get(update.feature), node_id)
        if reason is not None:
            return f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
    return None


def _why_not(update: Update, feature: Feature | None, node_id: int) -> str | None:
    level = update.max_version_level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if feature is None:
        return f"Local controller {node_id} does not support this feature."
    if not feature.lowest <= level <= feature.highest:
        return f"Local controller {node_id} only supports versions {feature}"
    if level == feature.highest:
        return None
    if update.upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
            " unsafe downgrade."
        )
    return f"This broker is kompakt, which serves no other version of it than {feature.highest}."
