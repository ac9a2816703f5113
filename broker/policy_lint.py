"""Topics in which known systems keep a table, and whose policy would lose part of it (W15).

Schema registries, Kafka Connect, Kafka Streams, MirrorMaker and the broker itself read such a topic from its
start and take what they find for all there is. A topic that was made by accident, by auto-creation or by a
copied script has the default policy, delete: a week later schemas, offsets or state are gone, and nobody had
been told. The warning is a line in the log when a topic is made or altered, a gauge, and part of `topics
explain`; Kafka's answers have no place for it.
"""

from __future__ import annotations

import logging
import re
from typing import NamedTuple

from config.topic import OFFSET, TopicConfig

logger = logging.getLogger(__name__)


class Table(NamedTuple):
    """Names of topics that hold a table. With `may_delete` old entries may go where compaction is on too."""

    pattern: re.Pattern[str]
    owner: str
    content: str
    may_delete: bool = False


TABLES = (
    Table(re.compile(r"_schemas|_schemas[-_.].+|.+[-_.]schemas"), "a schema registry", "schemas"),
    Table(
        re.compile(r"(?:.+[-_.])?_?connect(?:-.+)?[-_.](?:configs?|offsets?|status(?:es)?)"),
        "Kafka Connect",
        "connectors, their offsets and their states",
    ),
    Table(
        re.compile(r"mm2-(?:configs|offsets|status)\..+\.internal|.+\.checkpoints\.internal"),
        "MirrorMaker",
        "offsets and settings",
    ),
    Table(re.compile(r".+-changelog"), "Kafka Streams", "the state of an application", may_delete=True),
    Table(re.compile(r"__consumer_offsets|__transaction_state"), "the broker", "offsets and transactions"),
)


def policy_warning(name: str, config: TopicConfig) -> str | None:
    """What is wrong with the policy of this topic, in one sentence, or None."""
    table = next((one for one in TABLES if one.pattern.fullmatch(name)), None)
    if table is None:
        return None
    what = f"{name} looks like a topic in which {table.owner} keeps {table.content}"
    if config.is_deleted and not (config.is_compacted and table.may_delete):
        policy = ",".join(sorted(config.cleanup_policy))
        return (
            f"{what}, but its cleanup.policy is {policy}: what is older than its retention will be lost; "
            "set cleanup.policy=compact."
        )
    if config.is_compacted and config.compaction_strategy != OFFSET:
        return (
            f"{what}, of which the last record counts, but its compaction.strategy is "
            f"{config.compaction_strategy}: set it to {OFFSET}."
        )
    return None


def warn(name: str, config: TopicConfig) -> None:
    """Say it in the log, where a topic is made or altered."""
    if config.is_compacted and config.lacks_version:
        logger.error(
            "%s is not cleaned any more: its compaction.strategy is header, but neither "
            "compaction.strategy.header nor log.cleaner.compaction.strategy.header names one",
            name,
        )
    problem = policy_warning(name, config)
    if problem is not None:
        logger.warning("%s", problem)
