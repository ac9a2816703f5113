"""DescribeAcls (key 29), CreateAcls (30), DeleteAcls (31), v1-v3: as an Apache Kafka without an authorizer.

There are no rules here, and nobody is kept from anything. Kafka without an authorizer has these calls too and
refuses them with SECURITY_DISABLED, by which clients know that there is nothing to ask for: MirrorMaker says
so once and goes on. A call that is not listed is an error to it, at each of its rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

Created = CreateAclsResponse.AclCreationResult
Deleted = DeleteAclsResponse.DeleteAclsFilterResult
CODE = ErrorCode.SECURITY_DISABLED
MESSAGE = "No Authorizer is configured."
DESCRIBE_MESSAGE = "No Authorizer is configured on the broker"
"""both in Kafka's words"""


@handles(DescribeAclsRequest)
def describe_acls(
    broker: Broker, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=CODE, error_message=DESCRIBE_MESSAGE)


@handles(CreateAclsRequest)
def create_acls(broker: Broker, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[Created(error_code=CODE, error_message=MESSAGE) for _ in request.creations]
    )


@handles(DeleteAclsRequest)
def delete_acls(broker: Broker, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[Deleted(error_code=CODE, error_message=MESSAGE) for _ in request.filters]
    )
