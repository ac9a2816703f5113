"""Goal: a topic's values come from the topic, else the broker, else the default, in Kafka's order of
precedence.

Method: overrides and broker settings are resolved together and the values compared.
"""

from __future__ import annotations

import pytest

from config.broker import BrokerConfig
from config.definition import LONG_MAX, ConfigError, Synonym, Type, parse
from config.topic import (
    MIB,
    TopicConfig,
    check_client_overrides,
    collision_form,
    topic_name_problem,
    topic_rows,
)

HOUR = 3_600_000


def broker(**settings: str) -> BrokerConfig:
    return BrokerConfig.parse({name.replace("_", "."): text for name, text in settings.items()})


def test_override_comes_first() -> None:
    resolved = TopicConfig.resolve({"retention.ms": "5"}, broker(log_retention_ms="7"))
    assert resolved.retention_ms == 5


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 168 * HOUR),
        ({"log_retention_hours": "2"}, 2 * HOUR),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 180_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_minutes": "-1"}, -1),
        ({"log_retention_ms": "-1"}, -1),
    ],
)
def test_retention_precedence(settings: dict[str, str], expected: int) -> None:
    assert TopicConfig.resolve({}, broker(**settings)).retention_ms == expected


@pytest.mark.parametrize(
    ("settings", "segment_ms", "jitter_ms"),
    [
        ({}, 168 * HOUR, 0),
        ({"log_roll_hours": "3", "log_roll_jitter_hours": "1"}, 3 * HOUR, HOUR),
        ({"log_roll_hours": "3", "log_roll_ms": "7", "log_roll_jitter_ms": "2"}, 7, 2),
        ({"log_segment_ms": "9"}, 9, 0),
        ({"log_segment_ms": "9", "log_roll_ms": "7"}, 7, 0),
    ],
)
def test_roll_precedence(settings: dict[str, str], segment_ms: int, jitter_ms: int) -> None:
    """S29: the seed's log.segment.ms is another name of log.roll.ms."""
    resolved = TopicConfig.resolve({}, broker(**settings))
    assert resolved.segment_ms == segment_ms
    assert resolved.segment_jitter_ms == jitter_ms


@pytest.mark.parametrize(
    ("broker_key", "text", "attribute", "value"),
    [
        ("log.cleanup.policy", "compact", "cleanup_policy", frozenset({"compact"})),
        ("log.cleaner.min.cleanable.ratio", "0.1", "min_cleanable_dirty_ratio", 0.1),
        ("log.cleaner.min.compaction.lag.ms", "5", "min_compaction_lag_ms", 5),
        ("log.cleaner.max.compaction.lag.ms", "6", "max_compaction_lag_ms", 6),
        ("log.cleaner.delete.retention.ms", "8", "delete_retention_ms", 8),
        ("log.flush.interval.messages", "10", "flush_messages", 10),
        ("log.flush.interval.ms", "11", "flush_ms", 11),
        ("log.flush.scheduler.interval.ms", "12", "flush_ms", 12),
        ("message.max.bytes", "13", "max_message_bytes", 13),
        ("log.index.size.max.bytes", "14", "segment_index_bytes", 14),
        ("log.segment.delete.delay.ms", "15", "file_delete_delay_ms", 15),
    ],
)
def test_s74_topics_inherit(broker_key: str, text: str, attribute: str, value: object) -> None:
    """S30, S74: set at the broker, overridden by the topic; names differ as in Kafka."""
    config = BrokerConfig.parse({broker_key: text})
    assert getattr(TopicConfig.resolve({}, config), attribute) == value


SAMPLES = {
    Type.BOOLEAN: "true",
    Type.DOUBLE: "0.25",
    Type.INT: "7",
    Type.LONG: "7",
    Type.LIST: "compact",
    Type.STRING: "h",
}
OTHERS = {
    "compaction.compression.type": "zstd",
    "compaction.strategy": "timestamp",
    "compression.type": "lz4",
    "message.timestamp.type": "LogAppendTime",
}


@pytest.mark.parametrize(
    ("name", "synonym"),
    [(row.name, synonym) for row in topic_rows().values() for synonym in row.synonyms],
    ids=str,
)
def test_every_default_of_topics_reaches_them(name: str, synonym: Synonym) -> None:
    row = topic_rows()[name]
    text = OTHERS.get(name, SAMPLES[row.type])
    value = parse(row, text)
    attribute = "segment_bytes" if name == "internal.segment.bytes" else row.attribute
    config = BrokerConfig.parse({synonym.name: text})
    wanted = value if synonym.factor == 1 else value * synonym.factor
    assert wanted != row.default
    assert getattr(TopicConfig.resolve({}, config), attribute) == wanted


def test_hours_do_not_overflow() -> None:
    config = BrokerConfig.parse({"log.roll.hours": str(2**31 - 1)})
    assert TopicConfig.resolve({}, config).segment_ms < LONG_MAX


def test_min_lag_above_max_lag_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms"):
        TopicConfig.resolve({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, BrokerConfig())


def test_equal_lags_are_good() -> None:
    overrides = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"}
    assert TopicConfig.resolve(overrides, BrokerConfig()).max_compaction_lag_ms == 10


def test_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Unknown topic config name: retention\.hours"):
        TopicConfig.resolve({"retention.hours": "1"}, BrokerConfig())


def test_t21_max_lag_caps_segment_age() -> None:
    overrides = {"cleanup.policy": "compact", "max.compaction.lag.ms": "500"}
    assert TopicConfig.resolve(overrides, BrokerConfig()).max_segment_ms == 500
    del overrides["cleanup.policy"]
    assert TopicConfig.resolve(overrides, BrokerConfig()).max_segment_ms == 168 * HOUR


def test_floor_of_segment_bytes_holds_for_clients_only() -> None:
    """KIP-1030; internal.segment.bytes goes below it, as in Kafka's own tests."""
    assert TopicConfig.resolve({"segment.bytes": "1000"}, BrokerConfig()).segment_bytes == 1000
    with pytest.raises(ConfigError, match=str(MIB)):
        check_client_overrides({"segment.bytes": str(MIB - 1)}, BrokerConfig())
    assert check_client_overrides({"segment.bytes": str(MIB)}, BrokerConfig()).segment_bytes == MIB
    assert check_client_overrides({"internal.segment.bytes": "1000"}, BrokerConfig()).segment_bytes == 1000


def test_floor_does_not_hold_for_what_is_set_already() -> None:
    current = {"segment.bytes": "1000"}
    changed = {**current, "retention.ms": "1"}
    assert check_client_overrides(changed, BrokerConfig(), current=current).segment_bytes == 1000


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_"])
def test_good_names(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n"])
def test_bad_names(name: str) -> None:
    problem = topic_name_problem(name)
    assert problem is not None
    assert problem.startswith("Topic name is invalid")


def test_dots_and_underscores_collide() -> None:
    assert collision_form("a.b") == collision_form("a_b")
    assert collision_form("a-b") != collision_form("a_b")
