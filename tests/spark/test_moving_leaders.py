"""Goal: every row is written once and in order while leaders move from broker to broker.

Method: `write_rows` as a task calls it, against two brokers with the same logs, of which the one that does
not lead a partition refuses it, as Kafka does. Leaders move, and are absent, between two requests: in a
chosen case and in random ones, with requests and answers that are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest
from spark_connector import producer
from tests.spark.conftest import close_clusters
from tests.spark.fake_broker import NODE
from tests.spark.fake_leader import CLOSE_AFTER, CLOSE_BEFORE, FakeLeader, PartitionAnswer
from tests.spark.test_writer import check_written, rows, write

NONE = -1
NODES = (NODE, NODE + 1)
Move = tuple[int, int]  # a partition and who leads it from now on


class Node(FakeLeader):
    """One of two brokers, which share all that they know. Owned by: the test."""

    def __init__(self, node: int, first: Node | None = None) -> None:
        super().__init__()
        self.node = node
        self.leaders = {0: NODE, 1: NODE}
        self.moves: deque[Move | None] = deque()  # one before each request for metadata or to produce
        self.ports = {node: self.port}
        if first is not None:
            first.ports[node] = self.port
            self.leaders, self.moves, self.ports = first.leaders, first.moves, first.ports
            self.faults, self.logs, self._last, self._lock = (
                first.faults, first.logs, first._last, first._lock
            )  # fmt: skip

    def answer(self, request: Any) -> Any:
        if isinstance(request, MetadataRequest | ProduceRequest):
            self._move()
        return super().answer(request)

    def _move(self) -> None:
        move = self.moves.popleft() if self.moves else None
        if move is not None:
            self.leaders[move[0]] = move[1]
        elif not self.moves:
            self.leaders.update({partition: NODE for partition in (0, 1) if self.leaders[partition] == NONE})

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        answer = super()._metadata(request)
        broker = MetadataResponse.MetadataResponseBroker
        answer.brokers = [
            broker(node_id=node, host="127.0.0.1", port=port) for node, port in self.ports.items()
        ]
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.leader_id = self.leaders[partition.partition_index]
        return answer

    def _append(self, place: Any, batch: bytes) -> PartitionAnswer:
        if self.leaders[place.partition] != self.node:
            return PartitionAnswer(
                index=place.partition, base_offset=-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        return super()._append(place, batch)


@contextmanager
def two_nodes(largest_batch: int | None = None) -> Iterator[Node]:
    first = Node(NODE)
    second = Node(NODE + 1, first)
    first.largest_batch = second.largest_batch = largest_batch
    producer._idle.clear()
    try:
        yield first
    finally:
        close_clusters()
        producer._idle.clear()
        first.close()
        second.close()


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_leader_that_is_found_to_have_moved_while_another_is_looked_up(acks: str) -> None:
    """What waited for the old one was written behind what went to the new one."""
    with two_nodes() as leader:
        leader.leaders[1] = NONE
        leader.moves.extend([None, (0, NODE + 1), None])
        assert write(leader, rows(400), kafka__acks=acks).rows == 400
        check_written(leader, 400)


MOVES = st.none() | st.tuples(st.sampled_from([0, 1]), st.sampled_from([NONE, *NODES]))
FAULTS = st.sampled_from([None, None, CLOSE_BEFORE, CLOSE_AFTER, ErrorCode.REQUEST_TIMED_OUT])


@settings(max_examples=40)
@given(
    st.sampled_from([NODE, NONE]),
    st.lists(MOVES, max_size=25),
    st.lists(FAULTS, max_size=12),
    st.integers(0, 300),
    st.sampled_from([150, None]),
)
def test_any_moves(
    second: int, moves: list[Move | None], faults: list[Any], count: int, largest: int | None
) -> None:
    with two_nodes(largest) as leader:
        leader.leaders[1] = second
        leader.moves.extend(moves)
        leader.faults.extend(faults)
        assert write(leader, rows(count)).rows == count
        check_written(leader, count)
