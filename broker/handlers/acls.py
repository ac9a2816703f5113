"""DescribeAcls (key 29), CreateAcls (30), DeleteAcls (31), v1-v3.

Rules are durable in `__kompakt_metadata` when they are answered, and hold at once. Without an authorizer
there are none, and these calls are refused with SECURITY_DISABLED as by Kafka, by which clients know that
there is nothing to ask for: MirrorMaker says so once and goes on.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from broker.api import handles
from broker.context import RequestContext
from broker.security.acls import (
    CLUSTER_NAME,
    Acl,
    Filter,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from protocol.errors import ErrorCode, KafkaError
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

E = TypeVar("E", bound=IntEnum)
Creation = CreateAclsRequest.AclCreation
Created = CreateAclsResponse.AclCreationResult
Deleted = DeleteAclsResponse.DeleteAclsFilterResult
Matching = Deleted.DeleteAclsMatchingAcl
Described = DescribeAclsResponse.DescribeAclsResource
Wanted = DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter
CODE = ErrorCode.SECURITY_DISABLED
MESSAGE = "No Authorizer is configured."
DESCRIBE_MESSAGE = "No Authorizer is configured on the broker"
"""both in Kafka's words"""


@handles(DescribeAclsRequest)
def describe_acls(
    broker: Broker, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    if broker.authorizer is None:
        return DescribeAclsResponse(error_code=CODE, error_message=DESCRIBE_MESSAGE)
    try:
        wanted = _filter(request)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    by_resource: dict[tuple[Resource, str, Pattern], list[Acl]] = {}
    for acl in broker.authorizer.find(wanted):
        by_resource.setdefault(acl[:3], []).append(acl)
    return DescribeAclsResponse(
        resources=[
            Described(
                resource_type=resource,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    Described.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            for (resource, name, pattern), acls in by_resource.items()
        ]
    )


@handles(CreateAclsRequest)
async def create_acls(
    broker: Broker, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    if broker.authorizer is None:
        refused = [Created(error_code=CODE, error_message=MESSAGE) for _ in request.creations]
        return CreateAclsResponse(results=refused)
    results = []
    for creation in request.creations:
        try:
            broker.authorizer.add([_acl(creation)])
        except KafkaError as error:
            results.append(Created(error_code=error.code, error_message=error.message))
        else:
            results.append(Created())
    await broker.metadata.flushed()
    return CreateAclsResponse(results=results)


@handles(DeleteAclsRequest)
async def delete_acls(
    broker: Broker, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    if broker.authorizer is None:
        refused = [Deleted(error_code=CODE, error_message=MESSAGE) for _ in request.filters]
        return DeleteAclsResponse(filter_results=refused)
    results = []
    found: dict[Acl, None] = {}
    for one in request.filters:  # a rule that several take is told with each
        try:
            acls = broker.authorizer.find(_filter(one))
        except KafkaError as error:
            results.append(Deleted(error_code=error.code, error_message=error.message))
            continue
        found |= dict.fromkeys(acls)
        results.append(Deleted(error_message=None, matching_acls=[_matching(acl) for acl in acls]))
    broker.authorizer.remove(found)
    await broker.metadata.flushed()
    return DeleteAclsResponse(filter_results=results)


def _matching(acl: Acl) -> Matching:
    return Matching(
        error_message=None,
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _known(kind: type[E], number: int) -> E:
    """UNKNOWN for a number that a later Kafka may know."""
    return kind(number) if number in kind._value2member_map_ else kind(0)


def _filter(wanted: Wanted) -> Filter:
    found = Filter(
        _known(Resource, wanted.resource_type_filter),
        wanted.resource_name_filter,
        _known(Pattern, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        _known(Operation, wanted.operation),
        _known(Permission, wanted.permission_type),
    )
    if Resource.UNKNOWN is found.resource or Pattern.UNKNOWN is found.pattern:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if Operation.UNKNOWN is found.operation or Permission.UNKNOWN is found.permission:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return found


def _acl(wanted: Creation) -> Acl:
    """KafkaError, in Kafka's words, for what cannot be a rule."""
    acl = Acl(
        _known(Resource, wanted.resource_type),
        wanted.resource_name,
        _known(Pattern, wanted.resource_pattern_type),
        wanted.principal,
        wanted.host,
        _known(Operation, wanted.operation),
        _known(Permission, wanted.permission_type),
    )
    problem = None
    if acl.resource is Resource.CLUSTER and acl.name != CLUSTER_NAME:
        problem = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.name:
        problem = "Invalid empty resource name"
    elif acl.resource in (Resource.UNKNOWN, Resource.ANY):
        problem = f"Invalid resourceType {acl.resource.name}"
    elif acl.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        problem = f"Invalid patternType {acl.pattern.name}"
    elif acl.operation in (Operation.UNKNOWN, Operation.ANY):
        problem = f"Invalid operation {acl.operation.name}"
    elif acl.permission not in (Permission.ALLOW, Permission.DENY):
        problem = f"Invalid permissionType {acl.permission.name}"
    elif ":" not in acl.principal:
        problem = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return acl
