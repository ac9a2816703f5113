"""The command `kompakt`: one module a subcommand, thin over the room that does the work."""

from __future__ import annotations

import io
import sys

INTERRUPTED = 130
"""what a shell says of a command that Ctrl-C has ended"""

try:
    import click
    from click.exceptions import Exit

    from broker.cli.dump import dump
    from broker.cli.explain import explain_read
    from broker.cli.get import get
    from broker.cli.kernels import kernels
    from broker.cli.read import read
    from broker.cli.serve import serve
    from broker.cli.spark import spark
    from broker.cli.topics import topics
    from broker.cli.verify import verify
    from broker.cli.version import version
except KeyboardInterrupt:  # Ctrl-C, before anything was begun
    raise SystemExit(INTERRUPTED) from None


class Commands(click.Group):
    """All commands; Ctrl-C ends each of them alike."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED) from None


@click.group("kompakt", cls=Commands)
def app() -> None:
    """A single-node log broker that Kafka clients take for Kafka, built around log compaction."""


for command in (serve, get, verify, dump, explain_read, kernels, version, spark, topics, read):
    app.add_command(command)


def main() -> None:
    """The entry point of the console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that knows only ASCII gets ? for ≈ and ≤
        sys.stdout.reconfigure(errors="replace")
    app()
