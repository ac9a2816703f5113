"""InitProducerId (key 22), v0-v5: producer ids for idempotent producers.

Every call without a transactional id gets a fresh id with epoch 0, which is never given again, not even
after a crash (`producer_ids.py`). A producer that sends its old id and epoch (v3, KIP-360) gets a fresh id
as well, as Kafka does for producers without transactions. Transactions are not served: a transactional id
is refused with UNSUPPORTED_VERSION, which clients treat as final or retry until their own timeout.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.broker import Broker


NONE = -1
"""the id, or the epoch, of a producer that has none yet"""


@handles(InitProducerIdRequest)
def init_producer_id(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        if not request.transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        broker.refused_transactions.tell(request.transactional_id, context.client_id)
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    producer_id = broker.producer_ids.next_now()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return _after_allocation(broker)


async def _after_allocation(broker: Broker) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        return _refused(error.code)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)
