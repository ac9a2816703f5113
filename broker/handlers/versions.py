"""ApiVersions (key 18), v0-v4.

The answer is the registry of handlers. A version we do not know is answered in v0 with
UNSUPPORTED_VERSION and the ranges (G1, in `connection.py`, before a body is read). From v3 the client
names its software, badly named ones get INVALID_REQUEST (KIP-511). Features that may be 0 are told from
v4 on: older clients refuse such a range.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from broker.failures import served_versions
from broker.features import FEATURES
from protocol.errors import ErrorCode
from protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from broker.broker import Broker

SOFTWARE_VERSION = 3
ZERO_VERSION = 4
FEATURES_EPOCH = 0
"""they never change"""
SupportedFeature, FinalizedFeature = (
    ApiVersionsResponse.SupportedFeatureKey,
    ApiVersionsResponse.FinalizedFeatureKey,
)
_SOFTWARE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9\-.]*[A-Za-z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= SOFTWARE_VERSION and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    supported = [
        SupportedFeature(name=name, min_version=feature.lowest, max_version=feature.highest)
        for name, feature in FEATURES.items()
        if feature.lowest or context.api_version >= ZERO_VERSION
    ]
    return ApiVersionsResponse(
        api_keys=served_versions(),
        supported_features=supported,
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeature(name=name, max_version_level=feature.highest, min_version_level=feature.highest)
            for name, feature in FEATURES.items()
        ],
    )
