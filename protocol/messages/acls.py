"""DescribeAcls, CreateAcls, DeleteAcls: who may do what.

v1: kinds of patterns. v2: flexible. v3: users' kinds of resource.
"""

from __future__ import annotations

from protocol.schema import array, int8, int16, int32, request, response, string, struct

LITERAL = 3
"""the kind of pattern that is the name itself"""


@request(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """Ask for the rules that a filter leaves; null matches everything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=LITERAL)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@response(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The rules, by the resources that they are about."""

    @struct
    class DescribeAclsResource:
        @struct
        class AclDescription:
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8("1+", default=LITERAL)
        acls: list[AclDescription] = array(AclDescription)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


@request(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    """Add rules."""

    @struct
    class AclCreation:
        resource_type: int = int8()
        resource_name: str = string()
        resource_pattern_type: int = int8("1+", default=LITERAL)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    creations: list[AclCreation] = array(AclCreation)


@response(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """What became of each."""

    @struct
    class AclCreationResult:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


@request(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """Remove the rules that filters leave."""

    @struct
    class DeleteAclsFilter:
        resource_type_filter: int = int8()
        resource_name_filter: str | None = string(nullable="0+")
        pattern_type_filter: int = int8("1+", default=LITERAL)
        principal_filter: str | None = string(nullable="0+")
        host_filter: str | None = string(nullable="0+")
        operation: int = int8()
        permission_type: int = int8()

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@response(key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """What each filter has removed."""

    @struct
    class DeleteAclsFilterResult:
        @struct
        class DeleteAclsMatchingAcl:
            error_code: int = int16()
            error_message: str | None = string(nullable="0+")
            resource_type: int = int8()
            resource_name: str = string()
            pattern_type: int = int8("1+", default=LITERAL)
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
