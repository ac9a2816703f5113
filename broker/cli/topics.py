"""`kompakt topics ...`: questions about a topic's compaction, and what a person may have done to it, put to a
running broker over HTTP.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from broker.cli.altering import alter, create, delete, pairs
from broker.cli.asking import (
    BAD_USAGE,
    ask,
    exit_if_refused,
    fail,
    given,
    print_json,
    topic_path,
    with_http,
    with_json,
    with_partition,
    with_topic,
)
from broker.cli.contents import records, table
from broker.cli.erase import erase
from broker.cli.overview import list_topics


@click.group()
def topics() -> None:
    """Make topics on a running broker, alter them, and ask what is in them and about their compaction."""


for command in (list_topics, create, alter, delete, table, records, erase):
    topics.add_command(command)


@topics.command()
@with_topic
@with_partition
@click.option("--dry-run", is_flag=True, help="Also count what a cleaning would give back; reads the log.")
@with_http
@with_json
def explain(topic: str, partition: int | None, dry_run: bool, http: str, as_json: bool) -> None:
    """Tell why each partition is or is not being compacted now, with the numbers behind it."""
    if dry_run:
        answer = ask(http, topic_path(topic, "explain"), given(partition=partition))
    else:
        answer = ask(http, topic_path(topic, "explain", partition=partition))
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console, explain_rows

    out = console()
    for one in answer["partitions"]:
        out.print(f"{topic}-{one['partition']}: {one['sentence']}", soft_wrap=True)
        for name, value in explain_rows(one):
            out.print(f"    {name}: {value}", soft_wrap=True)


@topics.command()
@with_topic
@with_partition
@click.option(
    "--roll",
    is_flag=True,
    help="Close the active segment first, so that all is cleaned; a dry run counts as if it were closed.",
)
@click.option("--dry-run", is_flag=True, help="Only count what would go, and why; write nothing.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    help="A setting of the topic to try in a dry run.",
    metavar="KEY=VALUE",
)
@with_http
@with_json
def compact(
    topic: str,
    partition: int | None,
    roll: bool,
    dry_run: bool,
    settings: tuple[str, ...],
    http: str,
    as_json: bool,
) -> None:
    """Clean a topic now, whatever its dirty ratio; exit status 1 when a partition could not be."""
    set_to = _assignments(settings, dry_run) if settings else None
    body = given(roll=roll, dry_run=dry_run, partition=partition, set=set_to)
    with _progress(topic) as on_progress:
        answer = ask(http, topic_path(topic, "compact"), body, on_progress)
    if as_json:
        print_json(answer)
    else:
        _show_compaction(topic, answer)
    exit_if_refused(answer)


def _assignments(settings: tuple[str, ...], is_dry: bool) -> dict[str, str]:
    if not is_dry:
        raise fail(
            "--set goes with --dry-run only; `kompakt topics alter` changes a topic's settings", BAD_USAGE
        )
    return pairs(settings)


@contextlib.contextmanager
def _progress(topic: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on a terminal's standard error; elsewhere nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda line: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as bar:
        tasks: dict[int, Any] = {}

        def show(line: dict[str, Any]) -> None:
            index = line["partition"]
            if index not in tasks:
                tasks[index] = bar.add_task(f"{topic}-{index}", total=None)
            bar.update(tasks[index], completed=line["bytes_done"], total=line["bytes_at_most"] or None)

        yield show


def _show_compaction(topic: str, answer: dict[str, Any]) -> None:
    from broker.cli.tables import console, pair, removed_words, table

    out = console()
    done = [one for one in answer["partitions"] if "error" not in one]
    headings = ("partition", "records", "bytes", "segments", "keys", "seconds", "removed")
    rows = [
        (
            f"{topic}-{one['partition']}",
            pair(one["records_before"], one["records_after"]),
            pair(one["bytes_before"], one["bytes_after"]),
            str(one["segments_before"])
            if one["is_dry"]
            else pair(one["segments_before"], one["segments_after"]),
            one["keys"],
            one["seconds"],
            removed_words(one["removed"]),
        )
        for one in done
    ]
    if rows:
        out.print(table(headings, rows))
    if any(one["is_dry"] for one in done):
        out.print("A dry run: nothing was written.")
    for one in answer["partitions"]:
        if "error" in one:
            out.print(f"{topic}-{one['partition']} was not cleaned: {one['error']}", soft_wrap=True)
        elif one["is_dry"] and one["held_back_by"] is not None:
            out.print(f"{topic}-{one['partition']}: {one['held_back_by']}.", soft_wrap=True)
        elif one["is_dry"] and not one["is_complete"]:
            out.print(
                f"{topic}-{one['partition']}: counted for the keys up to offset {one['end_offset']}, where "
                f"the cleaner's map is full (log.cleaner.dedupe.buffer.size); a compaction goes on there.",
                soft_wrap=True,
            )
        elif not one["is_dry"]:
            out.print(f"{topic}-{one['partition']} now: {one['now'].get('sentence', '')}", soft_wrap=True)


@topics.command()
@with_topic
@with_partition
@with_http
@with_json
def reopen(topic: str, partition: int | None, http: str, as_json: bool) -> None:
    """Open logs that went offline now, repaired as after a crash; exit status 1 when one stays offline. The
    broker does it by itself as well, after growing pauses.
    """
    answer = ask(http, topic_path(topic, "reopen"), given(partition=partition))
    if as_json:
        print_json(answer)
    else:
        from broker.cli.tables import console, time_cell

        out = console()
        for one in answer["partitions"]:
            name = f"{topic}-{one['partition']}"
            if "error" not in one:
                out.print(f"{name} is online, up to offset {one['end_offset']}.", soft_wrap=True)
                continue
            again = "" if one["retry_ms"] is None else f"; tried again at {time_cell(one['retry_ms'])}"
            out.print(f"{name} stays offline: {one['error']}{again}", soft_wrap=True)
    exit_if_refused(answer)


@topics.command()
@with_topic
@with_partition
@click.option(
    "--to", "directory", required=True, help="One of log.dirs, by its path on the broker's machine."
)
@with_http
@with_json
def move(topic: str, partition: int | None, directory: str, http: str, as_json: bool) -> None:
    """Have partitions move to another data directory while they are served; `kompakt status` tells how far
    they are. Exit status 1 when one cannot.
    """
    body = given(directory=str(Path(directory).absolute()), partition=partition)
    answer = ask(http, topic_path(topic, "move"), body)
    if as_json:
        print_json(answer)
    else:
        from broker.cli.tables import console

        out = console()
        for one in answer["partitions"]:
            name = f"{topic}-{one['partition']}"
            if "error" in one:
                out.print(f"{name} does not move: {one['error']}", soft_wrap=True)
            else:
                verb = "moves to" if one["is_moving"] else "is in"
                out.print(f"{name} {verb} {one['directory']}.", soft_wrap=True)
    exit_if_refused(answer)


@topics.command()
@with_topic
@with_partition
@click.option("--start-offset", type=int, help="Only the one that began at this offset of --partition.")
@with_http
@with_json
def abort(topic: str, partition: int | None, start_offset: int | None, http: str, as_json: bool) -> None:
    """End open transactions, for whose end readers of committed records and the cleaner wait; a producer that
    is still there is fenced. Exit status 1 when one stays open.
    """
    body = given(partition=partition, start_offset=start_offset)
    answer = ask(http, topic_path(topic, "abort"), body)
    if as_json:
        print_json(answer)
    else:
        from broker.cli.tables import console

        out = console()
        for one in answer["partitions"]:
            name = f"{topic}-{one['partition']}"
            if "error" in one:
                out.print(f"{name}: {one['error']}", soft_wrap=True)
                continue
            for ended in one["aborted"]:
                out.print(
                    f"{name}: the transaction of producer {ended['producer_id']}, open since offset "
                    f"{ended['first_offset']}, is aborted.",
                    soft_wrap=True,
                )
            if not one["aborted"]:
                out.print(f"{name}: no transaction is open.", soft_wrap=True)
    exit_if_refused(answer)


@topics.command()
@with_topic
@with_partition
@with_http
@with_json
def history(topic: str, partition: int | None, http: str, as_json: bool) -> None:
    """Tell what the cleaner did: when, why, from where to where, before and after."""
    answer = ask(http, topic_path(topic, "history", partition=partition))
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console, pair, removed_words, table, time_cell

    out = console()
    headings = ("partition", "started", "why", "dirty offsets", "records", "bytes", "seconds", "removed")
    rows = []
    for one in answer["partitions"]:
        for run in one["runs"]:
            head = (f"{topic}-{one['partition']}", time_cell(run["started_ms"]))
            if "error" in run:
                rows.append((*head, f"failed {run['failures']}×: {run['error']}", *[None] * 5))
                continue
            rows.append(
                (
                    *head,
                    run["cause"],
                    f"{run['first_dirty_offset']} to {run['end_offset']}",
                    pair(run["records_before"], run["records_after"]),
                    pair(run["bytes_before"], run["bytes_after"]),
                    run["seconds"],
                    removed_words(run["removed"]),
                )
            )
    if rows:
        out.print(table(headings, rows))
    else:
        out.print(f"{topic} was never cleaned here.")


@topics.command()
@with_topic
@with_partition
@with_http
@with_json
def segments(topic: str, partition: int | None, http: str, as_json: bool) -> None:
    """List the segments: what each holds, and whether it is clean, dirty, lagging, unstable or active."""
    answer = ask(http, topic_path(topic, "segments", partition=partition))
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console, table, time_cell, tombstone_words

    out = console()
    names = ("base_offset", "end_offset", "size_bytes", "records", "live_keys", "holes")
    headings = ("partition", "base offset", "end offset", "bytes", "records", "live keys ≈", "holes")
    rows = [
        (
            f"{topic}-{one['partition']}",
            *(row[name] if row["problem"] is None or "size" in name else None for name in names),
            tombstone_words(row["tombstones"], row["empty_values"]),
            time_cell(row["min_timestamp"]),
            time_cell(row["max_timestamp"]),
            row["state"] if row["problem"] is None else f"{row['state']}: {row['problem']}",
        )
        for one in answer["partitions"]
        for row in one["segments"]
    ]
    out.print(table((*headings, "tombstones", "first time", "last time", "state"), rows))
    for one in answer["partitions"]:
        if "error" in one:
            out.print(f"{topic}-{one['partition']}: {one['error']}", soft_wrap=True)
