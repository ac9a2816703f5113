"""Goal: a log answers as Apache Kafka's does, whatever was written to it in whatever order of times: offsets
for times and the special ones, starts and ends of what is fetched, what is known of producers, also after a
restart of both.

Method: dice write batches (every codec, times that go back and forth so that segments roll, producers that
send again, skip, or are of another epoch, transactions that stay open), delete records and ask, on both
brokers. A seed that parts the two is shown with the steps that led there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple

import pytest

from protocol.batch import iterate_headers
from protocol.messages.fetch import FetchRequest
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.transactions import DescribeProducersRequest, InitProducerIdRequest
from protocol.records import encode_batch
from tests.kafka.both import Start, both
from tests.kafka.raw import Raw
from tests.kafka.test_transactions import SETTINGS, Player

Step = tuple[str, Callable[["LogPlayer"], Any]]
HOUR_MS = 3_600_000
BEGAN_MS = time_ns() // 1_000_000 - 200 * HOUR_MS
PATIENT = {**SETTINGS, "producer.id.expiration.ms": str(2**31 - 1)}
"""the two do not look for old producers at the same moment"""
STEPS = 60
PRODUCERS = ("i", "j")
CODECS = range(5)
TOPIC_SETTINGS = (
    {},
    {"segment.ms": str(HOUR_MS)},
    {"segment.ms": str(10 * HOUR_MS), "index.interval.bytes": "0"},
    {"compression.type": "lz4"},
    {"cleanup.policy": "compact", "segment.ms": str(HOUR_MS), "min.cleanable.dirty.ratio": "1.0"},
)


class Sent(NamedTuple):
    """A batch as one producer sends it."""

    producer: str | None
    epoch_shift: int
    sequence: int
    times: tuple[int, ...]
    codec: int
    is_transactional: bool


def shown(timestamp: int) -> Any:
    """Markers have the time at which each broker wrote them."""
    return timestamp if timestamp < BEGAN_MS + 150 * HOUR_MS else "of a marker"


class LogPlayer(Player):
    def __init__(self, raw: Raw, *, is_kafka: bool) -> None:
        super().__init__(raw)
        self.is_kafka = is_kafka

    def know(self, name: str, transactional_id: str | None) -> Any:
        """A producer gets its id."""
        if transactional_id is not None:
            request: Any = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
            self.ask(request, 4, lambda answer: [answer.coordinators[0].error_code])
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
        answer = self.ask(request, 4, lambda one: [one.error_code])
        self.producers[name] = (answer.producer_id, answer.producer_epoch)
        return answer.error_code, self.name_of(answer.producer_id), answer.producer_epoch

    def append(self, topic: str, sent: Sent, transactional_id: str, version: int) -> Any:
        fields: dict[str, Any] = {}
        if sent.producer is not None:
            producer_id, epoch = self.producers[sent.producer]
            fields = {
                "producer_id": producer_id,
                "producer_epoch": epoch + sent.epoch_shift,
                "base_sequence": sent.sequence,
                "is_transactional": sent.is_transactional,
            }
        records = [(one, b"k%d" % (one % 7), b"v" * (one % 50), ()) for one in sent.times]
        batch = encode_batch(records, codec=sent.codec, **fields)
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=0, records=memoryview(batch))
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=[part])],
            transactional_id=transactional_id if sent.is_transactional else None,
        )  # fmt: skip

        def codes(one: Any) -> list[int]:
            return [one.responses[0].partition_responses[0].error_code]

        told = self.ask(request, version, codes).responses[0].partition_responses[0]
        # Of a batch that is sent again Kafka tells the time of its youngest record as the time of the append,
        # in topics whose times are those of producers, too: a record would have another time than was given.
        assert self.is_kafka or told.log_append_time_ms == -1
        return told.error_code, told.base_offset, told.log_start_offset

    def offset_for(self, topic: str, timestamp: int, isolation: int, version: int) -> Any:
        asked = ListOffsetsRequest.ListOffsetsTopic
        part = asked.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[asked(name=topic, partitions=[part])]
        )
        told = self.raw.ask(request, version).topics[0].partitions[0]
        return told.error_code, shown(told.timestamp), told.offset, told.leader_epoch

    def end_of_epoch(self, topic: str, epoch: int, current: int, version: int) -> Any:
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        part = asked.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked(topic=topic, partitions=[part])])
        told = self.raw.ask(request, version).topics[0].partitions[0]
        return told.error_code, told.leader_epoch, told.end_offset

    def fetch(self, topic: str, offset: int, size_bytes: int, isolation: int, version: int) -> Any:
        """How much comes at once is not compared, only where it begins."""
        asked = FetchRequest.FetchTopic
        part = asked.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size_bytes)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=size_bytes, isolation_level=isolation,
            topics=[asked(topic=topic, partitions=[part])],
        )  # fmt: skip
        told = self.raw.ask(request, version).responses[0].partitions[0]
        records = bytes(told.records or b"")
        first = next((header for _, header in iterate_headers(records)), None) if records else None
        return (
            told.error_code, told.high_watermark, told.last_stable_offset, told.log_start_offset,
            first and (first.base_offset, first.last_offset_delta, first.codec, shown(first.base_timestamp),
                       shown(first.max_timestamp), first.base_sequence),
        )  # fmt: skip

    def knows(self, topic: str) -> Any:
        """Of its producers."""
        asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
        told = self.raw.ask(DescribeProducersRequest(topics=[asked]), 0).topics[0].partitions[0]
        return told.error_code, sorted(
            (
                self.name_of(one.producer_id), one.producer_epoch, one.last_sequence,
                shown(one.last_timestamp),
                one.current_txn_start_offset,
            )
            for one in told.active_producers
        )  # fmt: skip

    def looked_at(self, topic: str, times: Sequence[int]) -> Any:
        """But for leader epochs, of which a Kafka begins a new one at each start, and for producers whose
        records were all deleted, which it forgets then.
        """
        offsets = [self.offset_for(topic, time, isolation, 11)[:-1] for time in times for isolation in (0, 1)]
        code, producers = self.knows(topic)
        begin, end = (self.offset_for(topic, time, 0, 11)[2] for time in (-2, -1))
        return offsets, code, [row for row in producers if begin < end and not 0 <= row[-1] < begin]


class Dice:
    """What one seed does, and what it has to know of it."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.topic, self.transactional_id = f"t{seed}", f"tx{seed}"
        self.settings = self._dice.choice(TOPIC_SETTINGS)
        self._sent: list[Sent] = []
        self._places: list[tuple[int, Sent]] = []
        self._deleted_ms = 0
        self._last: Sent
        self._now_ms = BEGAN_MS
        self._next = dict.fromkeys((*PRODUCERS, "tx"), 0)
        self._epochs = dict.fromkeys(self._next, 0)
        self._end = 0
        self._is_open = self._has_written = False

    def times(self) -> list[int]:
        """To ask for: those near what was written, and the special ones."""
        near = [BEGAN_MS - 1, BEGAN_MS, self._now_ms, self._now_ms + 1, self._now_ms + 100 * HOUR_MS]
        near += [time + shift for sent in self._sent[-40:] for time in sent.times for shift in (0, 1)]
        # In a segment whose records were deleted but for its file Kafka finds nothing, and looks no further;
        # or, if it has the youngest record (-3), that.
        special = [-number for number in range(1, 8) if number != 3 or not self._deleted_ms]
        return [*special, *(time for time in near if time > self._deleted_ms)]

    def drawn(self) -> Step:
        dice = self._dice
        kinds = {"append": 12, "offset": 6, "fetch": 4, "delete": 1, "epoch": 1, "knows": 2, "end": 2}
        kind = dice.choices([*kinds], [*kinds.values()])[0]
        topic = self.topic
        if kind == "append":
            return self._append()
        if kind == "offset":
            version, isolation, time = dice.randint(1, 11), dice.randint(0, 1), dice.choice(self.times())
            isolation = isolation if version > 1 else 0
            time = max(time, -2) if version < 7 else time
            time = max(time, -3 if not self._deleted_ms else -2) if version < 8 else time
            time = max(time, -4) if version < 9 else time
            time = max(time, -5) if version < 11 else time
            return f"offset for {time} v{version} {isolation}", lambda it: it.offset_for(
                topic, time, isolation, version
            )
        if kind == "fetch":
            at, isolation, version = dice.randint(-1, self._end + 1), dice.randint(0, 1), dice.randint(4, 12)
            size_bytes = dice.choice((1, 100, 1_000, 1_000_000))
            return f"fetch {at} v{version} {isolation} {size_bytes}", lambda it: it.fetch(
                topic, at, size_bytes, isolation, version
            )
        if kind == "delete":
            at = dice.choice((-1, dice.randint(-2, self._end + 1), dice.randint(0, self._end)))
            if self._is_open:  # within a batch, Kafka's last stable offset would be before its start
                at = dice.choice((-1, *(first for first, _ in self._places)))
            return f"delete before {at}", lambda it: it.raw.delete_records(topic, at)
        if kind == "epoch":
            epoch, current, version = dice.randint(-1, 1), dice.choice((-1, 0, 0, 1)), dice.randint(2, 4)
            return f"end of epoch {epoch} of {current} v{version}", lambda it: it.end_of_epoch(
                topic, epoch, current, version
            )
        if kind == "end" and self._is_open:
            self._is_open = self._has_written = False
            is_commit = dice.random() < 0.5
            return f"ends {is_commit}", lambda it: (
                it.end("tx", is_commit, self.transactional_id), it.described(self.transactional_id)
            )  # fmt: skip
        return "knows", lambda it: it.knows(topic)

    def _append(self) -> Step:
        dice, version = self._dice, self._dice.randint(3, 9)
        if self._sent and dice.random() < 0.1:
            sent = dice.choice(self._sent[-12:])
            # Where a transaction begins with what is sent again, Kafka takes nothing behind that any more: it
            # remembers the lowest sequence that it has seen while it asked whether the partition takes part.
            if not sent.is_transactional or self._has_written:
                return self._appending(sent, version)
        if dice.random() < 0.3:
            self._now_ms += dice.randint(0, 3 * HOUR_MS)
        count = dice.choice((1, 1, 2, 5))
        times = tuple(self._now_ms + dice.randint(-HOUR_MS, HOUR_MS) for _ in range(count))
        producer = dice.choice((None, *PRODUCERS, "tx"))
        codec = dice.choice(CODECS) if version >= 7 else dice.choice(CODECS[:-1])
        sequence, shift = -1, 0
        if producer is not None:
            epoch = self._epochs[producer]
            shift = epoch + dice.choices((0, 1, -1), (30, producer != "tx", epoch > 0))[0]
            begin = 0 if shift > epoch else self._next[producer]
            is_first = producer == "tx" and not self._has_written  # see above
            sequence = begin + dice.choices((0, 1, -1), (20, 1, not is_first))[0]
        sent = Sent(
            producer, shift, max(sequence, -1 if producer is None else 0), times, codec, producer == "tx"
        )
        return self._appending(sent, version)

    def _appending(self, sent: Sent, version: int) -> Step:
        def take(it: LogPlayer) -> Any:
            added = None
            if sent.is_transactional:
                added = it.add("tx", (self.topic, 0), transactional_id=self.transactional_id)
            return added, it.append(self.topic, sent, self.transactional_id, version)

        self._last = sent
        return f"append {sent} v{version}", take

    def learn(self, name: str, told: Any) -> None:
        """Of what Kafka told of a step."""
        if name.startswith("delete") and not told[0]:
            gone = [time for first, sent in self._places for time in sent.times if first < told[1]]
            self._deleted_ms = max([self._deleted_ms, *gone])
        if not name.startswith("append"):
            return
        sent = self._last
        added, (code, base_offset, *_) = told
        self._is_open |= added is not None
        if code:
            return
        self._sent.append(sent)
        self._places.append((base_offset, sent))
        self._has_written |= sent.is_transactional
        self._end = max(self._end, base_offset + len(sent.times))
        if sent.producer is not None:
            is_new = sent.epoch_shift > self._epochs[sent.producer]
            self._epochs[sent.producer] = max(self._epochs[sent.producer], sent.epoch_shift)
            behind = sent.sequence + len(sent.times)
            self._next[sent.producer] = behind if is_new else max(self._next[sent.producer], behind)


