"""Goal: the files are Kafka's: its own dump tool reads each kind of them and finds no fault.

Method: a log with every codec, transactions, rolls, snapshots and a swapped segment is dumped file by file by
Apache Kafka's DumpLogSegments.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protocol.compression import Codec
from protocol.records import encode_batch
from storage import layout
from storage.cleaned_segment import CleanedSegment
from storage.types import Origin
from tests.cleaner.world import World
from tests.kafka.fixtures import kafka_tools
from tests.kafka.tools import Tools
from tests.storage.builders import NOW_MS, LogBuilder
from tests.storage.conftest import MakeLog

__all__ = ["kafka_tools"]


def build(make_log: MakeLog) -> LogBuilder:
    log = make_log(segment_bytes=6000, index_interval_bytes=400, file_delete_delay_ms=0)
    for number in range(120):
        codec = Codec(number % 5)
        records = [(NOW_MS + number * 10 + n, b"key%d" % n, b"value" * n, (("h", b"x"),)) for n in range(5)]
        log.log.append(encode_batch(records, codec=codec), now_ms=NOW_MS)
    for sequence, is_commit in enumerate((True, False, False)):
        log.append(b"t", producer_id=7, producer_epoch=1, base_sequence=sequence, is_transactional=True)
        log.end_transaction(7, is_commit=is_commit, epoch=1)
    empty = encode_batch([], producer_id=9, producer_epoch=0, base_sequence=5, last_offset_delta=3)
    log.log.append(empty, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.log.roll(NOW_MS)
    log.append(b"last")
    sources = log.log.segments[:2]
    cleaned = CleanedSegment(log.disk, log.directory, 0, log.config)
    for header, view in log.log.scan(0, sources[-1].next_offset):
        if header.base_offset % 3:
            cleaned.append(bytes(view))
    cleaned.finish(sources[-1].last_modified_ms)
    log.log.replace_segments(sources, [cleaned], NOW_MS).run()
    log.log._list._removals.run(NOW_MS)
    log.log.close()
    return log


@pytest.mark.java
def test_t184_dump_log_accepts_every_file(make_log: MakeLog, kafka_tools: Tools) -> None:
    log = build(make_log)
    names = [name for name in log.files() if layout.parse_segment_file(name)]
    kinds = {name[20:] for name in names}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    files = ",".join(str(log.directory / name) for name in names)
    said = kafka_tools.dump("--deep-iteration", "--print-data-log", "--files", files)
    dumped = {int(text) for text in re.findall(r"\| offset: (\d+) ", said)}
    assert dumped == set(range(log.log.log_end_offset)) & {
        offset
        for header, _ in log.open(is_clean=True).scan(0)
        if header.record_count
        for offset in range(header.base_offset, header.next_offset)
    }
    assert "endTxnMarker: ABORT" in said
    assert re.search(r"producerId: 7 producerEpoch: 1", said)


@pytest.mark.java
def test_t184_dump_log_finds_the_indexes_sane(make_log: MakeLog, kafka_tools: Tools) -> None:
    log = build(make_log)
    names = [name for name in log.files("index") if not name.endswith(".txnindex")]
    kafka_tools.assert_sane_indexes([log.directory / name for name in names])


@pytest.mark.java
def test_t184_dump_log_finds_every_index_of_a_cleaning_sane(kafka_tools: Tools, tmp_path: Path) -> None:
    """T66, T67, T184: what the cleaner itself has written, segments that it has emptied among it."""
    world = World(tmp_path / "orders-2", segment_bytes=6000, index_interval_bytes=300)
    for number in range(800):
        world.put((str(number % 200), "v" * 20), ("gone", None), codec=number % 5)
    world.put(("x", "y"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(7, is_commit=False)
    world.roll()
    before = world.log.size_bytes
    world.clean()
    assert world.log.size_bytes < before / 2
    world.put(("a", "b"))
    world.log.close()
    files = [world.directory / name for name in world.files("index") if not name.endswith(".txnindex")]
    assert len([path for path in files if path.suffix == ".index" and path.stat().st_size]) > 1
    kafka_tools.assert_sane_indexes(files)
