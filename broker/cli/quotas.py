"""`kompakt quotas ...`: how much users, client ids and addresses may do, and why one of them is held back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from broker.cli.asking import BAD_USAGE, as_text, ask, fail, given, print_json, with_http, with_json, written
from broker.cli.shown import one_line

Names = dict[str, str | None]
ENTITY_OPTIONS = (
    ("user", "user", "The user.", "Every user that has no quota of its own."),
    ("client", "client-id", "The client id.", "Every client id that has no quota of its own."),
    ("ip", "ip", "The address.", "Every address that has no quota of its own."),
)
"""as `kafka-configs.sh` calls them: the option, the kind of entity, words for a name and for the default"""


@click.group()
def quotas() -> None:
    """Ask a running broker who may do how much, and set it."""


def _with_entity(command: Callable[..., None]) -> Callable[..., None]:
    for option, _, words, words_of_default in reversed(ENTITY_OPTIONS):
        command = click.option(f"--{option}-defaults", is_flag=True, help=words_of_default)(command)
        command = click.option(f"--{option}", help=words, metavar="NAME")(command)
    return command


def _entity(options: dict[str, Any]) -> Names:
    """Whose quotas are meant."""
    names: Names = {}
    for option, kind, _, _ in ENTITY_OPTIONS:
        name, is_default = options[option], options[f"{option}_defaults"]
        if name is not None and is_default:
            raise fail(f"say either --{option} or --{option}-defaults", BAD_USAGE)
        if is_default:
            names[kind] = None
        elif name is not None:
            names[kind] = as_text(name, f"--{option}")
    if not names:
        said = " or ".join(f"--{option} or --{option}-defaults" for option, *_ in ENTITY_OPTIONS)
        raise fail(f"say whose quotas: {said}", BAD_USAGE)
    return names


@quotas.command("list")
@with_http
@with_json
def list_quotas(http: str, as_json: bool) -> None:
    """List the quotas, and who was told to wait lately."""
    answer = ask(http, "/api/quotas")
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console, table, time_cell
    from broker.questions.words import duration, entity, quota

    out = console()
    rows = [
        (entity(one["entity"]), key, quota(key, value))
        for one in answer["quotas"]
        for key, value in one["values"].items()
    ]
    out.print(table(("of", "quota", "value"), rows) if rows else "There are no quotas.")
    for one in answer["listeners"]:
        if _is_told(one, answer["listeners"]):
            out.print(_listener_words(one), soft_wrap=True)
    waiting = [
        (
            entity(one["counted"]), one["quota"], _limit_words(one), _figure_words(one),
            duration(one["waits_ms"]) if one["waits_ms"] else None, one["times"], duration(one["told_ms"]),
            time_cell(one["last_ms"]),
        )
        for one in answer["waiting"]
    ]  # fmt: skip
    if waiting:
        headings = ("told to wait", "quota", "value", "now", "waits for", "times", "all together", "last")
        out.print(table(headings, waiting))


def _is_told(one: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether it has a rate, which is not that of all listeners together where there is only one."""
    of_all, *others = rows
    return one["limit"] is not None and (one is of_all or len(others) > 1 or one["limit"] != of_all["limit"])


def _listener_words(one: dict[str, Any]) -> str:
    """How fast connections are taken."""
    from broker.cli.tables import cell
    from broker.questions.words import amount

    whose = "all listeners together" if one["listener"] is None else f"listener {one['listener']}"
    rates = f"{amount(one['limit'])} connections/s; {amount(one['rate'])} now"
    return f"{whose}: max.connection.creation.rate {rates}, {cell(one['waiting'])} wait"


def _limit_words(one: dict[str, Any]) -> str:
    from broker.questions.words import quota

    return "none any more" if one["limit"] is None else quota(one["quota"], one["limit"])


def _figure_words(one: dict[str, Any]) -> str | None:
    from broker.questions.words import amount, quota

    if "tokens" in one:
        return f"{amount(one['tokens'])} at once"
    return quota(one["quota"], one["rate"]) if "rate" in one else None


