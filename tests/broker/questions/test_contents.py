"""Goal: pages of records and of a topic's table show what a consumer sees, no record twice and none left out,
and the counts of what is left are true.

Method: random logs with all codecs, cleanings, aborted and open transactions; pages of every size against
what a reader collects fetch by fetch, and a dict as the model of the table. Damage, damage to what is counted
and limits one by one.
"""

from __future__ import annotations

import base64
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.questions import records as contents
from broker.questions.records import Kind, Wanted, latest_page, records_between, records_page, steadily
from broker.questions.shown import SHOWN_BYTES, at_most
from broker.questions.table import Page, TooEarly, table_page, upper_for
from protocol.batch import parse_header
from protocol.records import Record
from storage.key_search import find_key
from storage.log import Log
from storage.segment import Segment
from tests.broker.test_questions_keys import clean, write
from tests.storage.builders import NOW_MS, LogBuilder

KEYS = 60


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogBuilder]:
    builder = LogBuilder(
        tmp_path / "orders-2", segment_bytes=6000, cleanup_policy="compact", delete_retention_ms=1
    )
    yield builder
    builder.log.abandon()


def transaction(log: LogBuilder, rng: random.Random, producer_id: int, *, is_commit: bool | None) -> set[int]:
    """A few records of a transaction that is committed, aborted or left open; their offsets."""
    found = set()
    for sequence in range(rng.randrange(1, 4)):
        appended = log.append(
            b"%d" % rng.randrange(10**6), key=b"key-%d" % rng.randrange(KEYS), producer_id=producer_id,
            producer_epoch=0, base_sequence=sequence, is_transactional=True,
        )  # fmt: skip
        found.add(appended.base_offset)
    if is_commit is not None:
        log.end_transaction(producer_id, is_commit=is_commit)
    return found


def random_log(log: LogBuilder, seed: int) -> tuple[set[int], set[int]]:
    """The offsets of records that were aborted, and of undecided ones."""
    rng = random.Random(seed)
    aborted: set[int] = set()
    for turn in range(4):
        write(log, rng, 12, KEYS)
        aborted |= transaction(log, rng, 100 + turn, is_commit=False)
        transaction(log, rng, 200 + turn, is_commit=True)
        if rng.random() < 0.6:
            log.log.flush()
            clean(log)
    undecided = transaction(log, rng, 300, is_commit=None)
    write(log, rng, 2, KEYS)
    transaction(log, rng, 301, is_commit=True)
    log.log.flush()
    return aborted, undecided


def markers(log: LogBuilder) -> set[int]:
    headers = [parse_header(data, 0) for _, data in log.log.scan(log.log.log_start_offset)]
    return {header.base_offset for header in headers if header.is_control and header.record_count}


def visible(log: LogBuilder, aborted: set[int]) -> list[Record]:
    """What a reader with read_committed collects."""
    return [
        record
        for record in log.records()
        if record.offset not in aborted and record.offset < log.log.last_stable_offset
    ]


def pages(read: Callable[[int], dict[str, Any]], start: int) -> Iterator[dict[str, Any]]:
    while True:
        page = read(start)
        yield page
        assert page["next_offset"] > start or page["is_at_end"]
        if page["is_at_end"]:
            return
        start = page["next_offset"]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


# Records


def test_the_table_of_large_values_has_the_beginning_of_each(tmp_path: Path) -> None:
    """And no more of it in memory: a page is of up to 10,000 keys."""
    log = LogBuilder(tmp_path / "large-0", segment_bytes=64 << 20)
    for turn in range(3):
        for key in range(20):
            log.append(b"%d" % turn * (1 << 19), key=b"%02d" % key)
    log.append(b"small", key=b"01")
    log.append(None, key=b"02")
    log.log.flush()
    tracemalloc.start()
    try:
        found = table_page([(log.log, log.log.high_watermark)], Page(b"", None, 10_000, tombstones=True))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        log.log.abandon()
    values = [(row["value"], row["value_bytes"]) for row in found["rows"]]
    large = ("2" * SHOWN_BYTES, 1 << 19)
    assert values == [large, ("small", 5), (None, None), *[large] * 17]
    assert most < 6 << 20


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [1, 7, 1000])
def test_pages_are_what_a_consumer_sees(log: LogBuilder, seed: int, most: int) -> None:
    aborted, _ = random_log(log, seed)
    expected = visible(log, aborted)
    found = [
        row
        for page in pages(lambda start: records_page(log.log, Wanted(start, most)), 0)
        for row in page["records"]
    ]
    assert offsets(found) == [record.offset for record in expected]
    for row, record in zip(found, expected, strict=True):
        value = None if row["value_base64"] is None else base64.b64decode(row["value_base64"])
        assert (base64.b64decode(row["key_base64"]), value) == (record.key, record.value)
        assert (row["timestamp"], row["is_tombstone"]) == (record.timestamp, record.value is None)
        assert [one["key"] for one in row["headers"]] == [name for name, _ in record.headers]
        assert row["kind"] is Kind.DATA


