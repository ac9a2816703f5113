"""Goal: whatever is written and however it is cleaned, a reader's final table is the same, and offsets
never move.

Method: random logs (keys, the empty one too, tombstones, codecs, batch sizes, producers, transactions, rolls,
waiting) cleaned by tiny maps and tiny buffers, against a dict of last values and a list of everything
written.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch import is_intact
from protocol.records import Record
from storage.verify import verify_log
from tests.cleaner.world import RETENTION_MS, World

KEYS = st.sampled_from(["a", "b", "c", "d", "a key of more than sixteen bytes", ""])
VALUES = st.none() | st.sampled_from(["", "1", "2", "v" * 150])
PLAIN = st.tuples(
    st.just("put"),
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=12),
    st.integers(0, 4),
    st.sampled_from([-1, 1, 2]),
)
TRANSACTION = st.tuples(
    st.just("transaction"),
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6),
    st.integers(0, 4),
    st.booleans(),
)
STEPS = st.lists(
    st.one_of(
        PLAIN, PLAIN, PLAIN, TRANSACTION,
        st.tuples(st.just("roll")), st.tuples(st.just("clean")), st.tuples(st.just("clean")),
        st.tuples(st.just("wait"), st.sampled_from([1000, RETENTION_MS])), st.tuples(st.just("crash")),
    ),
    min_size=5, max_size=40,
)  # fmt: skip


class Model:
    """What a reader must find."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.written: dict[int, tuple[str | None, str | None]] = {}
        self.committed: dict[str | None, str | None] = {}
        self.sequences = {1: 0, 2: 0, 9: 0}
        self.checkpoint = 0

    def put(
        self, pairs: list[tuple[str, str | None]], codec: int, producer_id: int, is_committed: bool = True
    ) -> None:
        fields = {}
        if producer_id >= 0:
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.sequences[producer_id],
            }
            self.sequences[producer_id] += len(pairs)
        is_transactional = producer_id == 9
        base = self.world.put(*pairs, codec=codec, is_transactional=is_transactional, **fields).base_offset
        self.written.update({base + index: pair for index, pair in enumerate(pairs)})
        if is_committed:
            self.committed.update(pairs)

    def transaction(self, pairs: list[tuple[str, str | None]], codec: int, is_commit: bool) -> None:
        self.put(pairs, codec, 9, is_commit)
        self.world.end_transaction(9, is_commit=is_commit)

    def clean(self) -> None:
        end = self.world.log.segments[-1].base_offset
        if self.checkpoint < end:
            result = self.world.clean(self.checkpoint)
            assert self.checkpoint < result.end_offset <= end
            self.checkpoint = result.end_offset
        self.check()

    def check(self) -> None:
        world = self.world
        batches = world.batches()
        assert all(is_intact(data, 0, header) for header, data in batches)
        bases = [header.base_offset for header in world.headers()]
        assert bases == sorted(set(bases))
        for record in world.records():
            self.check_record(record)
        expected = {key: value for key, value in self.committed.items() if value is not None}
        assert world.committed() == expected

    def check_record(self, record: Record) -> None:
        """Nothing is moved or changed."""
        key, value = self.written[record.offset]
        assert (record.key or b"").decode() == key
        assert (None if record.value is None else record.value.decode()) == value


@settings(max_examples=60)
@given(
    steps=STEPS,
    slots=st.sampled_from([2, 3, 5, 1000]),
    segment_bytes=st.sampled_from([2500, 6000, 1 << 20]),
    read_bytes=st.sampled_from([61, 500, 1 << 16]),
)
def test_t45_a_cleaned_log_tells_the_same_table(
    steps: list[tuple],
    slots: int,
    segment_bytes: int,
    read_bytes: int,  # type: ignore[type-arg]
) -> None:
    """T34-T36, T44, T45, T49, T57, T72, T78, T81, T85-T87, T105: what they say of records."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory) / "orders-2", slots, segment_bytes=segment_bytes)
        world.read_bytes = read_bytes
        model = Model(world)
        for name, *arguments in steps:
            match name:
                case "put":
                    model.put(*arguments)
                case "transaction":
                    model.transaction(*arguments)
                case "roll":
                    world.roll()
                case "clean":
                    world.roll()
                    model.clean()
                case "wait":
                    world.now_ms += arguments[0]
                case "crash":
                    end = world.log.log_end_offset
                    world.crash()
                    assert world.log.log_end_offset == end
        model.check()
        world.roll()
        for _ in range(3):
            model.clean()
        assert verify_log(world.directory) == []
        world.log.close()
        assert verify_log(world.directory) == []
