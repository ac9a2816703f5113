"""ApiVersions (key 18), v0-v4.

The answer is the registry of handlers. A version we do not know is answered in v0 with UNSUPPORTED_VERSION
and the ranges (G1, in `connection.py`, before a body is read). From v3 the client names its software, badly
named ones get INVALID_REQUEST (KIP-511). No features are reported: without `transaction.version` clients
keep to classic transactions (G15).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from broker.failures import served_versions
from protocol.errors import ErrorCode
from protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from broker.broker import Broker

SOFTWARE_VERSION = 3
_SOFTWARE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9\-.]*[A-Za-z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= SOFTWARE_VERSION and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=served_versions())