@pytest.mark.java
def test_random_logs_answer_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(8))


@pytest.mark.slow
@pytest.mark.java
def test_many_random_logs_answer_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play_at_random(start_kafka, tmp_path, range(8, 150))


def play_at_random(start_kafka: Start, directory: Path, seeds: range) -> None:
    with both(start_kafka, directory, PATIENT) as brokers:
        players = [LogPlayer(Raw(broker.port), is_kafka=broker is brokers[0]) for broker in brokers]
        played = [(play_seed(players, dice), dice)[1] for dice in map(Dice, seeds)]
        for one, broker in zip(players, brokers, strict=True):
            one.raw.close()
            broker.stop()
            broker.start()
            one.raw = Raw(broker.port)
        for dice in played:
            times = dice.times()
            for one in players:
                one.raw.wait_for_leader(dice.topic)
            expected, found = (one.looked_at(dice.topic, times) for one in players)
            assert found == expected, f"{dice.topic} {dice.settings} after a restart\n{expected}\n{found}"
        for one in players:
            one.raw.close()


def play_seed(players: list[LogPlayer], dice: Dice) -> None:
    """In a topic of its own."""
    for one in players:
        one.raw.create(dice.topic, dice.settings)
        for name in PRODUCERS:
            one.know(name, None)
        one.know("tx", dice.transactional_id)
    taken = [str(dice.settings)]
    for _ in range(STEPS):
        name, take = dice.drawn()
        expected, found = (take(one) for one in players)
        taken.append(f"{name}\n    {expected}")
        assert found == expected, "\n".join((dice.topic, *taken, f"kompakt: {found}"))
        dice.learn(name, expected)
    times = dice.times()
    expected, found = (one.looked_at(dice.topic, times) for one in players)
    assert found == expected, "\n".join((dice.topic, *taken, str(times), f"{expected}\nkompakt: {found}"))
