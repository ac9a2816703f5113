"""Goal: a key's text becomes its value, or one clear line says why not.

Method: rows of both tables are parsed with good and bad texts; the tables themselves are held against
Kafka's names, defaults and floors (table 11 of the semantics) and against each other.
"""

from __future__ import annotations

import dataclasses
import math

import pytest

from config.broker import BrokerConfig, broker_rows
from config.definition import ConfigError, Row, Type, by_any_name, parse, text_of
from config.topic import TopicConfig, topic_rows

TABLES = [("topic", TopicConfig, topic_rows()), ("broker", BrokerConfig, broker_rows())]


@pytest.mark.parametrize(("name", "table", "rows"), TABLES, ids=[name for name, _, _ in TABLES])
def test_every_row_is_whole(name: str, table: type, rows: dict[str, Row]) -> None:
    instance = table()
    assert rows
    for row in rows.values():
        assert row.words, row.name
        assert "\n" not in row.words
        assert getattr(instance, row.attribute) == row.default
        if row.default is not None:
            text = text_of(row, row.default)
            assert text is not None
            assert parse(row, text) == row.default, row.name


def test_every_synonym_is_a_broker_key() -> None:
    for row in topic_rows().values():
        for synonym in row.synonyms:
            assert synonym.name in broker_rows(), f"{row.name} names {synonym.name}"


def test_no_name_stands_for_two_keys() -> None:
    names = [name for row in broker_rows().values() for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    assert set(by_any_name(broker_rows())) == set(names)


KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": str(2**63 - 1),
    "delete.retention.ms": "86400000",
    "segment.bytes": str(1 << 30),
    "segment.ms": str(7 * 24 * 3600 * 1000),
    "segment.jitter.ms": "0",
    "segment.index.bytes": str(10 << 20),
    "index.interval.bytes": "4096",
    "retention.ms": str(7 * 24 * 3600 * 1000),
    "retention.bytes": "-1",
    "file.delete.delay.ms": "60000",
    "max.message.bytes": "1048588",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
    "preallocate": "false",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
}


@pytest.mark.parametrize("name", KAFKA_DEFAULTS)
def test_topic_default_is_kafkas(name: str) -> None:
    row = topic_rows()[name]
    assert text_of(row, row.default) == KAFKA_DEFAULTS[name]


def test_flushes_every_message_by_default() -> None:
    """kompakt's own choice: acks=all means on disk."""
    assert TopicConfig().flush_messages == 1
    assert TopicConfig.resolve({}, BrokerConfig()).flush_messages == 1


BAD = [
    ("segment.bytes", "many", "Not a number of type INT"),
    ("segment.bytes", str(2**31), "Not a number of type INT"),
    ("segment.bytes", "1_000", "Not a number of type INT"),
    ("segment.bytes", "1000f", "Not a number of type INT"),
    ("segment.bytes", "0", "Value must be at least 1"),
    ("retention.ms", "-2", "Value must be at least -1"),
    ("min.cleanable.dirty.ratio", "1.1", "Value must be no more than 1"),
    ("min.cleanable.dirty.ratio", "nan", "Not a finite number"),
    ("min.cleanable.dirty.ratio", "0.1_5", "Not a number of type DOUBLE"),
    ("min.cleanable.dirty.ratio", "0.5fd", "Not a number of type DOUBLE"),
    ("min.cleanable.dirty.ratio", "d", "Not a number of type DOUBLE"),
    ("min.cleanable.dirty.ratio", "", "Not a number of type DOUBLE"),
    ("min.cleanable.dirty.ratio", "half", "Not a number of type DOUBLE"),
    ("preallocate", "yes", "Expected value to be either true or false"),
    ("compression.type", "brotli", "String must be one of"),
    ("cleanup.policy", "compact,keep", "String must be one of: compact, delete"),
    ("compression.gzip.level", "0", "between 1 and 9"),
    ("remote.storage.enable", "true", "There is no remote storage"),
    ("leader.replication.throttled.replicas", "1-2", "literal '*'"),
]


@pytest.mark.parametrize(("name", "text", "words"), BAD)
def test_bad_value_is_one_line(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(topic_rows()[name], text)
    assert words in caught.value.message
    assert name in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("compact", {"compact"}),
        ("delete,compact", {"compact", "delete"}),
        (" compact , delete ", {"compact", "delete"}),
        ("compact,compact", {"compact"}),
        ("", set()),
    ],
)
def test_t134_cleanup_policy_is_a_list(text: str, policy: set[str]) -> None:
    """T134: order and spaces do not count, a repeated member counts once, an empty list keeps everything."""
    assert parse(topic_rows()["cleanup.policy"], text) == policy


@pytest.mark.parametrize("text", ["compact,,delete", ",", "compact,"])
def test_t134_empty_members_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must not be empty"):
        parse(topic_rows()["cleanup.policy"], text)


@pytest.mark.parametrize("text", ["", "*", "0:1,1:1", "0:1,,1:1", "0:1,", "0:1,0:1"])
def test_throttled_replicas_may_be_empty_or_repeated(text: str) -> None:
    """They stay as they were written: Kafka's `ThrottledReplicaListValidator` takes them."""
    row = topic_rows()["leader.replication.throttled.replicas"]
    assert text_of(row, parse(row, text)) == text


def test_a_value_that_no_answer_could_hold_is_refused() -> None:
    """Older versions of DescribeConfigs have 15 bits for its length."""
    row = broker_rows()["listeners"]
    longest = "PLAINTEXT://" + "é" * 16_377 + ":"
    assert len(longest.encode()) == 2**15 - 1
    assert parse(row, longest) == (longest,)
    with pytest.raises(ConfigError, match=r"^Invalid value for configuration listeners: It is longer than"):
        parse(row, longest + "1")


def test_policy_properties() -> None:
    both = dataclasses.replace(TopicConfig(), cleanup_policy=frozenset({"compact", "delete"}))
    assert both.is_compacted
    assert both.is_deleted
    assert TopicConfig().is_deleted
    assert not TopicConfig().is_compacted


DOUBLES = [
    (0.5, "0.5"),
    (0.0, "0.0"),
    (1, "1.0"),
    (0.001, "0.001"),
    (0.00099, "9.9E-4"),
    (1e-5, "1.0E-5"),
    (9999999.0, "9999999.0"),
    (1e7, "1.0E7"),
    (123456789.0, "1.23456789E8"),
    (1e22, "1.0E22"),
    (-2.5e-7, "-2.5E-7"),
    (1.7976931348623157e308, "1.7976931348623157E308"),
]


@pytest.mark.parametrize(("value", "text"), DOUBLES)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    """The texts are those of Double.toString (JDK 21)."""
    assert text_of(topic_rows()["min.cleanable.dirty.ratio"], value) == text


@pytest.mark.parametrize("text", ["0.5", ".5", "5e-1", "0.5f", "0.5F", "0.5d", "5E-1D", " 0.5 "])
def test_doubles_are_read_as_java_reads_them(text: str) -> None:
    """What Double.parseDouble takes (JDK 21), but for its hexadecimal ones."""
    assert math.isclose(parse(topic_rows()["min.cleanable.dirty.ratio"], text), 0.5)


def test_types_carry_kafkas_codes() -> None:
    assert [member.value for member in Type] == list(range(1, 10))
    assert math.isclose(parse(topic_rows()["min.cleanable.dirty.ratio"], "0.25"), 0.25)
