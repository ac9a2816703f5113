"""Records without a timestamp, which no client library writes: their batch goes to the broker as it is."""

from __future__ import annotations

from protocol.records import encode_batch
from tests.kafka.raw import Raw
from tests.spark.test_spark import Sent
from tests.waiting import wait_for


def produce_without_times(bootstrap: str, topic: str) -> list[Sent]:
    """Records that have no timestamp, as -1 ms, one of them between two that have one; into partition 1."""
    values = [(-1, b"before"), (1_700_000_000_000, b"timed"), (-1, b"after")]
    batch = encode_batch([(time, b"timeless", value, ()) for time, value in values])
    raw = Raw(int(bootstrap.rpartition(":")[2]))
    wait_for(lambda: raw.list_offset(topic, -1, 1)[0] == 0, f"a leader of {topic}-1")
    answer = raw.produce(topic, batch, 1)
    raw.close()
    assert answer.error_code == 0, answer
    first = answer.base_offset
    return [
        Sent(b"timeless", value, topic, 1, first + at, time, ()) for at, (time, value) in enumerate(values)
    ]
