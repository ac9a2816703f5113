"""`kompakt topics create | alter | delete`: what Kafka's shell tools do about topics, without a JVM."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.asking import (
    BAD_USAGE,
    ask,
    fail,
    given,
    print_json,
    topic_path,
    with_http,
    with_json,
    with_topic,
)
from broker.cli.shown import one_line

with_partitions = click.option(
    "--partitions", type=click.IntRange(min=1), help="How many partitions it has then.", metavar="N"
)
with_configs = click.option(
    "--config", "configs", multiple=True, help="A setting of the topic, by Kafka's name.", metavar="KEY=VALUE"
)
with_dry_run = click.option("--dry-run", is_flag=True, help="Only tell whether it could be.")


@click.command()
@with_topic
@with_partitions
@with_configs
@with_dry_run
@with_http
@with_json
def create(
    topic: str, partitions: int | None, configs: tuple[str, ...], dry_run: bool, http: str, as_json: bool
) -> None:
    """Make a topic; without --partitions it has as many as `num.partitions` says."""
    body = given(partitions=partitions, configs=pairs(configs) or None, dry_run=dry_run or None)
    _tell(ask(http, topic_path(topic, "create"), body), "would be made" if dry_run else "is made", as_json)


@click.command()
@with_topic
@with_partitions
@with_configs
@click.option(
    "--delete-config",
    "unset",
    multiple=True,
    help="A setting that it has no more: the broker's holds then.",
    metavar="KEY",
)
@with_dry_run
@with_http
@with_json
def alter(
    topic: str,
    partitions: int | None,
    configs: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    http: str,
    as_json: bool,
) -> None:
    """Give a topic other settings or more partitions; its logs and the cleaner follow at once."""
    wanted: dict[str, str | None] = {**pairs(configs), **dict.fromkeys(unset)}
    if not wanted and partitions is None:
        raise fail("say what: --config, --delete-config, --partitions", BAD_USAGE)
    body = given(partitions=partitions, configs=wanted or None, dry_run=dry_run or None)
    _tell(ask(http, topic_path(topic, "alter"), body), "would have" if dry_run else "has", as_json)


@click.command()
@with_topic
@with_http
@with_json
def delete(topic: str, http: str, as_json: bool) -> None:
    """Delete a topic with all its records, and what groups have committed of it."""
    _tell(ask(http, topic_path(topic, "delete"), {}), "is deleted", as_json)


def pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """Settings as they are written on the command line; it ends where one is not."""
    wrong = next((text for text in texts if "=" not in text), None)
    if wrong is not None:
        raise fail(f"{wrong} is no KEY=VALUE", BAD_USAGE)
    split = (text.partition("=") for text in texts)
    return {name.strip(): value.strip() for name, _, value in split}


def _tell(answer: dict[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    count = answer["partitions"]
    settings = [f"{key}={one_line(value)}" for key, value in sorted(answer.get("configs", {}).items())]
    words = ", ".join([f"{count:,} partition{'s' * (count != 1)}", *settings])
    print(f"{answer['topic']} {what}: {words}")
