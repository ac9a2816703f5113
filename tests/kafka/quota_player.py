"""A broker as clients with quotas see it: each step by a connection of its own, for one that is throttled is
not read; the answers in a form that can be compared with another broker's.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from config.listeners import CREATION_RATE
from protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from protocol.records import encode_batch
from tests.kafka.raw import Raw
from tests.waiting import wait_for

Names = Sequence[tuple[str, str | None]]
"""of an entity: its kinds with their names"""
Filter = Sequence[tuple[str, int, str | None]]
TOPIC = "t"
BROKER = 4  # a resource type
WINDOW_SECONDS = 5
STEP = 1.05
"""a wait counts in powers of it: what passes between two requests, or a few bytes, do not show"""


def rough(wait_ms: int) -> int:
    """Of waits that are nearly the same the same number; 0 of none."""
    power = 0
    while wait_ms >= 100 * STEP**power:
        power += 1
    return power


def is_alike(expected: Any, found: Any) -> bool:
    """Whether they are the same, but that rough waits may lie at either side of a border."""
    if isinstance(expected, Wait) and isinstance(found, Wait):
        return abs(rough(expected) - rough(found)) <= 1
    if isinstance(expected, tuple | list) and isinstance(found, tuple | list):
        return len(expected) == len(found) and all(map(is_alike, expected, found))
    return bool(expected == found)


class Wait(int):
    """Milliseconds that a client was told to wait."""


class QuotaPlayer:
    """One of the two brokers."""

    def __init__(self, port: int, watched: Sequence[str] = (CREATION_RATE,)) -> None:
        """`watched`: how the keys end that are told of the broker."""
        self._port = port
        self._watched = tuple(watched)
        self.raw = Raw(port, client_id="watches")
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self.raw.close()

    def ask(self, client_id: str | None, request: Any, version: int) -> Any:
        raw = Raw(self._port, client_id=client_id)
        try:
            return raw.ask(request, version)
        finally:
            raw.close()

    # what is set

    def alter(
        self,
        *entries: tuple[Names, Sequence[tuple[str, float | None]]],
        validate_only: bool = False,
        version: int = 1,
    ) -> list[Any]:
        asked = AlterClientQuotasRequest.EntryData
        request = AlterClientQuotasRequest(
            entries=[
                asked(
                    entity=[asked.EntityData(entity_type=kind, entity_name=name) for kind, name in names],
                    ops=[
                        asked.OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in values
                    ],
                )
                for names, values in entries
            ],
            validate_only=validate_only,
        )
        told = self.raw.ask(request, version).entries
        return sorted(
            (sorted((part.entity_type, str(part.entity_name)) for part in one.entity), one.error_code,
             one.error_message)
            for one in told
        )  # fmt: skip

    def set(self, names: Names, *values: tuple[str, float | None]) -> int:
        """Returns when it holds."""
        ((_, code, message),) = self.alter((names, values))
        assert code == 0, message
        return self.settle()

    def settle(self) -> int:
        """Returns when all that was set before is told, and holds. Kafka answers when its controller has
        written a change, its broker learns of it later, and its parts one after the other: all of them have,
        when the next change is told.
        """
        number = float(next(self._numbers))
        self.alter(([("client-id", "nobody")], [("producer_byte_rate", number)]))
        wanted = [([("client-id", "nobody")], [("producer_byte_rate", number)])]
        wait_for(lambda: self.described(("client-id", 0, "nobody"))[2] == wanted, "what was set")
        return 0

    def described(self, *wanted: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
        asked = DescribeClientQuotasRequest.ComponentData
        components = [asked(entity_type=kind, match_type=how, match=name) for kind, how, name in wanted]
        answer = self.raw.ask(DescribeClientQuotasRequest(components=components, strict=strict), version)
        entries = answer.entries
        return (
            answer.error_code,
            answer.error_message,
            entries and sorted(
                (
                    sorted((part.entity_type, str(part.entity_name)) for part in one.entity),
                    sorted((value.key, value.value) for value in one.values),
                )
                for one in entries
            ),
        )  # fmt: skip

    # what is done under a quota

    def produce(self, client_id: str | None, size_bytes: int, *, acks: int = -1, version: int = 9) -> Any:
        """(error, wait) of a batch that is about so large."""
        now_ms = time.time_ns() // 1_000_000
        data = ProduceRequest.TopicProduceData
        records = memoryview(encode_batch([(now_ms, None, bytes(size_bytes), ())]))
        partition = data.PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            acks=acks, timeout_ms=30_000, topic_data=[data(name=TOPIC, partition_data=[partition])]
        )
        answer = self.ask(client_id, request, version)
        return answer.responses[0].partition_responses[0].error_code, Wait(answer.throttle_time_ms)

    def fetch(self, client_id: str | None, offset: int, *, max_bytes: int = 1 << 26, epoch: int = -1) -> Any:
        """(error, wait, whether there is a session, bytes of each partition's records)."""
        asked = FetchRequest.FetchTopic
        partition = asked.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            session_epoch=epoch,
            topics=[asked(topic=TOPIC, partitions=[partition])],
        )
        answer = self.ask(client_id, request, 12)
        sizes = [len(one.records or b"") for topic in answer.responses for one in topic.partitions]
        return answer.error_code, Wait(answer.throttle_time_ms), answer.session_id > 0, sizes

    def metadata(self, client_id: str | None, *topics: str, is_made: bool = False) -> Any:
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=is_made)
        answer = self.ask(client_id, request, 12)
        return Wait(answer.throttle_time_ms), [one.error_code for one in answer.topics]

    def connect(self, count: int) -> list[bool]:
        """Whether somebody who connects is answered, or closed, so many times."""
        answered = []
        for _ in range(count):
            try:
                self.ask("connects", MetadataRequest(topics=[]), 12)
                answered.append(True)
            except (AssertionError, ConnectionError):
                answered.append(False)
        return answered

    def held_up(self, count: int, *, at_once: bool = False) -> list[int]:
        """How many windows of five seconds each of so many has to wait that connect and ask; one behind the
        other, or all at the same time, and then in order.
        """

        def windows(_: int) -> int:
            began = time.monotonic()
            self.ask("connects", MetadataRequest(topics=[]), 12)
            return round((time.monotonic() - began) / WINDOW_SECONDS)

        if not at_once:
            return [windows(number) for number in range(count)]
        with ThreadPoolExecutor(count) as pool:
            return sorted(pool.map(windows, range(count)))

    def come(self, address: str, count: int) -> list[bool]:
        """Who of so many may stay that connect from an address of this machine and ask; all go at the end."""
        with contextlib.ExitStack() as stay:
            return [self._may_stay(stay, address) for _ in range(count)]

    def _may_stay(self, stay: contextlib.ExitStack, address: str) -> bool:
        try:
            client = stay.enter_context(contextlib.closing(Raw(self._port, source=address)))
            client.ask(MetadataRequest(topics=[]), 12)
        except (AssertionError, ConnectionError):
            return False
        return True

    def set_broker(self, name: str, **settings: str | None) -> Any:
        """(error, what is told then of the keys) of settings of the broker, or of all of them."""
        asked = IncrementalAlterConfigsRequest.AlterConfigsResource
        wanted = {key.replace("_", "."): value for key, value in settings.items()}
        configs = [
            asked.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
            for key, value in wanted.items()
        ]
        resource = asked(resource_type=BROKER, resource_name=name, configs=configs)
        (done,) = self.raw.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        if done.error_code == 0:  # Apache Kafka follows a moment later
            wait_for(lambda: self._is_set(name, wanted), f"{wanted} of broker {name!r}")
        return done.error_code, self._told("1"), self._told("")

    def _is_set(self, name: str, wanted: Mapping[str, str | None]) -> bool:
        source = 2 if name else 3
        told = {one.name: {each.source: each.value for each in one.synonyms if each.name == one.name}
                for one in self._entries(name)}  # fmt: skip
        return all(told.get(key, {}).get(source) == value for key, value in wanted.items())

    def _entries(self, name: str) -> list[Any]:
        asked = DescribeConfigsRequest.DescribeConfigsResource
        resource = asked(resource_type=BROKER, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (found,) = self.raw.ask(request, 4).results
        assert found.error_code == 0, found
        return list(found.configs)

    def _told(self, name: str) -> Any:
        return sorted(
            (one.name, one.value, one.read_only, one.config_source, one.is_sensitive, one.config_type,
             [(each.name, each.value, each.source) for each in one.synonyms])
            for one in self._entries(name)
            if one.name.endswith(self._watched)
        )  # fmt: skip

    # what is changed of topics

    def create(
        self, client_id: str, topics: Mapping[str, int], *, version: int = 7, validate_only: bool = False
    ) -> Any:
        asked = CreateTopicsRequest.CreatableTopic
        creatable = [
            asked(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()
        ]
        request = CreateTopicsRequest(topics=creatable, validate_only=validate_only, timeout_ms=30_000)
        answer = self.ask(client_id, request, version)
        told = sorted((one.name, one.error_code, one.error_message) for one in answer.topics)
        return Wait(answer.throttle_time_ms), told

    def grow(self, client_id: str, topic: str, count: int, version: int = 3) -> Any:
        asked = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            topics=[asked(name=topic, count=count, assignments=None)], timeout_ms=30_000
        )
        answer = self.ask(client_id, request, version)
        told = [(one.name, one.error_code, one.error_message) for one in answer.results]
        return Wait(answer.throttle_time_ms), told

    def delete(self, client_id: str, topic: str, version: int = 6) -> Any:
        asked = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(
            topics=[asked(name=topic)] if version >= 6 else [],
            topic_names=[] if version >= 6 else [topic],
            timeout_ms=30_000,
        )
        answer = self.ask(client_id, request, version)
        told = [(one.name, one.error_code) for one in answer.responses]
        return Wait(answer.throttle_time_ms), told
