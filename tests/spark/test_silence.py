"""Goal: answers without records end a read only where nothing is left; a broker that is slow loses no rows.

Method: the judgement with times given, then batch reads from a fake broker that keeps records back: for some
answers, for good, behind the log's end, at the end of a log that compaction has emptied there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.records import encode_batch
from spark_connector import silence
from spark_connector.errors import ConnectorError, DataLossError
from spark_connector.offsets import TopicPartition
from spark_connector.silence import HOLE_PATIENCE_S, Silence, Verdict
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of
from tests.spark.test_ranges import Start, batch, read

ASK, LOOK, HOLE, TOO_LONG = Verdict.ASK_AGAIN, Verdict.LOOK_AT_THE_END, Verdict.HOLE, Verdict.TOO_LONG
T0 = TopicPartition("t", 0)


def judge(judged: Silence, now_s: float, *, is_visible: bool = True, is_throttled: bool = False) -> Verdict:
    return judged.judge(now_s, is_visible=is_visible, is_throttled=is_throttled)


def test_a_hole_needs_patience_and_a_silent_end() -> None:
    judged = Silence(120)
    assert judge(judged, 0) == ASK
    # However late: the end has not been looked at.
    assert judge(judged, 100) == LOOK
    judged.look_at_end(has_records=False)
    assert judge(judged, 100) == HOLE
    judged.end()
    assert judge(judged, 200) == ASK
    for now in (200.1, 200 + HOLE_PATIENCE_S - 0.1):
        assert judge(judged, now) == LOOK
        judged.look_at_end(has_records=False)
    assert judge(judged, 200 + HOLE_PATIENCE_S) == HOLE


def test_records_at_the_end_make_it_no_hole() -> None:
    judged = Silence(120)
    assert [judge(judged, 0), judge(judged, 0.5)] == [ASK, LOOK]
    judged.look_at_end(has_records=True)
    assert [judge(judged, now) for now in (1, 119, 120, 120.1)] == [ASK, ASK, ASK, TOO_LONG]


@pytest.mark.parametrize("why", [{"is_visible": False}, {"is_throttled": True}])
def test_what_cannot_be_there_yet_is_waited_for(why: dict[str, bool]) -> None:
    judged = Silence(20)
    judged.look_at_end(has_records=False)
    assert [judge(judged, now, **why) for now in (0, 10, 20, 21)] == [ASK, ASK, ASK, TOO_LONG]


def keep_back(broker: FakeBroker, is_kept_back: Callable[[int, int], bool]) -> None:
    """Let the log answer without records where `is_kept_back(number of the fetch, offset)`."""
    log = broker.logs[T0]
    whole = log.read
    fetches = iter(range(10**9))

    def some(offset: int, size: int) -> bytes:
        return b"" if is_kept_back(next(fetches), offset) else whole(offset, size)

    log.read = some  # type: ignore[method-assign]


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_a_few_empty_answers_then_the_records(
    start_broker: Start, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all fetches, the log's end among them: a segment that comes from an object store."""
    monkeypatch.setattr(silence, "HOLE_PATIENCE_S", 60.0)
    broker = start_broker(logs_of([batch(0, 3), batch(3, 3)]))
    keep_back(broker, lambda number, _: number < count)
    assert read(broker) == list(range(6))
    keep_back(broker, lambda number, _: 1 <= number <= count)
    assert read(broker, kafka__max__partition__fetch__bytes="1") == list(range(6))


def test_each_silence_has_a_patience_of_its_own(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records came in between: what was seen before them would make a hole of the next slow answer."""
    monkeypatch.setattr(silence, "HOLE_PATIENCE_S", 0.0)
    broker = start_broker(logs_of([batch(0, 3), batch(3, 3), batch(6, 3)]))
    keep_back(broker, lambda number, _: number in (0, 1, 2, 4))
    assert read(broker, kafka__max__partition__fetch__bytes="1") == list(range(9))
    assert broker.fetched[:6] == [0, 0, 8, 0, 3, 3]


def test_a_broker_that_brings_older_batches_only_is_not_asked_for_ever(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(logs_of([batch(0, 3), batch(3, 3)]))
    monkeypatch.setattr(broker.logs[T0], "read", lambda offset, size: batch(0, 3))
    with pytest.raises(ConnectorError, match="a fetch at offset 3 brought older batches only"):
        read(broker, startingOffsets='{"t":{"0":3}}')


@pytest.mark.parametrize("options", [{}, {"failOnDataLoss": "false"}, {"endingOffsets": '{"t":{"0":3}}'}])
def test_records_that_never_come_are_an_error(
    start_broker: Start, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has its last record, so the offset is no hole, whatever failOnDataLoss says."""
    monkeypatch.setattr(silence, "HOLE_PATIENCE_S", 0.0)
    broker = start_broker(logs_of([batch(0, 3), batch(3, 3), batch(6)]))
    keep_back(broker, lambda _, offset: offset < 6)
    message = (
        r"t-0: the broker gave no records at offset 0 for 0.2 s \(kafkaConsumer.pollTimeoutMs\), although"
    )
    with pytest.raises(ConnectorError, match=message) as raised:
        read(broker, **options, kafkaConsumer__pollTimeoutMs="200")
    assert not isinstance(raised.value, DataLossError)


def test_a_hole_up_to_the_end_of_the_log(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for in turn with the log's last offset, and then left out. A quota may hold the answers back."""
    monkeypatch.setattr(silence, "HOLE_PATIENCE_S", 0.1)
    broker = start_broker({T0: FakeLog([batch(0, 3)], high_watermark=8)})
    assert read(broker) == [0, 1, 2]
    assert broker.fetched[:5] == [0, 3, 3, 7, 3]
    assert set(broker.fetched) == {0, 3, 7}
    broker.throttles.extend([0, 0, 1, 1, 1])
    assert read(broker) == [0, 1, 2]
    assert not broker.throttles


def test_a_hole_within_the_log_waits_for_nothing(start_broker: Start) -> None:
    """A fetch there brings what lies behind the range."""
    broker = start_broker(logs_of([batch(0), encode_batch([(1, b"k", b"40", ())], base_offset=40)]))
    assert read(broker, startingOffsets='{"t":{"0":0}}', endingOffsets='{"t":{"0":30}}') == [0]
    assert broker.fetched == [0]
    assert read(broker, startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":30}}') == []
    assert broker.fetched[1:] == [5]
