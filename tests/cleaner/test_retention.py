"""Goal: a record and a batch are kept or dropped by exactly Kafka's rules, and the kernels apply just
these.

Method: a table of cases for the pure functions, and for the rule of one record, which is written out here;
random batches through the kernels against that rule.
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner import filter_kernels as kernels
from cleaner.filter_kernels import ARM, DISCARD, KEEP_SHELL, Knowledge
from cleaner.offset_map import NOT_FOUND
from cleaner.retention import judge_batch, judge_plain_batches, last_data_offsets
from protocol.batch import DELETE_HORIZON, BatchHeader, parse_header
from protocol.control import Marker, marker_batch
from protocol.records import as_array, encode_batch, encode_record
from storage.batch_table import ATTRIBUTES, LAST_OFFSET, PRODUCER_ID, TABLE_ROWS
from storage.types import LastRecord
from tests.cleaner.maps import MapByHand

NOW_MS = 1_700_000_000_000


def keeps_record(
    *,
    offset: int,
    has_key: bool,
    has_value: bool,
    mapped_offset: int,
    latest_offset: int,
    delete_horizon_ms: int | None,
    now_ms: int,
) -> bool:
    """Whether a record of a data batch survives (T36, T44, T46, T73-T76): the rule that the head of
    `filter_kernels.py` says, where versions do not decide.
    """
    if offset > latest_offset:
        return True
    if not has_key:
        return False
    if offset < mapped_offset:
        return False
    return has_value or delete_horizon_ms is None or now_ms < delete_horizon_ms


RECORDS: list[tuple[str, dict[str, Any], bool]] = [
    ("T44 the last of its key", {"offset": 5, "mapped_offset": 5}, True),
    ("T44 newer than the map knows", {"offset": 6, "mapped_offset": 5}, True),
    ("T45 superseded", {"offset": 4, "mapped_offset": 5}, False),
    ("T44 the map does not know the key", {"offset": 4, "mapped_offset": NOT_FOUND}, True),
    ("T36 behind the mapped part", {"offset": 11, "mapped_offset": 12, "has_key": False}, True),
    ("T46 without a key", {"offset": 4, "has_key": False}, False),
    ("T73 tombstone met for the first time", {"offset": 5, "mapped_offset": 5, "has_value": False}, True),
    (
        "T75 tombstone before its horizon",
        {"offset": 5, "mapped_offset": 5, "has_value": False, "delete_horizon_ms": NOW_MS + 1},
        True,
    ),
    (
        "T76 tombstone at its horizon",
        {"offset": 5, "mapped_offset": 5, "has_value": False, "delete_horizon_ms": NOW_MS},
        False,
    ),
    (
        "T78 superseded tombstone before its horizon",
        {"offset": 4, "mapped_offset": 5, "has_value": False, "delete_horizon_ms": NOW_MS + 1},
        False,
    ),
    (
        "T79 a value in a batch whose horizon has passed",
        {"offset": 5, "mapped_offset": 5, "delete_horizon_ms": NOW_MS - 1},
        True,
    ),
    (
        "T81 expired tombstone behind the mapped part",
        {"offset": 11, "has_value": False, "delete_horizon_ms": NOW_MS - 1},
        True,
    ),
]


@pytest.mark.parametrize(("facts", "kept"), [case[1:] for case in RECORDS], ids=[case[0] for case in RECORDS])
def test_t44_a_record_is_kept_or_not(facts: dict[str, Any], kept: bool) -> None:
    """T36, T44, T45, T46, T73, T75, T76, T78, T79, T81"""
    asked: dict[str, Any] = {
        "has_key": True, "has_value": True, "mapped_offset": NOT_FOUND, "latest_offset": 10,
        "delete_horizon_ms": None,
    }  # fmt: skip
    assert keeps_record(now_ms=NOW_MS, **{**asked, **facts}) is kept


DATA = parse_header(encode_batch([(NOW_MS, b"k", b"v", ())], base_offset=19, producer_id=7, producer_epoch=0))
MARKER = parse_header(
    marker_batch(Marker(True), base_offset=19, producer_id=7, producer_epoch=3, now_ms=NOW_MS)
)


def armed(batch: BatchHeader, horizon_ms: int) -> BatchHeader:
    """A cleaning has given it a delete horizon."""
    return batch._replace(attributes=batch.attributes | DELETE_HORIZON, base_timestamp=horizon_ms)


BATCHES: list[tuple[str, BatchHeader, dict[str, Any], int]] = [
    ("T49 plain", DATA, {}, 0),
    ("T85 aborted", DATA, {"is_obsolete": True}, DISCARD),
    ("T50 last data of a living producer", DATA, {"last_record": LastRecord(19, 0)}, KEEP_SHELL),
    ("T51 the producer wrote again", DATA, {"last_record": LastRecord(25, 0)}, 0),
    ("T54 aborted, last of a living producer", DATA,
     {"is_obsolete": True, "last_record": LastRecord(19, 0)}, DISCARD | KEEP_SHELL),
    ("T55 end of the round", DATA, {"end_of_round": 20}, KEEP_SHELL),
    ("T87 marker with records left", MARKER, {}, 0),
    ("T88 marker without, first met", MARKER, {"is_obsolete": True}, ARM),
    ("T88 marker without, before its horizon", armed(MARKER, NOW_MS + 1),
     {"is_obsolete": True}, ARM),
    ("T88 marker without, at its horizon", armed(MARKER, NOW_MS), {"is_obsolete": True},
     ARM | DISCARD),
    ("T92 last marker of a producer without data", MARKER, {"last_record": LastRecord(None, 3)}, KEEP_SHELL),
    ("T92 an older epoch", MARKER, {"last_record": LastRecord(None, 4)}, 0),
    ("T92 a marker beside data", MARKER, {"last_record": LastRecord(5, 3)}, 0),
    ("T50 data of a producer without data", DATA, {"last_record": LastRecord(None, 0)}, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "facts", "verdict"), [case[1:] for case in BATCHES], ids=[case[0] for case in BATCHES]
)
def test_t50_a_batch_is_judged(batch: BatchHeader, facts: dict[str, Any], verdict: int) -> None:
    """T49, T50, T51, T54, T55, T85, T87, T88, T92"""
    asked: dict[str, Any] = {"is_obsolete": False, "last_record": None, "end_of_round": 100, "now_ms": NOW_MS}
    assert judge_batch(batch, **{**asked, **facts}) == verdict


def test_t52_all_batches_of_a_chunk_are_judged_at_once() -> None:
    """T50, T52, T55 as the kernels get it: the same answers as one by one."""
    columns = numpy.zeros((TABLE_ROWS, 5), numpy.int64)
    columns[LAST_OFFSET] = [1, 3, 4, 9, 12]
    columns[PRODUCER_ID] = [1, 2, -1, 2, -1]
    columns[ATTRIBUTES] = 0
    producers = {1: LastRecord(1, 0), 2: LastRecord(9, 0), 3: LastRecord(4, 0), 4: LastRecord(None, 0)}
    offsets = last_data_offsets(producers)
    assert offsets.tolist() == [1, 4, 9]
    assert judge_plain_batches(columns, offsets, 13).tolist() == [KEEP_SHELL, 0, 0, KEEP_SHELL, KEEP_SHELL]
    assert judge_plain_batches(columns, last_data_offsets({}), -1).tolist() == [0, 0, 0, 0, 0]


KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"longer than eight bytes", b"c" * 16])
RANDOM_RECORDS = st.lists(st.tuples(KEYS, st.booleans()), min_size=1, max_size=40)


@settings(max_examples=150)
@given(
    records=RANDOM_RECORDS,
    first_dirty=st.integers(90, 130),
    latest=st.integers(100, 145),
    horizon=st.sampled_from([None, NOW_MS - 1, NOW_MS, NOW_MS + 1]),
    later=st.dictionaries(st.sampled_from([b"", b"a", b"b"]), st.integers(130, 145)),
    has_bits=st.booleans(),
)
def test_t44_the_kernel_decides_as_the_rule_says(
    records: list[tuple[bytes | None, bool]],
    first_dirty: int,
    latest: int,
    horizon: int | None,
    later: dict[bytes, int],
    has_bits: bool,
) -> None:
    """T36, T44-T46, T57, T73-T76: a batch at offset 100 through `decide`, against `keeps_record`."""
    offset_map = MapByHand(24 * 100)
    for index, (key, _) in enumerate(records):
        if key is not None and first_dirty <= 100 + index <= latest:
            offset_map.put(key, 100 + index)
    for key, offset in later.items():
        if 100 + len(records) <= offset <= latest and offset >= first_dirty:
            offset_map.put(key, offset)
    offset_map.update_latest_offset(latest)
    payload = as_array(
        b"".join(
            encode_record(i, 0, key, b"v" if has_value else None)
            for i, (key, has_value) in enumerate(records)
        )
    )
    rows = numpy.empty((kernels.RECORD_ROWS, len(records)), numpy.int64)
    assert kernels.list_records(payload, 0, payload.size, len(records), rows) == kernels.DONE
    bits = offset_map.last_offset_bits(first_dirty, 1000 if has_bits else 0)
    known = Knowledge(
        offset_map.table,
        offset_map.secret,
        bits,
        first_dirty,
        offset_map.latest_offset,
        NOW_MS,
        NOW_MS + 9,
        False,
        numpy.zeros(0, numpy.uint8),
    )
    tally = numpy.zeros(kernels.TALLY_NUMBERS, numpy.int64)
    hashes = numpy.empty((2, len(records)), numpy.uint64)
    kept, tombstones = kernels.decide(
        payload, rows, len(records), 100, -1 if horizon is None else horizon, hashes, known, tally
    )
    expected = [
        keeps_record(
            offset=100 + index, has_key=key is not None, has_value=has_value,
            mapped_offset=NOT_FOUND if key is None else offset_map.get(key),
            latest_offset=offset_map.latest_offset, delete_horizon_ms=horizon, now_ms=NOW_MS,
        )
        for index, (key, has_value) in enumerate(records)
    ]  # fmt: skip
    assert [bool(keep) for keep in rows[kernels.KEEP]] == expected
    assert kept == sum(expected)
    assert tombstones == sum(
        keep and not has_value for keep, (_, has_value) in zip(expected, records, strict=True)
    )
    assert tally[kernels.READ] == len(records)
    assert tally[kernels.LIVE] == sum(
        keep and has_value and 100 + index <= latest
        for index, (keep, (_, has_value)) in enumerate(zip(expected, records, strict=True))
    )
    went = (kernels.SUPERSEDED, kernels.TOMBSTONE, kernels.KEYLESS, kernels.UNMARKED)
    assert tally[kernels.KEPT] + sum(tally[reason] for reason in went) == len(records)
    waits_until = NOW_MS + 9 if horizon is None else horizon if horizon > NOW_MS else 0
    assert tally[kernels.NEWEST_HORIZON] == (waits_until if tombstones else 0)
