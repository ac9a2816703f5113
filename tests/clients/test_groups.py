"""Goal: group consumers share the work, hand it over and take it up again where they left it (T185-T200).

Method: unmodified clients, one thread for each consumer; members come, go, restart and die while records
flow. What was processed is compared with what was produced, offset by offset.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import ConsumerGroupState, TopicPartition

from tests.clients.adaptors import CLIENTS, Client, Sent, committed_metadata
from tests.clients.members import COUNT, PARTITIONS, Member, everything, processed, records, shared_out
from tests.process import BrokerProcess
from tests.waiting import wait_for


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions_and_hand_them_over(
    broker: BrokerProcess, confluent: Client, topic: str, strategy: str
) -> None:
    """T187, T189: nothing is lost or done twice while a member joins and another leaves."""
    confluent.create_topic(topic, PARTITIONS)
    options = {"partition_assignment_strategy": strategy}
    first = Member(broker, topic, topic, **options)
    wait_for(lambda: shared_out([first]), "the first member's assignment")
    confluent.produce(topic, records(COUNT))
    second = Member(broker, topic, topic, **options)
    wait_for(lambda: shared_out([first, second]), "partitions for both members")
    confluent.produce(topic, records(COUNT))
    wait_for(lambda: sum(processed(first, second).values()) >= 2 * COUNT, "all records")
    first.leave()
    wait_for(lambda: shared_out([second]), "everything for the one that stays")
    confluent.produce(topic, records(COUNT))
    wait_for(lambda: sum(processed(first, second).values()) >= 3 * COUNT, "the last records")
    second.leave()
    assert processed(first, second) == Counter(everything(3 * COUNT))


def test_cooperative_members_keep_what_does_not_move(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    """KIP-429: when a second member comes, the first gives up only what the second gets."""
    confluent.create_topic(topic, PARTITIONS)
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    first = Member(broker, topic, topic, **options)
    wait_for(lambda: shared_out([first]), "the first member's assignment")
    second = Member(broker, topic, topic, **options)
    wait_for(lambda: shared_out([first, second]), "partitions for both members")
    assert len(first.revoked) == PARTITIONS // 2
    assert set(first.revoked) == second.assigned
    first.leave()
    second.leave()


def test_t188_a_static_member_restarts_without_a_rebalance(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    confluent.create_topic(topic, PARTITIONS)
    first = Member(broker, topic, topic, group_instance_id="a", session_timeout_ms=30_000)
    second = Member(broker, topic, topic, group_instance_id="b", session_timeout_ms=30_000)
    wait_for(lambda: shared_out([first, second]), "partitions for both members")
    theirs, assignments = set(second.assigned), first.assignments
    second.leave()
    again = Member(broker, topic, topic, group_instance_id="b", session_timeout_ms=30_000)
    wait_for(lambda: again.assigned, "the assignment of the member that came back")
    assert again.assigned == theirs
    assert first.assignments == assignments
    assert not first.revoked
    first.leave()
    again.leave()


def test_t189_a_member_that_dies_is_replaced_after_its_session(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    """A static member does not say good-bye when it closes: to the broker it is dead."""
    confluent.create_topic(topic, PARTITIONS)
    dying = Member(broker, topic, topic, group_instance_id="dies")
    survivor = Member(broker, topic, topic)
    wait_for(lambda: shared_out([dying, survivor]), "partitions for both members")
    dying.leave()
    wait_for(lambda: shared_out([survivor]), "the dead member's partitions")
    survivor.leave()


def test_t190_chained_groups_rebalance_at_once_without_loss(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    """Three groups, each reading what the one before wrote, while members come and go in all of them."""
    stages = [f"{topic}-{number}" for number in range(4)]
    for stage in stages:
        confluent.create_topic(stage, PARTITIONS)

    def joined(number: int) -> Member:
        return Member(broker, stages[number], f"group-{stages[number]}", forward=stages[number + 1])

    members = [[joined(number)] for number in range(3)]
    for round_number in range(3):
        confluent.produce(stages[0], records(COUNT))
        for number in range(3):
            members[number].append(joined(number))
        if round_number:
            for number in range(3):
                members[number][round_number - 1].leave()
    for number in range(3):
        wait_for(
            lambda n=number: sum(processed(*members[n]).values()) >= 3 * COUNT,  # type: ignore[misc]
            f"all records in stage {number}",
        )
    for stage_members in members:
        for member in stage_members[2:]:
            member.leave()
        assert set(processed(*stage_members).values()) == {1}
    ends = [confluent.offsets(stages[3], partition)[1] for partition in range(PARTITIONS)]
    assert sum(ends) == 3 * COUNT


def test_t200_a_group_goes_on_after_the_broker_was_killed(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker()
    client = CLIENTS["confluent-kafka"](broker.bootstrap)
    client.create_topic(topic, PARTITIONS)
    client.produce(topic, records(COUNT))
    assert len(client.read_as_group(topic, "resuming", COUNT)) == COUNT
    client.produce(topic, records(COUNT))
    broker.kill()
    broker.start()
    rest = client.read_as_group(topic, "resuming", COUNT)
    assert {(record.partition, record.offset) for record in rest} == everything(2 * COUNT) - everything(COUNT)


def test_t200_members_that_live_through_a_restart_keep_their_partitions(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker()
    client = CLIENTS["confluent-kafka"](broker.bootstrap)
    client.create_topic(topic, PARTITIONS)
    first, second = (Member(broker, topic, topic, session_timeout_ms=45_000) for _ in range(2))
    wait_for(lambda: shared_out([first, second]), "partitions for both members")
    assignments = first.assignments, second.assignments
    assert broker.stop() == 0
    broker.start()
    client.produce(topic, records(COUNT))
    wait_for(lambda: sum(processed(first, second).values()) >= COUNT, "all records")
    assert (first.assignments, second.assignments) == assignments
    first.leave()
    second.leave()


@pytest.mark.parametrize("name", list(CLIENTS))
def test_t191_t193_commits_round_trip_and_survive_between_clients(
    broker: BrokerProcess, topic: str, name: str
) -> None:
    """What one client commits every other client reads."""
    writer = CLIENTS[name](broker.bootstrap)
    writer.create_topic(topic, 2)
    writer.produce(topic, [Sent(b"k", b"v", 1)] * 3)
    assert writer.committed(topic, topic, 1) is None
    writer.commit(topic, topic, 1, 2, "some metadata")
    for reader in CLIENTS.values():
        assert reader(broker.bootstrap).committed(topic, topic, 1) == 2
    assert committed_metadata(broker.bootstrap, topic, topic, 1) == "some metadata"


def test_kafka_python_members_share_partitions(broker: BrokerProcess, confluent: Client, topic: str) -> None:
    """Each in a thread: a poll that gives up while its member joins would start the rebalance over."""
    confluent.create_topic(topic, PARTITIONS)
    confluent.produce(topic, records(COUNT))
    seen: Counter[tuple[int, int]] = Counter()
    owned: dict[int, int] = {}
    done = threading.Event()
    committed = threading.Barrier(2)

    def run(number: int) -> None:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )
        while not done.is_set():
            for place, batch in consumer.poll(timeout_ms=1000).items():
                seen.update((place.partition, record.offset) for record in batch)
            owned[number] = len(consumer.assignment())
        consumer.commit()
        # Who closes starts a rebalance, in which the other could no longer commit.
        committed.wait(60)
        consumer.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        half = PARTITIONS // 2
        wait_for(lambda: owned == {0: half, 1: half} and len(seen) == COUNT, "both members to work")
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    ends = [confluent.committed(topic, topic, partition) for partition in range(PARTITIONS)]
    assert ends == [COUNT // PARTITIONS] * PARTITIONS


def test_aiokafka_members_share_partitions(broker: BrokerProcess, confluent: Client, topic: str) -> None:
    confluent.create_topic(topic, PARTITIONS)
    confluent.produce(topic, records(COUNT))

    async def run() -> None:
        consumers = [
            AIOKafkaConsumer(
                topic,
                bootstrap_servers=broker.bootstrap,
                group_id=topic,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
            )
            for _ in range(2)
        ]
        seen: Counter[tuple[int, int]] = Counter()
        for consumer in consumers:
            await consumer.start()
        try:
            while len(seen) < COUNT or any(len(each.assignment()) != PARTITIONS // 2 for each in consumers):
                for consumer in consumers:
                    for place, batch in (await consumer.getmany(timeout_ms=100)).items():
                        seen.update((place.partition, record.offset) for record in batch)
            for consumer in consumers:
                await consumer.commit()
        finally:
            for consumer in consumers:
                await consumer.stop()

    asyncio.run(asyncio.wait_for(run(), 120))
    ends = [confluent.committed(topic, topic, partition) for partition in range(PARTITIONS)]
    assert ends == [COUNT // PARTITIONS] * PARTITIONS


def test_t197_an_admin_lists_describes_moves_and_deletes_a_group(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    confluent.create_topic(topic, PARTITIONS)
    confluent.produce(topic, records(COUNT))
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    member = Member(broker, topic, topic)
    wait_for(lambda: shared_out([member]) and len(member.processed) == COUNT, "the member's work")
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(30).valid}
    assert listed[topic].state == ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([topic])[topic].result(30)
    assert described.state == ConsumerGroupState.STABLE
    (only,) = described.members
    assert {place.partition for place in only.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(confluent_kafka.KafkaException) as refusal:
        admin.delete_consumer_groups([topic])[topic].result(30)
    assert refusal.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    member.leave()
    moved = confluent_kafka.ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([moved])[topic].result(30)
    asked = confluent_kafka.ConsumerGroupTopicPartitions(topic)
    found = admin.list_consumer_group_offsets([asked])[topic].result(30).topic_partitions
    assert {place.partition: place.offset for place in found}[0] == 7
    admin.delete_consumer_groups([topic])[topic].result(30)
    assert topic not in {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    assert confluent.committed(topic, topic, 1) is None


def test_t198_offsets_of_a_deleted_topic_are_gone(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    confluent.create_topic(topic)
    confluent.commit(topic, topic, 0, 5)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    confluent.create_topic(topic)
    assert confluent.committed(topic, topic, 0) is None


def test_t199_the_offsets_topic_stays_small_under_many_commits(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    """The cleaner keeps the last commit of each partition; nothing else of a rolled segment survives."""
    commits = 1200
    broker = own_broker(offsets_topic_num_partitions="1", offsets_topic_segment_bytes="16384")
    client = CLIENTS["confluent-kafka"](broker.bootstrap)
    client.create_topic(topic)

    async def commit_often() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=topic, enable_auto_commit=False
        )
        await consumer.start()
        place = AioTopicPartition(topic, 0)
        consumer.assign([place])
        for offset in range(commits):
            await consumer.commit({place: offset + 1})
        await consumer.stop()

    asyncio.run(asyncio.wait_for(commit_often(), 120))
    directory = broker.data / "__consumer_offsets-0"
    assert 100 * commits > 6 * 16384

    def size() -> int:
        return sum(file.stat().st_size for file in directory.glob("*.log"))

    wait_for(lambda: size() < 3 * 16384, "the cleaning of the offsets topic")
    assert client.committed(topic, topic, 0) == commits
    broker.kill()
    broker.start()
    assert client.committed(topic, topic, 0) == commits
