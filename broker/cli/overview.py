"""`kompakt status`, `kompakt topics list`, `kompakt transactions`: a running broker at a glance."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.asking import ask, print_json, with_http, with_json

SECOND_MS = 1000


@click.command()
@with_http
@with_json
def status(http: str, as_json: bool) -> None:
    """Tell how the broker is: what it serves, its disks, its cleaner, and what is wrong."""
    answer = ask(http, "/api/broker")
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console

    out = console()
    disks = map(_disk_words, answer["directories"])
    for line in (*_about(answer), *disks, *map(_move_words, answer["moves"]), *_cleaning(answer)):
        out.print(line, soft_wrap=True)


def _about(answer: dict[str, Any]) -> list[str]:
    from broker.cli.tables import cell
    from broker.questions.words import duration

    seconds = max(1, (answer["now_ms"] - answer["started_ms"]) // SECOND_MS)
    since = duration(seconds * SECOND_MS)
    cluster = f"node {answer['node_id']} of cluster {answer['cluster_id']}"
    counted = [
        f"{cell(answer[name])} {name.replace('_', ' ')}"
        for name in (
            "topics",
            "partitions",
            "internal_partitions",
            "groups",
            "transactional_ids",
            "connections",
        )
    ]
    return [
        f"kompakt {answer['version']}, {cluster}, up for {since}",
        *(
            f"listener {one['name']}: {one['security_protocol']} on {one['address']}, as {one['advertised']}"
            for one in answer["listeners"]
        ),
        ", ".join(counted),
        f"open files: {cell(answer['open_files'])} of {cell(answer['open_files_limit'])}",
    ]


def _cleaning(answer: dict[str, Any]) -> list[str]:
    """The cleaner, and what is wrong with partitions."""
    from broker.cli.tables import cell
    from broker.questions.words import size

    cleaner = answer["cleaner"]
    lines = [
        f"cleaner: {_cleaner_words(cleaner)}, {size(cleaner['cleanable_bytes'])} cleanable, "
        f"{cell(cleaner['eligible_partitions'])} partitions due"
    ]
    lines += _last_cleaning(answer["recent_cleanings"])
    lines += [
        f"offline: {one['topic']}-{one['partition']}: {one['reason']}" for one in answer["offline_partitions"]
    ]
    return lines + [
        f"cannot be cleaned: {one['topic']}-{one['partition']}: {one['error']}"
        for one in cleaner["uncleanable"]
    ]


def _last_cleaning(runs: list[dict[str, Any]]) -> list[str]:
    """The newest run that cleaned something, and the failure, if one is newer than all."""
    from broker.cli.tables import time_cell

    done = next((run for run in runs if "error" not in run and _has_cleaned(run)), None)
    lines = []
    if done is not None:
        lines.append(f"last cleaning: {done['topic']}-{done['partition']} at {time_cell(done['started_ms'])}")
    if runs and "error" in runs[0]:
        failed, when = runs[0], time_cell(runs[0]["last_ms"])
        place = f"{failed['topic']}-{failed['partition']}"
        lines.append(f"last cleaning failed: {place} at {when}: {failed['error']}")
    return lines


def _has_cleaned(run: dict[str, Any]) -> bool:
    """Whether there was anything dirty, or anything went: who asks for a cleaning gets an empty one, too."""
    return run["end_offset"] > run["first_dirty_offset"] or any(run["removed"].values())


def _disk_words(one: dict[str, Any]) -> str:
    from broker.questions.words import size

    state = " (offline)" if one["is_offline"] else ""
    if one["problem"] is not None:
        return f"disk {one['path']}{state}: {one['problem']}"
    words = (
        f"disk {one['path']}{state}: {size(one['log_bytes'])} of logs, {size(one['free_bytes'])} of "
        f"{size(one['total_bytes'])} free"
    )
    return words if one["forecast"] is None else f"{words}; {one['forecast']['sentence']}"


def _move_words(one: dict[str, Any]) -> str:
    from broker.questions.words import size

    come = f"{size(one['copied_bytes'])} of {size(one['size_bytes'])}"
    return f"moving {one['topic']}-{one['partition']} to {one['directory']}: {come}"


def _cleaner_words(cleaner: dict[str, Any]) -> str:
    if cleaner["problem"] is not None:
        return f"nothing is cleaned ({cleaner['problem']})"
    if not cleaner["is_running"]:
        return f"off ({cleaner['off_by']})"
    return f"{cleaner['threads'] - cleaner['dead_threads']} of {cleaner['threads']} threads at work"


@click.command("list")
@click.option("--internal", is_flag=True, help="The broker's own topics, too.")
@with_http
@with_json
def list_topics(internal: bool, http: str, as_json: bool) -> None:
    """List the topics: policy, size, dirty ratio, and why they are not being cleaned."""
    answer = ask(http, "/api/topics")
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console, table, time_cell

    out = console()
    rows = [
        (
            one["topic"], one["cleanup_policy"], one["partitions"], one["offsets"], one["size_bytes"],
            None if one["dirty_ratio"] is None else f"{one['dirty_ratio']:.2f}",
            time_cell(one["last_timestamp"]), _reason_words(one),
        )
        for one in answer["topics"]
        if internal or not one["is_internal"]
    ]  # fmt: skip
    if not rows:
        out.print("There are no topics.")
        return
    headings = (
        "topic",
        "policy",
        "partitions",
        "offsets",
        "bytes",
        "dirty ratio",
        "last record",
        "compaction",
    )
    out.print(table(headings, rows))


def _reason_words(one: dict[str, Any]) -> str:
    """The most frequent reason first; how many partitions it is of where there are several."""
    reasons = sorted(one["reasons"].items(), key=lambda item: -item[1])
    told = [why if len(reasons) == 1 else f"{count} × {why}" for why, count in reasons]
    if one["warning"] is not None:
        told.append("its policy loses data: kompakt topics explain tells more")
    return ", ".join(told) or "not compacted"


@click.command()
@with_http
@with_json
def transactions(http: str, as_json: bool) -> None:
    """List the open transactions, which hold readers of committed records back, and the transactional ids."""
    answer = ask(http, "/api/transactions")
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console, table, time_cell

    out = console()
    rows = [
        (
            f"{one['topic']}-{one['partition']}", one["transactional_id"], str(one["producer_id"]),
            one["first_offset"], one["high_watermark"] - one["last_stable_offset"],
            time_cell(one["aborted_ms"]),
        )
        for one in answer["open"]
    ]  # fmt: skip
    if rows:
        headings = (
            "open in",
            "transactional id",
            "producer",
            "first offset",
            "offsets held back",
            "aborted at",
        )
        out.print(table(headings, rows))
    else:
        out.print("No transaction is open.")
    if answer["ids"]:
        names = ("transactional id", "state", "producer", "epoch", "changed")
        out.print(table(names, [_id_row(one) for one in answer["ids"]]))
    if answer["count"] > len(answer["ids"]):
        out.print(f"{answer['count'] - len(answer['ids'])} ids that changed before these are not shown.")


def _id_row(one: dict[str, Any]) -> tuple[object, ...]:
    producer = (str(one["producer_id"]), str(one["producer_epoch"]))
    from broker.cli.tables import time_cell

    return one["transactional_id"], one["state"], *producer, time_cell(one["updated_ms"])
