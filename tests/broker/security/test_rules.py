"""Goal: a decision is what a walk over all rules comes to, however they are kept, and does not become slower
by rules that are about others.

Method: rules, who asks, names by dice, with changes in between; a count of what is looked at, and no clock.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.acls import Acl, Asker, Filter, Operation, Pattern, Permission, Resource
from broker.security.rules import Rules, names_in
from tests.broker.security.slow_rules import SPELLINGS, may_somewhere, verdict

NAMES = st.one_of(st.just("*"), st.text("ab*ü\U0001f600", min_size=1, max_size=4))
USERS = st.sampled_from(["User:alice", "User:bob", "User:*"])
ADDRESSES = [spelling for spellings in SPELLINGS for spelling in spellings]
HOSTS = st.one_of(st.just("*"), st.sampled_from([*ADDRESSES, "127.0.0.1", "localhost"]))
OPERATIONS = st.sampled_from(
    [Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL, Operation.ALTER_CONFIGS]
)
ACLS = st.builds(
    Acl,
    st.just(Resource.TOPIC),
    NAMES,
    st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    USERS,
    HOSTS,
    OPERATIONS,
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
ASKERS = st.builds(Asker, USERS, st.sampled_from([*ADDRESSES, "127.0.0.1", ""]))
ASKED = st.sampled_from([Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS])


@given(
    st.lists(st.tuples(st.booleans(), ACLS), max_size=30),
    st.lists(st.tuples(ASKERS, ASKED, NAMES), min_size=1, max_size=10),
)
def test_a_decision_is_what_a_walk_over_all_rules_says(
    changes: list[tuple[bool, Acl]], questions: list[tuple[Asker, Operation, str]]
) -> None:
    rules = Rules()
    walked: dict[Acl, None] = {}
    for is_added, acl in changes:
        if is_added:
            rules.add(acl)
            walked[acl] = None
        elif walked:
            gone = min(walked, key=lambda other: (other.name != acl.name, other))
            rules.remove(gone)
            del walked[gone]
        for asker, operation, name in questions:
            said = verdict(walked, asker, operation, name)
            for default in (False, True):
                ruling = rules.ruling(asker, operation, default=default)
                assert ruling.allows(name) is (default if said is None else said)
                assert ruling.allows_somewhere is may_somewhere(walked, asker, operation)
    assert sorted(rules) == sorted(walked)
    assert all(acl in rules for acl in walked)


@given(st.lists(ACLS, max_size=30), st.lists(NAMES, max_size=10))
def test_names_are_those_that_rules_are_about(acls: list[Acl], names: list[str]) -> None:
    found = names_in(acls)
    assert bool(found) is bool(acls)
    for name in names:
        assert (name in found) is any(acl.is_about(name) for acl in acls)


@pytest.mark.parametrize("spellings", SPELLINGS)
def test_an_address_is_one_in_all_its_spellings(spellings: tuple[str, ...]) -> None:
    """Apache Kafka and its tools have Java's: what they wrote kept nobody out."""
    for ruled in spellings:
        rules = Rules()
        rules.add(read("*", "*"))
        denied = read("*", ruled, Permission.DENY)
        rules.add(denied)
        for asking in spellings:
            asker = Asker("User:alice", asking)
            assert not rules.ruling(asker, Operation.READ, default=False).allows("t")
        assert rules.ruling(Asker("User:alice", "::2"), Operation.READ, default=False).allows("t")
        assert set(rules) == {read("*", "*"), denied}  # clients are told what they wrote
        rules.remove(denied)
        assert rules.ruling(Asker("User:alice", spellings[0]), Operation.READ, default=False).allows("t")


def read(name: str, host: str, permission: Permission = Permission.ALLOW) -> Acl:
    return Acl(Resource.TOPIC, name, Pattern.LITERAL, "User:*", host, Operation.READ, permission)


class Counted(str):
    """A name that counts how often it is compared."""

    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.count += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        Counted.count += 1
        return str.__lt__(self, other)

    def startswith(self, *prefix: object) -> bool:  # type: ignore[override]
        Counted.count += 1
        return str.startswith(self, *prefix)  # type: ignore[arg-type]


def test_a_decision_does_not_walk_over_the_rules() -> None:
    """100,000 names of one request, held against thousands of rules one by one, were seconds for all."""
    rules = Rules()
    for number in range(4096):
        for pattern in (Pattern.LITERAL, Pattern.PREFIXED):
            name, who = f"tenant-{number}-", f"User:{number % 2}"
            rules.add(Acl(Resource.TOPIC, name, pattern, who, "*", Operation.READ, Permission.ALLOW))
    for default in (False, True):
        for user in ("User:0", "User:stranger"):
            ruling = rules.ruling(Asker(user, "::1"), Operation.READ, default=default)
            Counted.count = 0
            assert ruling.allows(Counted("tenant-8-x")) is (user == "User:0")
            assert Counted.count < 40


@pytest.mark.parametrize(
    ("wanted", "is_meant"),
    [
        ({"principal": "User:bob"}, False),
        ({"principal": "User:alice"}, True),
        ({"pattern": Pattern.MATCH, "name": "orders"}, True),
        ({"pattern": Pattern.MATCH, "name": "other"}, False),
        ({"pattern": Pattern.ANY, "name": "orders"}, False),
        ({"pattern": Pattern.ANY, "name": "ord"}, True),
        ({"pattern": Pattern.LITERAL}, False),
        ({"pattern": Pattern.LITERAL, "name": "ord"}, False),
        ({"pattern": Pattern.PREFIXED, "name": "ord"}, True),
        ({"pattern": Pattern.PREFIXED, "name": "orders"}, False),
        ({"resource": Resource.GROUP}, False),
        ({"host": "10.0.0.1"}, False),
        ({"operation": Operation.WRITE}, False),
        ({"permission": Permission.DENY}, False),
    ],
)
def test_which_rules_a_filter_means(wanted: dict[str, Any], is_meant: bool) -> None:
    """By MATCH those that hold for the name, by ANY those that are written with it, of whomever is named."""
    acl = Acl(Resource.TOPIC, "ord", Pattern.PREFIXED, "User:alice", "*", Operation.READ, Permission.ALLOW)
    every = Filter(Resource.ANY, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)
    assert every._replace(**wanted).takes(acl) is is_meant
