"""Goal: clients that ask for the consumer protocol (KIP-848) share the work, hand it over, and get on with
members of the classic protocol (T201, T202).

Method: unmodified clients, one thread for each consumer; members come, go, restart and change their protocol
while records flow. What was processed is compared with what was produced, offset by offset.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType

from tests.clients.adaptors import CLIENTS, Client, Sent
from tests.clients.members import COUNT, PARTITIONS, Member, everything, processed, records, shared_out
from tests.kafka.fixtures import kafka_tools
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

__all__ = ["kafka_tools"]

NEW = {"group_protocol": "consumer"}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_t201_members_share_partitions_and_hand_them_over(
    broker: BrokerProcess, confluent: Client, topic: str, assignor: str
) -> None:
    """Nothing is lost or done twice while a member joins and another leaves; nothing moves in vain."""
    confluent.create_topic(topic, PARTITIONS)
    options = {**NEW, "group_remote_assignor": assignor}
    first = Member(broker, topic, topic, **options)
    wait_for(lambda: shared_out([first]), "the first member's assignment")
    confluent.produce(topic, records(COUNT))
    second = Member(broker, topic, topic, **options)
    wait_for(lambda: shared_out([first, second]), "partitions for both members")
    assert set(first.revoked) == second.assigned
    confluent.produce(topic, records(COUNT))
    wait_for(lambda: sum(processed(first, second).values()) >= 2 * COUNT, "all records")
    first.leave()
    wait_for(lambda: shared_out([second]), "everything for the one that stays")
    confluent.produce(topic, records(COUNT))
    wait_for(lambda: sum(processed(first, second).values()) >= 3 * COUNT, "the last records")
    second.leave()
    assert processed(first, second) == Counter(everything(3 * COUNT))


@pytest.mark.parametrize("is_killed", [False, True])
def test_t201_members_live_through_a_restart_and_keep_their_partitions(
    own_broker: Callable[..., BrokerProcess], topic: str, is_killed: bool
) -> None:
    broker = own_broker()
    client = CLIENTS["confluent-kafka"](broker.bootstrap)
    client.create_topic(topic, PARTITIONS)
    first, second = (Member(broker, topic, topic, **NEW) for _ in range(2))
    wait_for(lambda: shared_out([first, second]), "partitions for both members")
    revoked = first.revoked + second.revoked
    if is_killed:
        broker.kill()
    else:
        assert broker.stop() == 0
    broker.start()
    client.produce(topic, records(COUNT))
    wait_for(lambda: sum(processed(first, second).values()) >= COUNT, "all records")
    assert first.revoked + second.revoked == revoked
    first.leave()
    second.leave()
    assert processed(first, second) == Counter(everything(COUNT))


def test_t201_a_static_member_restarts_and_has_what_it_had(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    confluent.create_topic(topic, PARTITIONS)
    first = Member(broker, topic, topic, group_instance_id="a", **NEW)
    second = Member(broker, topic, topic, group_instance_id="b", **NEW)
    wait_for(lambda: shared_out([first, second]), "partitions for both members")
    theirs, revoked = set(second.assigned), list(first.revoked)
    second.leave()
    again = Member(broker, topic, topic, group_instance_id="b", **NEW)
    wait_for(lambda: again.assigned, "the assignment of the member that came back")
    assert again.assigned == theirs
    assert first.revoked == revoked
    first.leave()
    again.leave()


def test_t201_a_member_that_dies_is_replaced_after_its_session(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    """A static member says that it will be back when it closes; this one does not come."""
    settings = {
        "group_consumer_min_session_timeout_ms": "3000",
        "group_consumer_session_timeout_ms": "3000",
        "group_consumer_min_heartbeat_interval_ms": "500",
        "group_consumer_heartbeat_interval_ms": "500",
    }
    broker = own_broker(**settings)
    CLIENTS["confluent-kafka"](broker.bootstrap).create_topic(topic, PARTITIONS)
    dying = Member(broker, topic, topic, group_instance_id="dies", **NEW)
    survivor = Member(broker, topic, topic, **NEW)
    wait_for(lambda: shared_out([dying, survivor]), "partitions for both members")
    dying.leave()
    wait_for(lambda: shared_out([survivor]), "the dead member's partitions")
    survivor.leave()


def test_t201_a_regular_expression_finds_topics_that_come_later(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    found: Counter[str] = Counter()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "group.protocol": "consumer"})

    def is_read(name: str, count: int) -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found[str(message.topic())] += 1
        return found[name] == count

    consumer.subscribe([f"^{re.escape(topic)}[.].*"])
    for name, count in ((f"{topic}.one", 3), (f"{topic}.two", 4)):
        confluent.create_topic(name)
        confluent.produce(name, [Sent(b"k", b"v", 0)] * count)
        wait_for(lambda name=name, count=count: is_read(name, count), f"{count} records of {name}")
    consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_t202_a_group_is_rolled_over_to_the_new_protocol_and_back(
    broker: BrokerProcess, confluent: Client, topic: str, strategy: str
) -> None:
    """Member by member, as one deploys: the group goes on, nothing is lost or done twice."""
    confluent.create_topic(topic, PARTITIONS)
    old = {"partition_assignment_strategy": strategy}
    members = [Member(broker, topic, topic, **old) for _ in range(2)]
    wait_for(lambda: shared_out(members), "partitions for both classic members")
    produced = 0
    alive = list(members)
    for options in (NEW, NEW, old, old):
        member = Member(broker, topic, topic, **options)
        members.append(member)
        alive.append(member)
        wait_for(lambda: shared_out(alive), f"partitions for one more with {options}")
        alive.pop(0).leave()
        wait_for(lambda: shared_out(alive), "partitions for those who stay")
        confluent.produce(topic, records(COUNT))
        produced += COUNT
        wait_for(lambda count=produced: sum(processed(*members).values()) >= count, "all records")
    for member in alive:
        member.leave()
    assert processed(*members) == Counter(everything(produced))


def test_t201_an_admin_lists_describes_and_deletes_a_group(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    confluent.create_topic(topic, PARTITIONS)
    member = Member(broker, topic, topic, **NEW)
    wait_for(lambda: shared_out([member]), "the assignment")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    consumer = {ConsumerGroupType.CONSUMER}
    listed = {one.group_id: one for one in admin.list_consumer_groups(types=consumer).result().valid}
    assert (listed[topic].state, listed[topic].type) == (
        ConsumerGroupState.STABLE,
        ConsumerGroupType.CONSUMER,
    )
    classic = admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result().valid
    assert topic not in {one.group_id for one in classic}
    described = admin.describe_consumer_groups([topic])[topic].result()
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    (found,) = described.members
    assert {place.partition for place in found.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([topic])[topic].result()
    member.leave()
    admin.delete_consumer_groups([topic])[topic].result()
    groups = admin.list_consumer_groups().result().valid
    assert topic not in {one.group_id for one in groups}


@pytest.mark.java
def test_t201_kafkas_own_consumer_and_its_tool(
    kafka_tools: Tools,
    broker: BrokerProcess,
    confluent: Client,
    topic: str,
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    confluent.create_topic(topic, 2)
    confluent.produce(topic, [Sent(b"k", b"%d" % number, number % 2) for number in range(100)])
    new = ("--command-property", "group.protocol=consumer")
    reading = ("--topic", topic, "--from-beginning", "--max-messages", 100, "--group", topic, *new)
    printed = kafka_tools.run("kafka-console-consumer", *at, *reading)
    assert sorted(map(int, printed.split())) == list(range(100))
    member = Member(broker, topic, topic, **NEW)
    wait_for(lambda: member.assigned == {0, 1}, "the assignment")
    asked = ("--describe", "--group", topic)
    described = kafka_tools.run("kafka-consumer-groups", *at, *asked)
    assert re.search(rf"{topic}\s+{topic}\s+0\s+50\s+50\s+0\b", described)
    state = kafka_tools.run("kafka-consumer-groups", *at, *asked, "--state", "--verbose")
    assert re.search(rf"{topic}\s+\S+:{broker.port}\s+\(\d+\)\s+uniform\s+Stable\s+\d+\s+\d+\s+1\b", state), (
        state
    )
    members = kafka_tools.run("kafka-consumer-groups", *at, *asked, "--members", "--verbose")
    assert re.search(rf"{topic}\s+\S+\s+/127.0.0.1\s+rdkafka\s+2\s+.*{topic}:0,1", members), members
    listed = kafka_tools.run("kafka-groups", *at, "--list", "--group-type", "consumer")
    assert re.search(rf"{topic}\s+Consumer\s+consumer", listed), listed
    member.leave()
    kafka_tools.run("kafka-consumer-groups", *at, "--delete", "--group", topic)
