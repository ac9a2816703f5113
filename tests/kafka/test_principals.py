"""Goal: the client of a certificate has the name that Kafka gives it, letter for letter: rules (ACLs) that
are made for one must hold for the other.

Method: Java's `X500Principal` and Kafka's `SslPrincipalMapper`, run by `Principals.java`, and ours spell
2,000 random subjects, of all kinds of types, strings and signs, and name 1,000 by rules.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence

import pytest

from broker.security.principal import name_of, parse_rules
from broker.security.subject import KEYWORDS, name_text
from tests.broker.security.test_principal import der, oid_der
from tests.kafka.jars import HERE, environment
from tests.kafka.tools import Tools

pytestmark = pytest.mark.java
LIMIT_SECONDS = 120
OIDS = (
    *KEYWORDS, "1.2.840.113549.1.9.1", "2.5.4.5", "2.5.4.4", "2.5.4.42", "2.5.4.12", "2.5.4.46", "2.5.4.97",
    "1.3.6.1.4.1.311.60.2.1.3", "2.999.1", "0.1.2", "1.39.7",
)  # fmt: skip
SIGNS = (
    "a",
    "B",
    "7",
    "é",
    "ß",
    "漢",
    "😀",
    " ",
    " ",
    "\r",
    "\n",
    "\t",
    "\0",
    *',=+<>#;"\\',
    "/",
    "@",
    "\x7f",
)
TAGS = (12, 12, 12, 19, 20, 22, 27, 30, 18, 28, 4, 2)
RULES = (
    r"RULE:^CN=(\w+),OU=S$/$1/,DEFAULT", r"RULE:^CN=(\d+)(\s)?.*$/$1$2/,DEFAULT",
    r"RULE:^CN=(a)?(.*)$/x$1y$2/", r"RULE:^CN=(.*?)\/(.*)$/$1-$2\/$0/",
    r"RULE:^CN=(.*)$/\$1\a\\$1\//U,DEFAULT", r"RULE:C/x/L,RULE:.*/x/", r"RULE:^CN=(.)(.*)$/$10$2/L",
    r"RULE:CN=|[a-z]+/<$0>/,DEFAULT", r"RULE:^CN=([^,]*),OU=(.*)$/$2$01@$1/",
    r"RULE:^CN=(\S+)\s(\S+)$/$1.$2/", r"RULE:(?i)^cn=\W(.*)$/$1/,RULE:^CN=\D(.*)$/$1/,DEFAULT",
)  # fmt: skip


def of_java(tools: Tools, asked: Sequence[str]) -> list[str | None]:
    command = tools.jvm(str(HERE / "Principals.java"), "-Xmx256m", "-XX:+UseSerialGC")
    answer = subprocess.run(
        command, input="".join(f"{one}\n" for one in asked), capture_output=True, text=True,
        timeout=LIMIT_SECONDS, env=environment(),
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return [None if line == "-" else bytes.fromhex(line).decode() for line in answer.stdout.splitlines()]


def drawn(dice: random.Random, most: int) -> str:
    return "".join(dice.choice(SIGNS) for _ in range(dice.randint(0, most)))


def drawn_name(dice: random.Random) -> bytes:
    """What the DER of a name holds."""

    def pair() -> bytes:
        tag, text = dice.choice(TAGS), drawn(dice, 6)
        value = text.encode("utf-16-be" if tag == 30 else dice.choice(("utf-8", "utf-8", "utf-16-le")))
        if dice.random() < 0.05:
            value = dice.randbytes(dice.choice((5, 200)))
        return der(0x30, oid_der(dice.choice(OIDS)), der(tag, value if tag != 2 else b"\x01"))

    parts = [sorted(pair() for _ in range(dice.choice((1, 1, 1, 2)))) for _ in range(dice.randint(0, 5))]
    return b"".join(der(0x31, *part) for part in parts)


def test_subjects_are_spelled_as_by_java(kafka_tools: Tools) -> None:
    dice = random.Random(20261129)
    names = [drawn_name(dice) for _ in range(2_000)]
    expected = of_java(kafka_tools.with_compiler(), [f"S {der(0x30, name).hex()}" for name in names])
    for name, text in zip(names, expected, strict=True):
        assert name_text(name) == text, name.hex()


def test_rules_name_as_by_kafka(kafka_tools: Tools) -> None:
    dice = random.Random(20261129)
    pairs = [
        (dice.choice(RULES), f"CN={drawn(dice, 4)}{dice.choice(('', ',OU=S', '１２', ' b', ' b', 'a/b'))}")
        for _ in range(1_000)
    ]
    pairs = [(rules, subject) for rules, subject in pairs if not {"\r", "\n"} & {*subject}]
    lines = [f"R {rules.encode().hex()} {subject.encode().hex()}" for rules, subject in pairs]
    for (rules, subject), expected in zip(pairs, of_java(kafka_tools.with_compiler(), lines), strict=True):
        try:
            found = name_of(subject, parse_rules(rules))
        except ValueError:
            found = None
        assert found == expected, (rules, subject)
