"""`kompakt spark`: the connector's pipelines, found by an entry point so that the broker needs no Spark."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from broker.cli.asking import BAD_USAGE, fail

GROUP = "kompakt.commands"
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def spark(context: typer.Context) -> None:
    """Pipelines between topics and Parquet: archive, restore, snapshot, apply; see `kompakt spark --help`."""
    found = list(entry_points(group=GROUP, name="spark"))
    if not found:
        raise fail("the pipelines are not installed: pip install 'kompakt[spark]'", BAD_USAGE)
    found[0].load()(context.args)
