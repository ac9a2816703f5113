"""`kompakt get TOPIC KEY`: the latest value of a key, or all versions that survive, from a running broker.

The value alone goes to standard output, byte for byte, so that it can be piped; where it was found goes to
standard error. Exit status 1 when the key was never seen or is gone altogether, and only then.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

import click

from broker.cli.asking import (
    BAD_USAGE,
    REFUSED,
    ask,
    encoding_of,
    fail,
    print_json,
    topic_path,
    with_base64,
    with_hex,
    with_http,
    with_json,
    with_key,
    with_topic,
)
from broker.cli.shown import headers, readable, short

PARTITIONERS = ("murmur2", "crc32", "fnv1a", "all")


@click.command()
@with_topic
@with_key
@click.option("--history", is_flag=True, help="Every version that is still there, newest first.")
@click.option(
    "--partitioner",
    default="all",
    show_default=True,
    help="Which partition to look into: as clients with murmur2 (Java), crc32 (librdkafka) or fnv1a (sarama) "
    "choose it, or all.",
    metavar="|".join(PARTITIONERS),
)
@with_hex
@with_base64
@with_http
@with_json
def get(
    topic: str,
    key: str,
    history: bool,
    partitioner: str,
    is_hex: bool,
    is_base64: bool,
    http: str,
    as_json: bool,
) -> None:
    """Print the latest value of a key, or every version that compaction has left."""
    if partitioner not in PARTITIONERS:
        raise fail(f"{partitioner} is no partitioner; there are {', '.join(PARTITIONERS)}", BAD_USAGE)
    encoding = encoding_of(key, is_hex=is_hex, is_base64=is_base64)
    path = topic_path(
        topic, "get", key=key, encoding=encoding, partitioner=partitioner, history=1 if history else None
    )
    answer = ask(http, path, refused=BAD_USAGE)
    for one in answer["partitions"]:
        for problem in one["problems"]:
            print(f"kompakt: {topic}-{one['partition']} could not be read whole: {problem}", file=sys.stderr)
    found = [one for one in answer["partitions"] if one["versions"]]
    if as_json:
        print_json(answer)
    elif history:
        _show_history(topic, found)
    elif found:
        _show_latest(topic, found)
    if not found:
        looked = sum(one["segments"] - one["segments_ruled_out"] for one in answer["partitions"])
        segments = sum(one["segments"] for one in answer["partitions"])
        where = f"{topic}-{answer['partitions'][0]['partition']}" if partitioner != "all" else topic
        rest = ", the key filters rule out the others" if looked < segments else ""
        raise fail(
            f"no record of {where} has the key {key}; read {looked} of {segments} segments{rest}", REFUSED
        )


def _show_latest(topic: str, found: list[dict[str, Any]]) -> None:
    """The newest by time where several partitions have the key; the others are named."""
    found.sort(key=lambda one: (one["versions"][0]["timestamp"], one["partition"]))
    *others, newest = found
    for one in others:
        print(f"{_place(topic, one)}: an older value is here as well", file=sys.stderr)
    version = newest["versions"][0]
    if version["is_tombstone"]:
        print(f"{_place(topic, newest)}: deleted, by a tombstone", file=sys.stderr)
        return
    print(_place(topic, newest), file=sys.stderr)
    sys.stdout.flush()
    value = base64.b64decode(version["value_base64"])
    if sys.stdout.isatty():
        print(readable(version["value"], value))
        return
    sys.stdout.buffer.write(value)
    sys.stdout.flush()


def _place(topic: str, one: dict[str, Any]) -> str:
    from broker.cli.tables import time_cell

    version = one["versions"][0]
    words = f"{topic}-{one['partition']} offset {version['offset']}, {time_cell(version['timestamp'])}"
    told = headers(version)
    return f"{words}, {told}" if told else words


def _show_history(topic: str, found: list[dict[str, Any]]) -> None:
    from broker.cli.tables import console, table, time_cell

    if not found:
        return
    rows = []
    for one in found:
        for version in one["versions"]:
            value = "deleted (a tombstone)" if version["is_tombstone"] else short(version, "value")
            time = time_cell(version["timestamp"])
            place = f"{topic}-{one['partition']}"
            rows.append((place, version["offset"], time, value, headers(version) or None))
    out = console()
    out.print(table(("partition", "offset", "time", "value", "headers"), rows))
    for one in found:
        if one["is_cut"]:
            out.print(f"{topic}-{one['partition']} has more: only the newest are shown.", soft_wrap=True)
