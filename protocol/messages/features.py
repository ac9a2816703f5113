"""UpdateFeatures, UnregisterBroker: an administrator changes what the cluster as a whole does, and who is
of it.

UpdateFeatures v1: a direction in place of the leave to go down, and a rehearsal (KIP-778). v2: no results
by feature, for all of them fail together. UnregisterBroker: KIP-500.
"""

from __future__ import annotations

from protocol.schema import array, boolean, int8, int16, int32, request, response, string, struct

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@request(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Other levels of features."""

    @struct
    class FeatureUpdateKey:
        feature: str = string()
        max_version_level: int = int16()
        allow_downgrade: bool = boolean("0")
        upgrade_type: int = int8("1+", default=UPGRADE)

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


@response(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """Whether all of them stand at their levels now."""

    @struct
    class UpdatableFeatureResult:
        feature: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")


@request(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """Forget a broker that will not come back."""

    broker_id: int = int32()


@response(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether it is forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
