"""What clients may change the settings of: topics, the broker or all brokers, groups. What each may be set to
is decided here; what changes a request asks for, in `configs.py`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from broker.topic import METADATA_TOPIC
from config.broker import broker_rows, why_no_key
from config.connections import listener_row
from config.definition import ConfigError, Row, by_any_name, check_client_floor, meant
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


class Operation(IntEnum):
    """Kafka's `AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


NOT_HERE = {
    Resource.BROKER_LOGGER: "The levels of loggers are changed by IncrementalAlterConfigs alone",
    Resource.CLIENT_METRICS: "kompakt takes no metrics of clients, there is nothing to set for them",
}
"""what Apache Kafka has settings of, in words for those who ask"""


def nothing_of(resource_type: int) -> KafkaError:
    """The refusal of a resource that has no settings here, or nowhere."""
    words = NOT_HERE.get(Resource(resource_type)) if resource_type in set(Resource) else None
    return KafkaError(ErrorCode.INVALID_REQUEST, words or f"Unknown resource type {resource_type}")


def topic_of(broker: Broker, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is None:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return topic


def check_broker_name(broker: Broker, name: str, *, is_change: bool) -> None:
    """KafkaError unless it names this broker, or all brokers; Kafka has other words for who asks than for who
    changes.
    """
    if name in ("", str(broker.node_id)):
        return
    number, known = ("Node id", "") if is_change else ("Broker id", " or empty string")
    problem = f"Unexpected broker id, expected {broker.node_id}{known}, but received {name}"
    if not re.fullmatch(r"[+-]?[0-9]+", name):
        problem = f"{number} must be an integer, but it is: {name}"
    raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


class Target(ABC):
    """A resource whose settings are changed."""

    current: Mapping[str, str]
    """what it sets itself"""
    rows: Mapping[str, Row]
    """its keys by all their names"""

    def find(self, name: str) -> Row | None:
        """The key of that name, if there is one."""
        return self.rows.get(name)

    def key_of(self, name: str) -> str:
        """The key's own name; a name that nobody knows stays, for `change` to refuse it."""
        row = self.find(name)
        return name if row is None else row.name

    def why_no_list(self, operation: str, name: str) -> str:
        """Why nothing can be appended to this key, or taken from it."""
        return f"Can't {operation} to key {name} because its type is not LIST."

    @abstractmethod
    def change(self, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        """Check the new settings and put them in force; KafkaError when they cannot be."""


class TopicTarget(Target):
    """Whether there is such a topic is looked at last, as by Kafka's `ConfigurationControlManager`."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self._name = name
        topic = broker.topics.get(name)
        self.current = {} if topic is None else topic.overrides
        self.rows = topic_rows()

    def change(self, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        if not self._name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        problem = topic_name_problem(self._name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        try:
            check_client_overrides(overrides, self._broker.config, current=self.current)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
        if topic_of(self._broker, self._name).name == METADATA_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"The settings of {self._name} are the broker's own."
            )
        if not validate_only:
            self._broker.topics.set_overrides(self._name, overrides)


class BrokerTarget(Target):
    def __init__(self, broker: Broker, *, is_default: bool) -> None:
        self._broker = broker
        self._is_default = is_default
        self.current = broker.config.dynamic_defaults if is_default else broker.config.dynamic
        self.rows = by_any_name(broker_rows())

    def find(self, name: str) -> Row | None:
        return super().find(name) or listener_row(name)

    def key_of(self, name: str) -> str:
        row = self.find(name)
        if row is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, why_no_key(name))
        return row.name

    def why_no_list(self, operation: str, name: str) -> str:
        return f"Config value {operation.lower()} is not allowed for config key: {name}"

    def _row(self, name: str) -> Row:
        row = self.find(name)
        assert row is not None, name
        return row

    def change(self, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        config = self._broker.config
        changed = {
            name for name in {*overrides, *self.current} if overrides.get(name) != self.current.get(name)
        }
        fixed = sorted(name for name in changed if not self._row(name).is_dynamic)
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
                check_client_floor(self._row(name), wanted.value_of(self._row(name)))
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

    def _why_no_key(self, name: str) -> str:
        of_all = f"group.{name}"
        if is_harmless(of_all):
            return f"Configuration {name} does nothing in kompakt: {why_harmless(of_all)}"
        return f"Unknown group config name: {name}{meant(name, self.rows)}"

    def change(self, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        if not self._group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        strange = [name for name in overrides if self.find(name) is None]
        if strange:
            raise KafkaError(ErrorCode.INVALID_CONFIG, self._why_no_key(strange[0]))
        try:
            check_group_overrides(overrides, self._broker.config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
        if not validate_only and overrides != self.current:
            self._broker.group_settings.set(self._group_id, overrides)


def target_of(broker: Broker, resource_type: int, name: str) -> Target:
    """What is to be changed, whether it is there or not. KafkaError."""
    if resource_type == Resource.TOPIC:
        return TopicTarget(broker, name)
    if resource_type == Resource.BROKER:
        check_broker_name(broker, name, is_change=True)
        return BrokerTarget(broker, is_default=not name)
    if resource_type == Resource.GROUP:
        return GroupTarget(broker, name)
    raise nothing_of(resource_type)
