"""DescribeConfigs (key 32) v1-v4, AlterConfigs (33) v0-v2, IncrementalAlterConfigs (44) v0-v1,
ListConfigResources (74) v0-v1.

Resources are topics and brokers; a broker of no name stands for all brokers. DescribeConfigs gives every
key, so that old tools can read, modify and write (G23); v1 adds sources and synonyms, v3 types and
documentation. AlterConfigs replaces all that a resource sets; IncrementalAlterConfigs changes single keys:
SET, DELETE, APPEND, SUBTRACT. Changes are durable in `__kompakt_metadata` when they are answered, and hold
at once. Loggers, client metrics and groups have no settings here: INVALID_REQUEST; to list them gives none
(v0 knows client metrics only), but for the broker's loggers, which Kafka lists for every broker.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from broker.api import Answer, handles
from broker.context import RequestContext
from broker.handlers.config_entries import Entry, broker_entries, default_broker_entries, topic_entries
from broker.topic import METADATA_TOPIC
from broker.topics import GROWTH_LIMIT_SECONDS
from config.broker import broker_rows, why_no_key
from config.definition import (
    ConfigError,
    Row,
    Type,
    by_any_name,
    check_client_floor,
    split_list,
    text_of,
)
from config.together import check_threads
from config.topic import check_client_overrides, topic_name_problem, topic_rows
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
    from broker.topic import Topic

Described = DescribeConfigsResponse.DescribeConfigsResult
Altered = AlterConfigsResponse.AlterConfigsResourceResponse
IncrementallyAltered = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Change = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
THREADS = "log.cleaner.threads"
DESCRIBED_AT_ONCE = 8
"""resources in one turn of the loop: each takes half a millisecond, and consoles ask of all topics at once"""
CHANGED_AT_ONCE = 8
"""as for what is described: a retention for all topics may come in one request"""


class Resource(IntEnum):
    """Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


NOT_HERE = {
    Resource.BROKER_LOGGER: "kompakt's loggers are not set by clients: start it with --log-level",
    Resource.CLIENT_METRICS: "kompakt takes no metrics of clients, there is nothing to set for them",
    Resource.GROUP: "kompakt has no settings of single groups",
}
"""what Apache Kafka has settings of, in words for those who ask"""


