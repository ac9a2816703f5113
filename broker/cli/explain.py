"""`kompakt explain-read TOPIC PARTITION OFFSET`: how a read finds an offset, in five steps with the real
files (S51).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from storage.layout import TopicPartition, partition_directory_name

BAD_USAGE = 2


def explain_read(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    partition: Annotated[int, typer.Argument(help="The partition.", min=0)],
    offset: Annotated[int, typer.Argument(help="The offset to look for.", min=0)],
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Data directory; may be repeated.", metavar="DIR")
    ] = None,
) -> None:
    """Show how a read finds an offset: file names, segment, index entry, scan. Works beside a running
    broker.
    """
    from storage.explain import OffsetNotThere
    from storage.explain import explain_read as explain

    name = partition_directory_name(TopicPartition(topic, partition))
    places = data or [Path("data")]
    directory = next((place / name for place in places if (place / name).is_dir()), None)
    if directory is None:
        print(f"kompakt: no {name} in {', '.join(map(str, places))}", file=sys.stderr)
        raise typer.Exit(BAD_USAGE)
    try:
        explanation = explain(directory, offset)
    except OffsetNotThere as error:
        print(f"kompakt: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    for number, step in enumerate(explanation.steps(), 1):
        print(f"{number}. {step}")
