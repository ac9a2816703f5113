"""Goal: Apache Kafka itself reads the batches made here, and what it and librdkafka store is read here.

Method: a segment of our batches in every codec goes through `kafka-dump-log --deep-iteration`; a real Kafka's
segments, filled by confluent-kafka and by Kafka's own producer in every codec, go through `decode_all`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from protocol import batch, control, records
from protocol.compression import Codec
from protocol.records import decode_all, encode_batch
from tests.kafka.broker import KafkaBroker
from tests.kafka.tools import Tools

pytestmark = pytest.mark.java
VALUE = b"some words, some words, some other words " * 2000  # more than one block of lz4 and of snappy
SEGMENT = f"{0:020d}.log"


def test_java_reads_our_batches(kafka_tools: Tools, tmp_path: Path) -> None:
    directory = tmp_path / "ours-0"
    directory.mkdir()
    made = b""
    offset = 0
    for codec in Codec:
        items: list[records.Item] = [
            (1_000 + offset, f"key-{codec.name}".encode(), VALUE, [("name", b"data"), ("empty", None)]),
            (2_000 + offset, b"deleted", None, ()),
        ]
        made += encode_batch(items, base_offset=offset, codec=codec, delete_horizon_ms=5_000)
        offset += len(items)
    producer = {"producer_id": 3, "producer_epoch": 1}
    made += encode_batch([], base_offset=offset, last_offset_delta=4, base_sequence=7, **producer)
    made += control.marker_batch(control.Marker(False, 2), now_ms=9, base_offset=offset + 5, **producer)
    (directory / SEGMENT).write_bytes(made)
    shown = kafka_tools.run(
        "kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", directory / SEGMENT
    )
    assert shown.count("isvalid: true") == 7, shown
    assert shown.count("CreateTime: 1970-01-01") == 0
    assert shown.count("headerKeys: [name,empty]") == 5, shown
    assert shown.count("payload: " + VALUE.decode().strip()) == 5
    for codec in Codec:
        assert f"compresscodec: {codec.name.lower()}" in shown
        assert f"key: key-{codec.name}" in shown
    assert "endTxnMarker: ABORT coordinatorEpoch: 2" in shown
    assert "deleteHorizonMs: OptionalLong[5000]" in shown


@pytest.mark.parametrize("codec", Codec)
def test_what_librdkafka_and_java_write_is_read(
    codec: Codec,
    kafka_tools: Tools,
    kafka_broker: KafkaBroker,
) -> None:
    name = codec.name.lower()
    producer = Producer(
        {
            "bootstrap.servers": kafka_broker.bootstrap,
            "compression.type": name,
            "linger.ms": 50,
            # The topic is only being made: a batch that is refused is sent again, behind the next one else
            # (seen, rarely, with `max.in.flight.requests.per.connection=1` as well).
            "enable.idempotence": True,
        }
    )
    for number in range(20):
        producer.produce(name, VALUE, f"key-{number}", headers=[("name", b"data"), ("empty", None)])
    assert producer.flush(60) == 0
    kafka_tools.run(
        "kafka-producer-perf-test", "--bootstrap-server", kafka_broker.bootstrap, "--topic", name,
        "--num-records", 500, "--record-size", 1000, "--throughput", -1,
        "--command-property", f"compression.type={name}",
    )  # fmt: skip
    stored = (kafka_broker.data / f"{name}-0" / SEGMENT).read_bytes()
    found = list(decode_all(stored))
    assert [record.offset for record in found] == list(range(520))
    for number, record in enumerate(found[:20]):
        assert (record.key, record.value) == (f"key-{number}".encode(), VALUE)
        assert record.headers == (("name", b"data"), ("empty", None))
    assert {len(record.value or b"") for record in found[20:]} == {1000}
    for position, header in batch.iterate_headers(stored):
        assert header.codec == codec
        section = records.payload(stored, position, header)
        assert records.validate_records(section, header.record_count, False)[0] == records.OK
