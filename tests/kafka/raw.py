"""One blocking connection that speaks the declared messages, and the few requests that put the same bytes to
two brokers.

Nothing is retried behind the caller's back but what a fresh topic needs: a leader.
"""

from __future__ import annotations

import itertools
import select
import socket
from collections.abc import Iterable, Mapping
from typing import Any

import protocol.messages.every  # noqa: F401  # fills the registry
from protocol.batch import iterate_headers
from protocol.errors import ErrorCode
from protocol.framing import decode_response, encode_request
from protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.topics import CreateTopicsRequest
from protocol.schema import registry, schema_of
from tests.waiting import wait_for

LIMIT_SECONDS = 60.0
TOPIC, GROUP = 2, 32  # resource types
FETCH_BYTES = 64 << 20
VERSIONS = {
    "produce": 9,
    "fetch": 12,
    "list_offsets": 7,
    "metadata": 12,
    "create": 7,
    "describe": 4,
    "alter": 1,
    "delete_records": 2,
}


class Raw:
    """A connection to a broker on 127.0.0.1."""

    def __init__(
        self,
        port: int,
        limit_seconds: float = LIMIT_SECONDS,
        client_id: str | None = "raw",
        source: str = "",
    ) -> None:
        """`source`: the address of this machine that it is to come from, if not any."""
        self._client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), limit_seconds, (source, 0))
        self._correlation_ids = itertools.count(1)
        self._asked: tuple[Any, int, int] | None = None

    def ask(self, request: Any, version: int) -> Any:
        """Send `request`, return its answer."""
        self.send(request, version)
        return self.answer()

    def send(self, request: Any, version: int) -> None:
        """Send `request`, whose answer may come when others have said something on other connections."""
        sent = next(self._correlation_ids)
        self._socket.sendall(b"".join(encode_request(request, version, sent, self._client_id)))
        self._asked = registry[schema_of(request).key].response, version, sent

    def has_answer(self) -> bool:
        """Whether something has come that answers what was sent."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def answer(self) -> Any:
        """The answer of what was sent, waited for."""
        assert self._asked is not None
        (expected, version, sent), self._asked = self._asked, None
        frame = self._read(int.from_bytes(self._read(4), "big"))
        answered, message = decode_response(expected, version, frame)
        assert answered == sent
        return message

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            assert part, "the broker closed the connection"
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()

    def create(self, topic: str, settings: Mapping[str, str], partitions: int = 1) -> None:
        asked = CreateTopicsRequest.CreatableTopic
        configs = [asked.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        creatable = asked(name=topic, num_partitions=partitions, replication_factor=1, configs=configs)
        (made,) = self.ask(CreateTopicsRequest(topics=[creatable]), VERSIONS["create"]).topics
        assert made.error_code == 0, made
        self.wait_for_leader(topic)

    def wait_for_leader(self, topic: str) -> None:
        """Of each partition. The parts of a Kafka learn of it one after the other: until Metadata tells of a
        topic that was made again, a log of the one before may answer in its name.
        """
        wait_for(lambda: self._has_leaders(topic), f"a leader of {topic}")

    def _has_leaders(self, topic: str) -> bool:
        named = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[named], allow_auto_topic_creation=False)
        (told,) = self.ask(request, VERSIONS["metadata"]).topics
        leads = [self.list_offset(topic, -1, one.partition_index)[0] == 0 for one in told.partitions]
        return told.error_code == 0 and bool(leads) and all(leads)

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set topic settings; returns when they are told back."""
        asked = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            asked.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in settings.items()
        ]
        resource = asked(resource_type=TOPIC, resource_name=topic, configs=configs)
        (done,) = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), VERSIONS["alter"]).responses
        assert done.error_code == 0, done
        wait_for(
            lambda: settings.items() <= self.described(topic, settings).items(), f"{settings} of {topic}"
        )

    def set_group(self, group: str, settings: Mapping[str, str]) -> tuple[int, str | None]:
        """(error, message) of setting settings of a group; returns when they are told back."""
        asked = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            asked.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in settings.items()
        ]
        resource = asked(resource_type=GROUP, resource_name=group, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (done,) = self.ask(request, VERSIONS["alter"]).responses
        if not done.error_code:
            wait_for(
                lambda: settings.items() <= self.described(group, settings, kind=GROUP).items(),
                f"{settings} of {group}",
            )
        return done.error_code, done.error_message

    def described(self, name: str, keys: Iterable[str], kind: int = TOPIC) -> dict[str, str | None]:
        asked = DescribeConfigsRequest.DescribeConfigsResource
        resource = asked(resource_type=kind, resource_name=name, configuration_keys=list(keys))
        (found,) = self.ask(DescribeConfigsRequest(resources=[resource]), VERSIONS["describe"]).results
        assert found.error_code == 0, found
        return {config.name: config.value for config in found.configs}

    def produce(self, topic: str, batch: bytes, partition: int = 0) -> Any:
        """The answer for the partition."""
        data = ProduceRequest.TopicProduceData
        one = data(
            name=topic, partition_data=[data.PartitionProduceData(index=partition, records=memoryview(batch))]
        )
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[one])
        answer = self.ask(request, VERSIONS["produce"])
        return answer.responses[0].partition_responses[0]

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
        """(error, low watermark) of deleting what is before `offset`."""
        asked = DeleteRecordsRequest.DeleteRecordsTopic
        one = asked(
            name=topic,
            partitions=[asked.DeleteRecordsPartition(partition_index=partition, offset=offset)],
        )
        request = DeleteRecordsRequest(topics=[one], timeout_ms=30_000)
        found = self.ask(request, VERSIONS["delete_records"]).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    def list_offset(
        self, topic: str, timestamp: int, partition: int = 0, isolation: int = 0
    ) -> tuple[int, int, int, int]:
        """(error, timestamp, offset, leader epoch)."""
        asked = ListOffsetsRequest.ListOffsetsTopic
        one = asked(
            name=topic,
            partitions=[asked.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)],
        )
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[one])
        found = self.ask(request, VERSIONS["list_offsets"]).topics[0].partitions[0]
        return found.error_code, found.timestamp, found.offset, found.leader_epoch

    def fetch(self, topic: str, offset: int, *, partition: int = 0, isolation: int = 0) -> Any:
        """The answer for the partition, whatever it is."""
        asked = FetchRequest.FetchTopic
        one = asked(
            topic=topic,
            partitions=[
                asked.FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
                )
            ],
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, isolation_level=isolation, topics=[one]
        )
        return self.ask(request, VERSIONS["fetch"]).responses[0].partitions[0]

    def read(self, topic: str, *, isolation: int = 0) -> tuple[bytes, set[tuple[int, int]]]:
        """All batches from offset 0 (or the log start) on, and the aborted transactions told beside them."""
        offset = self.list_offset(topic, -2)[2]
        parts: list[bytes] = []
        aborted: set[tuple[int, int]] = set()
        while True:
            part = self.fetch(topic, offset, isolation=isolation)
            assert part.error_code == ErrorCode.NONE, part
            end = part.last_stable_offset if isolation else part.high_watermark
            aborted |= {(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()}
            records = bytes(part.records or b"")
            for position, header in iterate_headers(records):
                parts.append(records[position : position + header.size_bytes])
                offset = header.next_offset
            if offset >= end:
                return b"".join(parts), aborted
            assert records, f"nothing at {offset} of {topic}, which ends at {end}"
