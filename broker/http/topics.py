"""Topics made, altered and deleted: what `kafka-topics.sh` and `kafka-configs.sh` do, for who has no JVM.

It is the same work as for Kafka's clients (`handlers/topics.py`, `handlers/configs.py`), refused in the same
words, needs the same rights, and counts against the same quota (`controller_mutation_rate`), by a client
without an id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from aiohttp import web

from broker.handlers.configs import alter_incrementally
from broker.handlers.topics import (
    DEFAULT,
    IDS_VERSION,
    NO_ID,
    Creatable,
    Growable,
    create_one,
    delete_one,
    grow_one,
)
from broker.http.access import DELETE_TOPIC
from broker.http.asking import SHOWN_LETTERS, Asking, Refused, body_of
from broker.quotas.limits import NOT_SAID
from broker.quotas.mutations import Unbounded
from broker.security.acls import CLUSTER_NAME, Operation, Resource
from config.topic import topic_rows, unknown_topic_key
from protocol.errors import ErrorCode
from protocol.messages.configs import IncrementalAlterConfigsRequest

FIELDS = {"partitions": int, "configs": dict, "dry_run": bool}
STATUSES: Mapping[int, int] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.TOPIC_DELETION_DISABLED: 409,
    ErrorCode.NOT_CONTROLLER: 503,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.KAFKA_STORAGE_ERROR: 500,
}
"""of Kafka's refusals; all others are 400"""
TOPIC, SET, DELETE = 2, 0, 1
Altering = IncrementalAlterConfigsRequest.AlterConfigsResource


class Topics:
    """Owned by: event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._broker = asking.broker

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        answering = self._asking.answering
        router.add_post("/api/topics/{topic}/create", answering(self.create))
        router.add_post("/api/topics/{topic}/alter", answering(self.alter))
        router.add_post("/api/topics/{topic}/delete", answering(self.delete, DELETE_TOPIC))

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Make a topic; with `dry_run` only tell whether it could be, and what it would have."""
        name, access = request.match_info["topic"], self._asking.access
        if not access.may(request, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
            access.demand(request, Operation.CREATE, Resource.TOPIC, name)
        body = await body_of(request, FIELDS)
        configs, partitions = _configs(body), body.get("partitions", self._broker.config.num_partitions)
        wanted = Creatable(
            name=name,
            num_partitions=max(0, partitions),  # -1 would be a client's word for the default
            replication_factor=DEFAULT,
            configs=[Creatable.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        quota = self._quota(request)
        done = await create_one(self._broker, wanted, 1, body.get("dry_run", False), quota)
        _check(done, quota)
        told = {"partitions": done.num_partitions, "configs": configs}
        return await self._asking.respond({"topic": name, **told})

    async def alter(self, request: web.Request) -> web.StreamResponse:
        """Set settings of a topic, null to have the broker's again, and give it more partitions; with
        `dry_run` only tell whether that could be.
        """
        name, access = request.match_info["topic"], self._asking.access
        if not access.may(request, Operation.ALTER_CONFIGS, Resource.TOPIC, name):
            access.demand(request, Operation.ALTER, Resource.TOPIC, name)
        body = await body_of(request, FIELDS)
        configs, partitions = _configs(body, may_be_null=True), body.get("partitions")
        if not configs and partitions is None:
            raise Refused(400, "fields 'configs' and 'partitions': one of them is needed")
        if configs:
            access.demand(request, Operation.ALTER_CONFIGS, Resource.TOPIC, name)
        if partitions is not None:
            access.demand(request, Operation.ALTER, Resource.TOPIC, name)
        topic = self._asking.topic(request)
        _check_known(configs, topic.overrides)
        is_dry = body.get("dry_run", False)
        growing = Growable(name=name, count=partitions or 0, assignments=None)
        if partitions is not None:  # looked at, and counted, before anything is changed
            quota = self._quota(request)
            _check(await grow_one(self._broker, growing, 1, True, quota), quota)
        if configs:
            await self._configure(name, configs, is_dry=is_dry)
        if partitions is not None and not is_dry:
            _check(await grow_one(self._broker, growing, 1, False, Unbounded()))
        now = self._broker.topics.get(name) or topic
        told: dict[str, Any] = {"partitions": now.partition_count, "configs": dict(now.overrides)}
        if is_dry:
            wanted = {**now.overrides, **configs}
            told["partitions"] = partitions or now.partition_count
            told["configs"] = {key: value for key, value in wanted.items() if value is not None}
        if not access.may(request, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name):
            told["configs"] = {}
        return await self._asking.respond({"topic": name, **told})

    def _quota(self, request: web.Request) -> Unbounded:
        return self._broker.quotas.mutations_of(self._asking.access.user(request), NOT_SAID, is_strict=True)

    async def _configure(self, name: str, configs: Mapping[str, str | None], *, is_dry: bool) -> None:
        changes = [
            Altering.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in configs.items()
        ]
        resource = Altering(resource_type=TOPIC, resource_name=name, configs=changes)
        asked = IncrementalAlterConfigsRequest(resources=[resource], validate_only=is_dry)
        answer = alter_incrementally(self._broker, asked)
        done: Any = await answer if isinstance(answer, Awaitable) else answer
        _check(done.responses[0])

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Delete a topic with all that is in it."""
        topic = self._asking.topic(request)
        await body_of(request, {})
        quota = self._quota(request)
        _check(await delete_one(self._broker, IDS_VERSION, topic.name, NO_ID, 1, quota), quota)
        return await self._asking.respond({"topic": topic.name, "partitions": topic.partition_count})


def _check(done: Any, quota: Unbounded | None = None) -> None:
    """Refused, in Kafka's words, where the answer to a client would have an error."""
    if done.error_code:
        code = ErrorCode(done.error_code)
        message = done.error_message or code.name
        if quota is not None and code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            seconds = -(-quota.wait_ms() // 1000)
            message = f"the quota controller_mutation_rate is used up: try again in {seconds:,} seconds"
        raise Refused(STATUSES.get(code, 400), message)


def _check_known(configs: Mapping[str, Any], own: Mapping[str, str]) -> None:
    """Refused where a setting is taken back that no topic has: it is a typing error, and what was meant would
    stay. Kafka's clients are told nothing, nor is who takes back what is not set.
    """
    for key, value in configs.items():
        if value is None and key not in own and key not in topic_rows():
            raise Refused(400, unknown_topic_key(key, SHOWN_LETTERS))


def _configs(body: Mapping[str, Any], *, may_be_null: bool = False) -> dict[str, Any]:
    configs: dict[str, Any] = body.get("configs", {})
    for key, value in configs.items():
        if not (isinstance(value, str) or (may_be_null and value is None)):
            words = f"the value of {key[:SHOWN_LETTERS]!r} has to be a text{' or null' * may_be_null}"
            raise Refused(400, words)
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError as error:
            raise Refused(400, str(error)) from error
    return configs
