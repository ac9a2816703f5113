"""What DescribeConfigs tells about each key: value, where it comes from, and what stands behind it.

A topic's key is set by the topic, else by a broker key of another name, which may be dynamic for this
broker or for all, or static, else it is the default. Mirrors Kafka's `ConfigHelper`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from config.broker import BrokerConfig, broker_rows
from config.connections import base_of, listener_row
from config.definition import Row, Type, members_of, parse, text_of
from config.group import GroupConfig, group_rows
from config.topic import TopicConfig, topic_rows
from protocol.messages.configs import DescribeConfigsResponse

Entry = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
Synonym = Entry.DescribeConfigsSynonym


class Source(IntEnum):
    """Kafka's `ConfigSource`."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


class Setting(NamedTuple):
    """One place that gives a key a value."""

    name: str
    text: str | None
    source: Source


def topic_entries(overrides: Mapping[str, str], config: TopicConfig, broker: BrokerConfig) -> list[Entry]:
    """Every key of a topic."""
    entries = []
    for name, row in topic_rows().items():
        settings = []
        if name in overrides:
            settings.append(Setting(name, _as_read(row, overrides[name]), Source.TOPIC))
        for synonym in row.synonyms:
            settings.extend(_broker_settings(broker_rows()[synonym.name], broker))
        if row.is_internal and name not in overrides:
            continue
        value = text_of(row, getattr(config, row.attribute))
        entries.append(_entry(row, value, settings, read_only=False))
    return sorted(entries, key=lambda entry: entry.name)


def group_entries(overrides: Mapping[str, str], broker: BrokerConfig) -> list[Entry]:
    """Every key of a group."""
    config = GroupConfig.resolve(overrides, broker)
    entries = []
    for name, row in group_rows().items():
        settings = [Setting(name, overrides[name], Source.GROUP)] if name in overrides else []
        for synonym in row.synonyms:
            settings += _broker_settings(broker_rows()[synonym.name], broker)
        if not row.synonyms:
            settings.append(Setting(name, text_of(row, row.default), Source.DEFAULT))
        entries.append(_entry(row, text_of(row, getattr(config, row.attribute)), settings, read_only=False))
    return entries


def _as_read(row: Row, text: str) -> str | None:
    """What was set, spelled as Kafka spells the value that it stands for; lists keep their order."""
    if row.type is Type.LIST:
        return ",".join(members_of(row, text))
    return text_of(row, parse(row, text))


def broker_entries(broker: BrokerConfig) -> list[Entry]:
    """Every key of the broker."""
    entries = []
    for row in broker_rows().values():
        settings = list(_broker_settings(row, broker))
        if row.is_internal and not any(setting.source is not Source.DEFAULT for setting in settings):
            continue
        value = text_of(row, getattr(broker, row.attribute))
        entries.append(_entry(row, value, settings, read_only=not row.is_dynamic))
    sources = (broker.dynamic, broker.dynamic_defaults, broker.of_listeners)
    of_listeners = {one.name: one for names in sources for name in names if (one := listener_row(name))}
    entries += [
        # That clients may not change it, Kafka says as well, and lets them.
        _entry(row, str(broker.value_of(row)), _listener_settings(row, broker), read_only=True)
        for row in of_listeners.values()
    ]
    return sorted(entries, key=lambda entry: entry.name)


def default_broker_entries(broker: BrokerConfig) -> list[Entry]:
    """The keys that are set for all brokers dynamically, and no others."""
    entries = []
    for name, text in sorted(broker.dynamic_defaults.items()):
        own = listener_row(name)
        names = (name,) if own is None else (name, base_of(own))
        settings = [
            Setting(one, broker.dynamic_defaults[one], Source.DYNAMIC_DEFAULT_BROKER)
            for one in names
            if one in broker.dynamic_defaults
        ]
        entries.append(_entry(own or broker_rows()[name], text, settings, read_only=own is not None))
    return entries


def _broker_settings(row: Row, broker: BrokerConfig) -> Iterator[Setting]:
    """Where a broker key is set, the place that wins first."""
    for values, source in _places(broker):
        if row.name in values:
            yield Setting(row.name, values[row.name], source)
    default = text_of(row, row.default)
    if default is not None:
        yield Setting(row.name, default, Source.DEFAULT)


def _listener_settings(row: Row, broker: BrokerConfig) -> list[Setting]:
    """Where a listener's own key is set, the place that wins first, and what stands behind that."""
    settings, base = [], base_of(row)
    for values, source in _places(broker):
        own = {found.name: text for name, text in values.items() if (found := listener_row(name))}
        settings += [Setting(row.name, own[row.name], source)] if row.name in own else []
        settings += [Setting(base, values[base], source)] if base in values else []
    settings.append(Setting(base, str(row.default), Source.DEFAULT))
    return list(itertools.dropwhile(lambda setting: setting.name != row.name, settings))


def _places(broker: BrokerConfig) -> tuple[tuple[Mapping[str, str], Source], ...]:
    return (
        (broker.dynamic, Source.DYNAMIC_BROKER),
        (broker.dynamic_defaults, Source.DYNAMIC_DEFAULT_BROKER),
        ({**broker.of_listeners, **broker.static}, Source.STATIC_BROKER),
    )


def _entry(row: Row, value: str | None, settings: list[Setting], *, read_only: bool) -> Entry:
    is_sensitive = row.is_sensitive
    if row.type is Type.LIST and settings and settings[0].text is not None:
        value = _as_read(row, settings[0].text)  # in the order in which it was set
    return Entry(
        name=row.name,
        value=None if is_sensitive else value,
        read_only=read_only,
        config_source=settings[0].source if settings else Source.DEFAULT,
        is_sensitive=is_sensitive,
        synonyms=[
            Synonym(name=setting.name, value=None if is_sensitive else setting.text, source=setting.source)
            for setting in settings
        ],
        config_type=row.type,
        documentation=row.words,
    )
