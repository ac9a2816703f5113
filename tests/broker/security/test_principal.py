"""Goal: the names of certificates' subjects are those that Kafka gives, so that rules written for it hold.

Method: subjects as `ssl` reads them, and the rules of Kafka's documentation.
"""

from __future__ import annotations

import pytest

from broker.security.principal import name_of, parse_rules, subject_of

SERVICE = "CN=kafka1.acme.com,OU=ServiceUsers,O=Acme,L=Unknown,ST=Unknown,C=US"
ADMIN = "CN=Ada Lovelace,OU=AdminUsers,O=Acme,C=GB"


def certificate(*parts: tuple[tuple[str, str], ...]) -> dict[str, object]:
    return {"subject": parts}


def test_a_subject_is_spelled_as_java_does() -> None:
    found = certificate(
        (("countryName", "US"),), (("organizationName", "Acme, Inc"),), (("commonName", "a"), ("userId", "7"))
    )
    assert subject_of(found) == r"CN=a+UID=7,O=Acme\, Inc,C=US"
    assert subject_of({}) == ""


@pytest.mark.parametrize(
    ("text", "escaped"),
    [("#x", r"\#x"), (" x ", r"\ x\ "), ('a"b+c<d>e;f\\g', r"a\"b\+c\<d\>e\;f\\g"), ("ß", "ß")],
)
def test_signs_that_separate_are_escaped(text: str, escaped: str) -> None:
    assert subject_of(certificate((("commonName", text),))) == f"CN={escaped}"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        ("", SERVICE, SERVICE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SERVICE, "kafka1.acme.com"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", ADMIN, ADMIN),
        ("RULE:^CN=(.*?), *OU=(.*?), *O=.*$/$2.$1/L, DEFAULT", ADMIN, "adminusers.ada lovelace"),
        ("RULE:^.*CN=(.*?),.*$/$1/U", ADMIN, "ADA LOVELACE"),
        (r"RULE:^CN=(x)?.*$/a\1\d$1/", ADMIN, r"a\1\d"),
        ("RULE:^nobody$//,RULE:^CN=([^,]+),.*$/$1@acme/", ADMIN, "Ada Lovelace@acme"),
    ],
)
def test_the_first_rule_that_matches_names_the_client(rules: str, subject: str, name: str) -> None:
    assert name_of(subject, parse_rules(rules)) == name


def test_a_client_that_no_rule_is_about_has_no_name() -> None:
    with pytest.raises(ValueError, match="applies to CN=Ada Lovelace"):
        name_of(ADMIN, parse_rules("RULE:^nobody$/x/"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("RULE:^CN=(.*?)$", "not a rule like"),
        ("DEFAULT,RULE", "not a rule like RULE:pattern/replacement/\\[LU\\] or DEFAULT: RULE"),
        ("RULE:(/x/", "the pattern \\( cannot be read"),
        ("RULE:(a)b/$1$2/", "the pattern \\(a\\)b has no group 2"),
    ],
)
def test_what_is_no_rule_is_said(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_rules(text)
