"""`kompakt verify DIR`: check every invariant of a data directory, or of one partition's directory, at
rest.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from storage.layout import parse_segment_file

BAD_USAGE = 2


def verify(
    directory: Annotated[Path, typer.Argument(help="A data directory or one partition's directory.")],
) -> None:
    """Check the files of a stopped broker; every violation is one line, and exit status 1."""
    from storage.verify import verify_data_directory, verify_log

    if not directory.is_dir():
        print(f"kompakt: {directory} is no directory", file=sys.stderr)
        raise typer.Exit(BAD_USAGE)
    is_log = any(parse_segment_file(path.name) for path in directory.iterdir())
    violations = verify_log(directory) if is_log else verify_data_directory(directory)
    for violation in violations:
        print(violation)
    if violations:
        raise typer.Exit(1)
    print(f"{directory} is in order")
