"""Goal: the benchmark's figures mean what they say.

Method: ratios by hand; the data it makes is decoded and counted.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.cleaning import BATCH_RECORDS, checkpoint_of, keyed_batches
from benchmarks.report import Measurement, Report, shown
from benchmarks.systems import KAFKA, KOMPAKT
from benchmarks.wire import base_offset_of, one_record_batch, produce_frame
from protocol.framing import encode_response
from protocol.messages.produce import ProduceResponse
from protocol.records import decode_all


def test_a_ratio_says_how_many_times_better_kompakt_is() -> None:
    more = Measurement("p", "c", "records/s", True, {KOMPAKT: [10, 30, 20], KAFKA: [5]})
    less = Measurement("p", "c", "s", False, {KOMPAKT: [2], KAFKA: [1]})
    assert (more.ratio(), less.ratio()) == (4, 0.5)
    assert Measurement("p", "c", "s", False, {KAFKA: [1]}).ratio() is None


def test_the_table_has_a_line_for_each_case() -> None:
    report = Report()
    report.add("produce", "100 B", "records/s", KAFKA, 1234, more_is_better=True)
    report.add("produce", "100 B", "records/s", KOMPAKT, 2468, more_is_better=True)
    report.add("start-up", "fresh", "s", KAFKA, 2)
    assert report.rows() == [
        ("produce: 100 B", "records/s", "2,468", "1,234", "2.00 x"),
        ("start-up: fresh", "s", "-", "2.00", ""),
    ]
    assert "| produce: 100 B | records/s | 2,468 | 1,234 | 2.00 x |" in report.markdown("quick", 1)
    assert shown(12.34) == "12.3"


def test_keyed_batches_are_the_same_each_time_and_hold_what_they_say() -> None:
    batches = list(keyed_batches(2 * BATCH_RECORDS, 100, 100))
    assert batches == list(keyed_batches(2 * BATCH_RECORDS, 100, 100))
    found = list(decode_all(batches[1]))
    assert len(found) == BATCH_RECORDS
    assert {len(record.key or b"") for record in found} == {16}
    assert len({record.key for record in found}) == 100
    assert 95 * BATCH_RECORDS < len(batches[1]) < 105 * BATCH_RECORDS


def test_checkpoint_is_read_as_kafka_writes_it(tmp_path: Path) -> None:
    assert checkpoint_of(tmp_path, "a") == -1
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\nb 0 7\na 0 1573\n")
    assert (checkpoint_of(tmp_path, "a"), checkpoint_of(tmp_path, "c")) == (1573, -1)


def test_a_produce_answer_gives_its_offset() -> None:
    assert len(produce_frame("topic", one_record_batch(100, 1), 1)) > 161
    topic = ProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse(index=0, error_code=0, base_offset=1573)
    response = ProduceResponse(responses=[topic(name="topic", partition_responses=[partition])])
    frame = b"".join(encode_response(response, 9, 42))
    assert base_offset_of(frame[4:]) == (42, 1573)
