"""ApiVersions (key 18), v0-v4.

The answer is the registry of handlers. A version we do not know is answered in v0 with UNSUPPORTED_VERSION
and the ranges (G1, in `connection.py`, before a body is read). From v3 the client names its software, badly
named ones get INVALID_REQUEST (KIP-511). The feature `transaction.version` says that transactions v2 are
served (KIP-890, G15), `share.version` that share groups are (KIP-932), `streams.version` that streams groups
are (KIP-1071); that they may be 0 is told from v4 on, for older clients refuse such a range.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from broker.failures import served_versions
from broker.transactions.state import V2
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
FEATURES = {"share.version": 1, "streams.version": 1, "transaction.version": V2}
_SOFTWARE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9\-.]*[A-Za-z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= SOFTWARE_VERSION and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    supported = [
        SupportedFeature(name=name, min_version=0, max_version=most) for name, most in FEATURES.items()
    ]
    return ApiVersionsResponse(
        api_keys=served_versions(),
        supported_features=supported if context.api_version >= ZERO_VERSION else [],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )
