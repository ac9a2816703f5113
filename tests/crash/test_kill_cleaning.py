"""Goal: `kill -9` in the midst of a real cleaning loses no last value, brings no deleted one back, moves no
offset, and the next start cleans on.

Method: a broker whose cleaner never rests, on a compacted topic that a client writes values and tombstones to
with acks=all; a process that the kernel tells of each change in the partition's directory kills the broker
some changes behind the first file of a cleaning, or of a swap. At least 200 kills; what the directory held at
that moment is counted, and it goes on until all steps were met. Every few rounds a second kill comes at a
change that the recovery from the first one makes.
"""

from __future__ import annotations

import collections
import functools
import random
from pathlib import Path

import confluent_kafka
import pytest

from tests.clients.adaptors import Confluent, Received
from tests.crash.assassin import TRANSIT, hire
from tests.crash.test_kill import KEYS, TOPIC, Writer, read_from, stop_and_verify
from tests.process import BrokerProcess
from tests.waiting import wait_for

KILLS = 200
MOST_KILLS = 3 * KILLS  # on a slow machine the process that kills comes late, and meets some steps seldom
LEAST_OF_EACH, LEAST_TWICE = KILLS // 10, KILLS // 10
VERIFY_EVERY = 20
TWICE_EVERY = 5
TOMBSTONE_EVERY = 7  # has no common factor with KEYS: each key is deleted now and then
COLD_KEYS, COLD_EVERY = 10, 3000  # keys written so seldom that a cleaning takes their tombstones away
CHANGES_OF_A_CLEANING = 40
CHANGES_OF_A_SWAP = 16
CHANGES_OF_A_RECOVERY = 4
NUMBER = "number"
READY = "ready"
SETTINGS = {
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.threads": "1",
    "log.cleaner.delete.retention.ms": "0",
    "log.segment.bytes": "32768",
    "log.segment.delete.delay.ms": "50",
}


