"""JAAS texts, by which Kafka's settings name users and passwords: `Class required name="value" ... ;`.

Shared by the broker's `sasl.jaas.config` and the Spark connector's `kafka.sasl.jaas.config`. No message
repeats any of the text: it is secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

PLAIN_MODULE, SCRAM_MODULE = "PlainLoginModule", "ScramLoginModule"
OAUTH_MODULE = "OAuthBearerLoginModule"
LOGIN_MODULES = (PLAIN_MODULE, SCRAM_MODULE)

_TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([=;])|([^\s"\'=;]+))', re.DOTALL)


class Login(NamedTuple):
    """One login module: the last word of its class, and its settings."""

    module: str
    settings: dict[str, str]


def parse_jaas(text: str, modules: Sequence[str] = LOGIN_MODULES) -> Login:
    """The one login module of a text, which is one of `modules`. Values may stand in double or single quotes,
    or bare. ValueError says what is wrong with it.
    """
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise ValueError("it must end with a semicolon")
    module, control = tokens[0][1].rsplit(".", 1)[-1], tokens[1][1].lower()
    if module not in modules:
        raise ValueError(f"its login module must be one of {', '.join(modules)}")
    if control not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("after the login module stands `required`")
    body = tokens[2:-1]
    if ("sign", ";") in body:
        raise ValueError("it must have one login module")
    settings = {}
    for index in range(0, len(body), 3):
        match body[index : index + 3]:
            case [("word", name), ("sign", "="), ("word" | "quoted", value)]:
                settings[name] = value
            case _:
                raise ValueError("its settings must be name=value, values with other signs in double quotes")
    return Login(module, settings)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    text = text.strip()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quotation mark is missing")
        position = match.end()
        double, single, sign, word = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            yield "quoted", re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        else:
            yield ("sign", sign) if sign else ("word", word)
