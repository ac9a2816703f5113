"""The command `kompakt`: one module a subcommand, thin over the room that does the work."""

from __future__ import annotations

import io
import os
import signal
import sys

TERMINATED = 143
"""what a shell says of a command that SIGTERM has ended"""
if os.getpid() == 1:  # of a container: until somebody handles it, the system keeps SIGTERM from it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))

# Libraries start threads that nothing here has work for, and die without a word where they get none: one for
# each core to multiply matrices, and four to look up names of hosts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("UV_THREADPOOL_SIZE", "1")

INTERRUPTED = 130
"""what a shell says of a command that Ctrl-C has ended"""
NOBODY_READS = 141
"""what a shell says of a command whose output nobody reads any more (SIGPIPE)"""

try:
    import click
    from click.exceptions import Exit

    from broker.cli.asking import BAD_USAGE
    from broker.cli.dump import dump
    from broker.cli.explain import explain_read
    from broker.cli.get import get
    from broker.cli.groups import groups
    from broker.cli.kernels import kernels
    from broker.cli.overview import status, transactions
    from broker.cli.quotas import quotas
    from broker.cli.read import read
    from broker.cli.serve import serve
    from broker.cli.spark import spark
    from broker.cli.topics import topics
    from broker.cli.verify import verify
    from broker.cli.version import print_version, version
    from broker.output import give_up_output
except KeyboardInterrupt:  # Ctrl-C, before anything was begun
    raise SystemExit(INTERRUPTED) from None


class Commands(click.Group):
    """All commands; Ctrl-C ends each of them alike, and so does an output that takes no more."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # else the interpreter meets what cannot be written, and complains
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED) from None
        except BrokenPipeError:
            give_up_output()
            raise Exit(NOBODY_READS) from None


@click.group("kompakt", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="As `kompakt version`.",
)
def app() -> None:
    """A single-node log broker that Kafka clients take for Kafka, built around log compaction."""


ASKING = (status, topics, groups, quotas, transactions, get, read)
for command in (serve, *ASKING, verify, dump, explain_read, kernels, version, spark):
    app.add_command(command)


def _fill_closed_streams() -> None:
    """What was closed (`<&-`, `>&-`) becomes the null device: else the first socket or file that is opened
    gets its number, libuv ends the process when it closes that, and what a library says goes into the file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def main() -> None:
    """The entry point of the console script."""
    _fill_closed_streams()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed (`>&-`)
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that knows only ASCII gets ? for ≈ and ≤
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except OSError as error:  # of a full disk; a status of 1 would be an answer
        give_up_output()
        print(f"kompakt: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        sys.exit(BAD_USAGE)
