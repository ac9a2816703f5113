"""`kompakt serve`: run the broker until a signal ends it.

Settings come from a properties file, the environment (`KAFKA_LOG_RETENTION_MS`) and flags, the later ones
winning. What is wrong with them is one line each, and exit status 2.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from config.broker import BrokerConfig
from config.definition import ConfigError
from config.load import load, parse_assignment

BAD_USAGE = 2
LEVELS = ("debug", "info", "warning", "error")
LONGEST_MESSAGE = 2000
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class OneLineFormatter(logging.Formatter):
    """What clients call their things cannot begin a line of its own in the log, nor fill it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = record.message
        if len(text) > LONGEST_MESSAGE:
            text = f"{text[:LONGEST_MESSAGE]}..."
        if not text.isprintable():
            text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
        record.message = text
        return super().formatMessage(record)


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", help="A properties file with Kafka's keys.", metavar="FILE")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port of the first listener; 0 takes a free one."),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port", min=-1, max=65535, help="Port of /metrics, /healthz and /api; -1 is none."
        ),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Data directory; may be repeated.", metavar="DIR")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="One setting; may be repeated.", metavar="KEY=VALUE")
    ] = None,
    log_level: Annotated[
        str, typer.Option("--log-level", help=f"What to log: {', '.join(LEVELS)}.", metavar="LEVEL")
    ] = "info",
) -> None:
    """Run the broker."""
    try:
        loaded = _load(config, port, http_port, data or [], setting or [], log_level)
    except ConfigError as error:
        for line in error.message.splitlines():
            print(f"kompakt: {line}", file=sys.stderr)
        raise typer.Exit(BAD_USAGE) from None
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(LOG_FORMAT))
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    gc.disable()  # until the kernels are loaded: a start makes much, and nothing that could be collected
    from broker.run import run  # the broker's parts are loaded only once the settings are good

    raise typer.Exit(run(loaded))


def _load(
    config: Path | None,
    port: int | None,
    http_port: int | None,
    data: list[str],
    settings: list[str],
    log_level: str,
) -> BrokerConfig:
    """The settings of all sources; ConfigError with one line for each that is wrong."""
    problems = []
    if log_level.lower() not in LEVELS:
        problems.append(f"Invalid value {log_level} for --log-level: It must be one of {', '.join(LEVELS)}")
    assigned = {}
    for text in settings:
        try:
            name, value = parse_assignment(text)
        except ConfigError as error:
            problems.append(error.message)
        else:
            assigned[name] = value
    try:
        loaded = load(
            file=config, environment=os.environ, settings=assigned, port=port, http_port=http_port, data=data
        )
    except ConfigError as error:
        problems.append(error.message)
    if problems:
        raise ConfigError("\n".join(problems))
    return loaded
