"""Goal: what is written with acks=0 is lost only where nobody could know: not in a connection closed before.

Method: `write_rows` against a leader that closes its connections between two batches of the task, as brokers
do to those that are idle (`connections.max.idle.ms`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest

from spark_connector.connection import Connection
from spark_connector.write_options import parse_write_options
from spark_connector.writer import write_rows
from tests.spark.fake_leader import FakeLeader
from tests.spark.test_writer import check_written, options_of, rows
from tests.waiting import wait_for


def test_a_connection_that_was_closed_between_two_batches(
    leader: FakeLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0
    send = Connection.send_unanswered

    def count(connection: Connection, request: Any, api_key: int) -> None:
        nonlocal sent
        send(connection, request, api_key)
        sent += 1

    def slow() -> Iterator[pyarrow.RecordBatch]:
        for number in range(4):
            yield rows(50, 50 * number)
            wait_for(lambda: leader.produced == sent, "all that was sent to be read")
            leader._server.close_connections()

    monkeypatch.setattr(Connection, "send_unanswered", count)
    options = parse_write_options(options_of(leader, kafka__acks="0"))
    assert write_rows(options, slow()).rows == 200
    wait_for(lambda: sum(len(leader.records(partition)) for partition in range(2)) >= 200, "all records")
    check_written(leader, 200)
