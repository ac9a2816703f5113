"""Goal: features stay at the levels that are told, whatever an administrator asks for, and who asks for
more or less is told why not; the broker itself is not unregistered.

Method: requests to a broker in the loop, as Kafka's own answers are (tests/kafka/test_features.py
compares them).
"""

from __future__ import annotations

import pytest

from broker.features import FEATURES
from protocol.errors import ErrorCode
from protocol.messages.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from protocol.messages.metadata import ApiVersionsRequest
from tests.broker.conftest import World

Update = UpdateFeaturesRequest.FeatureUpdateKey
PREFIX = (
    "The update failed for all features since the following feature had an error: Invalid update version "
)


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        ("share.version", 0, UPGRADE, "Can't downgrade the version of this feature without"),
        ("share.version", 0, SAFE_DOWNGRADE, "serves no other version of it than 1."),
        ("metadata.version", 29, UNSAFE_DOWNGRADE, "serves no other version of it than 30."),
        ("share.version", -1, UNSAFE_DOWNGRADE, "A feature version cannot be less than 0."),
        ("share.version", 1, 0, "does not support the given upgrade type."),
        ("metadata.version", 31, UPGRADE, "Local controller 1 only supports versions 7-30"),
        ("metadata.version", 6, SAFE_DOWNGRADE, "Local controller 1 only supports versions 7-30"),
        ("nope", 0, SAFE_DOWNGRADE, "Local controller 1 does not support this feature."),
        ("nope", 1, UPGRADE, "Local controller 1 does not support this feature."),
    ],
)
async def test_other_levels_are_refused(world: World, name: str, level: int, kind: int, reason: str) -> None:
    client = await world.connect()
    fine = Update(feature="group.version", max_version_level=1)
    updates = [fine, Update(feature=name, max_version_level=level, upgrade_type=kind)]
    for version in (1, 2):
        answer = await client.ask(UpdateFeaturesRequest(feature_updates=updates), version)
        assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
        assert answer.error_message.startswith(f"{PREFIX}{level} for feature {name}. ")
        assert reason in answer.error_message


@pytest.mark.parametrize("validate_only", [True, False])
async def test_the_levels_that_are_may_be_asked_for(world: World, validate_only: bool) -> None:
    client = await world.connect()
    updates = [
        Update(feature=name, max_version_level=feature.highest, upgrade_type=kind)
        for name, feature in FEATURES.items()
        for kind in (UPGRADE, SAFE_DOWNGRADE)
    ]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    answer = await client.ask(request, 1)
    assert answer.error_code == ErrorCode.NONE
    assert [(one.feature, one.error_code) for one in answer.results] == [(one.feature, 0) for one in updates]


@pytest.mark.parametrize(
    ("broker_id", "code"), [(1, ErrorCode.INVALID_REQUEST), (2, ErrorCode.BROKER_ID_NOT_REGISTERED)]
)
async def test_no_broker_is_unregistered(world: World, broker_id: int, code: ErrorCode) -> None:
    client = await world.connect()
    answer = await client.ask(UnregisterBrokerRequest(broker_id=broker_id), 0)
    assert answer.error_code == code
    assert f" {broker_id} is " in answer.error_message
    assert (await (await world.connect()).ask(ApiVersionsRequest(), 0)).error_code == 0
