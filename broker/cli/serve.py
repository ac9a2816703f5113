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

import click
from click.exceptions import Exit

from broker import system
from broker.cli.asking import BAD_USAGE
from broker.log_lines import new_handler, one_line
from config.broker import BrokerConfig
from config.definition import ConfigError
from config.load import load, parse_assignment

LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), help="A properties file with Kafka's keys.", metavar="FILE"
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the first listener; 0 takes a free one.")
@click.option(
    "--http-port",
    type=click.IntRange(-1, 65535),
    help="Port of /metrics, /healthz and /api; -1 is none.",
)
@click.option("--data", multiple=True, help="Data directory; may be repeated.", metavar="DIR")
@click.option("--set", "settings", multiple=True, help="One setting; may be repeated.", metavar="KEY=VALUE")
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    help=f"What to log: {', '.join(LEVELS)}.",
    metavar="LEVEL",
)
def serve(
    config: Path | None,
    port: int | None,
    http_port: int | None,
    data: tuple[str, ...],
    settings: tuple[str, ...],
    log_level: str,
) -> None:
    """Run the broker."""
    problem = system.why_not()
    if problem is not None:
        print(f"kompakt: {problem}", file=sys.stderr)
        raise Exit(BAD_USAGE)
    try:
        loaded = _load(config, port, http_port, data, settings, log_level)
    except ConfigError as error:
        for part in error.parts:
            print(f"kompakt: {one_line(part.message)}", file=sys.stderr)
        raise Exit(BAD_USAGE) from None
    logging.basicConfig(level=log_level.upper(), handlers=[new_handler()])
    gc.disable()  # until the kernels are loaded: a start makes much, and nothing that could be collected
    from broker.run import run  # the broker's parts are loaded only once the settings are good

    raise Exit(run(loaded))


def _load(
    config: Path | None,
    port: int | None,
    http_port: int | None,
    data: tuple[str, ...],
    settings: tuple[str, ...],
    log_level: str,
) -> BrokerConfig:
    """The settings of all sources; ConfigError with one line for each that is wrong."""
    problems = []
    if log_level.lower() not in LEVELS:
        words = f"Invalid value {log_level} for --log-level: It must be one of {', '.join(LEVELS)}"
        problems.append(ConfigError(words))
    assigned = {}
    for text in settings:
        try:
            name, value = parse_assignment(text)
        except ConfigError as error:
            problems.append(error)
        else:
            assigned[name] = value
    try:
        loaded = load(
            file=config, environment=os.environ, settings=assigned, port=port, http_port=http_port, data=data
        )
    except ConfigError as error:
        problems.append(error)
    if problems:
        raise ConfigError.together(problems)
    return loaded
