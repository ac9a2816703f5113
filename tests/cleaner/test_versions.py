"""Goal: with `compaction.strategy` timestamp or header (W8, KIP-280) the highest version of a key stays:
among equal and missing versions, tombstones, the clean part, full maps, codecs, as the log's last record.

Method: cases by hand on a log with a cleaner, then random lives held against a model in plain Python.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner import offset_map
from cleaner.cleaner import Cleaner, CleaningAborted
from cleaner.offset_map import ENTRY_BYTES
from cleaner.results import Range
from cleaner.versions import VERSION_BYTES, VersionMap
from protocol.compression import Codec
from protocol.records import encode_batch
from storage.types import Origin
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.world import HOUR_MS, NOW_MS, RETENTION_MS, World

NAME = "version"


def of_version(version: int | bytes | None, name: str = NAME) -> tuple[tuple[str, bytes | None], ...]:
    if version is None:
        return ()
    return ((name, version if isinstance(version, bytes) else struct.pack(">q", version)),)


def write(world: World, *records: tuple[str, str | None, Any], codec: int = 0, **fields: Any) -> None:
    """One batch of (key, value, version); with the strategy timestamp a version is a time after NOW_MS."""
    by_time = world.log.config.compaction_strategy == "timestamp"
    items = [
        (
            NOW_MS + version if by_time else NOW_MS,
            key.encode(),
            None if value is None else value.encode(),
            () if by_time else of_version(version),
        )
        for key, value, version in records
    ]
    world.log.append(
        encode_batch(items, codec=codec, **fields), now_ms=world.now_ms, origin=Origin.COORDINATOR
    )


def close(world: World) -> None:
    """A record of its own key behind the others, so that the rule for the log's last record has no say."""
    world.roll()
    world.put(("end", "e"))


@pytest.fixture(params=["timestamp", "header"])
def versioned(request: pytest.FixtureRequest, make_world: MakeWorld) -> World:
    return make_world(compaction_strategy=request.param, compaction_strategy_header=NAME)


@pytest.fixture
def by_header(make_world: MakeWorld) -> World:
    return make_world(compaction_strategy="header", compaction_strategy_header=NAME)


def stay(world: World) -> list[tuple[int, str | None, str | None]]:
    return [
        (one.offset, key, value)
        for one, (key, value) in zip(world.records(), world.pairs(), strict=True)
        if key != "end"
    ]


def test_w8_a_late_old_version_does_not_win(versioned: World) -> None:
    write(versioned, ("a", "new", 9), ("b", "1", 1))
    write(versioned, ("a", "old", 3), ("b", "2", 2))
    close(versioned)
    versioned.clean()
    assert stay(versioned) == [(0, "a", "new"), (3, "b", "2")]


def test_w8_the_logs_last_record_stays_even_without_a_key(by_header: World) -> None:
    """It is not counted as removed before it is."""
    by_header.put(("a", "1"), (None, "x"), trusted=True)
    by_header.put((None, "y"), trusted=True)
    by_header.roll()
    first = by_header.clean()
    assert by_header.pairs() == [("a", "1"), (None, "y")]
    assert (first.removed["keyless"], first.removed["superseded"]) == (1, 0)
    by_header.put(("b", "1"))
    by_header.roll()
    second = by_header.clean(first.end_offset)
    assert by_header.pairs() == [("a", "1"), ("b", "1")]
    assert (second.removed["keyless"], second.removed["superseded"]) == (1, 0)


def test_w8_among_equal_versions_the_last_wins(versioned: World) -> None:
    write(versioned, ("a", "first", 5), ("a", "last", 5))
    close(versioned)
    versioned.clean()
    assert stay(versioned) == [(1, "a", "last")]


def test_w8_the_clean_part_wins_over_the_dirty_one(versioned: World) -> None:
    """The usual strategy never asks the clean part: here a record cleaned long ago can be the winner."""
    write(versioned, ("a", "new", 9), ("b", "1", 1))
    versioned.roll()
    first = versioned.clean()
    write(versioned, ("a", "old", 3), ("b", "2", 2))
    close(versioned)
    result = versioned.clean(first.end_offset)
    assert stay(versioned) == [(0, "a", "new"), (3, "b", "2")]
    assert result.removed["superseded"] == 2


def test_w8_what_was_deleted_wins_over_nothing(versioned: World) -> None:
    """DeleteRecords moved the log's start into a segment: what is before it is there, and counts no more."""
    write(versioned, ("a", "deleted", 9), ("b", "1", 1))
    versioned.roll()
    first = versioned.clean()
    both = frozenset({"compact", "delete"})
    versioned.log.update_config(dataclasses.replace(versioned.log.config, cleanup_policy=both))
    versioned.log.flush()
    versioned.log.delete_records(1)
    write(versioned, ("a", "late", 3))
    close(versioned)
    versioned.clean(first.end_offset)
    assert [one for one in stay(versioned) if one[0] > 0] == [(1, "b", "1"), (2, "a", "late")]