@pytest.mark.parametrize("seed", range(4))
def test_everything_is_shown_as_what_it_is(log: LogBuilder, seed: int) -> None:
    aborted, undecided = random_log(log, seed)
    (page,) = pages(lambda start: records_page(log.log, Wanted(start, 10**6, hidden=True)), 0)
    kinds = {kind: {row["offset"] for row in page["records"] if row["kind"] is kind} for kind in Kind}
    everything = {record.offset for record in log.records()} | markers(log)
    assert kinds[Kind.MARKER] == markers(log)
    assert kinds[Kind.ABORTED] == aborted & everything  # a cleaning takes them away
    assert kinds[Kind.UNDECIDED] == undecided
    assert set(offsets(page["records"])) == everything
    assert {row["marker"] for row in page["records"] if row["kind"] is Kind.MARKER} >= {"commit"}
    assert not any(row["is_tombstone"] for row in page["records"] if row["kind"] is Kind.MARKER)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("hidden", [False, True])
def test_the_last_records_and_those_before_them(log: LogBuilder, seed: int, hidden: bool) -> None:
    """Page by page backwards, to the first one."""
    random_log(log, seed)
    (whole,) = pages(lambda start: records_page(log.log, Wanted(start, 10**6, hidden=hidden)), 0)
    before, found = log.log.log_end_offset, list[int]()
    while True:
        page = latest_page(log.log, Wanted(before, 25, hidden=hidden))
        found = offsets(page["records"]) + found
        if page["start_offset"] == 0:
            break
        before = page["start_offset"]
    assert found == offsets(whole["records"])


def test_a_search_goes_through_keys_and_values(log: LogBuilder) -> None:
    for number in range(50):
        log.append(b"value %d" % number, key=b"key %d" % (number % 10))
    log.append(None, key=b"key 3")
    log.log.flush()
    (page,) = pages(lambda start: records_page(log.log, Wanted(start, 100, b"key 3")), 0)
    assert offsets(page["records"]) == [3, 13, 23, 33, 43, 50]
    (page,) = pages(lambda start: records_page(log.log, Wanted(start, 100, b"value 4")), 0)
    assert offsets(page["records"]) == [4, *range(40, 50)]
    assert offsets(latest_page(log.log, Wanted(51, 2, b"key 3"))["records"]) == [43, 50]
    assert offsets(latest_page(log.log, Wanted(50, 2, b"key 3"))["records"]) == [33, 43]


