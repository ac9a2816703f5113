"""`kompakt verify DIR`: check every invariant of a data directory, or of one partition's directory, at
rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.exceptions import Exit

from broker.cli.asking import BAD_USAGE, fail
from storage.layout import LOCK


@click.command()
@click.argument(
    "directory", type=click.Path(path_type=Path), help="A data directory or one partition's directory."
)
def verify(directory: Path) -> None:
    """Check the files of a stopped broker; every violation is one line, and exit status 1."""
    from storage.verify import (
        is_data_directory,
        is_log_directory,
        size_to_verify,
        verify_data_directory,
        verify_log,
    )

    if not directory.is_dir():
        raise fail(f"{directory} is no directory", BAD_USAGE)
    try:
        is_log = is_log_directory(directory)
        if not is_log and not is_data_directory(directory):
            raise fail(f"{directory} is no data directory: no meta.properties, no partition", BAD_USAGE)
        if _is_served(directory.resolve().parent if is_log else directory):
            words = f"{directory} changes while it is checked, for a broker runs on it: stop it"
            raise fail(words, BAD_USAGE)
        with _progress(size_to_verify(directory)) as account:
            violations = (verify_log if is_log else verify_data_directory)(directory, account)
    except OSError as error:
        raise fail(f"{error.filename or directory}: {error.strerror}", BAD_USAGE) from None
    for violation in violations:
        print(violation)
    if violations:
        raise Exit(1)
    print(f"{directory} is in order")


def _is_served(data_directory: Path) -> bool:
    """Whether a broker has it: kompakt or, by the other kind of lock, Kafka."""
    try:
        descriptor = os.open(data_directory / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # a copy, or somebody else's: nobody who could be asked
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def _progress(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's standard error; elsewhere nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda size_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as bar:
        task = bar.add_task("verifying", total=total_bytes)
        yield lambda size_bytes: bar.advance(task, size_bytes)