class Operation(IntEnum):
    """Kafka's `AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


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
    }
    return ListConfigResourcesResponse(
        config_resources=[
            listed(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in found.get(Resource(kind), [])
        ]
    )


def _nothing_of(resource_type: int) -> KafkaError:
    """The refusal of a resource that has no settings here, or nowhere."""
    words = NOT_HERE.get(Resource(resource_type)) if resource_type in set(Resource) else None
    return KafkaError(ErrorCode.INVALID_REQUEST, words or f"Unsupported resource type: {resource_type}")


def _entries(broker: Broker, resource_type: int, name: str) -> list[Entry]:
    if resource_type == Resource.TOPIC:
        topic = _topic(broker, name)
        return topic_entries(topic.overrides, topic.config, broker.config)
    if resource_type == Resource.BROKER:
        _check_broker_name(broker, name)
        return broker_entries(broker.config) if name else default_broker_entries(broker.config)
    raise _nothing_of(resource_type)


def _topic(broker: Broker, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is None:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return topic


def _check_broker_name(broker: Broker, name: str) -> None:
    if name not in ("", str(broker.node_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
        )


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
            target = _target(broker, resource.resource_type, resource.resource_name)
            _check_distinct(entry.name for entry in resource.configs)
            changed = {
                target.row(entry.name).name: _text(entry.name, entry.value) for entry in resource.configs
            }
            target.change(changed, validate_only=request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        return answer

    return _change_all(broker, request, AlterConfigsResponse(), change)


@handles(IncrementalAlterConfigsRequest)
def incremental_alter_configs(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Answer:
    return _when_settled(broker, request.resources, lambda: _alter_incrementally(broker, request))


def _alter_incrementally(broker: Broker, request: IncrementalAlterConfigsRequest) -> Answer:
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)

    def change(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> IncrementallyAltered:
        answer = IncrementallyAltered(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            _check_once(times[resource.resource_type, resource.resource_name])
            target = _target(broker, resource.resource_type, resource.resource_name)
            _check_distinct(change.name for change in resource.configs)
            changed = dict(target.current)
            for change in resource.configs:
                _edit(target, changed, change)
            target.change(changed, validate_only=request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        return answer

    return _change_all(broker, request, IncrementalAlterConfigsResponse(), change)


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

    await broker.topics.to_the_end("a request about settings", work())
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
    """What was changed is told when it is on disk and the cleaner works by it, which a client that hangs up
    does not stop.
    """
    done = [answer for answer in responses if not answer.error_code]

    async def work() -> None:
        await broker.topics.flushed()
        if any(answer.resource_type == Resource.BROKER for answer in done):
            await broker.settings.cleaner_reconfigured()

    try:
        if done:
            await broker.topics.to_the_end("new settings", work())
    except KafkaError as error:
        for answer in done:
            answer.error_code, answer.error_message = error.code, error.message or None
    return response


class Target(ABC):
    """A resource whose settings are changed."""

    current: Mapping[str, str]
    """what it sets itself"""
    rows: Mapping[str, Row]
    """its keys by all their names"""

    def row(self, name: str) -> Row:
        row = self.rows.get(name)
        if row is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, self.why_no_key(name))
        return row

    def why_no_key(self, name: str) -> str:
        return f"Unknown topic config name: {name}"

    @abstractmethod
    def change(self, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        """Check the new settings and put them in force; KafkaError when they cannot be."""


class TopicTarget(Target):
    def __init__(self, broker: Broker, topic: Topic) -> None:
        self._broker = broker
        self._topic = topic
        self.current = topic.overrides
        self.rows = topic_rows()

    def change(self, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        try:
            check_client_overrides(overrides, self._broker.config, current=self.current)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
        if not validate_only:
            self._broker.topics.set_overrides(self._topic.name, overrides)


class BrokerTarget(Target):
    def __init__(self, broker: Broker, *, is_default: bool) -> None:
        self._broker = broker
        self._is_default = is_default
        self.current = broker.config.dynamic_defaults if is_default else broker.config.dynamic
        self.rows = by_any_name(broker_rows())

    def why_no_key(self, name: str) -> str:
        return why_no_key(name)

    def change(self, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        config = self._broker.config
        changed = {
            name for name in {*overrides, *self.current} if overrides.get(name) != self.current.get(name)
        }
        fixed = sorted(name for name in changed if not self.row(name).is_dynamic)
        if fixed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            )
        try:
            wanted = config.with_dynamic(
                overrides if self._is_default else config.dynamic_defaults,
                config.dynamic if self._is_default else overrides,
            )
            for name in changed & overrides.keys():
                check_client_floor(self.row(name), getattr(wanted, self.row(name).attribute))
            if wanted.log_cleaner_threads != config.log_cleaner_threads:
                check_threads(config.log_cleaner_threads, wanted.log_cleaner_threads)
        except ConfigError as error:  # of a topic Kafka says INVALID_CONFIG
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error
        if not validate_only:
            self._broker.settings.set(self._is_default, overrides)


def _target(broker: Broker, resource_type: int, name: str) -> Target:
    if resource_type == Resource.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        topic = _topic(broker, name)
        if topic.name == METADATA_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"The settings of {name} are the broker's own."
            )
        return TopicTarget(broker, topic)
    if resource_type == Resource.BROKER:
        _check_broker_name(broker, name)
        return BrokerTarget(broker, is_default=not name)
    raise _nothing_of(resource_type)


def _edit(target: Target, overrides: dict[str, str], change: Change) -> None:
    """One incremental change of a resource's own settings; a key that nobody knows can be deleted."""
    if change.config_operation == Operation.DELETE:
        known = target.rows.get(change.name)
        if known is not None:
            overrides.pop(known.name, None)
        return
    row = target.row(change.name)
    text = _text(change.name, change.value)
    if change.config_operation == Operation.SET:
        overrides[row.name] = text
        return
    if change.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.config_operation}.")
    operation = Operation(change.config_operation)
    if row.type is not Type.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {change.name} because its type is not LIST.",
        )
    # Where the resource sets nothing itself Kafka begins with the key's default, whatever it inherits.
    members = split_list(overrides.get(row.name, text_of(row, row.default) or ""))
    given = split_list(text) or [""]  # which no list may hold
    if operation is Operation.APPEND:
        members += [member for member in given if member not in members]
    else:
        members = [member for member in members if member not in given]
    overrides[row.name] = ",".join(members)


def _text(name: str, value: str | None) -> str:
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
    return value


def _check_once(times: int) -> None:
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _check_distinct(names: Iterable[str]) -> None:
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {','.join(repeated)}"
        )