def test_w8_without_versions_it_is_the_last(by_header: World) -> None:
    write(by_header, ("a", "1", None), ("a", "2", None))
    close(by_header)
    by_header.clean()
    assert stay(by_header) == [(1, "a", "2")]


@pytest.mark.parametrize(
    "anomalous", [None, -1, -7, -(2**63), b"", b"1234567", b"123456789"], ids=lambda value: str(value)
)
def test_w8_a_record_without_a_good_version_gives_way(by_header: World, anomalous: Any) -> None:
    """Missing, negative and of another size than 8 bytes are all none; even version 0 wins over that."""
    write(by_header, ("a", "versioned", 0), ("a", "anomalous", anomalous))
    write(by_header, ("b", "anomalous", anomalous), ("b", "versioned", 0))
    close(by_header)
    by_header.clean()
    assert stay(by_header) == [(0, "a", "versioned"), (3, "b", "versioned")]


def test_w8_of_repeated_headers_the_last_counts_and_others_do_not(by_header: World) -> None:
    high, low = of_version(9), of_version(1)
    other = of_version(2**62, "versions")
    items = [
        (NOW_MS, b"a", b"nine", (*other, *low, *high)),
        (NOW_MS, b"a", b"one", (*high, *other, *low)),
    ]
    by_header.log.append(encode_batch(items), now_ms=NOW_MS)
    close(by_header)
    by_header.clean()
    assert stay(by_header) == [(0, "a", "nine")]


def test_w8_the_largest_version_there_is(by_header: World) -> None:
    write(by_header, ("a", "max", 2**63 - 1), ("a", "less", 2**63 - 2))
    close(by_header)
    by_header.clean()
    assert stay(by_header) == [(0, "a", "max")]


def test_w8_a_tombstone_wins_and_loses_by_its_version(versioned: World) -> None:
    write(versioned, ("gone", "1", 1), ("gone", None, 5), ("gone", "late", 4))
    write(versioned, ("kept", "1", 5), ("kept", None, 4))
    close(versioned)
    versioned.clean()
    assert stay(versioned) == [(1, "gone", None), (3, "kept", "1")]
    versioned.now_ms += RETENTION_MS + HOUR_MS
    versioned.clean(5)
    assert stay(versioned) == [(3, "kept", "1")]


def test_w8_the_last_record_of_the_log_stays_until_the_next_cleaning(versioned: World) -> None:
    """KIP-280: whatever its version. As soon as anything is behind it, it is weighed like all others."""
    write(versioned, ("a", "new", 9), ("a", "old", 3), ("a", "older", 2))
    versioned.roll()
    result = versioned.clean()
    assert stay(versioned) == [(0, "a", "new"), (2, "a", "older")]
    assert result.end_offset == 3
    write(versioned, ("b", "1", 1))
    close(versioned)
    versioned.clean(result.end_offset)
    assert stay(versioned) == [(0, "a", "new"), (3, "b", "1")]


def test_w8_what_is_beyond_the_cleanable_part_is_not_weighed(versioned: World) -> None:
    """Neither does it win over what is before, nor is it removed, until it becomes cleanable itself."""
    write(versioned, ("a", "middle", 5), ("a", "low", 3))
    versioned.roll()
    write(versioned, ("a", "high", 9), ("a", "lowest", 1))
    result = versioned.clean()
    assert [value for _, _, value in stay(versioned)] == ["middle", "high", "lowest"]
    close(versioned)
    versioned.clean(result.end_offset)
    assert [value for _, _, value in stay(versioned)] == ["high"]


