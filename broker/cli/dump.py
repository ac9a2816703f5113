"""`kompakt dump FILE`: what is in a file of a data directory, a line an entry; with or without a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from broker.cli.asking import BAD_USAGE, fail
from broker.questions.words import LAST_MS


@click.command()
@click.argument(
    "file",
    type=click.Path(path_type=Path),
    help="A .log, .index, .timeindex, .txnindex, .snapshot or .stats file, a checkpoint, partition.metadata "
    "or meta.properties.",
)
@click.option("--records", is_flag=True, help="The records of each batch: offset, time, key, size.")
@click.option("--values", is_flag=True, help="The records with their values and headers.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def dump(file: Path, records: bool, values: bool, as_json: bool) -> None:
    """Print what a file of a data directory holds; exit status 1 when something in it cannot be right."""
    from storage.dump import PROBLEM

    if not file.is_file():
        raise fail(f"{file} is no file", BAD_USAGE)
    problems = 0
    for row in _rows(file, records, values):
        problems += row["kind"] == PROBLEM
        print(json.dumps(row) if as_json else line_of(row))
    if problems:
        raise Exit(1)


def _rows(file: Path, records: bool, values: bool) -> Iterator[dict[str, Any]]:
    """What the file holds; what goes wrong where a row is printed does not come here."""
    from storage.dump import UnknownFile
    from storage.dump import dump as rows_of

    try:
        yield from rows_of(file, with_records=records, with_values=values)
    except UnknownFile as error:
        raise fail(str(error), BAD_USAGE) from None
    except OSError as error:
        raise fail(f"{file}: {error.strerror}", BAD_USAGE) from None


def line_of(row: dict[str, Any]) -> str:
    """batch position 0, base offset 0, …: what is nothing is left out, but a null key or value."""
    kind = row["kind"]
    if kind == "problem":
        return f"problem: {row['problem']}"
    if kind == "property":
        return f"{row['name']}: {row['value']}"
    parts = []
    for name, value in row.items():
        if (
            name == "kind"
            or value is False
            or (value is None and name not in ("key", "value", "value_bytes"))
        ):
            continue
        words = name.replace("_", " ")
        if value is True:
            parts.append(words.removeprefix("is "))
        elif name in ("timestamp", "base_timestamp", "max_timestamp", "min_timestamp", "last_timestamp"):
            parts.append(f"{words} {_time(value)}")
        elif name == "delete_horizon_ms":
            parts.append(f"delete horizon {_time(value)}")
        elif name in ("key", "value", "headers"):
            parts.append(f"{words} {'null' if value is None else json.dumps(value, ensure_ascii=False)}")
        else:
            parts.append(f"{words} {'null' if value is None else value}")
    indent = "  " if kind in ("record", "marker") else ""
    return f"{indent}{kind}: {', '.join(parts)}"


def _time(time_ms: int) -> str:
    """To the millisecond: a file is looked into for such things."""
    if not 0 <= time_ms <= LAST_MS:
        return str(time_ms)
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{time_ms} ({moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d} UTC)"
