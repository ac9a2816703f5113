"""Answers as tables, as wide as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from broker.cli.shown import one_line
from broker.questions.words import moment, size

UNBOUNDED = 240
REASONS = ("superseded", "tombstone", "aborted", "keyless", "marker")
NUMERIC = (
    "records",
    "bytes",
    "keys",
    "seconds",
    "offset",
    "holes",
    "size",
    "batches",
    "base",
    "end",
    "segments",
)


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """The command ends as all do whose output nobody reads; rich would end it with 1."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output. A terminal that is too narrow breaks lines, which can be read: cells squeezed into it
    had their numbers cut in two, and had no place at all where it is very narrow.
    """
    out = _Output(highlight=False, markup=False, emoji=False)
    width = max(out.width, UNBOUNDED) if out.is_terminal else UNBOUNDED
    # Of a terminal that calls itself dumb rich believes a width only beside a height.
    return _Output(highlight=False, markup=False, emoji=False, width=width, height=out.height)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Numbers to the right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        is_number = any(word in heading for word in NUMERIC)
        made.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell(value) for value in row))
    return made


def cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else one_line(str(value))


def time_cell(time_ms: int | None) -> str:
    return "–" if time_ms is None else moment(time_ms)


def pair(before: int, after: int) -> str:
    return f"{cell(before)} → {cell(after)}"


def tombstone_words(tombstones: dict[str, Any] | None, empty_values: int) -> str:
    """4 fresh, 10 armed until 2026-11-22 14:09:31 UTC, 3 expired; 2 empty values are none."""
    if tombstones is None:
        return "–"
    told = [f"{cell(tombstones['fresh'])} fresh"] if tombstones["fresh"] else []
    if tombstones["armed"]:
        told.append(f"{cell(tombstones['armed'])} armed until {time_cell(tombstones['armed_until_ms'])}")
    if tombstones["expired"]:
        told.append(f"{cell(tombstones['expired'])} expired")
    words = ", ".join(told) or "0"
    return f"{words}; {cell(empty_values)} empty values are none" if empty_values else words


def removed_words(removed: dict[str, int]) -> str:
    """3 superseded, 1 tombstone."""
    told = [f"{cell(removed[reason])} {reason}" for reason in REASONS if removed.get(reason)]
    return ", ".join(told) or "nothing"


def explain_rows(partition: dict[str, Any]) -> list[tuple[str, str]]:
    """The numbers behind a sentence, as name and value."""
    rows = [
        ("cleanup.policy", partition["cleanup_policy"]),
        (
            "offsets",
            f"{partition['log_start_offset']} to {partition['log_end_offset']}, "
            f"stable up to {partition['last_stable_offset']}",
        ),
    ]
    if "clean_bytes" in partition:
        left_out = partition["uncleanable_bytes"]
        rows += [
            (
                "clean / cleanable / active / lagging / unstable",
                " / ".join(
                    size(count)
                    for count in (
                        partition["clean_bytes"],
                        partition["cleanable_bytes"],
                        left_out["active"],
                        left_out["lag"],
                        left_out["lso"],
                    )
                ),
            ),
            (
                "dirty ratio / threshold",
                f"{partition['dirty_ratio']:.2f} / {partition['min_cleanable_dirty_ratio']:g}",
            ),
            (
                "first dirty offset / cleanable to",
                f"{partition['first_dirty_offset']} / {partition['cleanable_to_offset']}",
            ),
            ("next eligible", time_cell(partition["next_eligible_ms"])),
        ]
    if partition["dry_run"] is not None:
        rows.append(("a cleaning now", gain_words(partition["dry_run"])))
    return rows


def gain_words(run: dict[str, Any]) -> str:
    """What a cleaning would give back."""
    if "error" in run:
        return str(run["error"])
    before = run["bytes_before"]
    back = max(0, before - run["bytes_after"])
    return f"would give back {size(back)} of {size(before)}: {removed_words(run['removed'])}"
