"""Goal: what is read of `__share_group_state` is what was written: all of it, and what has changed since.

Method: batches in a log in memory, damaged and strange ones among them; as Kafka reads them is in
tests/kafka/test_share_groups.py.
"""

from __future__ import annotations

from uuid import UUID

from broker.share.partition import NO_EPOCH, NO_OFFSET, ShareKey, Stored
from broker.share.records import SNAPSHOT, UPDATE, Contents, read_contents, snapshot_value, state_key
from broker.share.records import update_value as changed_value
from broker.share.state_batches import DeliveryState, StateBatch
from protocol.control import Marker, marker_batch
from protocol.records import encode_batch
from tests.broker.groups.world import MemoryLog

HERE, THERE = ShareKey("g", UUID(int=1), 0), ShareKey("h", UUID(int=1), 2)
ARCHIVED, AVAILABLE = DeliveryState.ARCHIVED, DeliveryState.AVAILABLE
Row = tuple[bytes | None, bytes | None]


def stored(start_offset: int = 5, leader_epoch: int = 1, **more: int) -> Stored:
    return Stored(3, 2, leader_epoch, start_offset, 4, 1_000, **more)


def read(*batches: list[Row], damaged: int | None = None) -> Contents:
    log, offset = MemoryLog(), 0
    for number, rows in enumerate(batches):
        data = encode_batch([(0, *row, ()) for row in rows], base_offset=offset, now_ms=0)
        log.batches.append(data[:-1] + bytes((data[-1] ^ 1,)) if number == damaged else data)
        offset += len(rows)
    return read_contents(log)  # type: ignore[arg-type]


def all_of(key: ShareKey, said: Stored, *batches: StateBatch) -> Row:
    return state_key(key, SNAPSHOT), snapshot_value(said, batches, 2_000)


def change_of(key: ShareKey, said: Stored, *batches: StateBatch) -> Row:
    return state_key(key, UPDATE), changed_value(said, batches)


def test_what_has_changed_is_laid_over_all_that_was_known() -> None:
    first, second, third = (StateBatch(at, at + 4, AVAILABLE, 1) for at in (5, 10, 15))
    found = read(
        [all_of(THERE, stored(), first), all_of(HERE, stored(), first, second)],
        [
            change_of(HERE, stored(NO_OFFSET, 6), second._replace(state=ARCHIVED)),
            change_of(HERE, stored(10, NO_EPOCH), third),
        ],
    )
    assert found[HERE] == Stored(
        3, 2, 6, 10, 4, 1_000, [second._replace(state=ARCHIVED), third], snapshot_at=1, updates=2
    )
    assert found[THERE] == Stored(3, 2, 1, 5, 4, 1_000, [first])


def test_all_that_is_known_begins_the_count_of_changes_anew_and_a_tombstone_ends_it() -> None:
    found = read(
        [
            all_of(HERE, stored()),
            change_of(HERE, stored(7)),
            all_of(HERE, stored(8)),
            all_of(THERE, stored()),
        ],
        [(state_key(THERE, SNAPSHOT), None)],
    )
    assert list(found) == [HERE]
    assert (found[HERE].start_offset, found[HERE].snapshot_at, found[HERE].updates) == (8, 2, 0)


def test_what_cannot_be_read_costs_nothing_else() -> None:
    strange: list[Row] = [
        (None, b"no key"),
        (b"\x00\x09later", b"of another kind"),
        (b"\x00", b"no kind"),
        (state_key(THERE, SNAPSHOT), b"\x00\x00cut"),
    ]
    rows = [[all_of(HERE, stored())], [change_of(HERE, stored(6))], [*strange, change_of(HERE, stored(7))]]
    assert read(*rows)[HERE].start_offset == 7
    found = read(*rows[:2], damaged=1)
    assert (list(found), found[HERE].start_offset) == ([HERE], 5), "a damaged batch is skipped"
    found = read(*rows, damaged=1)
    assert (found[HERE].start_offset, found[HERE].updates) == (7, 1), "and no other is"


def test_the_end_of_a_transaction_is_no_record() -> None:
    """Anybody may write to the topic who has the right to."""
    log = MemoryLog()
    marker = marker_batch(Marker(is_commit=True), producer_id=7, producer_epoch=0, now_ms=0)
    log.batches += [marker, encode_batch([(0, *all_of(HERE, stored()), ())], base_offset=1, now_ms=0)]
    assert list(read_contents(log)) == [HERE]  # type: ignore[arg-type]


def test_values_begin_with_kafkas_version() -> None:
    for _, value in (all_of(HERE, stored()), change_of(HERE, stored())):
        assert value is not None and value[:2] == b"\x00\x00"
