"""Goal: what a broker writes into its log can be changed while it runs, and is told as it is.

Method: a broker in the loop, whose loggers are those of this process; levels are set, taken away and refused
over a connection, and the loggers looked at. The refusals' words were compared with Apache Kafka's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from broker.handlers.config_entries import Source
from protocol.errors import ErrorCode
from protocol.messages.configs import AlterConfigsRequest, DescribeConfigsRequest, ListConfigResourcesRequest
from tests.broker.conftest import World
from tests.broker.test_configs import APPEND, DELETE, SET, SUBTRACT, Wanted, describe, incremental

LOGGER = 8
NAME, PACKAGE = "broker.answers", "broker"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, NAME, PACKAGE)]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


async def level_told(client: Any, name: str) -> str | None:
    return (await describe(client, LOGGER, "1", [name]))[name].value


async def test_levels_are_set_inherited_and_taken_away(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = await world.connect()
    logging.getLogger().setLevel(logging.WARNING)
    told = []
    for change in (
        ("root", SET, "ERROR"),
        (PACKAGE, SET, "FATAL"),
        (NAME, SET, "TRACE"),
        (NAME, DELETE, None),
        (PACKAGE, DELETE, None),
        ("root", SET, "WARN"),
    ):
        (done,) = (await client.ask(incremental(LOGGER, "1", change), 1)).responses
        assert (done.error_code, done.error_message) == (ErrorCode.NONE, None)
        told.append([await level_told(client, name) for name in ("root", PACKAGE, NAME)])
        assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG) == (change[2] == "TRACE")
    assert told == [
        ["ERROR", "ERROR", "ERROR"],
        ["ERROR", "FATAL", "FATAL"],
        ["ERROR", "FATAL", "TRACE"],
        ["ERROR", "FATAL", "FATAL"],
        ["ERROR", "ERROR", "ERROR"],
        ["WARN", "WARN", "WARN"],
    ]
    assert caplog.messages[-1] == "the log level of root is set to WARN by a client"


async def test_a_logger_is_told_as_kafka_tells_it(world: World) -> None:
    client = await world.connect()
    everything = await describe(client, LOGGER, "1", include_synonyms=True, include_documentation=True)
    assert {"root", PACKAGE, NAME, "cleaner", "storage"} <= everything.keys()
    assert list(everything) == sorted(everything)
    entry = everything[NAME]
    assert (entry.read_only, entry.is_sensitive) == (False, False)
    assert (entry.synonyms, entry.documentation) == ([], "")
    assert (entry.config_source, entry.config_type) == (Source.DYNAMIC_BROKER_LOGGER, 0)
    listed = await client.ask(ListConfigResourcesRequest(resource_types=[LOGGER]), 1)
    assert [one.resource_name for one in listed.config_resources] == ["1"]


LEVELS = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"


@pytest.mark.parametrize(
    ("node", "change", "code", "words"),
    [
        ("1", (NAME, SET, "LOUD"), ErrorCode.INVALID_CONFIG,
         f"Cannot set the log level of {NAME} to LOUD as it is not a supported log level. {LEVELS}"),
        ("1", ("no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        ("1", ("no.such", DELETE, None), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST,
         "Removing the log level of the root logger is not allowed"),
        ("1", (NAME, APPEND, "INFO"), ErrorCode.INVALID_REQUEST,
         "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("1", (NAME, SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST,
         "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ("1", (NAME, 9, "INFO"), ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        ("9", (NAME, SET, "INFO"), ErrorCode.INVALID_REQUEST,
         "Unexpected node id. Expected 1, but received 9"),
        ("x", (NAME, SET, "INFO"), ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
    ],
)  # fmt: skip
async def test_what_is_refused_changes_nothing(
    world: World, node: str, change: tuple[str, int, str | None], code: ErrorCode, words: str
) -> None:
    client = await world.connect()
    before = logging.getLogger().level
    request = incremental(LOGGER, node, ("root", SET, "TRACE"), change)
    if change[0] == "root":
        request = incremental(LOGGER, node, (NAME, SET, "TRACE"), change)
    (answer,) = (await client.ask(request, 1)).responses
    assert (answer.error_code, answer.error_message) == (code, words)
    assert (logging.getLogger().level, logging.getLogger(NAME).level) == (before, logging.NOTSET)


async def test_a_level_that_is_only_validated_is_not_set(world: World) -> None:
    client = await world.connect()
    request = incremental(LOGGER, "1", (NAME, SET, "DEBUG"), validate_only=True)
    assert (await client.ask(request, 1)).responses[0].error_code == ErrorCode.NONE
    assert logging.getLogger(NAME).level == logging.NOTSET


async def test_levels_are_not_replaced_as_a_whole(world: World) -> None:
    client = await world.connect()
    old = AlterConfigsRequest.AlterConfigsResource
    resource = old(
        resource_type=LOGGER, resource_name="1", configs=[old.AlterableConfig(name=NAME, value="INFO")]
    )
    (answer,) = (await client.ask(AlterConfigsRequest(resources=[resource]), 1)).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "IncrementalAlterConfigs alone" in (answer.error_message or "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "Broker id must not be empty"),
        ("9", "Unexpected broker id, expected 1 but received 9"),
        ("x", "Broker id must be an integer, but it is: x"),
    ],
)
async def test_the_loggers_of_other_brokers(world: World, name: str, words: str) -> None:
    client = await world.connect()
    asked = DescribeConfigsRequest(resources=[Wanted(resource_type=LOGGER, resource_name=name)])
    (answer,) = (await client.ask(asked, 4)).results
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, words)
