"""Goal: waits are as long as it takes until what was done is no more than is allowed.

Method: times are numbers. `tests/kafka/test_quota_waits.py` compares random runs with Apache Kafka's classes.
"""

from __future__ import annotations

from broker.quotas.rates import LONGEST_MS, Rate, TokenBucket

SECOND = 1000


def new_rate() -> Rate:
    """As Kafka has it by default: ten whole windows of a second, and the one that goes on."""
    return Rate(11, SECOND, 0)


def test_what_the_windows_hold_may_come_at_once() -> None:
    rate = new_rate()
    rate.add(10_000, 0)
    assert rate.wait_ms(1000, 0) == 0
    rate.add(1, 0)
    assert rate.wait_ms(1000, 0) == 1


def test_who_did_twice_as_much_waits_for_as_long_as_the_windows_are() -> None:
    rate = new_rate()
    rate.add(20_000, 0)
    assert rate.wait_ms(1000, 0) == 10_000


def test_time_that_is_over_counts_from_the_eleventh_window_on() -> None:
    rate = new_rate()
    for second in range(30):
        rate.add(1000, second * SECOND)
        assert rate.wait_ms(1000, second * SECOND) <= SECOND


def test_what_lies_behind_the_windows_is_forgotten() -> None:
    rate = new_rate()
    rate.add(1e9, 0)
    assert rate.wait_ms(1, 0) > 0
    assert rate.wait_ms(1, 10_999) > 0
    assert rate.wait_ms(1, 11_000) == 0


def test_what_was_taken_back_did_not_happen() -> None:
    rate = new_rate()
    rate.add(20_000, 0)
    rate.add(-20_000, 0)
    assert rate.wait_ms(1000, 0) == 0


def test_a_rate_of_which_nothing_counts_is_as_a_new_one() -> None:
    rate = new_rate()
    rate.add(20_000, 500)
    assert not rate.is_over(1000, 11_499)
    assert rate.is_over(1000, 11_500)


def test_no_wait_is_longer_than_an_answer_can_say() -> None:
    rate, bucket = new_rate(), TokenBucket(11, SECOND, 0)
    rate.add(1e18, 0)
    bucket.add(1e18, 1, 0)
    assert rate.wait_ms(1, 0) == bucket.wait_ms(1, 0) == LONGEST_MS


def test_a_bucket_is_full_at_first_and_lets_one_in_that_overdraws_it() -> None:
    bucket = TokenBucket(11, SECOND, 0)
    bucket.add(11, 1, 0)
    assert bucket.wait_ms(1, 0) == 0
    bucket.add(5, 1, 0)
    assert bucket.wait_ms(1, 0) == 5000
    assert bucket.wait_ms(1, 4999) == 1
    assert bucket.wait_ms(1, 5000) == 0


def test_a_bucket_holds_what_the_windows_do() -> None:
    bucket = TokenBucket(11, SECOND, 0)
    bucket.add(1, 1, 0)
    assert not bucket.is_over(1, 999)
    assert bucket.is_over(1, 1000)
    bucket.add(12, 1, 1_000_000)
    assert bucket.wait_ms(1, 1_000_000) == 1000


def test_another_limit_holds_from_now_on() -> None:
    bucket = TokenBucket(11, SECOND, 0)
    bucket.add(21, 1, 0)
    assert bucket.wait_ms(1, 0) == 10_000
    assert bucket.wait_ms(10, 0) == 1000


def test_a_rate_over_one_window_counts_what_happened_this_very_ms() -> None:
    """`quota.window.num=1`: no time is over yet, and something was done."""
    rate = Rate(1, SECOND, 0)
    rate.add(5, 0)
    assert rate.wait_ms(1, 0) > 0
    assert rate.wait_ms(1, 1000) == 0


def test_what_happened_late_in_a_window_counts_while_a_twelfth_begins() -> None:
    rate = new_rate()
    for second in range(12):
        rate.add(5000 if second == 0 else 0, second * SECOND + (999 if second == 0 else 0))
    assert rate.per_second(11_000) == 5000 / 11
