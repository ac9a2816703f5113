"""Goal: an unknown key, or a number with a unit, is one line that says what to do. Method: the line
for each kind of mistake."""

from __future__ import annotations

import difflib

import pytest

from config.broker import BrokerConfig
from config.definition import LONGEST_MISSPELT, ConfigError
from config.topic import unknown_topic_key


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("log.retention.mss", "Unknown configuration log.retention.mss: did you mean log.retention.ms?"),
        ("flush.messages", "a key of topics, whose default the broker calls log.flush.interval.messages"),
        ("qqq", "Unknown configuration qqq: REFERENCE.md lists the keys"),
        ("remote.log.storage.system.enable", "is not supported: kompakt does not have what it sets up"),
        ("ssl.keystore.password", "A PEM file has none; the password of its key is ssl.key.password"),
        ("ssl.cipher.suites", "The system's own choice of ciphers is used"),
        ("sasl.jaas.config", "listener.name.<listener>.plain.sasl.jaas.config"),
    ],
)
def test_an_unknown_key_is_answered_with_what_to_do(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.parse({name: "1"})
    assert hint in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("log.retention.ms", "7d", "type LONG: it wants milliseconds, 7 d = 604800000"),
        ("log.retention.ms", "1.5 Hours", "type LONG: it wants milliseconds, 1.5 h = 5400000"),
        ("log.retention.ms", "500ms", "type LONG: it wants milliseconds, 500 ms = 500"),
        ("log.retention.hours", "2 weeks", "type INT: it wants hours, 2 w = 336"),
        ("log.retention.hours", "30min", "type INT: it wants hours"),
        ("log.retention.bytes", "1GB", "type LONG: it wants bytes, 1 GiB = 1073741824"),
        ("log.retention.bytes", "10m", "type LONG: it wants bytes, 10 MiB = 10485760"),
        ("log.cleaner.dedupe.buffer.size", "64MiB", "type LONG: it wants bytes, 64 MiB = 67108864"),
        ("log.cleaner.io.max.bytes.per.second", "10MB", "type DOUBLE: it wants bytes, 10 MiB = 10485760"),
        ("log.retention.bytes", "7d", "type LONG"),
        ("log.retention.ms", "1GB", "type LONG"),
        ("log.retention.ms", "-7d", "type LONG"),
        ("log.retention.ms", "soon", "type LONG"),
        ("num.partitions", "7d", "type INT"),
        ("group.max.size", "7k", "type INT"),
    ],
)
def test_a_number_with_a_unit_is_answered_with_what_to_write(name: str, text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.parse({name: text})
    words = f"Invalid value {text} for configuration {name}: Not a number of "
    assert refused.value.message == f"{words}{hint}"


def test_a_name_of_megabytes_is_not_looked_for_among_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes longer with each letter, and a client may send as many as it likes."""

    def look(word: str, *_: object) -> list[str]:
        assert len(word) <= LONGEST_MISSPELT
        return ["retention.ms"]

    monkeypatch.setattr(difflib, "get_close_matches", look)
    for name in ("x" * LONGEST_MISSPELT, "x" * (LONGEST_MISSPELT + 1)):
        hint = ": did you mean retention.ms?" if len(name) <= LONGEST_MISSPELT else ""
        assert unknown_topic_key(name) == f"Unknown topic config name: {name}{hint}"
