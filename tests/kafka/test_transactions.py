"""Goal: transactions go as in Apache Kafka: the same errors, epochs, states and offsets, in every version of
the requests, and the same batches and markers in the logs.

Method: the same steps, each a request of a transactional client (or of none that there is), are taken on
both; what each was told is compared, producer ids by who they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from protocol.messages.group_offsets import OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from protocol.records import encode_batch
from tests.kafka.broker import KafkaBroker
from tests.kafka.compare import batches
from tests.kafka.raw import Raw
from tests.process import BrokerProcess
from tests.waiting import wait_for

Start = Callable[..., KafkaBroker]
NOW_MS = 1_700_000_000_000
NOT_YET = {14, 15, 16, 51}
"""loading, no coordinator yet, ending: what a client tries again"""
TOPICS = {"a": 2, "b": 1}
SETTINGS = {"auto.create.topics.enable": "false", "log.retention.ms": "-1"}
"""the records are years old: half a minute after its start a broker would delete them"""


class Player:
    """One of the two brokers, and the producers that write to it, by their names."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.producers: dict[str, tuple[int, int]] = {"nobody": (987_654, 0)}
        self.sequences: dict[tuple[str, str, int], int] = {}
        self._names: dict[int, str] = {-1: "none"}

    def name_of(self, producer_id: int) -> str:
        """Of an id that was given, in the order in which they were."""
        return self._names.setdefault(producer_id, f"id {len(self._names)}")

    def ask(self, request: Any, version: int, codes: Callable[[Any], list[int]]) -> Any:
        """The answer, once the broker has one."""
        answers: list[Any] = []

        def is_ready() -> bool:
            answers.append(self.raw.ask(request, version))
            return not NOT_YET & set(codes(answers[-1]))

        wait_for(is_ready, f"an answer to {request}")
        return answers[-1]

    def who(self, name: str, transactional_id: str) -> dict[str, Any]:
        producer_id, epoch = self.producers[name]
        return {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}

    def init(
        self,
        name: str,
        transactional_id: str = "tx",
        timeout_ms: int = 60_000,
        goes_on: str = "",
        version: int = 4,
    ) -> Any:
        producer_id, epoch = self.producers[goes_on] if goes_on else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, producer_id=producer_id,
            producer_epoch=epoch,
        )  # fmt: skip
        answer = self.ask(request, version, lambda one: [one.error_code])
        if not answer.error_code:
            self.producers[name] = (answer.producer_id, answer.producer_epoch)
        return answer.error_code, self.name_of(answer.producer_id), answer.producer_epoch

    def add(self, name: str, *places: tuple[str, int], transactional_id: str = "tx", version: int = 3) -> Any:
        request = AddPartitionsToTxnRequest(
            v3_and_below_topics=topics_of(places),
            **{f"v3_and_below_{name}": value for name, value in self.who(name, transactional_id).items()},
        )

        def rows(answer: Any) -> list[int]:
            return codes_of(answer.results_by_topic_v3_and_below)

        return rows(self.ask(request, version, rows))

    def add_as_broker(
        self, name: str, *ids: str, places: Iterable[tuple[str, int]] = (("a", 0),), is_verify: bool = False,
        version: int = 5,
    ) -> Any:  # fmt: skip
        """The same for each of the transactional ids."""
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
        request = AddPartitionsToTxnRequest(
            transactions=[
                transaction(topics=topics_of(places), verify_only=is_verify, **self.who(name, one))
                for one in ids
            ]
        )

        def rows(answer: Any) -> list[tuple[str, list[int]]]:
            return sorted(
                (row.transactional_id, codes_of(row.topic_results)) for row in answer.results_by_transaction
            )

        def codes(answer: Any) -> list[int]:
            return [code for _, codes in rows(answer) for code in codes]

        answer = self.ask(request, version, codes)
        return answer.error_code, rows(answer)

    def write(
        self, name: str, topic: str = "a", index: int = 0, *, transactional_id: str | None = "tx",
        is_transactional: bool = True, version: int = 9,
    ) -> Any:  # fmt: skip
        producer_id, epoch = self.producers[name]
        sequence = self.sequences.get((name, topic, index), 0)
        batch = encode_batch(
            [(NOW_MS, b"k", name.encode(), ())], producer_id=producer_id, producer_epoch=epoch,
            base_sequence=sequence, is_transactional=is_transactional,
        )  # fmt: skip
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=index, records=memoryview(batch))
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, transactional_id=transactional_id,
            topic_data=[data(name=topic, partition_data=[part])],
        )  # fmt: skip

        def codes(one: Any) -> list[int]:
            return [one.responses[0].partition_responses[0].error_code]

        answer = self.ask(request, version, codes).responses[0].partition_responses[0]
        if not answer.error_code:
            self.sequences[name, topic, index] = sequence + 1
        return answer.error_code, answer.base_offset

    def end(self, name: str, is_commit: bool, transactional_id: str = "tx", version: int = 3) -> Any:
        request = EndTxnRequest(committed=is_commit, **self.who(name, transactional_id))
        return self.ask(request, version, lambda one: [one.error_code]).error_code

    def add_offsets(
        self, name: str, group_id: str = "g", transactional_id: str = "tx", version: int = 3
    ) -> Any:
        request = AddOffsetsToTxnRequest(group_id=group_id, **self.who(name, transactional_id))
        return self.ask(request, version, lambda one: [one.error_code]).error_code

    def commit_offsets(
        self, name: str, *places: tuple[str, int, int], transactional_id: str = "tx", group_id: str = "g",
        version: int = 3, **member: Any,
    ) -> Any:  # fmt: skip
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition
        request = TxnOffsetCommitRequest(
            group_id=group_id,
            topics=[
                topic(name=place, partitions=[partition(partition_index=index, committed_offset=offset)])
                for place, index, offset in places
            ],
            **self.who(name, transactional_id),
            **member,
        )

        def codes(answer: Any) -> list[int]:
            return [one.error_code for found in answer.topics for one in found.partitions]

        return sorted(  # Kafka answers first what it refuses
            (found.name, one.partition_index, one.error_code)
            for found in self.ask(request, version, codes).topics
            for one in found.partitions
        )

    def offsets(self, stable: bool = False, version: int = 8) -> Any:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        asked = [group.OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1])]
        request = OffsetFetchRequest(groups=[group(group_id="g", topics=asked)], require_stable=stable)
        answer = self.ask(request, version, lambda one: [one.groups[0].error_code])
        return [(one.committed_offset, one.error_code) for one in answer.groups[0].topics[0].partitions]

    def settled_offsets(self) -> Any:
        """When no transaction holds them any more: Kafka answers a commit before its markers are written."""
        wait_for(lambda: 88 not in [code for _, code in self.offsets(stable=True)], "stable offsets")
        return self.offsets()

    def described(self, *ids: str) -> Any:
        """Once nothing is ending."""
        request = DescribeTransactionsRequest(transactional_ids=list(ids))
        answers: list[Any] = []

        def is_settled() -> bool:
            answers.append(self.raw.ask(request, 0).transaction_states)
            return not any(row.transaction_state.startswith("Prepare") for row in answers[-1])

        wait_for(is_settled, "the ends of transactions")
        return [
            (
                row.error_code, row.transactional_id, row.transaction_state, row.transaction_timeout_ms,
                row.transaction_start_time_ms > 0, self.name_of(row.producer_id) if not row.error_code else
                "", row.producer_epoch, sorted((one.topic, sorted(one.partitions)) for one in row.topics),
            )
            for row in sorted(answers[-1], key=lambda one: one.transactional_id)
        ]  # fmt: skip

    def listed(self, **filters: Any) -> Any:
        answer = self.raw.ask(ListTransactionsRequest(**filters), 2)
        rows = [
            (row.transactional_id, self.name_of(row.producer_id), row.transaction_state)
            for row in answer.transaction_states
        ]
        return answer.error_code, sorted(answer.unknown_state_filters), sorted(rows)

    def log(self, topic: str, index: int = 0) -> Any:
        """The batches, producers by their names, times of markers left out; and what a reader is told to
        leave out.
        """
        self.described("tx")
        part = self.raw.fetch(topic, 0, partition=index, isolation=1)
        found = [
            one._replace(
                producer_id=self.name_of(one.producer_id),  # type: ignore[arg-type]
                checksum="", base_timestamp=0, max_timestamp=0,
                records=tuple((record.key, record.value) for record in one.records)  # type: ignore[arg-type]
                if not one.attributes & 0x20
                else (),
            )
            for one in batches(bytes(part.records or b""))
        ]  # fmt: skip
        aborted = [
            (self.name_of(one.producer_id), one.first_offset) for one in part.aborted_transactions or ()
        ]
        return part.error_code, found, sorted(aborted), part.last_stable_offset, part.high_watermark


