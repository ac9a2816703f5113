"""Goal: aborted data goes, producers and transactions stay what they were for readers, writers and restarts.

Method: Kafka's own cases, step by step, with batches and markers appended through the storage API.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cleaner.results import CleanResult
from protocol.batch import NO_TIMESTAMP, is_intact
from storage.types import AbortedTransaction
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.world import RETENTION_MS, World


class Producer:
    """A transactional producer that counts its own sequence."""

    def __init__(self, world: World, producer_id: int, *, codec: int = 0) -> None:
        self.world, self.producer_id, self.sequence, self.codec = world, producer_id, 0, codec

    def put(self, *keys: object, value: str = "v") -> None:
        pairs = [(str(key), value) for key in keys]
        self.world.put(
            *pairs, producer_id=self.producer_id, producer_epoch=0, base_sequence=self.sequence,
            is_transactional=True, codec=self.codec,
        )  # fmt: skip
        self.sequence += len(pairs)

    def commit(self) -> None:
        self.world.end_transaction(self.producer_id, is_commit=True)

    def abort(self) -> None:
        self.world.end_transaction(self.producer_id, is_commit=False)


def forget_producers(world: World) -> None:
    """As if they had been silent for a day: nothing is kept for their sake."""
    world.log.producers.expire(world.now_ms + 2 * RETENTION_MS)


def idempotent(world: World, producer_id: int, sequence: int, *keys: object) -> None:
    pairs = [(str(key), f"p{producer_id}") for key in keys]
    world.put(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def test_t50_the_last_batch_of_a_living_producer_stays_as_a_shell(world: World) -> None:
    idempotent(world, 7, 0, "a", "b")
    world.put(("a", "2"), ("b", "2"))
    world.roll()
    old = world.headers()[0]
    world.clean()
    shell = world.headers()[0]
    assert (shell.record_count, shell.size_bytes, shell.codec) == (0, 61, 0)
    assert (shell.base_timestamp, shell.max_timestamp) == (NO_TIMESTAMP, old.max_timestamp)
    assert shell.delete_horizon_ms is None
    for name in (
        "base_offset",
        "last_offset",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
    ):
        assert getattr(shell, name) == getattr(old, name), name


@pytest.mark.parametrize("codec", range(5))
def test_t50_a_shell_of_a_compressed_batch_has_no_codec(world: World, codec: int) -> None:
    world.put(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0, codec=codec)
    world.put(("a", "2"))
    world.roll()
    world.clean()
    assert (world.headers()[0].record_count, world.headers()[0].codec) == (0, 0)


@pytest.mark.parametrize("codec", range(5))
def test_t50_a_batch_of_the_clean_part_becomes_a_shell(make_world: MakeWorld, codec: int) -> None:
    """Its records are unpacked to see that none stays: nobody knows the hashes of its keys."""
    world = make_world(key_hash_bytes=0)
    world.read_bytes = 64
    world.put(("b", random.Random(codec).randbytes(3000).hex()), codec=codec)
    world.put(("a", "1"), codec=codec, producer_id=7, producer_epoch=0, base_sequence=0)
    world.roll()
    end = world.clean().end_offset
    world.put(("a", "2"))
    world.roll()
    before = world.batches()
    world.clean(end)
    after = world.batches()
    assert [header.record_count for header, _ in after] == [1, 0, 1]
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1][0].codec == 0
    assert is_intact(after[1][1], 0, after[1][0])


def test_t51_the_shell_goes_when_the_producer_writes_again(world: World) -> None:
    idempotent(world, 7, 0, "a")
    world.put(("a", "2"))
    world.roll()
    world.clean()
    idempotent(world, 7, 1, "c")
    world.roll()
    world.clean(2)
    assert world.last_offsets() == [1, 2]


def test_t51_the_shell_goes_when_the_producer_has_expired(world: World) -> None:
    idempotent(world, 7, 0, "a")
    world.put(("a", "2"))
    world.roll()
    world.clean()
    forget_producers(world)
    world.clean()
    assert world.last_offsets() == [1]


def test_t52_three_producers_of_one_key_keep_their_last_sequences(world: World) -> None:
    idempotent(world, 1, 0, 0, 0)
    idempotent(world, 2, 0, 0, 0)
    idempotent(world, 3, 0, 0)
    world.roll()
    world.clean()
    headers = world.headers()
    assert [header.last_offset for header in headers] == [1, 3, 4]
    assert {header.producer_id: header.last_sequence for header in headers} == {1: 1, 2: 1, 3: 0}


def test_t53_duplicates_are_known_after_a_cleaning_and_a_restart(world: World) -> None:
    idempotent(world, 1, 0, 1, 2, 3)
    idempotent(world, 2, 0, 4, 5, 1)
    idempotent(world, 3, 0, 6, 1)
    world.roll()
    world.clean()
    world.crash()
    for producer_id, keys, first, last in [(1, (1, 2, 3), 0, 2), (2, (4, 5, 1), 3, 5), (3, (6, 1), 6, 7)]:
        pairs = [(str(key), f"p{producer_id}") for key in keys]
        again = world.put(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert (again.base_offset, again.last_offset) == (first, last)
    assert world.log.log_end_offset == 8


def test_t54_aborted_data_of_a_living_producer_leaves_its_sequence(world: World) -> None:
    producer = Producer(world, 7)
    producer.put("a", "b", "c")
    producer.abort()
    world.roll()
    world.clean()
    headers = world.headers()
    assert [(header.last_offset, header.record_count) for header in headers] == [(2, 0), (3, 1)]
    assert headers[0].last_sequence == 2
    world.crash()
    producer.put("d")
    producer.commit()
    assert world.table() == {"d": "v"}


def test_t55_the_last_batch_of_a_round_keeps_the_end_offset(world: World) -> None:
    world.put_each("ab", "1")
    end = world.roll()
    world.put(("b", "2"))
    world.put(("a", "2"))
    world.roll()
    world.clean(0, end)
    world.put(("z", "1"))
    world.clean(0)
    assert world.last_offsets()[-2:] == [3, 4]
    world.roll()
    world.put(("a", "3"))
    forget = world.roll()
    world.clean(4, forget)
    assert world.log.log_end_offset == forget


def test_t55_an_emptied_log_keeps_a_shell_at_its_end(world: World) -> None:
    world.put(("a", None))
    world.roll()
    world.clean()
    world.now_ms += RETENTION_MS
    world.clean()
    assert [(header.last_offset, header.record_count) for header in world.headers()] == [(0, 0)]
    assert world.clean(1).end_offset == 1


def test_t56_a_reader_passes_an_empty_batch(world: World) -> None:
    idempotent(world, 7, 0, "a")
    world.put(("a", "2"), ("b", "1"))
    world.roll()
    world.clean()
    assert world.offsets(0) == [1, 2]


@pytest.mark.parametrize("codec", range(5))
def test_t85_aborted_records_go_at_once_whatever_their_keys(world: World, codec: int) -> None:
    producer = Producer(world, 7, codec=codec)
    producer.put("only", "there")
    producer.abort()
    world.put(("a", "1"))
    world.roll()
    result = world.clean()
    assert world.pairs() == [("a", "1")]
    assert result.removed["aborted"] == 2


def test_t86_an_aborted_value_does_not_shadow_a_committed_one(world: World) -> None:
    """T86, T33"""
    producer = Producer(world, 7)
    producer.put("a", value="committed")
    producer.commit()
    producer.put("a", value="aborted")
    producer.abort()
    world.roll()
    world.clean()
    assert world.table() == {"a": "committed"}


def test_t87_a_commit_marker_stays_beside_its_records(world: World) -> None:
    producer = Producer(world, 7)
    producer.put("a", "b")
    producer.commit()
    world.roll()
    for _ in range(3):
        world.clean()
        world.now_ms += 2 * RETENTION_MS
    assert world.all_offsets() == [0, 1, 2]


def test_t88_a_commit_marker_goes_two_passes_after_its_records(world: World) -> None:
    producer = Producer(world, 1)
    producer.put(1, 2, 3)
    producer.commit()
    producer.put(2, 3)
    producer.commit()
    world.put_each([4])
    world.put_each([1])
    world.roll()
    world.clean()
    assert world.all_offsets() == [3, 4, 5, 6, 7, 8]
    world.clean()
    assert world.all_offsets() == [3, 4, 5, 6, 7, 8]
    world.now_ms += RETENTION_MS
    world.clean()
    assert world.all_offsets() == [4, 5, 6, 7, 8]


def test_t89_the_index_entry_is_in_the_segment_of_its_marker(make_world: MakeWorld) -> None:
    """Every tombstone takes more bytes with its horizon, so that one segment becomes two (T59)."""
    world = make_world(segment_bytes=2000, delete_retention_ms=10**15)
    for number in range(6):
        world.put(*((f"{number}-{key}", None) for key in range(18)))
    producer = Producer(world, 7)
    producer.put("a")
    producer.abort()
    assert len(world.log.segments) == 1
    world.roll()
    world.clean()
    first, second = world.closed()
    marker = world.log.log_end_offset - 1
    assert second.base_offset < marker - 1
    assert first.txn_index.entries() == []
    assert second.txn_index.entries() == [AbortedTransaction(7, marker - 1, marker, marker + 1)]


def test_t89_the_index_entry_stays_while_even_an_empty_batch_is_left(world: World) -> None:
    """T89, T90"""
    producer = Producer(world, 7)
    producer.put("a", "b")
    producer.abort()
    world.roll()
    world.clean()
    assert world.aborted() == [AbortedTransaction(7, 0, 2, 3)]
    assert world.last_offsets() == [1, 2]
    world.now_ms += 2 * RETENTION_MS
    world.clean()
    assert world.aborted() == [AbortedTransaction(7, 0, 2, 3)]
    producer.put("c")
    producer.commit()
    world.roll()
    world.clean(3)
    assert world.last_offsets() == [2, 3, 4]
    assert world.aborted() == [AbortedTransaction(7, 0, 2, 3)]
    world.clean(3)
    assert world.last_offsets() == [2, 3, 4]
    assert world.aborted() == []
    world.now_ms += RETENTION_MS
    world.clean(3)
    assert world.last_offsets() == [3, 4]


def test_t91_an_emptied_control_batch_is_read_without_complaint(world: World) -> None:
    """T91, T92: only a marker is left of a producer; its records go, its epoch stays."""
    world.end_transaction(7, is_commit=True)
    world.put(("a", "1"))
    world.roll()
    for _ in range(4):
        world.clean()
        world.now_ms += 2 * RETENTION_MS
    marker = world.headers()[0]
    assert (marker.is_control, marker.record_count, marker.producer_id) == (True, 0, 7)
    world.crash()
    assert world.table() == {"a": "1"}
    forget_producers(world)
    world.clean()
    assert world.last_offsets() == [1]


def test_t93_a_committed_transaction_over_two_segments_stays(world: World) -> None:
    producer = Producer(world, 7)
    producer.put("a")
    world.roll()
    producer.put("b")
    producer.commit()
    world.roll()
    world.clean()
    assert world.all_offsets() == [0, 1, 2]


def test_t94_an_aborted_transaction_over_two_segments_goes(world: World) -> None:
    producer = Producer(world, 7)
    producer.put("a")
    world.roll()
    world.end_transaction(7, is_commit=False)
    world.roll()
    world.clean()
    assert world.last_offsets() == [0, 1]
    assert world.records() == []


def test_t95_data_of_undecided_transactions_stays_until_they_are_decided(world: World) -> None:
    """The first pass knows no outcome and removes nothing; the second removes what was aborted, although it
    lies in the part that is clean by then.
    """
    one, two, three = (Producer(world, number) for number in (1, 2, 3))
    one.put(1)
    two.put(2, 3)
    three.put(4)
    end = world.roll()
    assert world.clean(0, end).end_offset == 4
    assert world.keys() == ["1", "2", "3", "4"]
    two.commit()
    one.abort()
    three.abort()
    world.put_each(["new"])
    world.roll()
    world.clean(end)
    assert world.keys() == ["2", "3", "new"]
    assert [one.producer_id for one in world.aborted()] == [1, 3], "their markers stay beside the shells"
    assert world.last_offsets() == [0, 2, 3, 4, 5, 6, 7]


def test_t96_interleaved_transactions_of_two_producers(world: World) -> None:
    """Two producers of the same keys: what stays of each, its markers, and the index that tells readers."""
    one, two = Producer(world, 1), Producer(world, 2)
    one.put(1, 2)  # 0, 1
    two.put(2, 3)  # 2, 3
    one.put(3, 4)  # 4, 5
    one.abort()  # 6
    two.commit()  # 7
    one.put(2)  # 8
    one.commit()  # 9
    before = world.aborted()
    assert before == [AbortedTransaction(1, 0, 6, 2)]
    world.roll()
    world.clean()
    assert world.keys() == ["3", "2"]
    assert world.all_offsets() == [3, 6, 7, 8, 9]
    assert world.aborted() == before


@pytest.mark.parametrize("codec", [0, 3])
def test_t97_aborted_transactions_over_several_passes_of_a_tiny_map(
    make_world: MakeWorld, codec: int
) -> None:
    world = make_world(slots=6)
    one, two = Producer(world, 1, codec=codec), Producer(world, 2, codec=codec)
    one.put(1, 2)
    two.put(2, 3)
    one.put(3, 4)
    one.commit()
    two.commit()
    two.put(2, 3)
    two.abort()
    one.put(4, 5)
    two.put(5, 6)
    one.commit()
    two.abort()
    two.put(6, 7)
    two.commit()
    world.roll()
    expected = [AbortedTransaction(2, 8, 10, 11), AbortedTransaction(2, 13, 16, 17)]
    assert world.aborted() == expected
    visible = {"1": "v", "2": "v", "3": "v", "4": "v", "5": "v", "6": "v", "7": "v"}
    checkpoint, entries, passes = 0, [], 0
    while checkpoint < 20:
        result: CleanResult = world.clean(checkpoint)
        assert result.end_offset > checkpoint
        checkpoint = result.end_offset
        entries.append(len(world.aborted()))
        assert world.committed() == visible
        passes += 1
    assert passes >= 2
    assert entries[0] == 2
    assert entries == sorted(entries, reverse=True)
    world.clean()
    assert world.aborted() == []
    assert {10, 16} <= set(world.last_offsets())
    world.now_ms += RETENTION_MS
    world.clean()
    assert not {10, 16} & set(world.last_offsets())
    assert world.committed() == visible


def test_t98_a_producer_that_begins_its_sequence_anew_leaves_no_shells(world: World) -> None:
    """As the group coordinator does: every transaction begins at sequence 0 (here in a new epoch)."""
    for epoch in range(3):
        world.put(("a", "v"), producer_id=7, producer_epoch=epoch, base_sequence=0, is_transactional=True)
        world.end_transaction(7, is_commit=True, epoch=epoch)
    world.roll()
    for _ in range(4):
        world.clean()
        world.now_ms += RETENTION_MS
    assert world.last_offsets() == [4, 5]


def test_t99_a_read_committed_reader_never_sees_aborted_data(make_world: MakeWorld) -> None:
    """Before, after one and after two cleanings, with the marker in a later segment than the data."""
    world = make_world(segment_bytes=200)
    producer = Producer(world, 7)
    world.put(("a", "good"))
    producer.put("a", value="bad")
    world.roll()
    producer.put("b", value="bad")
    producer.abort()
    world.put(("c", "good"))
    world.roll()
    assert world.committed() == {"a": "good", "c": "good"}
    for _ in range(4):
        world.clean()
        assert world.committed() == {"a": "good", "c": "good"}
        world.now_ms += RETENTION_MS


def test_t86_an_aborted_transaction_that_ended_before_the_dirty_part_is_over(world: World) -> None:
    """Its marker is not read again by a mapping that begins behind it, in the same segment."""
    producer = Producer(world, 7)
    producer.put("a", value="bad")
    producer.abort()
    world.put(("x", "1"))
    first = world.roll()
    world.clean()
    producer.put("a", value="good")
    producer.commit()
    world.roll()
    world.clean(first - 1)
    assert world.table() == {"a": "good", "x": "1"}


def lose_marker(world: World) -> int:
    """A transaction that goes over a roll, its records and its marker cleaned away; the log's end, from which
    a recovery begins. A `segment.bytes` of 1000 keeps the cleaned segments two.
    """
    world.put_each("abcde", value="v" * 60)
    producer = Producer(world, 7)
    producer.put("k", value="1")
    begin = world.roll()
    producer.commit()
    world.put_each("fghik", value="w" * 60)
    end = world.roll()
    world.now_ms += RETENTION_MS + 1
    forget_producers(world)
    for _ in range(3):
        world.clean()
        world.now_ms += RETENTION_MS + 1
    assert not any(header.producer_id == 7 for header in world.headers())
    assert world.files(".snapshot") == [f"{begin:020}.snapshot", f"{end:020}.snapshot"]
    world.log.flush()
    world.recovery_point = world.log.recovery_point
    assert world.recovery_point == end == world.log.segments[-1].base_offset
    return end


def test_a_marker_that_was_cleaned_away_is_not_waited_for_after_a_crash(make_world: MakeWorld) -> None:
    """A snapshot from the middle of a transaction, the segment behind it read again without the marker: the
    snapshot at its end says that the transaction is over. Else the log would be stable up to there for good.
    """
    world = make_world(segment_bytes=1000)
    end = lose_marker(world)
    world.crash()
    assert world.log.producers.open_transactions() == {}
    assert world.log.last_stable_offset == world.log.log_end_offset == end
    world.put_each("x")
    world.log.flush()
    world.recovery_point = 0
    world.crash()
    assert world.log.last_stable_offset == world.log.log_end_offset == end + 1


def test_a_transaction_that_is_open_stays_open_after_a_crash(make_world: MakeWorld) -> None:
    world = make_world()
    producer = Producer(world, 7)
    producer.put("k")
    world.roll()
    producer.put("l")
    world.roll()
    world.put_each("x")
    world.log.flush()
    world.recovery_point = world.log.recovery_point
    world.crash()
    assert world.log.producers.open_transactions() == {7: 0}
    assert world.log.last_stable_offset == 0
    producer.commit()
    world.log.flush()
    assert world.log.last_stable_offset == world.log.log_end_offset


def test_a_kill_in_a_recovery_forgets_no_end_of_a_transaction(tmp_path: Path) -> None:
    """What only the snapshot of a roll knows must be there whenever the first recovery is killed."""
    for call in range(100):
        world = World(tmp_path / f"orders-{call}", segment_bytes=1000)
        end = lose_marker(world)
        world.log.abandon()
        died_at = world.open_twice(call)
        assert world.log.last_stable_offset == end, f"killed before {died_at}"
        assert world.log.producers.open_transactions() == {}
        world.log.abandon()
        if died_at is None:
            assert call > 10
            return
    raise AssertionError("the recovery has no end")
