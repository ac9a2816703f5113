"""What to say of options that nothing here asks for: a warning, once, or a refusal of typing mistakes."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection

from spark_connector.errors import ConnectorError

logger = logging.getLogger("kompakt.spark")

PREFIX = "kafka."
# What these decide nobody would miss before it is too late: which records are read or are sure to be kept,
# and who can listen.
DECISIVE = (
    "kafka.isolation.level",
    "kafka.security.protocol",
    "kafka.acks",
    "kafka.enable.idempotence",
)
# Of the names without `kafka.`. Kafka's own names are less alike (fetch.min.bytes, fetch.max.bytes: 0.87),
# and none is as much like a decisive one.
SUGGESTED_LIKENESS = 0.9
REFUSED_LIKENESS = 0.85

_warned: set[str] = set()  # of this process: options are parsed more than once for a query


def judge_kafka_names(names: Collection[str], honoured: Collection[str], what: str) -> None:
    """Warn of `kafka.*` names that a `what` (read, write) does not honour; ConnectorError for near misses of
    a decisive one."""
    for name in names:
        if not name.startswith(PREFIX) or name in honoured:
            continue
        meant = _like(name, [decisive for decisive in DECISIVE if decisive in honoured], REFUSED_LIKENESS)
        if meant and name not in DECISIVE:
            raise ConnectorError(f"unknown option {name}; did you mean {meant}?")
        meant = _like(name, honoured, SUGGESTED_LIKENESS)
        warn_once(name, f"means nothing to a {what} of format kompakt and is ignored", meant)


def warn_once(name: str, reason: str, meant: str = "") -> None:
    """Warn of an option, the first time in this process."""
    say_once(f"option {name} {reason}" + (f"; did you mean {meant}?" if meant else ""))


def say_once(message: str) -> None:
    """Warn in these words, the first time in this process."""
    if message not in _warned:
        _warned.add(message)
        logger.warning("%s", message)


def _like(name: str, known: Collection[str], likeness: float) -> str:
    """The one of `known` that is most like `name`, without the prefix that they share."""
    bare = [other.removeprefix(PREFIX) for other in known if other.startswith(PREFIX)]
    close = difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1, cutoff=likeness)
    return PREFIX + close[0] if close else ""
