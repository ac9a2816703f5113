"""Goal: a broker that is gone and back in the middle of a read costs time and no record.

Method: a read against a real kompakt process is held between two record batches, the process is killed with
-9 and started again on the same port, and the read goes on. No Spark session.
"""

from __future__ import annotations

import confluent_kafka
import confluent_kafka.admin
import pytest

from spark_connector import ranges
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import Shape
from tests.process import BrokerProcess
from tests.spark.conftest import options_for

RECORDS = 3000


def produce(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([confluent_kafka.admin.NewTopic("t", 1, 1)]).values():
        done.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 100})
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def test_a_read_survives_a_killed_broker(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "LEAST_ROWS", 1)
    process = BrokerProcess(tmp_path_factory.mktemp("restart") / "data")
    try:
        produce(process.start().bootstrap)
        parsed = parse_options(
            options_for(
                process, kafka__max__partition__fetch__bytes="1", kafka__default__api__timeout__ms="60000"
            )
        )
        reader = BatchReader(parsed, Shape.of(parsed.columns))
        (partition,) = reader.partitions()
        values: list[bytes] = []
        kills = 0
        for made in reader.read(partition):
            values += made.column("value").to_pylist()
            if kills < 2 and len(values) > (kills + 1) * RECORDS // 4:
                process.kill()
                process.start()
                kills += 1
        assert kills == 2
        assert values == [b"%d" % number for number in range(RECORDS)]
    finally:
        process.close()