def test_w8_aborted_records_never_win(versioned: World) -> None:
    write(versioned, ("a", "kept", 3))
    write(
        versioned, ("a", "aborted", 9), producer_id=7, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip
    versioned.end_transaction(7, is_commit=False)
    close(versioned)
    versioned.clean()
    assert [value for _, key, value in stay(versioned) if key == "a"] == ["kept"]


def test_w8_committed_records_win(versioned: World) -> None:
    write(
        versioned, ("a", "committed", 9), producer_id=7, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip
    versioned.end_transaction(7, is_commit=True)
    write(versioned, ("a", "late", 3))
    close(versioned)
    versioned.clean()
    assert [value for _, key, value in stay(versioned) if key == "a"] == ["committed"]


def test_w8_log_append_time_is_the_version_where_the_broker_stamps(make_world: MakeWorld) -> None:
    world = make_world(compaction_strategy="timestamp", message_timestamp_type="LogAppendTime")
    world.put(("a", "1"))
    world.now_ms -= HOUR_MS  # the broker's clock was set back
    world.put(("a", "2"))
    close(world)
    world.clean()
    assert stay(world) == [(0, "a", "1")]


def test_w8_a_dry_run_counts_what_a_cleaning_removes(versioned: World) -> None:
    write(versioned, ("a", "new", 9), ("a", "old", 3), ("b", "1", 1))
    close(versioned)
    dry = versioned.clean(is_dry=True)
    assert dry.removed == versioned.clean().removed
    assert dry.removed["superseded"] == 1


def test_w8_changing_the_strategy_holds_from_then_on(world: World) -> None:
    """What the old strategy removed stays removed; the next cleaning goes by the new one."""
    write(world, ("a", "9", 9))
    write(world, ("a", "3", 3))
    world.roll()
    world.clean()
    world.log.update_config(
        dataclasses.replace(world.log.config, compaction_strategy="header", compaction_strategy_header=NAME)
    )
    write(world, ("a", "2", 2))
    close(world)
    world.clean(2)
    assert stay(world) == [(1, "a", "3")]


@pytest.mark.parametrize("writes_more", [True, False])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_w8_back_to_the_offset_no_deleted_value_comes_back(
    versioned: World, codec: Codec, writes_more: bool
) -> None:
    """A tombstone that lost by its version stayed as the log's last record. By the offset it is its key's
    last: what it deletes goes before it does, though both have been cleaned already.
    """
    write(versioned, ("a", "new", 9), ("b", "1", 1), codec=codec)
    write(versioned, ("c", "1", 1), ("a", None, 3), codec=codec)
    versioned.roll()
    first = versioned.clean()
    assert stay(versioned) == [(0, "a", "new"), (1, "b", "1"), (2, "c", "1"), (3, "a", None)]
    versioned.log.update_config(dataclasses.replace(versioned.log.config, compaction_strategy="offset"))
    if writes_more:
        write(versioned, ("d", "1", 1))
        close(versioned)
    second = versioned.clean(first.end_offset)
    assert "a" not in versioned.table()
    versioned.now_ms += RETENTION_MS + 1
    versioned.clean(second.end_offset)
    assert "a" not in versioned.table(), "its tombstone went before it"
    assert "a" not in [key for key, _ in versioned.pairs()]


@pytest.mark.parametrize("before", ["offset", "timestamp"])
def test_w8_changing_the_strategy_during_a_cleaning_ends_it(make_world: MakeWorld, before: str) -> None:
    """Who changed it has been answered: nothing more goes by what held before."""
    world = make_world(compaction_strategy=before, compaction_strategy_header=NAME, segment_bytes=500)
    write(world, ("a", "9", 9), ("p", "x" * 300, 1))
    world.roll()
    write(world, ("b", "9", 9), ("c", "x" * 300, 9))
    world.roll()
    write(world, ("a", "3", 3), ("b", "3", 3))
    close(world)
    all_of_them = stay(world)
    after = dataclasses.replace(world.log.config, compaction_strategy="header")

    def changes_before_swapping(job: Any) -> Any:
        if calls.append(job) is None and len(calls) > 1:  # the first is the snapshot
            world.log.update_config(after)
        return job()

    calls: list[Any] = []
    cleaner = Cleaner(
        map_bytes=world.slots * ENTRY_BYTES,
        load_factor=world.load_factor,
        run_on_owner=changes_before_swapping,
    )
    with pytest.raises(CleaningAborted, match=r"compaction\.strategy"):
        cleaner.clean(world.log, Range(0, world.log.segments[-1].base_offset), world.now_ms)
    assert stay(world) == all_of_them
    assert not [*world.directory.glob("*.cleaned")]


def test_t31_a_map_of_versions_takes_no_more_memory_than_one_without() -> None:
    versions = VersionMap(1 << 20, 0.9)
    assert versions.table.nbytes + versions.versions.nbytes <= 1 << 20
    assert versions.outlived.nbytes <= (1 << 20) >> 8
    assert versions.capacity == int((1 << 20) // (ENTRY_BYTES + VERSION_BYTES) * 0.9)


def test_w8_more_keys_than_a_usual_map_begins_with(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of versions has its full size from the start."""
    monkeypatch.setattr(offset_map, "GROWTH_STEPS", (64,))
    world = make_world(slots=200, compaction_strategy="timestamp")
    write(world, *((f"{number}", "new", 9) for number in range(100)))
    write(world, *((f"{number}", "old", 3) for number in range(100)))
    close(world)
    result = world.clean()
    assert (result.removed["superseded"], result.end_offset) == (100, 200)
    assert [(offset, value) for offset, _, value in stay(world)] == [(offset, "new") for offset in range(100)]


RECORD = st.tuples(
    st.sampled_from("abcde"), st.sampled_from(["v", None]), st.one_of(st.none(), st.integers(0, 4))
)
STEP = st.tuples(
    st.lists(RECORD, min_size=1, max_size=4),
    st.sampled_from([Codec.NONE, Codec.GZIP, Codec.ZSTD]),
    st.booleans(),
)


def winners(records: list[tuple[int, str, str | None, int]]) -> set[int]:
    """The offsets that stay: of each key the highest version, then the highest offset."""
    best: dict[str, tuple[int, int]] = {}
    for offset, key, _, version in records:
        best[key] = max(best.get(key, (-2, -1)), (version, offset))
    return {offset for _, offset in best.values()}


@settings(max_examples=60)
@given(
    strategy=st.sampled_from(["timestamp", "header"]),
    slots=st.sampled_from([4, 6, 4096]),
    bits=st.sampled_from([0, 1 << 20]),
    steps=st.lists(STEP, min_size=1, max_size=12),
)
def test_w8_random_lives_end_as_the_model_says(
    tmp_path_factory: pytest.TempPathFactory,
    strategy: str,
    slots: int,
    bits: int,
    steps: list[tuple[list[tuple[str, str | None, int | None]], Codec, bool]],
) -> None:
    """T35 too: with a map of a few keys several rounds do what one round of a large map does."""
    world = World(
        tmp_path_factory.mktemp("versions") / "orders-0", slots,
        compaction_strategy=strategy, compaction_strategy_header=NAME,
    )  # fmt: skip
    written: list[tuple[int, str, str | None, int]] = []
    checkpoint = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cleaner.cleaner.LAST_OFFSET_BITS_BYTES", bits)
        for records, codec, cleans in steps:
            known = [(key, value, version or 0) if strategy == "timestamp" else (key, value, version)
                     for key, value, version in records]  # fmt: skip
            start = world.log.log_end_offset
            write(world, *known, codec=codec)
            written += [
                (start + index, key, value, -1 if version is None else version)
                for index, (key, value, version) in enumerate(known)
            ]
            if not cleans:
                continue
            world.roll()
            end = world.log.log_end_offset
            for _ in range(100):
                cleaner = Cleaner(
                    map_bytes=slots * (ENTRY_BYTES + VERSION_BYTES), load_factor=0.75,
                    run_on_owner=lambda function: function(), read_bytes=300,
                )  # fmt: skip
                checkpoint = cleaner.clean(world.log, Range(checkpoint, end), world.now_ms).end_offset
                if checkpoint == end:
                    break
            assert checkpoint == end
            assert {one.offset for one in world.records()} == winners(written) | {end - 1}
    world.log.close()


@pytest.mark.parametrize("bits_bytes", [16 << 20, 0])
@pytest.mark.parametrize("swaps", [1, 2])
def test_w8_a_cleaning_that_ends_between_two_swaps_brings_nothing_back(
    versioned: World, swaps: int, bits_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone whose time is over may go with what it has deleted, not before: it has the higher version,
    and would leave the lower one behind it as the key's value.
    """
    monkeypatch.setattr("cleaner.cleaner.LAST_OFFSET_BITS_BYTES", bits_bytes)
    small = dataclasses.replace(versioned.log.config, segment_bytes=300)
    write(versioned, ("a", "first", 1), ("a", None, 9), ("p", "x" * 300, 1))
    versioned.roll()
    first = versioned.clean()
    write(versioned, ("q", "x" * 300, 1))
    versioned.roll()
    write(versioned, ("a", "late", 3), ("r", "x" * 300, 1))
    close(versioned)
    versioned.log.update_config(small)
    versioned.now_ms += RETENTION_MS + 1
    with pytest.raises(CleaningAborted):
        stopped_at(versioned, swaps).clean(
            versioned.log, Range(first.end_offset, versioned.log.segments[-1].base_offset), versioned.now_ms
        )
    again = versioned.clean(first.end_offset)
    assert "a" not in versioned.table()
    write(versioned, ("s", "1", 1))
    close(versioned)
    versioned.clean(again.end_offset)
    assert "a" not in [key for key, _ in versioned.pairs()], "the tombstone goes in the end"


def stopped_at(world: World, swap: int) -> Cleaner:
    """A cleaner that is aborted where it wants to make its swap of this number, from 0 on."""
    left = [1 + swap]  # the snapshot is the first thing that the owner is asked for

    def run(job: Any) -> Any:
        if not left[0]:
            raise CleaningAborted("a stop")
        left[0] -= 1
        return job()

    return Cleaner(map_bytes=world.slots * ENTRY_BYTES, load_factor=world.load_factor, run_on_owner=run)
