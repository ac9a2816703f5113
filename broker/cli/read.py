"""`kompakt read ...`: how a running broker finds what a reader asks for."""

from __future__ import annotations

import click

from broker.cli.asking import (
    BAD_USAGE,
    FROM_ZERO,
    ask,
    fail,
    milliseconds,
    print_json,
    topic_path,
    with_http,
    with_json,
    with_topic,
)


@click.group()
def read() -> None:
    """Ask a running broker how it reads."""


@read.command()
@with_topic
@click.argument("partition", type=FROM_ZERO, help="The partition.")
@click.argument("offset", type=FROM_ZERO, required=False, help="The offset to look for.")
@click.option("--time", help="The time to look for: ms since 1970, or ISO 8601.", metavar="T")
@with_http
@with_json
def explain(
    topic: str, partition: int, offset: int | None, time: str | None, http: str, as_json: bool
) -> None:
    """Show how a read finds an offset or a time: file names, segment, index entry, scan."""
    if (offset is None) == (time is None):
        raise fail("say either an OFFSET or --time T", BAD_USAGE)
    time_ms = None if time is None else milliseconds(time)
    answer = ask(http, topic_path(topic, f"partitions/{partition}/seek", offset=offset, time=time_ms))
    if as_json:
        print_json(answer)
        return
    for number, step in enumerate([*answer.get("time_steps", []), *answer["steps"]], 1):
        print(f"{number}. {step}")
    for note in answer["notes"]:
        print(f"({note})")
