"""What clients may change the settings of: topics, the broker or all brokers, groups. What each may be set to
is decided here; what changes a request asks for, in `configs.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from broker.topic import METADATA_TOPIC
from config.broker import broker_rows, listener_row, why_no_key
from config.definition import ConfigError, Row, by_any_name, check_client_floor
from config.group import check_group_overrides, group_rows
from config.harmless import is_harmless, why_harmless
from config.together import check_threads
from config.topic import check_client_overrides, topic_name_problem, topic_rows
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topic import Topic


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
}
"""what Apache Kafka has settings of, in words for those who ask"""


def nothing_of(resource_type: int) -> KafkaError:
    """The refusal of a resource that has no settings here, or nowhere."""
    words = NOT_HERE.get(Resource(resource_type)) if resource_type in set(Resource) else None
    return KafkaError(ErrorCode.INVALID_REQUEST, words or f"Unsupported resource type: {resource_type}")


def topic_of(broker: Broker, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is None:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return topic


def check_broker_name(broker: Broker, name: str) -> None:
    if name not in ("", str(broker.node_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
        )


class Target(ABC):
    """A resource whose settings are changed."""

    current: Mapping[str, str]
    """what it sets itself"""
    rows: Mapping[str, Row]
    """its keys by all their names"""

    def find(self, name: str) -> Row | None:
        """The key of that name, if there is one."""
        return self.rows.get(name)

    def row(self, name: str) -> Row:
        row = self.find(name)
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

    def find(self, name: str) -> Row | None:
        return super().find(name) or listener_row(name)

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
                check_client_floor(self.row(name), wanted.value_of(self.row(name)))
            if wanted.log_cleaner_threads != config.log_cleaner_threads:
                check_threads(config.log_cleaner_threads, wanted.log_cleaner_threads)
        except ConfigError as error:  # of a topic Kafka says INVALID_CONFIG
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error
        if not validate_only:
            self._broker.settings.set(self._is_default, overrides)


class GroupTarget(Target):
    def __init__(self, broker: Broker, group_id: str) -> None:
        self._broker = broker
        self._group_id = group_id
        self.current = broker.group_settings.overrides.get(group_id, {})
        self.rows = group_rows()

    def why_no_key(self, name: str) -> str:
        of_all = f"group.{name}"
        if is_harmless(of_all):
            return f"Configuration {name} does nothing in kompakt: {why_harmless(of_all)}"
        return f"Unknown group config name: {name}"

    def change(self, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        try:
            check_group_overrides(overrides, self._broker.config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
        if not validate_only and overrides != self.current:
            self._broker.group_settings.set(self._group_id, overrides)


def target_of(broker: Broker, resource_type: int, name: str) -> Target:
    if resource_type == Resource.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        topic = topic_of(broker, name)
        if topic.name == METADATA_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"The settings of {name} are the broker's own."
            )
        return TopicTarget(broker, topic)
    if resource_type == Resource.BROKER:
        check_broker_name(broker, name)
        return BrokerTarget(broker, is_default=not name)
    if resource_type == Resource.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        return GroupTarget(broker, name)
    raise nothing_of(resource_type)
