"""Guards of settings: those of a topic or group, and of the broker, which are the cluster's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from broker.api import Answer
from broker.handlers.config_targets import Resource as Kind
from broker.handlers.configs import DESCRIBED_AT_ONCE
from broker.security.acls import Operation, Resource
from broker.security.guards.call import MESSAGES, REFUSED, Call, guards, split, with_told
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

OF = {Kind.TOPIC: Resource.TOPIC, Kind.GROUP: Resource.GROUP}
"""the resource that rules are about; that of all others is the cluster"""


def _may(call: Call, operation: Operation, row: Any) -> bool:
    resource = OF.get(row.resource_type)
    return (
        call.may_cluster(operation) if resource is None else call.may(operation, resource, row.resource_name)
    )


def _told(result: type[Any], rows: Sequence[Any]) -> list[Any]:
    codes = [REFUSED[OF.get(row.resource_type, Resource.CLUSTER)] for row in rows]
    return [
        result(
            resource_type=row.resource_type,
            resource_name=row.resource_name,
            error_code=code,
            error_message=MESSAGES[code],
        )
        for row, code in zip(rows, codes, strict=True)
    ]


@guards(DescribeConfigsRequest)
def describe_configs(call: Call) -> Answer:
    """In parts that the handler answers at once: what it answers to many cannot be added to."""
    allowed, refused = split(call.request.resources, lambda row: _may(call, Operation.DESCRIBE_CONFIGS, row))
    if not refused:
        return call.go_on()
    told = _told(DescribeConfigsResponse.DescribeConfigsResult, refused)
    return _described(call, allowed, told)


async def _described(call: Call, allowed: list[Any], told: list[Any]) -> DescribeConfigsResponse:
    results = []
    for begin in range(0, len(allowed), DESCRIBED_AT_ONCE):
        part: Any = call.go_on(resources=allowed[begin : begin + DESCRIBED_AT_ONCE])
        results += part.results
        await asyncio.sleep(0)
    return DescribeConfigsResponse(results=results + told)


def _altered(call: Call, result: type[Any]) -> Answer:
    allowed, refused = split(call.request.resources, lambda row: _may(call, Operation.ALTER_CONFIGS, row))
    return with_told(call.go_on(resources=allowed), "responses", _told(result, refused))


@guards(AlterConfigsRequest)
def alter_configs(call: Call) -> Answer:
    return _altered(call, AlterConfigsResponse.AlterConfigsResourceResponse)


@guards(IncrementalAlterConfigsRequest)
def incremental_alter_configs(call: Call) -> Answer:
    return _altered(call, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse)
