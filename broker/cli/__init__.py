"""The command `kompakt`: one module a subcommand, thin over the room that does the work."""

from __future__ import annotations

import typer

from broker.cli.dump import dump
from broker.cli.explain import explain_read
from broker.cli.get import get
from broker.cli.kernels import kernels
from broker.cli.read import read
from broker.cli.serve import serve
from broker.cli.spark import PASSED_ON, spark
from broker.cli.topics import topics
from broker.cli.verify import verify
from broker.cli.version import version

app = typer.Typer(
    name="kompakt",
    help="A single-node log broker that Kafka clients take for Kafka, built around log compaction.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(serve)
app.command()(get)
app.command()(verify)
app.command()(dump)
app.command("explain-read")(explain_read)
app.command()(kernels)
app.command()(version)
app.command(context_settings=PASSED_ON)(spark)
app.add_typer(topics, name="topics")
app.add_typer(read, name="read")


def main() -> None:
    """The entry point of the console script."""
    app()
