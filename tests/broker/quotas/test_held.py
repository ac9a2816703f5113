"""Goal: the most exact quota holds for a client, and those who share one are counted together.

Method: quotas of one kind are set, and who is asked for is compared with the list of precedence that Apache
Kafka documents. `tests/kafka/test_quotas.py` compares with Kafka itself.
"""

from __future__ import annotations

import itertools

import pytest

from broker.quotas.held import FORGETFUL_FROM, HeldRates
from broker.quotas.limits import NOT_SAID, Entity, Limits

BY_RANK: list[Entity] = [
    ("u", "c"), ("u", None), ("u", NOT_SAID), (None, "c"), (None, None), (None, NOT_SAID), (NOT_SAID, "c"),
    (NOT_SAID, None),
]  # fmt: skip
"""of u's client c"""


@pytest.mark.parametrize("are_there", list(itertools.product((False, True), repeat=len(BY_RANK))))
def test_the_first_in_the_list_that_is_there_holds(are_there: tuple[bool, ...]) -> None:
    limits = Limits()
    for rank, is_there in enumerate(are_there):
        if is_there:
            limits.set(BY_RANK[rank], rank + 1)
    found = limits.find("u", "c")
    expected = next((rank + 1 for rank, is_there in enumerate(are_there) if is_there), None)
    assert (None if found is None else found[1]) == expected


def test_who_has_said_no_client_id_has_no_quota_of_client_ids() -> None:
    limits = Limits()
    limits.set((NOT_SAID, None), 1)
    assert limits.find("u", "") is None
    limits.set((None, NOT_SAID), 2)
    assert limits.find("u", "") == (("u", NOT_SAID), 2)
    limits.set(("u", None), 3)
    assert limits.find("u", "") == (("u", NOT_SAID), 2)


def test_a_quota_of_a_user_is_shared_by_its_clients() -> None:
    held = HeldRates(11, 1000)
    held.set(("u", NOT_SAID), 100)
    assert held.add("u", "c", 1000, 0) == 0
    assert held.add("u", "d", 1000, 0) == 10_000
    assert held.add("v", "c", 1e9, 0) == 0


def test_a_default_is_for_each_by_itself() -> None:
    held = HeldRates(11, 1000)
    held.set((NOT_SAID, None), 100)
    assert held.add("u", "c", 2000, 0) == 10_000
    assert held.add("u", "d", 1000, 0) == 0
    assert held.add("v", "d", 1000, 0) == 10_000, "whoever has the client id"


def test_another_limit_holds_for_what_was_counted_before() -> None:
    held = HeldRates(11, 1000)
    held.set((NOT_SAID, "c"), 100)
    assert held.add("u", "c", 2000, 0) == 10_000
    held.set((NOT_SAID, "c"), 1000)
    assert held.add("u", "c", 0, 0) == 0
    held.set((NOT_SAID, "c"), None)
    assert not held.is_active
    assert held.add("u", "c", 1e9, 0) == 0


def test_nobody_waits_longer_than_the_longest() -> None:
    held = HeldRates(11, 1000, longest_ms=1000)
    held.set((NOT_SAID, "c"), 1)
    assert held.add("u", "c", 1e9, 0) == 1000


def test_what_a_client_may_have_at_once() -> None:
    held = HeldRates(11, 1000)
    held.set((NOT_SAID, "c"), 100)
    assert held.most("u", "c") == 1000
    assert held.most("u", "d") is None


def test_clients_that_are_gone_are_forgotten() -> None:
    """A client may say another id each time that it comes."""
    held = HeldRates(11, 1000)
    held.set((NOT_SAID, None), 100)
    for number in range(5 * FORGETFUL_FROM):
        held.add("u", f"c{number}", 1, 100 * number)
    assert len(held._measured) <= 2 * FORGETFUL_FROM
    assert len(held._found) <= FORGETFUL_FROM


def test_those_that_count_are_not_forgotten() -> None:
    held = HeldRates(11, 1000)
    held.set((NOT_SAID, None), 100)
    for number in range(2 * FORGETFUL_FROM):
        held.add("u", f"c{number}", 1000, 0)
    assert all(held.add("u", f"c{number}", 1000, 0) == 10_000 for number in range(2 * FORGETFUL_FROM))
