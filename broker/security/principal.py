"""The name of a client that showed a certificate: its subject (`subject.py`), by
`ssl.principal.mapping.rules`. Pure.

Mirrors Kafka's `SslPrincipalMapper`, and Java's `replaceAll` in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from config.definition import ConfigError

if TYPE_CHECKING:
    from config.security import ListenerSecurity

USER = "User:"
ANONYMOUS = f"{USER}ANONYMOUS"
DEFAULT = "DEFAULT"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_SPECIAL = re.compile(r"\\(.)|\$([0-9]+)|\$", re.DOTALL)
"""in a replacement: a sign that stands for itself, a group, and what Java takes for neither"""


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` None is DEFAULT: the subject as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> list[Rule]:
    """ValueError for what is not a list of rules."""
    rules, position = [], 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"not a rule like RULE:pattern/replacement/[LU] or DEFAULT: {text[position:]}")
        position = match.end()
        try:
            pattern = None if match[1] else re.compile(match[2], re.ASCII)  # so are Java's classes
        except re.error as problem:
            raise ValueError(f"the pattern {match[2]} cannot be read: {problem}") from None
        rule = Rule(pattern, match[3] or "", match[4] or "")
        for special in _SPECIAL.finditer(rule.replacement if pattern is not None else ""):
            if special[0] == "$":
                raise ValueError(f"a $ in {rule.replacement} is not followed by the number of a group")
            if pattern is not None and special[2] and _group(special[2], pattern.groups)[0] > pattern.groups:
                raise ValueError(f"the pattern {match[2]} has no group {special[2]}")
        rules.append(rule)
    return rules or [Rule(None)]


def rules_of(security: ListenerSecurity) -> list[Rule]:
    """Those of a listener. ConfigError."""
    text = security.keys.ssl_principal_mapping_rules
    try:
        return parse_rules(text)
    except ValueError as problem:
        raise ConfigError.of_value(text, "ssl.principal.mapping.rules", str(problem)) from None


def name_of(subject: str, rules: Iterable[Rule]) -> str:
    """The name that the first matching rule gives. ValueError where none matches."""
    for rule in rules:
        if rule.pattern is None:
            return subject
        if rule.pattern.fullmatch(subject) is None:
            continue
        found = rule.pattern.sub(partial(_replaced, rule.replacement), subject)
        return {"L": found.lower(), "U": found.upper()}.get(rule.case, found)
    raise ValueError(f"no rule of ssl.principal.mapping.rules applies to {subject}")


def _replaced(replacement: str, match: re.Match[str]) -> str:
    def meant(special: re.Match[str]) -> str:
        if special[1]:
            return special[1]
        number, rest = _group(special[2], match.re.groups)
        return (match[number] or "") + rest

    return _SPECIAL.sub(meant, replacement)


def _group(digits: str, groups: int) -> tuple[int, str]:
    """Which group these digits name, as long as there are so many, and the digits that follow it."""
    end = 1
    while end < len(digits) and int(digits[: end + 1]) <= groups:
        end += 1
    return int(digits[:end]), digits[end:]
