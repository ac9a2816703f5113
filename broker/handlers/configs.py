"""DescribeConfigs (key 32) v1-v4, AlterConfigs (33) v0-v2, IncrementalAlterConfigs (44) v0-v1,
ListConfigResources (74) v0-v1.

Resources are topics, brokers and groups; a broker of no name stands for all brokers. DescribeConfigs gives
every key, so that old tools can read, modify and write (G23); v1 adds sources and synonyms, v3 types and
documentation. AlterConfigs replaces all that a resource sets; IncrementalAlterConfigs changes single keys:
SET, DELETE, APPEND, SUBTRACT. Changes are durable in `__kompakt_metadata` when they are answered, and hold
at once. A group sets what of the consumer protocol it wants otherwise (KIP-848), whether it is there or not.
The broker's loggers are changed key by key alone, and forgotten when it ends. Client metrics have no settings
here: INVALID_REQUEST; to list them gives none (v0 knows no others).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from broker.api import Answer, handles
from broker.context import RequestContext
from broker.handlers.config_entries import (
    Entry,
    broker_entries,
    default_broker_entries,
    group_entries,
    topic_entries,
)
from broker.handlers.config_targets import (
    Operation,
    Resource,
    Target,
    check_broker_name,
    nothing_of,
    target_of,
    topic_of,
)
from broker.handlers.loggers import change_loggers, logger_entries
from broker.topics import GROWTH_LIMIT_SECONDS
from config.definition import (
    Type,
    members_of,
    text_of,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.framing import encode_response
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

Described = DescribeConfigsResponse.DescribeConfigsResult
Altered = AlterConfigsResponse.AlterConfigsResourceResponse
IncrementallyAltered = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Change = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
THREADS = "log.cleaner.threads"
DESCRIBED_AT_ONCE = 8
"""resources in one turn of the loop: each takes half a millisecond, and consoles ask of all topics at once"""
CHANGED_AT_ONCE = 8
"""as for what is described: a retention for all topics may come in one request"""


@handles(DescribeConfigsRequest)
def describe_configs(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> Answer:
    distinct = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    if len(distinct) <= DESCRIBED_AT_ONCE:
        results = [_describe(broker, request, resource) for resource in distinct.values()]
        return DescribeConfigsResponse(results=results)
    return _describe_many(broker, context, request, distinct.values())


async def _describe_many(
    broker: Broker,
    context: RequestContext,
    request: DescribeConfigsRequest,
    resources: Iterable[DescribeConfigsRequest.DescribeConfigsResource],
) -> bytes:
    """As `_describe`; other clients have their turn between, and while a thread encodes the answer."""
    response = DescribeConfigsResponse()
    for number, resource in enumerate(resources, 1):
        response.results.append(_describe(broker, request, resource))
        if number % DESCRIBED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return await broker.run_blocking(_encoded, response, context)


def _encoded(response: DescribeConfigsResponse, context: RequestContext) -> bytes:
    """The whole answer; on any thread."""
    return b"".join(encode_response(response, context.api_version, context.correlation_id))


def _describe(
    broker: Broker,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
) -> Described:
    result = Described(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = _entries(broker, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or None
        return result
    wanted = resource.configuration_keys
    result.configs = [entry for entry in entries if not wanted or entry.name in wanted]
    for entry in result.configs:
        if not request.include_synonyms:
            entry.synonyms = []
        if not request.include_documentation:
            entry.documentation = None
    return result


@handles(ListConfigResourcesRequest)
def list_config_resources(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    listed = ListConfigResourcesResponse.ConfigResource
    types = set(request.resource_types) or set(Resource)
    if context.api_version == 0:
        types = {Resource.CLIENT_METRICS}
    if types - set(Resource):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = {
        Resource.TOPIC: [topic.name for topic in broker.topics.all()],
        Resource.BROKER: [str(broker.node_id)],
        Resource.BROKER_LOGGER: [str(broker.node_id)],
        Resource.GROUP: sorted(broker.group_settings.overrides),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            listed(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in found.get(Resource(kind), [])
        ]
    )


def _entries(broker: Broker, resource_type: int, name: str) -> list[Entry]:
    if resource_type == Resource.TOPIC:
        topic = topic_of(broker, name)
        return topic_entries(topic.overrides, topic.config, broker.config)
    if resource_type == Resource.BROKER:
        check_broker_name(broker, name, is_change=False)
        return broker_entries(broker.config) if name else default_broker_entries(broker.config)
    if resource_type == Resource.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(broker.group_settings.overrides.get(name, {}), broker.config)
    if resource_type == Resource.BROKER_LOGGER:
        return logger_entries(broker, name)
    raise nothing_of(resource_type)


@handles(AlterConfigsRequest)
def alter_configs(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> Answer:
    return _when_settled(broker, request.resources, lambda: _alter(broker, request))


def _alter(broker: Broker, request: AlterConfigsRequest) -> Answer:
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)

    def change(resource: AlterConfigsRequest.AlterConfigsResource) -> Altered:
        answer = Altered(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            _check_once(times[resource.resource_type, resource.resource_name])
            _check_distinct(entry.name for entry in resource.configs)
            _check_texts(resource.configs)
            target = target_of(broker, resource.resource_type, resource.resource_name)
            changed = {target.key_of(entry.name): entry.value or "" for entry in resource.configs}
            target.change(changed, validate_only=request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        return answer

    return _change_all(broker, request, AlterConfigsResponse(), change)


@handles(IncrementalAlterConfigsRequest)
def incremental_alter_configs(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Answer:
    return alter_incrementally(broker, request)


def alter_incrementally(broker: Broker, request: IncrementalAlterConfigsRequest) -> Answer:
    """Change settings, whoever asks for it."""
    return _when_settled(broker, request.resources, lambda: _alter_incrementally(broker, request))


def _alter_incrementally(broker: Broker, request: IncrementalAlterConfigsRequest) -> Answer:
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)

    def change(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> IncrementallyAltered:
        answer = IncrementallyAltered(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            _check_once(times[resource.resource_type, resource.resource_name])
            _check_distinct(change.name for change in resource.configs)
            _check_texts(one for one in resource.configs if one.config_operation != Operation.DELETE)
            _change_incrementally(broker, resource, validate_only=request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        return answer

    return _change_all(broker, request, IncrementalAlterConfigsResponse(), change)


def _change_incrementally(
    broker: Broker,
    resource: IncrementalAlterConfigsRequest.AlterConfigsResource,
    *,
    validate_only: bool,
) -> None:
    if resource.resource_type == Resource.BROKER_LOGGER:
        change_loggers(broker, resource.resource_name, resource.configs, validate_only=validate_only)
        return
    target = target_of(broker, resource.resource_type, resource.resource_name)
    changed = dict(target.current)
    for change in resource.configs:
        _edit(target, changed, change)
    target.change(changed, validate_only=validate_only)


def _change_all(
    broker: Broker,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
    change: Callable[[Any], Any],
) -> Answer:
    """Change a few resources at once, many in turns."""
    if len(request.resources) > CHANGED_AT_ONCE:
        return _change_many(broker, request, response, change)
    response.responses = [change(resource) for resource in request.resources]
    return response if request.validate_only else _when_durable(broker, response, response.responses)


async def _change_many(
    broker: Broker,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
    change: Callable[[Any], Any],
) -> Answer:
    """Other clients have their turn between. A client that hangs up stops none of it."""

    async def work() -> None:
        for number, resource in enumerate(request.resources, 1):
            response.responses.append(change(resource))
            if number % CHANGED_AT_ONCE == 0:
                await asyncio.sleep(0)

    await broker.changes.to_the_end("a request about settings", work())
    return response if request.validate_only else await _when_durable(broker, response, response.responses)


def _when_settled(
    broker: Broker,
    resources: Sequence[AlterConfigsRequest.AlterConfigsResource]
    | Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource],
    change: Callable[[], Answer],
) -> Answer:
    """Change at once, or when the topics that are growing have their partitions."""
    names = [resource.resource_name for resource in resources if resource.resource_type == Resource.TOPIC]
    growing = [name for name in names if broker.topics.is_growing(name)]
    return _change_later(broker, growing, change) if growing else change()


async def _change_later(broker: Broker, growing: Sequence[str], change: Callable[[], Answer]) -> Answer:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GROWTH_LIMIT_SECONDS):
            # Who waits as well may have begun to grow one of them anew.
            while again := [name for name in growing if broker.topics.is_growing(name)]:
                await asyncio.gather(*map(broker.topics.settled, again))
    answer = change()
    return await answer if isinstance(answer, Awaitable) else answer


async def _when_durable(
    broker: Broker, response: Answer, responses: Sequence[Altered | IncrementallyAltered]
) -> Answer:
    """What was changed is told when it is on disk and all works by it, which a client that hangs up
    does not stop.
    """
    done = [answer for answer in responses if not answer.error_code]

    async def work() -> None:
        await broker.metadata.flushed()
        if any(answer.resource_type == Resource.BROKER for answer in done):
            await broker.settings.taken_up()

    try:
        if done:
            await broker.changes.to_the_end("new settings", work())
    except KafkaError as error:
        for answer in done:
            answer.error_code, answer.error_message = error.code, error.message or None
    return response


def _edit(target: Target, overrides: dict[str, str], change: Change) -> None:
    """One incremental change of a resource's own settings; a key that nobody knows can be deleted."""
    if change.config_operation not in set(Operation):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.config_operation}")
    operation, text = Operation(change.config_operation), change.value or ""
    if operation is Operation.DELETE:
        known = target.find(change.name)
        if known is not None:
            overrides.pop(known.name, None)
        return
    if operation is Operation.SET:
        overrides[target.key_of(change.name)] = text
        return
    row = target.find(change.name)
    if row is None or row.type is not Type.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, target.why_no_list(operation.name, change.name))
    # Where the resource sets nothing itself Kafka begins with the key's default, whatever it inherits.
    members = members_of(row, overrides.get(row.name, text_of(row, row.default) or ""))
    members = [member for member in members if member]
    given = _java_split(text)
    if operation is Operation.APPEND:
        present = set(members)
        members += [member for member in dict.fromkeys(given) if member not in present]
    else:
        # Each goes once: what a list of replicas holds twice stays, once.
        surplus = Counter(given)
        members = [member for member in members if not _take(surplus, member)]
    overrides[row.name] = ",".join(members)


def _take(counts: Counter[str], name: str) -> bool:
    """Take one of that name out of `counts`; whether there was one."""
    counts[name] -= 1
    return counts[name] >= 0


def _java_split(text: str) -> list[str]:
    """The members that Kafka appends: what is empty at the end is none, as Java's `split` has it; but nothing
    at all is one that is empty, which few lists may hold.
    """
    members = text.split(",")
    while text and members and not members[-1]:
        members.pop()
    return [member.strip() for member in members]


def _check_texts(
    entries: Iterable[Change | AlterConfigsRequest.AlterConfigsResource.AlterableConfig],
) -> None:
    empty = [entry.name for entry in entries if entry.value is None]
    if empty:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")


def _check_once(times: int) -> None:
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _check_distinct(names: Iterable[str]) -> None:
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {','.join(repeated)}"
        )