def topics_of(places: Iterable[tuple[str, int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in places]


def codes_of(results: Iterable[AddPartitionsToTxnTopicResult]) -> list[int]:
    return sorted(one.partition_error_code for result in results for one in result.results_by_partition)


Step = tuple[str, Callable[[Player], Any]]
P = TypeVar("P", bound=Player)


def steps() -> Iterator[Step]:
    """In an order that must be kept."""
    yield from beginnings()
    yield from ends()
    yield from fences()
    yield from refusals()
    yield from successions()
    yield from brokers()
    yield from offsets()
    yield from looks()


def beginnings() -> Iterator[Step]:
    for version in range(6):
        yield f"init {version}", lambda it, v=version: it.init("one", version=v)
    for timeout_ms in (0, -1, 900_001, 900_000):
        yield f"init with {timeout_ms} ms", lambda it, ms=timeout_ms: it.init("one", timeout_ms=ms)
    yield "init without a name", lambda it: it.init("x", "")
    yield "goes on", lambda it: it.init("next", goes_on="one")
    yield "goes on, sent again", lambda it: it.init("next", goes_on="one")
    yield "goes on as nobody", lambda it: it.init("x", goes_on="nobody")
    yield "goes on, of a new id", lambda it: it.init("other", "other", goes_on="nobody")
    yield "the first again", lambda it: it.init("one", goes_on="next")


def ends() -> Iterator[Step]:
    for version in (7, 10, 11):
        yield f"write unasked {version}", lambda it, v=version: it.write("one", version=v)
    for version in range(4):
        yield f"add {version}", lambda it, v=version: it.add("one", ("a", 0), version=v)
        yield f"write {version}", lambda it: it.write("one")
        yield f"commit {version}", lambda it, v=version: it.end("one", True, version=v)
        yield f"commit {version} again", lambda it, v=version: it.end("one", True, version=v)
        yield f"abort {version} behind it", lambda it, v=version: it.end("one", False, version=v)
        yield f"settle {version}", lambda it: it.described("tx")
    for version in (7, 10, 11):
        yield f"write behind it {version}", lambda it, v=version: it.write("one", version=v)
    yield "add two", lambda it: it.add("one", ("a", 0), ("a", 1), ("b", 0))
    yield "write one of them", lambda it: it.write("one", "a", 1)
    yield "abort", lambda it: it.end("one", False)
    yield "abort again", lambda it: it.end("one", False)
    yield "commit behind it", lambda it: it.end("one", True)
    yield "settle", lambda it: it.described("tx")


def fences() -> Iterator[Step]:
    yield "add", lambda it: it.add("one", ("a", 0))
    yield "write", lambda it: it.write("one")
    yield "a second one", lambda it: it.init("two")
    for version in range(4):
        yield f"zombie adds {version}", lambda it, v=version: it.add("one", ("a", 0), version=v)
        yield f"zombie adds offsets {version}", lambda it, v=version: it.add_offsets("one", version=v)
        yield f"zombie commits {version}", lambda it, v=version: it.end("one", True, version=v)
        yield (
            f"zombie commits offsets {version}",
            lambda it, v=version: it.commit_offsets("one", ("a", 0, 1), version=v),
        )
    for version in (3, 4):
        yield f"zombie goes on {version}", lambda it, v=version: it.init("x", goes_on="one", version=v)
    for version in (7, 11):
        yield f"zombie writes {version}", lambda it, v=version: it.write("one", version=v)
    yield "the second adds", lambda it: it.add("two", ("a", 0))
    yield "the second writes", lambda it: it.write("two")
    yield "zombie writes into it", lambda it: it.write("one")
    yield "the second commits", lambda it: it.end("two", True)
    yield "settle", lambda it: it.described("tx")


def refusals() -> Iterator[Step]:
    yield "unknown partitions", lambda it: it.add("two", ("a", 0), ("a", 9), ("none", 0))
    yield "nothing to commit", lambda it: it.end("two", True, transactional_id="other")
    yield "another id's producer", lambda it: it.add("two", ("a", 0), transactional_id="other")
    yield "an id of nobody", lambda it: it.add("two", ("a", 0), transactional_id="never")
    yield "end of nobody", lambda it: it.end("two", True, transactional_id="never")
    yield "offsets of nobody", lambda it: it.add_offsets("two", transactional_id="never")
    yield "no name adds", lambda it: it.add("two", ("a", 0), transactional_id="")
    yield "no name ends", lambda it: it.end("two", True, transactional_id="")
    yield "no name adds offsets", lambda it: it.add_offsets("two", transactional_id="")
    yield "a producer of nobody", lambda it: it.add("nobody", ("a", 0))
    yield "writes of nobody", lambda it: it.write("nobody")
    yield "writes under another id", lambda it: it.write("two", transactional_id="other")
    yield "writes under no id", lambda it: it.write("two", transactional_id=None)
    yield "begins", lambda it: it.add("two", ("a", 0))
    yield "writes into it", lambda it: it.write("two")
    yield "writes plainly into it", lambda it: it.write("two", is_transactional=False)
    yield "ends it", lambda it: it.end("two", False)
    yield "settle", lambda it: it.described("tx")
    yield "writes plainly", lambda it: it.write("two", is_transactional=False)


def successions() -> Iterator[Step]:
    """Who may go on in the midst of a transaction (KIP-360), and whom that leaves alone."""
    yield "lives", lambda it: it.init("live", "goes")
    yield "lives and adds", lambda it: it.add("live", ("a", 0), transactional_id="goes")
    yield "lives and writes", lambda it: it.write("live", transactional_id="goes")
    yield "a stranger goes on", lambda it: it.init("x", "goes", goes_on="nobody")
    yield "lives and writes on", lambda it: it.write("live", transactional_id="goes")
    yield "lives and commits", lambda it: it.end("live", True, transactional_id="goes")
    yield "after a stranger", lambda it: it.described("goes")
    yield "adds before it goes on", lambda it: it.add("live", ("a", 0), transactional_id="goes")
    yield "writes before it goes on", lambda it: it.write("live", transactional_id="goes")
    yield "goes on in the midst", lambda it: it.init("on", "goes", goes_on="live")
    yield "went on", lambda it: it.described("goes")
    yield "goes on in the midst, sent again", lambda it: it.init("on", "goes", goes_on="live")
    yield "the former one commits", lambda it: it.end("live", True, transactional_id="goes")
    yield "goes on and adds", lambda it: it.add("on", ("a", 0), transactional_id="goes")
    yield "goes on and writes", lambda it: it.write("on", transactional_id="goes")
    yield "goes on and commits", lambda it: it.end("on", True, transactional_id="goes")
    yield "settle after it went on", lambda it: it.described("goes")
    yield "adds before another begins", lambda it: it.add("on", ("a", 0), transactional_id="goes")
    yield "another begins", lambda it: it.init("another", "goes")
    yield "goes on behind another", lambda it: it.init("x", "goes", goes_on="on")
    yield "settle at last", lambda it: it.described("goes")


def brokers() -> Iterator[Step]:
    """What one broker of a Kafka asks another."""
    for version in (4, 5):
        yield (
            f"verify before {version}",
            lambda it, v=version: it.add_as_broker("two", "tx", is_verify=True, version=v),
        )
        yield f"add as broker {version}", lambda it, v=version: it.add_as_broker("two", "tx", version=v)
        yield f"add as broker again {version}", lambda it, v=version: it.add_as_broker("two", "tx", version=v)
        yield (
            f"verify {version}",
            lambda it, v=version: it.add_as_broker(
                "two", "tx", places=[("a", 0), ("a", 1)], is_verify=True, version=v
            ),
        )
        yield (
            f"of several {version}",
            lambda it, v=version: it.add_as_broker(
                "two", "tx", "other", "never", "", is_verify=True, version=v
            ),
        )
        yield (
            f"add of several {version}",
            lambda it, v=version: it.add_as_broker(
                "two", "tx", "other", "never", "", places=[("a", 1)], version=v
            ),
        )
        yield (
            f"of what is not there {version}",
            lambda it, v=version: it.add_as_broker(
                "two", "tx", "never", places=[("a", 0), ("a", 9), ("none", 0)], version=v
            ),
        )
        yield (
            f"zombie verifies {version}",
            lambda it, v=version: it.add_as_broker("one", "tx", is_verify=True, version=v),
        )
        yield (
            f"zombie adds as broker {version}",
            lambda it, v=version: it.add_as_broker("one", "tx", version=v),
        )
        yield f"nothing {version}", lambda it, v=version: it.add_as_broker("two", "tx", places=[], version=v)
        yield f"writes as added {version}", lambda it: it.write("two")
        yield f"commits as added {version}", lambda it: it.end("two", True)
        yield f"settle as added {version}", lambda it: it.described("tx")


def offsets() -> Iterator[Step]:
    for version in (0, 2, 3, 4):
        yield (
            f"offsets unasked {version}",
            lambda it, v=version: it.commit_offsets("two", ("a", 0, 3), version=v),
        )
    for number, version in enumerate(range(5)):
        place = ("a", 0, 10 + number)
        yield f"adds offsets {version}", lambda it, v=version: it.add_offsets("two", version=v)
        yield f"offsets {version}", lambda it, v=version, at=place: it.commit_offsets("two", at, version=v)
        yield f"reads {version}", lambda it: it.offsets()
        yield f"waits {version}", lambda it: it.offsets(stable=True)
        yield f"ends {version}", lambda it, n=number: it.end("two", n % 2 == 0)
        yield f"reads what is decided {version}", lambda it: it.settled_offsets()
    yield "adds offsets", lambda it: it.add_offsets("two")
    yield (
        "of what is not there",
        lambda it: it.commit_offsets("two", ("a", 1, 7), ("none", 0, 1), ("a", 9, 1)),
    )
    yield "of another group", lambda it: it.commit_offsets("two", ("a", 1, 7), group_id="not-added-group-7")
    yield "of a generation", lambda it: it.commit_offsets("two", ("a", 1, 7), generation_id=5, member_id="m")
    yield "of no name", lambda it: it.commit_offsets("two", ("a", 1, 7), transactional_id="")
    yield "commits", lambda it: it.end("two", True)
    yield "reads", lambda it: it.settled_offsets()


def looks() -> Iterator[Step]:
    yield "lists old ones, which those are that never began", lambda it: it.listed(duration_filter=600_000)
    yield "goes on", lambda it: it.add("other", ("a", 1), ("b", 0), transactional_id="other")
    yield "describes", lambda it: it.described("tx", "other", "never", "")
    yield "lists", lambda it: it.listed()
    yield "lists some", lambda it: it.listed(state_filters=["Ongoing", "nonsense"])
    yield "lists old ones", lambda it: it.listed(duration_filter=600_000)
    yield "lists nobody's", lambda it: it.listed(producer_id_filters=[987_654])
    for pattern in ("t.", "t", "x|.*", "TX", "(?i)TX", "["):
        yield f"lists like {pattern}", lambda it, like=pattern: it.listed(transactional_id_pattern=like)
    yield "commits", lambda it: it.end("other", True, transactional_id="other")
    yield "settles", lambda it: it.described("other")
    for topic, count in TOPICS.items():
        for index in range(count):
            yield f"the log of {topic}-{index}", lambda it, at=(topic, index): it.log(*at)


EXPLAINED = {"of no name": "Kafka does not look whether a group takes part then; no client asks so"}
"""where the two part, and why that is right"""


def play(
    start_kafka: Start,
    directory: Path,
    player: Callable[[Raw], P],
    steps: Iterable[tuple[str, Callable[[P], Any]]],
    explained: Collection[str] = (),
) -> None:
    """Take the steps on both brokers: they part in those that are `explained`, and there alone."""
    own = BrokerProcess(directory / "data", {"node.id": "1", **SETTINGS}).start()
    kafka = start_kafka(SETTINGS)
    players = [player(Raw(broker.port)) for broker in (kafka, own)]
    for one in players:
        for topic, count in TOPICS.items():
            one.raw.create(topic, {}, partitions=count)
        for kind, name in ((0, "g"), (1, "tx")):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
            one.ask(request, 4, lambda answer: [answer.coordinators[0].error_code])
    parted = []
    for name, take in steps:
        expected, found = (take(one) for one in players)
        if (expected == found) == (name in explained):
            parted.append(f"{name}\n  Kafka   {expected}\n  kompakt {found}")
    for one in players:
        one.raw.close()
    own.stop()
    log = own.log()
    own.close()
    assert "Traceback" not in log, log
    assert not parted, "\n".join(parted)


@pytest.mark.java
def test_transactions_go_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, Player, steps(), EXPLAINED)
