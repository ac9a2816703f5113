"""Goal: `kill -9` in the midst of a real cleaning loses no last value, moves no offset, and the next start
cleans on.

Method: a broker whose cleaner never rests, on a compacted topic that a client writes to with acks=all; the
test watches the partition's directory for the files of a cleaning or a swap, waits a random moment more,
and kills. 200 kills; what the directory held at that moment is counted, so that the run shows which
steps it met. Every few rounds the second kill comes while the first is still being recovered from.
"""

from __future__ import annotations

import collections
import functools
import random
import threading
import time
from pathlib import Path

import pytest

from tests.clients.adaptors import Confluent, Received
from tests.crash.test_kill import KEYS, TOPIC, Writer, in_order, read_from, stop_and_verify
from tests.process import BrokerProcess
from tests.waiting import wait_for

KILLS = 200
VERIFY_EVERY = 20
TWICE_EVERY = 5
TRANSIT = (".cleaned", ".swap", ".deleted")
LONGEST_MOMENT_S = 0.02
SETTINGS = {
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.threads": "1",
    "log.segment.bytes": "32768",
    "log.segment.delete.delay.ms": "50",
}


def in_transit(directory: Path) -> set[str]:
    """Which kinds of files that only a cleaning makes are there."""
    return {suffix for path in directory.iterdir() for suffix in TRANSIT if path.name.endswith(suffix)}


def kill_in_a_cleaning(broker: BrokerProcess, dice: random.Random) -> set[str]:
    """Kill within a few ms of the sight of a cleaning; what it left."""
    directory = broker.data / f"{TOPIC}-0"
    wanted = dice.choice(TRANSIT[:2])

    def is_cleaning() -> bool:
        until = time.monotonic() + 0.5  # look closer than `wait_for` does: a swap takes a millisecond
        while time.monotonic() < until:
            try:
                if any(path.name.endswith(wanted) for path in directory.iterdir()):
                    return True
            except FileNotFoundError:
                continue
        return wanted != TRANSIT[0] and bool(in_transit(directory))

    wait_for(is_cleaning, "a cleaning")
    threading.Event().wait(dice.choice((0, dice.uniform(0, LONGEST_MOMENT_S))))
    broker.kill()
    return in_transit(directory)


def start_and_kill(broker: BrokerProcess, dice: random.Random) -> None:
    """Another death while the first is still being recovered from, or soon after."""
    process = broker.launch()
    threading.Event().wait(dice.uniform(0.3, 1.0))
    process.kill()
    process.wait()


def check(records: list[Received], written: dict[int, int], last: dict[int, tuple[int, int]]) -> None:
    assert in_order(records), "reordered"
    for record in records:
        value = int(record.value or b"")
        assert written.get(record.offset, value) == value, f"offset {record.offset} holds another record"
    table = {int(record.key or b""): (record.offset, int(record.value or b"")) for record in records}
    lost = {key: kept for key, kept in last.items() if table.get(key, (-1, -1)) < kept}
    assert not lost, f"{lost} are lost"


@pytest.mark.crash
def test_kill_during_cleaning_loses_no_last_value(tmp_path: Path) -> None:
    """T112-T119 by a real process."""
    broker = BrokerProcess(tmp_path / "data", SETTINGS).start()
    Confluent(broker.bootstrap).create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
    dice = random.Random(20261122)
    last: dict[int, tuple[int, int]] = {}
    written: dict[int, int] = {}
    met: collections.Counter[str] = collections.Counter()
    number = twice = 0
    for round_number in range(KILLS):
        writer = Writer(broker.bootstrap, number)
        wait_for(functools.partial(len, writer.acknowledged), "the first acknowledgement")
        left = kill_in_a_cleaning(broker, dice)
        met.update(left or {"nothing"})
        writer.finish()
        if round_number % TWICE_EVERY == 0:
            start_and_kill(broker, dice)
            twice += 1
        broker.start()
        written.update(writer.acknowledged)
        for offset, value in sorted(writer.acknowledged.items()):
            last[value % KEYS] = (offset, value)
        records = read_from(broker, 0)
        check(records, written, last)
        last.update({int(one.key or b""): (one.offset, int(one.value or b"")) for one in records})
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
    assert first == 0 and len(records) < end, "the cleaner never cleaned"
    assert met[".cleaned"] >= KILLS // 10 and met[".deleted"] >= 1, met
    print(
        f"{KILLS} kills in cleanings and {twice} in recoveries, {end} offsets, {len(records)} records left, "
        f"no last value lost; files at the moment of death: {dict(met)}"
    )