@quotas.command()
@click.option("--user", help="The user; ANONYMOUS is who has not said who it is.", metavar="NAME")
@click.option("--client", help="What the client says as its client id.", metavar="NAME")
@click.option("--ip", help="The address that it connects from.", metavar="ADDRESS")
@with_http
@with_json
def explain(user: str | None, client: str | None, ip: str | None, http: str, as_json: bool) -> None:
    """Tell which quotas hold for a user, a client id and an address, whose they are, and why these."""
    said = {"--user": user, "--client": client, "--ip": ip}
    if all(name is None for name in said.values()):
        raise fail(f"say who: {', '.join(said)}", BAD_USAGE)
    for option, name in said.items():
        as_text(name or "", option)
    answer = ask(http, f"/api/quotas/explain{written({'user': user, 'client-id': client, 'ip': ip})}")
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console

    out = console()
    for one in answer["quotas"]:
        out.print(f"{one['quota']}: {one_line(one['sentence'])}", soft_wrap=True)
    of_clients = [one for one in answer["quotas"] if "ip" not in one["rules"][-1]["entity"]]
    of_address = [one for one in answer["quotas"] if "ip" in one["rules"][-1]["entity"]]
    for rows in filter(None, (of_clients, of_address)):
        _print_rules(out, rows)


def _print_rules(out: Any, rows: list[dict[str, Any]]) -> None:
    """What could hold, the most exact first; nothing where none of it was set."""
    from broker.cli.tables import table
    from broker.questions.words import entity, quota

    if all(rule["value"] is None for row in rows for rule in row["rules"]):
        return
    lines = []
    for number, of_all in enumerate(zip(*(row["rules"] for row in rows), strict=True), 1):
        values = [
            None if rule["value"] is None
            else quota(row["quota"], rule["value"]) + (", holds" if rule["holds"] else "")
            for row, rule in zip(rows, of_all, strict=True)
        ]  # fmt: skip
        lines.append((f"{number}. {entity(of_all[0]['entity'])}", *values))
    out.print(table(("the first that is set holds", *(row["quota"] for row in rows)), lines))


@quotas.command("set")
@click.argument("values", nargs=-1, required=True, help="Quotas by Kafka's names: producer_byte_rate=1048576")
@_with_entity
@with_http
@with_json
def set_quotas(values: tuple[str, ...], http: str, as_json: bool, **options: Any) -> None:
    """Set quotas of a user, a client id, both together or an address; they hold at once."""
    entity = _entity(options)
    wanted = dict(_value(text) for text in values)
    _change(http, "set", {"entity": entity, "values": wanted}, as_json)


def _value(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not equals or not math.isfinite(number):
        raise fail(f"quotas are written as KEY=NUMBER, not {text}", BAD_USAGE)
    as_text(key, "the quota")
    return key.strip(), number


@quotas.command()
@click.argument("keys", nargs=-1, help="Only these quotas, by Kafka's names; all, if none is said.")
@_with_entity
@with_http
@with_json
def remove(keys: tuple[str, ...], http: str, as_json: bool, **options: Any) -> None:
    """Remove quotas; exit status 1 where there is none."""
    entity = _entity(options)
    unwanted = [as_text(key, "the quota") for key in keys] or None
    _change(http, "remove", given(entity=entity, quotas=unwanted), as_json)


def _change(http: str, how: str, body: dict[str, Any], as_json: bool) -> None:
    answer = ask(http, f"/api/quotas/{how}", body)
    if as_json:
        print_json(answer)
        return
    from broker.cli.tables import console
    from broker.questions.words import entity, quota

    values = ", ".join(f"{key} {quota(key, value)}" for key, value in answer["values"].items())
    text = f"{entity(answer['entity'])}: {values or 'no quotas'}"
    console().print(one_line(text), soft_wrap=True)
