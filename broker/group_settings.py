"""The settings of single groups, which clients change while the broker runs: records of `__kompakt_metadata`.

    {"name": "dashboard", "type": "group"}  {"configs": {"consumer.session.timeout.ms": "50000"}}

They are of a name: the group need not be there, and one that is deleted leaves them, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.metadata_log import MetadataLog, State
from broker.node import Node
from config.definition import ConfigError, parse
from config.group import GroupConfig, group_rows

if TYPE_CHECKING:
    from config.broker import BrokerConfig

logger = logging.getLogger(__name__)

GROUP = "group"


class GroupSettings:
    """Owned by: event loop; `restore` comes before the broker listens."""

    def __init__(self, node: Node, metadata: MetadataLog) -> None:
        self._node = node
        self._metadata = metadata
        self.overrides: dict[str, Mapping[str, str]] = {}
        """by group id, of those that set something"""
        self._resolved: dict[str | None, tuple[BrokerConfig, Mapping[str, str] | None, GroupConfig]] = {}
        """by group id, of those; None: of all others"""

    def restore(self, state: State) -> None:
        """As `__kompakt_metadata` has them; what is no longer understood is left out with a line."""
        for (kind, name), value in state.items():
            if kind == GROUP:
                kept = _understood(name, value.get("configs", {}))
                if kept:
                    self.overrides[name] = kept

    def of(self, group_id: str) -> GroupConfig:
        """The values that hold for a group. Every request asks, some of them twice."""
        config, overrides = self._node.config, self.overrides.get(group_id)
        key = None if overrides is None else group_id
        known = self._resolved.get(key)
        if known is None or known[0] is not config or known[1] is not overrides:
            known = self._resolved[key] = config, overrides, GroupConfig.resolve(overrides or {}, config)
        return known[2]

    def set(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Replace what a group sets; durable when `metadata.flushed()` returns. KafkaError: it cannot be."""
        self._metadata.append(GROUP, group_id, {"configs": dict(overrides)} if overrides else None)
        if overrides:
            self.overrides[group_id] = dict(overrides)
        else:
            self.overrides.pop(group_id, None)
            self._resolved.pop(group_id, None)


def _understood(group_id: str, stored: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for name, text in stored.items():
        try:
            parse(group_rows()[name], text)
        except (ConfigError, KeyError) as error:
            logger.error("a setting of group %s is left out: %s: %s", group_id, name, error)
        else:
            kept[name] = text
    return kept
