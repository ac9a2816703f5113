"""`kompakt topics table` and `kompakt topics records`: what is in a topic, from a running broker.

An answer of many pages is asked for page by page and told as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    with_partition,
    with_topic,
    written,
)
from broker.cli.shown import headers, short

ROWS = 100
PAGE = 1000
"""records that are asked for at once"""
MOST_KEYS = 10_000
"""of a table: each page of it reads the whole topic; Spark or a consumer reads all"""


@click.command()
@with_topic
@with_partition
@click.option("--prefix", help="Only keys that begin so.", metavar="TEXT")
@click.option("--tombstones", is_flag=True, help="Deleted keys, too, as far as they are still known.")
@click.option("--offset", type=FROM_ZERO, help="The table as of this offset of --partition.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_KEYS),
    default=ROWS,
    show_default=True,
    help="Keys at most; one that is in several partitions has a row for each.",
)
@with_http
@with_json
def table(
    topic: str,
    partition: int | None,
    prefix: str | None,
    tombstones: bool,
    offset: int | None,
    limit: int,
    http: str,
    as_json: bool,
) -> None:
    """Print a topic as the table that it means: the latest value of each key, by key."""
    query = {
        "partition": partition,
        "prefix": prefix,
        "offset": offset,
        "tombstones": 1 if tombstones else None,
    }
    answer, is_cut = _whole_table(http, topic, query, limit)
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import time_cell

    rows = [
        (
            short(row, "key"), "deleted" if row["is_tombstone"] else short(row, "value"),
            f"{topic}-{row['partition']}", row["offset"], time_cell(row["timestamp"]),
        )
        for row in answer["rows"]
    ]  # fmt: skip
    more = f"There are more: say --prefix, or --limit (at most {MOST_KEYS})." if is_cut else ""
    headings = ("key", "value", "partition", "offset", "time")
    _show(answer["problems"], headings, rows, more or ("" if rows else "No key is there."))


def _show(
    problems: Sequence[str], headings: Sequence[str], rows: Sequence[Sequence[object]], note: str
) -> None:
    """What could not be read, the rows if there are any, and what else is to be said."""
    from broker.cli.tables import console, table

    out = console()
    for problem in problems:
        out.print(problem, soft_wrap=True)
    if rows:
        out.print(table(headings, rows))
    if note:
        out.print(note)


def _whole_table(http: str, topic: str, query: dict[str, Any], limit: int) -> tuple[dict[str, Any], bool]:
    """The pages as one, and whether there would be more: a page whose keys are deleted has fewer rows."""
    answer: dict[str, Any] = {}
    after: str | None = None
    while True:
        left = limit - answer.get("keys", 0)
        page = ask(http, topic_path(topic, "table", **query, after=after, limit=left))
        page["rows"] = answer.get("rows", []) + page["rows"]
        page["keys"] += answer.get("keys", 0)
        answer, after = page, page["next_after_base64"]
        if after is None or limit <= answer["keys"]:
            return answer, after is not None


@click.command()
@with_topic
@click.argument("partition", type=FROM_ZERO, help="The partition.")
@click.option("--offset", type=FROM_ZERO, help="From this offset on.")
@click.option("--time", help="From this time on: ms since 1970, or ISO 8601.", metavar="T")
@click.option("--limit", type=FROM_ZERO, default=ROWS, show_default=True, help="Records at most; 0 is all.")
@click.option("--contains", help="Only records whose key or value has this in it.", metavar="TEXT")
@click.option("--hidden", is_flag=True, help="Markers, aborted and undecided records, too.")
@with_http
@with_json
def records(
    topic: str,
    partition: int,
    offset: int | None,
    time: str | None,
    limit: int,
    contains: str | None,
    hidden: bool,
    http: str,
    as_json: bool,
) -> None:
    """Print the records of a partition: from an offset or a time on, or the last ones."""
    if offset is not None and time is not None:
        raise fail("say either --offset or --time", BAD_USAGE)
    if limit == 0 and offset is None and time is None:
        offset = 0
    start = {"offset": offset, "time": None if time is None else milliseconds(time)}
    query = {"contains": contains, "hidden": 1 if hidden else None}
    answer = _pages(http, topic_path(topic, f"partitions/{partition}/records"), start, query, limit)
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import time_cell

    rows = [
        (
            row["offset"], time_cell(row["timestamp"]), short(row, "key"), short(row, "value"),
            headers(row) or None,
            _kind(row),
        )
        for row in answer["records"]
    ]  # fmt: skip
    headings = ("offset", "time", "key", "value", "headers", "")
    _show(answer["problems"], headings, rows, "" if rows else "No record is there.")


def _pages(http: str, path: str, start: dict[str, Any], query: dict[str, Any], limit: int) -> dict[str, Any]:
    """The pages as one: forwards from a place, or backwards from the end, until there are enough."""
    is_forward = any(value is not None for value in start.values())
    answer: dict[str, Any] = {}
    while True:
        left = limit - len(answer.get("records", ())) if limit else PAGE
        page = ask(http, path + written({**start, **query, "limit": min(left, PAGE)}))
        if answer:
            first, second = (answer, page) if is_forward else (page, answer)
            page["records"] = first["records"] + second["records"]
            page["problems"] = first["problems"] + second["problems"]
            page["start_offset"] = first["start_offset"]
            page["next_offset"] = second["next_offset"]
        answer = page
        is_done = page["is_at_end"] if is_forward else page["start_offset"] <= page["log_start_offset"]
        if is_done or 0 < limit <= len(page["records"]):
            return answer
        start = {"offset": page["next_offset"]} if is_forward else {"before": page["start_offset"]}


def _kind(row: dict[str, Any]) -> str:
    if row["kind"] == "marker":
        return f"marker: {row['marker'] or 'unknown'}"
    return "" if row["kind"] == "data" else str(row["kind"])
