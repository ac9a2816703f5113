"""UpdateFeatures (key 57) v0-v2, UnregisterBroker (key 64) v0: the features stand at their levels, and
the one broker of this cluster stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from broker.features import why_not
from protocol.errors import ErrorCode
from protocol.messages.features import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

Updated = UpdateFeaturesResponse.UpdatableFeatureResult
ALL_FAIL = "The update failed for all features since the following feature had an error"


@handles(UpdateFeaturesRequest)
def update_features(
    broker: Broker, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    reason = why_not(request.feature_updates, broker.config.node_id)
    if reason is None:
        results = [
            Updated(feature=one.feature, error_message=ErrorCode.NONE.name) for one in request.feature_updates
        ]
        return UpdateFeaturesResponse(error_message=None, results=results)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"{ALL_FAIL}: {reason}",
    )


@handles(UnregisterBrokerRequest)
def unregister_broker(
    broker: Broker, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Kafka forgets one that still runs as well, which then serves nobody until it is started anew: refused
    here.
    """
    if request.broker_id != broker.config.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {request.broker_id} is not currently registered",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"Broker {request.broker_id} is the only one of this cluster, and it runs: stop it",
    )
