"""The broker's loggers as a resource of settings (KIP-412): each is a key, its value the level from which it
writes on. Levels hold at once and until the broker ends, as in Kafka; a start begins with `--log-level`.

The names are those that stand in the log's lines, those of packages among them (`broker`, `cleaner`,
`storage`), and `root` for whatever has no level of its own. Mirrors Kafka's `RuntimeLoggerManager`.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from broker.handlers.config_entries import Entry, Source
from broker.handlers.config_targets import Operation
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from broker.broker import Broker

Change = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
ROOT = "root"
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG // 2,
    "WARN": logging.WARNING,
}
"""Kafka's names of levels, in the order in which they are told, and Python's numbers"""

logger = logging.getLogger(__name__)


def logger_entries(broker: Broker, broker_id: str) -> list[Entry]:
    """Every logger with the level that holds for it. KafkaError where `broker_id` is not this broker."""
    if not broker_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_id(broker, broker_id, "Broker id", f"Unexpected broker id, expected {broker.node_id} but received")
    return [
        Entry(
            name=name,
            value=_level_name(_logger(name).getEffectiveLevel()),
            read_only=False,
            config_source=Source.DYNAMIC_BROKER_LOGGER,
            is_sensitive=False,
            synonyms=[],
        )
        for name in sorted(_names())
    ]


def change_loggers(broker: Broker, node_id: str, changes: list[Change], *, validate_only: bool) -> None:
    """Set levels, or take them away, so that those of the package hold, or of `root`. KafkaError, and then
    nothing is changed."""
    _check_id(broker, node_id, "Node id", f"Unexpected node id. Expected {broker.node_id}, but received")
    for change in changes:
        _check(change)
    for change in () if validate_only else changes:
        level = logging.NOTSET if change.config_operation == Operation.DELETE else LEVELS[change.value or ""]
        _logger(change.name).setLevel(level)
        told = f"is set to {change.value}" if level else "is unset"
        logger.warning("the log level of %s %s by a client", change.name, told)


def _check(change: Change) -> None:
    operation = change.config_operation
    if operation not in set(Operation):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    if operation not in (Operation.SET, Operation.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{Operation(operation).name} operation is not allowed for the BROKER_LOGGER resource",
        )
    if change.name not in _names():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if operation == Operation.DELETE and change.name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )
    if operation == Operation.SET and change.value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(LEVELS)}",
        )


def _check_id(broker: Broker, name: str, kind: str, unexpected: str) -> None:
    if not re.fullmatch(r"[+-]?[0-9]+", name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} must be an integer, but it is: {name}")
    if int(name) != broker.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{unexpected} {name}")


def _names() -> set[str]:
    """All loggers there are, and the packages above them."""
    return {ROOT, *logging.Logger.manager.loggerDict}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    """Kafka's name of the level that writes as much."""
    fitting = [name for name, number in LEVELS.items() if number >= level]
    return min(fitting, key=LEVELS.__getitem__, default="OFF")