class Deleter(Writer):
    """Every seventh number is a tombstone; all have their number in a header."""

    def _note(self, number: int, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged[message.offset()] = number

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.next_number
            key, text = b"%d" % key_of(number), b"%d" % number
            value = None if is_tombstone(number) else text
            report = functools.partial(self._note, number)
            try:
                for _ in range(2):
                    self._producer.produce(TOPIC, value, key, 0, report, headers=[(NUMBER, text)])
                self.next_number += 1
            except BufferError:
                pass
            self._producer.poll(0)


def key_of(number: int) -> int:
    return KEYS + number % COLD_KEYS if number % COLD_EVERY < COLD_KEYS else number % KEYS


def is_tombstone(number: int) -> bool:
    return number % TOMBSTONE_EVERY == 0


def number_of(record: Received) -> int:
    return int(dict(record.headers)[NUMBER])


def in_transit(directory: Path) -> set[str]:
    """Which kinds of files that only a cleaning makes are there."""
    return {suffix for path in directory.iterdir() for suffix in TRANSIT if path.name.endswith(suffix)}


def kill_in_a_cleaning(broker: BrokerProcess, dice: random.Random) -> set[str]:
    """Kill within a cleaning or a swap; what it left."""
    assert broker.process is not None
    directory = broker.data / f"{TOPIC}-0"
    wanted = dice.choice(TRANSIT[:2])
    count = dice.randrange(CHANGES_OF_A_CLEANING if wanted == TRANSIT[0] else CHANGES_OF_A_SWAP)
    assassin = hire(str(directory), broker.process.pid, wanted, count)
    assert assassin.wait(60) == 0
    broker.kill()
    return in_transit(directory)


def start_and_kill(broker: BrokerProcess, dice: random.Random) -> bool:
    """Another death while the first is still being recovered from; whether it was (there may have been
    nothing to do).
    """
    said = len(broker.log())
    process = broker.launch()
    directory = broker.data / f"{TOPIC}-0"
    assassin = hire(str(directory), process.pid, "", dice.randrange(CHANGES_OF_A_RECOVERY))
    wait_for(lambda: assassin.poll() is not None or READY in broker.log()[said:], "a death or a start")
    process.kill()
    process.wait()
    is_killed = assassin.poll() == 0 and READY not in broker.log()[said:]
    assassin.kill()
    assassin.wait()
    return is_killed


def check(records: list[Received], written: dict[int, int]) -> None:
    """Nothing is reordered or changed."""
    numbers = [number_of(record) for record in records]
    assert numbers == sorted(numbers), "reordered"
    for record, number in zip(records, numbers, strict=True):
        assert written.get(record.offset, number) == number, f"offset {record.offset} holds another record"
        assert record.value == (None if is_tombstone(number) else b"%d" % number)
        assert record.key == b"%d" % key_of(number)


Last = dict[int, tuple[int, int]]
"""key -> (offset, number) of its last record"""


def last_of(records: list[Received]) -> Last:
    return {int(one.key or b""): (one.offset, number_of(one)) for one in records}


def lost_or_back(records: list[Received], last: Last) -> dict[int, tuple[object, object]]:
    """Keys that have neither their last record nor a newer one; a deleted one may have none."""
    table = last_of(records)
    return {
        key: (kept, table.get(key))
        for key, kept in last.items()
        if table.get(key, (-1, -1)) < kept and not (is_tombstone(kept[1]) and key not in table)
    }


def read_and_check(broker: BrokerProcess, written: dict[int, int], last: Last) -> list[Received]:
    """A reader that a cleaning overtakes may have a value and not the tombstone that went meanwhile (KIP-58):
    what seems to be back is read again.
    """
    records = read_from(broker, 0)
    check(records, written)
    if lost_or_back(records, last):
        records = read_from(broker, 0)
        assert not lost_or_back(records, last)
    return records


def is_enough(kills: int, met: collections.Counter[str], twice: int) -> bool:
    """Whether every step was met as often as it shall be."""
    return kills >= KILLS and twice >= LEAST_TWICE and all(met[one] >= LEAST_OF_EACH for one in TRANSIT)


@pytest.mark.crash
def test_kill_during_cleaning_loses_no_last_value(tmp_path: Path) -> None:
    """T112-T119 by a real process."""
    broker = BrokerProcess(tmp_path / "data", SETTINGS).start()
    Confluent(broker.bootstrap).create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
    dice = random.Random(20261122)
    last: Last = {}
    written: dict[int, int] = {}
    met: collections.Counter[str] = collections.Counter()
    number = twice = gone = kills = 0
    while kills < MOST_KILLS and not is_enough(kills, met, twice):
        round_number, kills = kills, kills + 1
        writer = Deleter(broker.bootstrap, number)
        wait_for(functools.partial(len, writer.acknowledged), "the first acknowledgement")
        left = kill_in_a_cleaning(broker, dice)
        met.update(left or {"nothing"})
        writer.finish()
        if round_number % TWICE_EVERY == 0:
            twice += start_and_kill(broker, dice)
        broker.start()
        written.update(writer.acknowledged)
        for offset, value in sorted(writer.acknowledged.items()):
            last[key_of(value)] = (offset, value)
        records = read_and_check(broker, written, last)
        last.update(last_of(records))
        gone += len(last) - len(last_of(records))
        number = writer.next_number
        if round_number % VERIFY_EVERY == 0:
            stop_and_verify(broker)
            print(
                f"after {round_number + 1} kills: {len(records)} records up to {records[-1].offset}",
                flush=True,
            )
    first, end = Confluent(broker.bootstrap).offsets(TOPIC, 0)
    records = read_from(broker, 0)
    broker.close()
    print(
        f"{kills} kills in cleanings and {twice} in recoveries, {end} offsets, {len(records)} records left, "
        f"{gone} times a deleted key was gone, no last value lost; files at the moment of death: {dict(met)}"
    )
    assert first == 0 and len(records) < end, "the cleaner never cleaned"
    assert is_enough(kills, met, twice), f"steps that were not met often enough: {met}, {twice} recoveries"
    assert gone, "no tombstone ever went"