def test_a_page_ends_where_enough_was_looked_through(
    log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        log.append(b"%d" % number * 100, key=b"k")
    log.log.flush()
    monkeypatch.setattr(contents, "SCANNED_BYTES", 1000)
    parts = list(pages(lambda start: records_page(log.log, Wanted(start, 100, b"nothing has this")), 0))
    assert len(parts) > 3
    assert not any(part["records"] for part in parts)
    assert parts[-1]["next_offset"] == 40
    before, found = 40, list[int]()
    while before:
        page = latest_page(log.log, Wanted(before, 100))
        assert 0 < len(page["records"]) < 40
        before, found = page["start_offset"], offsets(page["records"]) + found
    assert found == list(range(40))


def test_what_is_before_the_start_is_not_there(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path / "orders-2", cleanup_policy="delete")
    log.append(b"one", b"two", b"three")
    log.log.flush()
    log.log.delete_records(1)
    assert offsets(records_page(log.log, Wanted(0, 10))["records"]) == [1, 2]
    assert offsets(latest_page(log.log, Wanted(3, 10))["records"]) == [1, 2]
    assert records_page(log.log, Wanted(99, 10))["next_offset"] == 99
    log.log.abandon()


def test_a_damaged_batch_is_told_and_passed_over(log: LogBuilder) -> None:
    log.append(b"before")
    log.append(b"damaged")
    log.append(b"behind")
    log.log.flush()
    damage(log.log, b"damaged")
    page = records_page(log.log, Wanted(0, 10))
    assert [row["value"] for row in page["records"]] == ["before", "behind"]
    (problem,) = page["problems"]
    assert "offset" in problem
    found = table_page([(log.log, 3)], Page(b"", None, 5, False))
    assert (offsets(found["rows"]), found["problems"]) == ([2], [problem])
    assert latest_page(log.log, Wanted(3, 10))["problems"] == [problem]
    assert records_page(log.log, Wanted(2, 10))["problems"] == []


def damage(log: Log, value: bytes) -> None:
    path = log.segments[-1].file.path
    path.write_bytes(path.read_bytes().replace(value, bytes(len(value))))


def test_long_values_are_cut_where_a_letter_ends() -> None:
    short = at_most("value", "ä".encode())
    assert short == {"value": "ä", "value_base64": "w6Q=", "value_bytes": 2}
    assert at_most("value", None) == {"value": None, "value_base64": None, "value_bytes": None}
    text = "x" + "ä" * SHOWN_BYTES
    cut = at_most("value", text.encode())
    assert text.startswith(cut["value"])
    assert len(cut["value"].encode()) == SHOWN_BYTES - 1
    assert len(base64.b64decode(cut["value_base64"])) == SHOWN_BYTES
    assert cut["value_bytes"] == len(text.encode())
    assert at_most("value", b"\xff" * (SHOWN_BYTES + 1))["value"] is None


def test_what_is_taken_away_while_it_is_read_is_read_again() -> None:
    tries = iter([FileNotFoundError, FileNotFoundError, None])

    def read() -> str:
        if (error := next(tries)) is not None:
            raise error
        return "read"

    assert steadily(read) == "read"
    with pytest.raises(ValueError, match="other"):
        steadily(lambda: (_ for _ in ()).throw(ValueError("other")).__next__())


# Counting


@pytest.mark.parametrize("seed", range(4))
def test_the_records_between_two_offsets(log: LogBuilder, seed: int) -> None:
    random_log(log, seed)
    left = [record.offset for record in log.records()]
    rng = random.Random(seed)
    end = log.log.log_end_offset
    for start, stop in [(0, end), *((rng.randrange(end), rng.randrange(end + 1)) for _ in range(60))]:
        assert records_between(log.log, start, stop) == sum(start <= one < stop for one in left)


def test_what_would_be_read_too_long_is_not_counted(log: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(b"v" * 500)
    log.append(b"v" * 500)
    log.log.flush()
    monkeypatch.setattr(contents, "COUNTED_BYTES", 800)
    assert records_between(log.log, 0, 2) is None
    assert records_between(log.log, 1, 2) == 1


# The table


def table(log: LogBuilder, most: int, **more: Any) -> tuple[list[dict[str, Any]], int]:
    """All rows, page by page, and how many pages there were."""
    rows: list[dict[str, Any]] = []
    after, count = None, 0
    while True:
        page = Page(more.get("prefix", b""), after, most, more.get("tombstones", False))
        upper = upper_for(log.log, more.get("as_of"), more.get("clean_to", 0))
        found = table_page([(log.log, upper)], page)
        rows += found["rows"]
        count += 1
        if found["next_after_base64"] is None:
            return rows, count
        behind = base64.b64decode(found["next_after_base64"])
        assert after is None or behind > after
        after = behind


def latest(records: list[Record]) -> dict[bytes, Record]:
    return {record.key: record for record in records if record.key is not None}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("tombstones", [False, True])
def test_the_table_is_the_last_value_of_each_key(
    log: LogBuilder, seed: int, most: int, tombstones: bool
) -> None:
    aborted, _ = random_log(log, seed)
    model = latest(visible(log, aborted))
    wanted = [key for key in sorted(model) if tombstones or model[key].value is not None]
    rows, count = table(log, most, tombstones=tombstones)
    assert [base64.b64decode(row["key_base64"]) for row in rows] == wanted
    assert offsets(rows) == [model[key].offset for key in wanted]
    assert count >= len(wanted) / most


def test_keys_by_their_begin(log: LogBuilder) -> None:
    for key in (b"b", b"ab", b"a", b"abc", b"\xff\x00", b""):
        log.append(b"v", key=key)
    log.log.flush()
    assert [row["key"] for row in table(log, 10)[0]] == ["", "a", "ab", "abc", "b", None]
    assert [row["key"] for row in table(log, 2, prefix=b"a")[0]] == ["a", "ab", "abc"]
    assert table(log, 2, prefix=b"x")[0] == []


def test_a_key_in_two_partitions_is_two_rows(tmp_path: Path, log: LogBuilder) -> None:
    (tmp_path / "more").mkdir()
    other = LogBuilder(tmp_path / "more" / "orders-2", cleanup_policy="compact")
    for one in (log, other):
        one.append(b"v", key=b"k")
        one.log.flush()
    other.log.topic_partition = other.log.topic_partition._replace(partition=3)
    rows = table_page([(log.log, 1), (other.log, 1)], Page(b"", None, 5, False))["rows"]
    assert [(row["key"], row["partition"]) for row in rows] == [("k", 2), ("k", 3)]
    other.log.abandon()


@pytest.mark.parametrize("seed", range(4))
def test_the_table_as_of_an_offset(log: LogBuilder, seed: int) -> None:
    """As of every offset that compaction has not passed; before it refuses, with the first honest one."""
    rng = random.Random(seed)
    write(log, rng, 40, KEYS)
    clean(log)
    clean_to = log.log.segments[-1].base_offset
    write(log, rng, 20, KEYS)
    records = log.records()
    for as_of in range(clean_to, log.log.log_end_offset + 1, 17):
        model = latest([record for record in records if record.offset < as_of])
        rows, _ = table(log, 50, as_of=as_of, clean_to=clean_to)
        assert {row["key"]: row["offset"] for row in rows} == {
            key.decode(): record.offset for key, record in model.items() if record.value is not None
        }
    with pytest.raises(TooEarly, match=f"up to offset {clean_to}"):
        table(log, 50, as_of=clean_to - 1, clean_to=clean_to)


def test_a_log_that_is_offline_is_told_of(log: LogBuilder) -> None:
    log.append(b"v", key=b"k")
    log.log.flush()
    log.log.take_offline("the disk is gone")
    found = table_page([(log.log, 1)], Page(b"", None, 5, False))
    assert found == {
        "rows": [], "keys": 0, "next_after_base64": None,
        "problems": ["partition 2 is offline: the disk is gone"],
    }  # fmt: skip


def test_time_stands_in_pages(log: LogBuilder) -> None:
    log.append(b"v", timestamp=NOW_MS + 7)
    log.log.flush()
    assert records_page(log.log, Wanted(0, 1))["records"][0]["timestamp"] == NOW_MS + 7


@pytest.mark.parametrize("ask", ["table", "records", "latest", "key"])
def test_what_was_aborted_is_not_shown_of_a_segment_that_goes_while_it_is_read(
    log: LogBuilder, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """Its transaction index leaves the log with it, at the latest with a second cleaning; the reader has the
    records.
    """
    log.append(b"aborted", key=b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(7, is_commit=False)
    log.append(b"good", key=b"b")
    log.log.roll(log.now_ms)
    log.append(b"good", key=b"c", producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True)
    log.end_transaction(7, is_commit=True)
    log.log.flush()
    upper, read_at = log.log.last_stable_offset, Segment.read_at

    def read_slowly(segment: Segment, position: int, size: int) -> bytes:
        data = read_at(segment, position, size)
        if segment.base_offset:
            return data
        monkeypatch.setattr(Segment, "read_at", read_at)
        for number in (1, 2, 3):
            clean(log, number * 10_000)
        assert not log.log.aborted_transactions(0, upper)
        return data

    if ask == "latest":
        records_between(log.log, 0, upper)  # else it is read here first
    if ask == "key":
        find_key(log.log, b"b")
    monkeypatch.setattr(Segment, "read_at", read_slowly)
    values = {
        "table": lambda: table_page([(log.log, upper)], Page(b"", None, 5, False))["rows"],
        "records": lambda: records_page(log.log, Wanted(0, 9))["records"],
        "latest": lambda: latest_page(log.log, Wanted(upper, 9))["records"],
        "key": lambda: [{"value": str(one.value)} for one in find_key(log.log, b"a").versions],
    }[ask]()
    assert Segment.read_at is read_at
    assert [row["value"] for row in values] == ([] if ask == "key" else ["good", "good"])
