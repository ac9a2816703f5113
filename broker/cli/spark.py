"""`kompakt spark`: the connector's pipelines, found by an entry point so that the broker needs no Spark."""

from __future__ import annotations

import click

from broker.cli.asking import BAD_USAGE, fail

GROUP = "kompakt.commands"
SPARK_NEEDS = ("pyspark", "pyarrow")
"""what the extra `spark` brings, of what the pipelines import"""
INSTALL = "pip install 'kompakt[spark]'"
PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(context_settings=PASSED_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, help="A pipeline and what it takes.")
def spark(arguments: tuple[str, ...]) -> None:
    """Pipelines between topics and Parquet: archive, restore, snapshot, apply; see `kompakt spark --help`."""
    from importlib.metadata import entry_points  # here, because `serve` has no use for it

    found = list(entry_points(group=GROUP, name="spark"))
    if not found:
        raise fail(f"the pipelines are not installed: {INSTALL}", BAD_USAGE)
    try:
        run = found[0].load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in SPARK_NEEDS:
            raise
        raise fail(f"the pipelines need {missing}, which is not installed: {INSTALL}", BAD_USAGE) from None
    run(list(arguments))
