"""Goal: the names of certificates' subjects are those that Kafka gives, so that rules written for it hold.

Method: subjects in DER, and the rules of Kafka's documentation; what each comes to was asked of Java.
tests/kafka/test_principals.py asks it of many more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from broker.security.principal import name_of, parse_rules
from broker.security.subject import subject_of

SERVICE = "CN=kafka1.acme.com,OU=ServiceUsers,O=Acme,L=Unknown,ST=Unknown,C=US"
ADMIN = "CN=Ada Lovelace,OU=AdminUsers,O=Acme,C=GB"


UTF8 = 12
OIDS = {"CN": "2.5.4.3", "C": "2.5.4.6", "O": "2.5.4.10", "UID": "0.9.2342.19200300.100.1.1"}


def der(tag: int, *parts: bytes) -> bytes:
    """An element of a certificate."""
    data = b"".join(parts)
    size = bytes([len(data)]) if len(data) < 0x80 else b"\x82" + len(data).to_bytes(2, "big")
    return bytes([tag]) + size + data


def oid_der(text: str) -> bytes:
    first, second, *others = map(int, text.split("."))
    data = b""
    for number in (40 * first + second, *others):
        sevens = [number >> shift & 0x7F for shift in range(28, -1, -7)]
        while len(sevens) > 1 and not sevens[0]:
            del sevens[0]
        data += bytes([*(one | 0x80 for one in sevens[:-1]), sevens[-1]])
    return der(6, data)


def name_der(*parts: Iterable[bytes]) -> bytes:
    """A name, of parts that may each have several pairs of type and value."""
    return der(0x30, *(der(0x31, *part) for part in parts))


def certificate(*parts: Sequence[tuple[str, bytes]], has_version: bool = True, tag: int = UTF8) -> bytes:
    """As much of one as is before its subject, and that."""
    name = name_der(*([der(0x30, oid_der(kind), der(tag, text)) for kind, text in part] for part in parts))
    version = [der(0xA0, der(2, b"\x02"))] if has_version else []
    before = [
        der(2, b"\x07"),
        der(0x30),
        name_der([der(0x30, oid_der("2.5.4.3"), der(UTF8, b"ca"))]),
        der(0x30),
    ]
    return der(0x30, der(0x30, *version, *before, name, der(0x30)), der(0x30))


@pytest.mark.parametrize("has_version", [True, False])
def test_a_subject_is_spelled_as_java_does(has_version: bool) -> None:
    parts = [
        [(OIDS["C"], b"US")], [(OIDS["O"], b"Acme, Inc" * 20)], [(OIDS["CN"], b"a"), (OIDS["UID"], b"7")]
    ]  # fmt: skip
    found = certificate(*parts, has_version=has_version)
    assert subject_of(found) == "CN=a+UID=7,O=" + r"Acme\, Inc" * 20 + ",C=US"
    assert subject_of(certificate()) == ""


@pytest.mark.parametrize(
    ("kind", "text", "tag", "said"),
    [  # as Java 17 says them
        ("1.2.840.113549.1.9.1", b"alice@acme.com", 22, "=#160e616c6963654061636d652e636f6d"),
        ("2.5.4.5", b"12", 19, "=#13023132"),
        ("2.5.4.42", b"Ada", UTF8, "=#0c03416461"),
        ("2.5.4.3", b"12", 18, "CN=#12023132"),  # a NumericString
        (
            "2.5.4.3",
            "ü".encode("latin-1"),
            20,
            "CN=\N{REPLACEMENT CHARACTER}",
        ),  # a T61String, taken for UTF-8
        ("2.5.4.3", b"x", 19, "CN=x"),
    ],
)
def test_what_rfc_2253_has_no_keyword_or_no_string_for_is_said_in_hex(
    kind: str, text: bytes, tag: int, said: str
) -> None:
    expected = said if said.startswith("CN") else f"{kind}{said}"
    assert subject_of(certificate([(kind, text)], tag=tag)) == expected


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("#x", r"\#x"), (" x ", r"\ x\ "), ('a"b+c<d>e;f\\g', r"a\"b\+c\<d\>e\;f\\g"), ("ß", "ß"),
        ("a=b", r"a\=b"), ("a#b", r"a\#b"), ("  x y  ", r"\ \ x y\ \ "), ("  ", r"\ \ "), ("a\0b", r"a\00b"),
    ],
)  # fmt: skip
def test_signs_that_separate_are_escaped(text: str, escaped: str) -> None:
    assert subject_of(certificate([(OIDS["CN"], text.encode())])) == f"CN={escaped}"


def test_what_is_no_certificate_is_said() -> None:
    whole = certificate([(OIDS["CN"], b"alice")])
    for wrong in (b"", b"\x30", whole[:-1], der(0x30, der(0x30, der(2, b"\x07"))), whole[:20]):
        with pytest.raises(ValueError, match=r"certificate"):
            subject_of(wrong)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        ("", SERVICE, SERVICE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SERVICE, "kafka1.acme.com"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", ADMIN, ADMIN),
        ("RULE:^CN=(.*?), *OU=(.*?), *O=.*$/$2.$1/L, DEFAULT", ADMIN, "adminusers.ada lovelace"),
        ("RULE:^.*CN=(.*?),.*$/$1/U", ADMIN, "ADA LOVELACE"),
        (r"RULE:^CN=(x)?.*$/a\1\d\/\$1$1/", ADMIN, "a1d/$1"),
        (r"RULE:^CN=(\w+),.*$/$1/,DEFAULT", "CN=Müller,OU=S", "CN=Müller,OU=S"),
        (r"RULE:^CN=(\d+)$/$1/,DEFAULT", "CN=１２", "CN=１２"),
        ("RULE:^CN=(.)(.*)$/$20$10/", "CN=abc", "bc0a0"),
        ("RULE:.*/x/", "CN=a", "xx"),
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
        ("RULE:(a)b/a$$1/", "a \\$ in a\\$\\$1 is not followed by the number of a group"),
        ("RULE:(a)b/$1$2/", "the pattern \\(a\\)b has no group 2"),
    ],
)
def test_what_is_no_rule_is_said(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_rules(text)
