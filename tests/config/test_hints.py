"""Goal: an unknown key is one line that says what to do. Method: the line for each kind of mistake."""

from __future__ import annotations

import pytest

from config.broker import BrokerConfig
from config.definition import ConfigError


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
