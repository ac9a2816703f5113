"""`kompakt topics erase`: no file holds a value of a key any more, and a receipt says so."""

from __future__ import annotations

from typing import Any

import click
from click.exceptions import Exit

from broker.cli.asking import (
    REFUSED,
    ask,
    encoding_of,
    given,
    print_json,
    topic_path,
    with_base64,
    with_hex,
    with_http,
    with_json,
    with_key,
    with_partition,
    with_topic,
)
from broker.cli.shown import one_line

SHOWN_OFFSETS = 5


@click.command()
@with_topic
@with_key
@with_partition
@with_hex
@with_base64
@with_http
@with_json
def erase(
    topic: str, key: str, partition: int | None, is_hex: bool, is_base64: bool, http: str, as_json: bool
) -> None:
    """Delete a key by a tombstone and clean until no file has a value of it; exit status 1 when one has."""
    encoding = encoding_of(key, is_hex=is_hex, is_base64=is_base64)
    body = given(key=key, encoding=encoding, partition=partition)
    answer = ask(http, topic_path(topic, "erase"), body)
    if as_json:
        print_json(answer)
    elif not answer["partitions"]:
        print(f"{topic} has no record of the key {one_line(key)}.")
    else:
        from broker.cli.tables import console

        out = console()
        for one in answer["partitions"]:
            for line in _receipt(topic, one):
                out.print(line, soft_wrap=True)
    if not all(one["is_erased"] for one in answer["partitions"]):
        raise Exit(REFUSED)


def _receipt(topic: str, one: dict[str, Any]) -> list[str]:
    from broker.cli.tables import cell, time_cell

    place = f"{topic}-{one['partition']}"
    if "error" in one:
        return [f"{place}: {one['error']}"]
    if not one["is_erased"]:
        lines = [f"{place}: not erased: {one['sentence'] or one['held_back_by']}"]
        if one["values_left"]:
            lines.append(f"    values at offsets {_some(one['values_left'])} are left")
    elif one["last_value_offset"] is None:
        lines = [f"{place}: no file holds a value of the key."]
    else:
        last, more = cell(one["last_value_offset"]), "more than " if one["is_cut"] else ""
        told = f"the last of {more}{one['values']} stood at offset {last}"
        lines = [f"{place}: no file holds a value of the key; {told}."]
        lines.append(f"    files that were replaced are removed at {time_cell(one['files_until_ms'])}")
    if one["has_tombstone"]:
        until = one["tombstone_until_ms"]
        when = "" if until is None else f" from {time_cell(until)} on"
        lines.append(
            f"    its tombstone, offset {cell(one['tombstone_offset'])}, is left: a cleaning{when} removes it"
        )
    if one["written_since"]:
        lines.append(f"    but the key was written again, at offsets {_some(one['written_since'])}")
    return lines


def _some(offsets: list[int]) -> str:
    """The first of them, and how many there are: a key may have a hundred thousand versions."""
    from broker.cli.tables import cell

    told = ", ".join(cell(offset) for offset in offsets[:SHOWN_OFFSETS])
    return told if len(offsets) <= SHOWN_OFFSETS else f"{told} … ({cell(len(offsets))} of them)"
