"""The name of a client that showed a certificate: its subject, by `ssl.principal.mapping.rules`. Pure.

Mirrors Kafka's `SslPrincipalMapper`; the subject is spelled as Java does it (RFC 2253: the last part first).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.definition import ConfigError

if TYPE_CHECKING:
    from config.security import ListenerSecurity

USER = "User:"
ANONYMOUS = f"{USER}ANONYMOUS"
DEFAULT = "DEFAULT"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP = re.compile(r"\$(\d+)")
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""the parts that RFC 2253 has a short name for; others are said by OpenSSL's name"""


def subject_of(certificate: Mapping[str, object]) -> str:
    """The subject of what `ssl.SSLSocket.getpeercert` returns: CN=alice,OU=data,O=acme."""
    parts: Iterable[Iterable[tuple[str, str]]] = certificate.get("subject", ())  # type: ignore[assignment]
    names = ["+".join(f"{_SHORT.get(kind, kind)}={_escaped(text)}" for kind, text in part) for part in parts]
    return ",".join(reversed(names))


def _escaped(text: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", text)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(escaped) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped


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
            pattern = None if match[1] else re.compile(match[2])
        except re.error as problem:
            raise ValueError(f"the pattern {match[2]} cannot be read: {problem}") from None
        rule = Rule(pattern, match[3] or "", match[4] or "")
        groups = max(map(int, _GROUP.findall(rule.replacement)), default=0)
        if pattern is not None and groups > pattern.groups:
            raise ValueError(f"the pattern {match[2]} has no group {groups}")
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
        match = rule.pattern.fullmatch(subject)
        if match is None:
            continue
        found = match.expand(_GROUP.sub(r"\\g<\1>", rule.replacement.replace("\\", r"\\")))
        return {"L": found.lower(), "U": found.upper()}.get(rule.case, found)
    raise ValueError(f"no rule of ssl.principal.mapping.rules applies to {subject}")
