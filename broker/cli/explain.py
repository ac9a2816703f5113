"""`kompakt explain-read TOPIC PARTITION OFFSET`: how a read finds an offset, in five steps with the real
files (S51).
"""

from __future__ import annotations

from pathlib import Path

import click

from broker.cli.asking import BAD_USAGE, FROM_ZERO, REFUSED, fail, with_topic
from storage.layout import TopicPartition, partition_directory_name


@click.command("explain-read")
@with_topic
@click.argument("partition", type=FROM_ZERO, help="The partition.")
@click.argument("offset", type=FROM_ZERO, help="The offset to look for.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Data directory; may be repeated.",
    metavar="DIR",
)
def explain_read(topic: str, partition: int, offset: int, data: tuple[Path, ...]) -> None:
    """Show how a read finds an offset: file names, segment, index entry, scan. Works beside a running
    broker.
    """
    from storage.explain import OffsetNotThere
    from storage.explain import explain_read as explain

    name = partition_directory_name(TopicPartition(topic, partition))
    places = data or (Path("data"),)
    directory = next((place / name for place in places if (place / name).is_dir()), None)
    if directory is None:
        missing = next((place for place in places if not place.is_dir()), None)
        if missing is not None:
            raise fail(f"{missing} is no directory: --data says where the logs lie", BAD_USAGE)
        raise fail(f"no {name} in {', '.join(map(str, places))}", BAD_USAGE)
    try:
        explanation = explain(directory, offset)
    except OffsetNotThere as error:
        raise fail(str(error), REFUSED) from None
    except OSError as error:
        raise fail(f"{error.filename or directory}: {error.strerror}", BAD_USAGE) from None
    for number, step in enumerate(explanation.steps(), 1):
        print(f"{number}. {step}")
