"""REFERENCE.md, made from the code: every API, configuration key, metric and command with its words.

`make docs` writes it; tests/test_docs.py compares, so that nothing can be declared without being documented.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import broker.handlers  # noqa: F401  (registers every handler)
from broker import metric_tables
from broker.api import apis
from broker.cli import app
from broker.metric import Kind, Metric
from config.broker import BrokerConfig
from config.definition import Row, Type, rows_of
from config.group import GroupConfig
from config.harmless import HARMLESS, HARMLESS_FAMILIES
from config.topic import TopicConfig
from spark_connector import kafka_option_table, option_table, write_option_table

REFERENCE = Path(__file__).resolve().parent.parent / "REFERENCE.md"
HEAD = """\
# Reference

Every API, configuration key, metric, command and option of the Spark source. Made from the code
by `make docs`; a test compares.
"""


def _table(headings: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _apis() -> Iterator[Sequence[str]]:
    for key in sorted(apis):
        api = apis[key]
        served = f"{api.min_version}–{api.max_version}"
        if api.advertised_min_version != api.min_version:
            served += f" (advertised from {api.advertised_min_version})"
        yield str(key), api.name, served, f"`{api.handler.__module__.replace('.', '/')}.py`"


def _default(row: Row) -> str:
    value = row.default
    if isinstance(value, frozenset | tuple | list):
        return ",".join(sorted(map(str, value)))
    if row.type is Type.BOOLEAN:
        return str(value).lower()
    return "" if value is None else str(value)


def _exact(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def _range(row: Row) -> str:
    if row.one_of:
        return ", ".join(row.one_of)
    bounds = [f"≥ {_exact(row.at_least)}" if row.at_least is not None else ""]
    bounds += [f"≤ {_exact(row.at_most)}" if row.at_most is not None else ""]
    floor = row.client_at_least
    bounds += [f"≥ {_exact(floor)} when a client sets it" if floor is not None else ""]
    return ", ".join(filter(None, bounds))


def _keys(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    for row in sorted(rows, key=lambda row: row.name):
        others = [*row.aliases, *(synonym.name for synonym in row.synonyms)]
        also = ", ".join(f"`{name}`" for name in others)
        changes = "yes" if row.is_dynamic else ""
        yield f"`{row.name}`", row.type.name.lower(), _default(row), _range(row), changes, also, row.words


def metric_tables_in_order() -> Iterator[tuple[str, Sequence[Metric[Any]]]]:
    """Each table of metrics with what its metrics are read from."""
    yield "the broker", metric_tables.BROKER
    yield "everything that is counted", metric_tables.COUNTERS
    yield "topics", metric_tables.TOPIC
    yield "logs, by topic and partition", metric_tables.LOG
    yield "each log directory", metric_tables.DIRECTORY
    yield "the cleaner", metric_tables.CLEANER
    yield "compacted partitions, by topic and partition", metric_tables.PARTITION
    yield "files", metric_tables.FILES
    yield "requests and groups", metric_tables.SINGLE


def _metrics() -> Iterator[Sequence[str]]:
    for subject, table in metric_tables_in_order():
        for metric in table:
            name = metric.name + ("_total" if metric.kind is Kind.COUNTER else "")
            yield f"`{name}`", metric.kind.value, metric.label, subject, metric.words


def _leaves(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its full name, those of groups included."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def commands() -> list[str]:
    """The names of the commands of `kompakt`, `topics explain` among them."""
    return [name for name, _ in _leaves(app)]


def _commands() -> Iterator[Sequence[str]]:
    for name, command in _leaves(app):
        options = []
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                options.append(f"`{parameter.name.upper()}` {parameter.help or ''}".strip())
            elif parameter.name != "help":
                options.append(f"`{parameter.opts[0]}` {parameter.help or ''}".strip())
        yield (
            f"`kompakt {name}`",
            " ".join((command.help or "").split("\n\n")[0].split()),
            "<br>".join(options),
        )


def _options(rows: Sequence[option_table.OptionRow]) -> Iterator[Sequence[str]]:
    for row in rows:
        yield f"`{row.name}`", row.default, row.where, row.words


def render() -> str:
    """The whole document."""
    key_headings = ("key", "type", "default", "range", "dynamic", "also known as, or taken from", "meaning")
    option_headings = ("option", "default", "batch, stream", "meaning")
    writes = (*write_option_table.ROWS, *write_option_table.KAFKA_ROWS)
    families = {f"{start}*": reason for start, reason in HARMLESS_FAMILIES.items()}
    harmless = ((f"`{name}`", reason) for name, reason in sorted({**HARMLESS, **families}.items()))
    sections = [
        HEAD,
        "## APIs\n\n" + _table(("key", "API", "versions", "handler"), _apis()),
        "## Commands\n\n" + _table(("command", "what it does", "arguments and options"), _commands()),
        "## Keys of a topic\n\n" + _table(key_headings, _keys(list(rows_of(TopicConfig).values()))),
        "## Keys of a group\n\n" + _table(key_headings, _keys(list(rows_of(GroupConfig).values()))),
        "## Keys of the broker\n\n" + _table(key_headings, _keys(list(rows_of(BrokerConfig).values()))),
        "## Keys of Kafka that are taken and do nothing\n\n" + _table(("key", "why"), harmless),
        "## Metrics\n\nScrape `/metrics`. Beside these, `process_*` and `python_*` are those of Prometheus' "
        "client for Python. Those of groups are labelled with `consumergroup`, `topic` and `partition`.\n\n"
        + _table(("name", "kind", "label", "of", "meaning"), _metrics()),
        '## Options of a Spark read\n\n`spark.read` and `spark.readStream` with `format("kompakt")`.\n\n'
        + _table(option_headings, _options((*option_table.ROWS, *kafka_option_table.READ_ROWS))),
        '## Options of a Spark write\n\n`df.write` and `df.writeStream` with `format("kompakt")`.\n\n'
        + _table(option_headings, _options(writes)),
    ]
    return "\n".join(sections)


if __name__ == "__main__":
    REFERENCE.write_text(render())
