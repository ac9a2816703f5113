"""Goal: a properties file says to kompakt what it says to Java, and so to Apache Kafka.

Method: `java.util.Properties`, run by `PropertiesRows.java`, and `read_properties` read the same random
texts, made of what has a meaning there and of what might be taken for it.
"""

from __future__ import annotations

import random
import subprocess

import pytest

from config.definition import ConfigError
from config.load import read_properties
from tests.kafka.jars import HERE, environment
from tests.kafka.tools import Tools

pytestmark = pytest.mark.java
TEXTS = 5_000
LIMIT_SECONDS = 300
PARTS = (
    "a", "b.c", "=", ":", " ", "\t", "\f", "\n", "\r", "\r\n", "\\", "\\", "\\\n", "#", "!", "\\t", "\\u00e9",
    "\\u0g", "\x85", "\u2028", "\u2029", "\x0b", "\x1c", "\x1f", "\xa0", "\u3000", "\ufeff", "é",
)  # fmt: skip


def of_java(tools: Tools, texts: list[str]) -> list[dict[str, str] | None]:
    """None where it refuses a text."""
    command = tools.jvm(str(HERE / "PropertiesRows.java"), "-Xmx256m", "-XX:+UseSerialGC")
    asked = "".join(f"{text.encode().hex()}\n" for text in texts)
    answer = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment()
    )
    assert answer.returncode == 0, answer.stderr
    found: list[dict[str, str] | None] = []
    for line in answer.stdout.splitlines():
        words = [] if line in ("", "refused") else [bytes.fromhex(word).decode() for word in line.split(",")]
        values = [word.rstrip(" \t\f") for word in words[1::2]]  # as Kafka trims them
        read = dict(zip(words[::2], values, strict=True))
        read.pop("", None)  # what has no name is no setting
        found.append(None if line == "refused" else read)
    return found


def of_ours(text: str) -> dict[str, str] | None:
    try:
        return read_properties(text)
    except ConfigError:
        return None


def test_a_file_is_read_as_by_java(kafka_tools: Tools) -> None:
    dice = random.Random(7)
    texts = ["".join(dice.choices(PARTS, k=dice.randint(1, 24))) for _ in range(TEXTS)]
    expected = of_java(kafka_tools.with_compiler(), texts)
    for text, told in zip(texts, expected, strict=True):
        assert of_ours(text) == told, repr(text)
    assert None in expected
    assert max(len(one or {}) for one in expected) > 3
