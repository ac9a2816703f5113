"""`kompakt groups ...`: consumer groups of a running broker, and where they shall read on."""

from __future__ import annotations

from typing import Any

import click
from click.exceptions import Exit

from broker.cli.asking import (
    BAD_USAGE,
    REFUSED,
    as_text,
    ask,
    fail,
    given,
    milliseconds,
    print_json,
    with_http,
    with_json,
    with_partition,
    written,
)
from broker.cli.shown import one_line


@click.group()
def groups() -> None:
    """Ask a running broker about consumer groups."""


def _path(group: str, rest: str = "") -> str:
    return f"/api/group{rest}{written({'group': as_text(group, 'the group')})}"


@groups.command("list")
@with_http
@with_json
def list_groups(http: str, as_json: bool) -> None:
    """List the groups: protocol, state, members, topics, lag."""
    answer = ask(http, "/api/groups")
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import cell, console, table

    out = console()
    rows = [
        (
            one["group"],
            one["type"],
            one["state"],
            str(one["members"]),
            ", ".join(one["topics"]) or None,
            cell(one["lag"]),
        )
        for one in answer["groups"]
    ]
    if rows:
        out.print(table(("group", "protocol", "state", "members", "topics", "lag"), rows))
    else:
        out.print("There are no groups.")


@groups.command()
@click.argument("group", help="The group.")
@with_http
@with_json
def show(group: str, http: str, as_json: bool) -> None:
    """Show where a group stands in each partition, how many records are left, and who its members are."""
    answer = ask(http, _path(group))
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console, table

    out = console()
    how = f"{answer['type']} protocol, {answer['assignor'] or 'no assignor'}"
    out.print(f"{one_line(group)}: {answer['state']}, {one_line(how)}", soft_wrap=True)
    if answer["type"] == "share":
        out.print(_shared(answer["offsets"]))
    else:
        out.print(_committed_rows(answer["offsets"]))
    if answer["members"]:
        names = ("member", "client", "host", "subscribed to", "has")
        out.print(table(names, [_member(one) for one in answer["members"]]))


def _shared(offsets: list[dict[str, Any]]) -> Any:
    """Where a share group stands."""
    from broker.cli.tables import table

    rows = [
        (
            f"{one['topic']}-{one['partition']}", one["start_offset"], one["high_watermark"], one["lag"],
            one["acquired"],
        )
        for one in offsets
    ]  # fmt: skip
    headings = ("partition", "starts at", "end", "lag", "with members now")
    return table(headings, rows) if rows else "It reads nothing."


def _committed_rows(offsets: list[dict[str, Any]]) -> Any:
    """Where another group stands."""
    from broker.cli.tables import table, time_cell

    rows = [
        (
            f"{one['topic']}-{one['partition']}", _committed(one), one.get("high_watermark"), one.get("lag"),
            one.get("records_left"), one["member_id"], time_cell(one["committed_ms"]),
            _kept(one),
        )
        for one in offsets
    ]  # fmt: skip
    headings = ("partition", "offset", "end", "lag in offsets", "records left", "member", "committed", "kept")
    return table(headings, rows) if rows else "It has committed nothing."


def _kept(one: dict[str, Any]) -> str | None:
    from broker.cli.tables import time_cell

    if one["committed_offset"] is None:
        return None
    return "for good" if one["expires_ms"] is None else f"until {time_cell(one['expires_ms'])}"


def _committed(one: dict[str, Any]) -> str | None:
    if one["committed_offset"] is None:
        return None
    from broker.cli.tables import cell

    offset = cell(one["committed_offset"])
    if one.get("is_below_start"):
        return f"{offset} (deleted)"
    return f"{offset} (beyond the end)" if one.get("is_beyond_end") else offset


def _member(one: dict[str, Any]) -> tuple[object, ...]:
    subscribed = [*one["subscribed"], *([one["regex"]] if one["regex"] else [])]
    has = ", ".join(f"{place['topic']}-{place['partition']}" for place in one["partitions"])
    name = one["member_id"] if one["instance_id"] is None else f"{one['member_id']} ({one['instance_id']})"
    return name, one["client_id"], one["host"], ", ".join(subscribed) or None, has or "nothing"


@groups.command()
@click.argument("group", help="The group.")
@click.argument("topic", help="The topic.")
@with_partition
@click.option(
    "--to", required=True, help="earliest, latest, an offset, or a time as ISO 8601.", metavar="PLACE"
)
@click.option("--dry-run", is_flag=True, help="Only tell where it would read on.")
@with_http
@with_json
def reset(
    group: str, topic: str, partition: int | None, to: str, dry_run: bool, http: str, as_json: bool
) -> None:
    """Let a group without members read a topic from elsewhere; exit status 1 when a partition stays."""
    place = _place(to)
    body = given(topic=topic, dry_run=dry_run, partition=partition, **place)
    answer = ask(http, _path(group, "/reset"), body)
    if as_json:
        print_json(answer)
    else:
        from broker.cli.tables import console, table

        out = console()
        rows = [
            (f"{topic}-{one['partition']}", one["committed_offset"], one["new_offset"], _remark(one, place))
            for one in answer["partitions"]
        ]
        out.print(
            table(("partition", "offset before", "offset now" if not dry_run else "offset then", ""), rows)
        )
        if dry_run:
            out.print("A dry run: nothing was changed.")
    if any(one["error"] for one in answer["partitions"]):
        raise Exit(REFUSED)


def _remark(one: dict[str, Any], place: dict[str, Any]) -> str:
    """Why a partition stays, or stands elsewhere than was asked for."""
    if one["error"] or place["to"] != "offset" or one["new_offset"] == place["value"]:
        return one["error"] or ""
    if place["value"] < one["new_offset"]:
        return f"{place['value']} is deleted: the start"
    return f"{place['value']} is beyond the end: the end"


def _place(to: str) -> dict[str, Any]:
    """What the broker is told: a number is an offset, anything else that is no word a time."""
    if to in ("earliest", "latest"):
        return {"to": to}
    if to.isascii() and to.isdigit():
        return {"to": "offset", "value": int(to)}
    if not to[:1].isdigit():
        raise fail(f"--to takes earliest, latest, an offset or a time, not {to}", BAD_USAGE)
    return {"to": "time", "value": milliseconds(to)}
