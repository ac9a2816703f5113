"""Goal: an application of Kafka Streams, which keeps its tables in compacted topics, runs on kompakt, by the
classic protocol and by that of streams groups (KIP-1071).

Method: Streams, unmodified, runs `Orders.java`; instances and the broker are killed in the middle, and the
changelogs compacted to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.kafka.fixtures import or_skip
from tests.process import BrokerProcess
from tests.streams.app import APPLICATION, LIMIT_SECONDS, StreamsApp, streams_tools
from tests.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.slow]
USERS = 10
EVERYBODY = [f"user{number}" for number in range(USERS)]
TABLES = ("names", "cities", "countries")
SETTINGS = {
    "classic": {
        "num.standby.replicas": "1",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
    },
    "streams": {"group.protocol": "streams"},
}
"""with a standby each; what members of streams groups have of these the broker says"""
Start = Callable[..., StreamsApp]


STREAMS_GROUPS = {
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.num.standby.replicas": "1",
}
"""as the settings of an application are under the classic protocol"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", STREAMS_GROUPS).start()
    yield process
    log = process.log()
    process.close()
    assert "Traceback" not in log, log


@pytest.fixture
def start(tmp_path: Path, broker: BrokerProcess) -> Iterator[Start]:
    tools = or_skip(streams_tools)
    started: list[StreamsApp] = []

    def begin(settings: dict[str, str] | None = None) -> StreamsApp:
        directory = tmp_path / f"app-{len(started)}"
        started.append(StreamsApp(tools, directory, broker.bootstrap, settings or {}))
        return started[-1]

    yield begin
    for app in started:
        app.close()


def make_topics(bootstrap: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 2, 1, config={"cleanup.policy": "compact"}) for name in TABLES]
    topics += [NewTopic(name, 2, 1) for name in ("orders", "named", "counts")]
    for made in admin.create_topics(topics).values():
        made.result(60)
    return admin


def fill_tables(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for number in range(USERS):
        producer.produce("names", b"Name%d" % number, key=b"user%d" % number)
        producer.produce("cities", b"city%d" % (number % 3), key=b"user%d" % number)
    for number in range(3):
        producer.produce("countries", b"country%d" % number, key=b"city%d" % number)
    assert producer.flush(60) == 0


def order(bootstrap: str, numbers: range) -> None:
    """Of each user the same number, if their count can be divided by that of the users."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce("orders", b"user%d %d" % (number % USERS, number))
    assert producer.flush(60) == 0


def expected_numbers(total: int) -> dict[str, str]:
    """The store `numbers` when that many orders were handled, each of them at least once."""
    return {f"user{user}": " ".join(map(str, range(user, total, USERS))) for user in range(USERS)}


def table_of_all(apps: list[StreamsApp], store: str) -> dict[str, str]:
    return {key: value for app in apps for key, value in app.table(store).items()}


def ends(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """The first and the next offset of each partition."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    found = [reader.get_watermark_offsets(TopicPartition(topic, number), timeout=60) for number in range(2)]
    reader.close()
    return found


def is_committed(bootstrap: str) -> bool:
    """Whether the application has said that it is done with all that there is: else it may come again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(APPLICATION)]).values()
    done = {
        (place.topic, place.partition): place.offset for place in answer.result(60).topic_partitions or ()
    }
    return all(
        done.get((topic, number), 0) == end
        for topic in ("orders", f"{APPLICATION}-by-user-repartition")
        for number, (_, end) in enumerate(ends(bootstrap, topic))
    )


def keys(bootstrap: str, topic: str) -> list[bytes]:
    """The keys of all records of a topic, in their order."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "keys",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found: list[bytes] = []
    left = 2
    while left:
        message = reader.poll(60)
        assert message is not None
        if message.error():
            left -= 1
        else:
            found.append(message.key())
    reader.close()
    return found


def own_settings(admin: AdminClient) -> dict[str, dict[str, str]]:
    """What is set for each topic that Streams has made; the name without the application's before it."""
    prefix = f"{APPLICATION}-"
    names = [name for name in admin.list_topics(timeout=60).topics if name.startswith(prefix)]
    asked = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name) for name in names])
    answers = {resource.name: answer.result(60).values() for resource, answer in asked.items()}
    return {
        name.removeprefix(prefix): {entry.name: entry.value for entry in entries if entry.source == 1}
        for name, entries in answers.items()
    }


@pytest.mark.parametrize("protocol", ["classic", "streams"])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_an_application_keeps_its_tables_when_broker_and_instances_are_killed(
    start: Start, broker: BrokerProcess, guarantee: str, protocol: str
) -> None:
    """Two instances with a standby each; the broker dies under them, then one of them, then the other. The
    third begins with nothing but compacted changelogs. Exactly once, each order is counted once.
    """
    settings = {"processing.guarantee": guarantee, **SETTINGS[protocol]}
    is_exact = guarantee != "at_least_once"
    admin = make_topics(broker.bootstrap)
    fill_tables(broker.bootstrap)
    order(broker.bootstrap, range(500))
    two = [start(settings) for _ in range(2)]
    wait_for(lambda: all(app.is_running() for app in two), "two instances", LIMIT_SECONDS)
    wait_for(lambda: table_of_all(two, "numbers") == expected_numbers(500), "500 orders", LIMIT_SECONDS)
    assert table_of_all(two, "counts") == {f"user{user}": "50" for user in range(USERS)}
    check_settings(own_settings(admin))

    began = [app.rebalances() for app in two]
    broker.kill()
    broker.start()
    order(broker.bootstrap, range(500, 1000))
    wait_for(lambda: table_of_all(two, "numbers") == expected_numbers(1000), "1000 orders", LIMIT_SECONDS)
    counts = table_of_all(two, "counts")
    assert all(int(count) >= 100 for count in counts.values())
    if is_exact or [app.rebalances() for app in two] == began:  # else tasks changed hands: it may be twice
        assert set(counts.values()) == {"100"}
    repartitioned = f"{APPLICATION}-by-user-repartition"
    wait_for(
        lambda: all(first == end > 0 for first, end in ends(broker.bootstrap, repartitioned)),
        "what was repartitioned to be purged",
        LIMIT_SECONDS,
    )

    two[0].kill()
    order(broker.bootstrap, range(1000, 1500))
    survivor = two[1]
    wait_for(lambda: survivor.table("numbers") == expected_numbers(1500), "1500 orders", LIMIT_SECONDS)
    wait_for(lambda: is_committed(broker.bootstrap), "all orders to be done with", LIMIT_SECONDS)
    tables = {store: survivor.table(store) for store in ("numbers", "counts", "places", "names-of-all")}
    assert all(int(count) >= 150 for count in tables["counts"].values())
    if is_exact:
        assert set(tables["counts"].values()) == {"150"}
    survivor.kill()

    for store in ("counts", "numbers", "places", "per-minute"):
        broker.compact(f"{APPLICATION}-{store}-changelog")
    left = keys(broker.bootstrap, f"{APPLICATION}-numbers-changelog")
    assert sorted(left) == [b"user%d" % user for user in range(USERS)]
    # While the dead one counts, a third may begin with copies, which become active without being read back.
    wait_for(
        lambda: '"members": []' in broker.http(f"/api/groups/{APPLICATION}"),
        "the dead to be fenced",
        LIMIT_SECONDS,
    )
    third = start(settings)
    wait_for(lambda: third.is_running(), "the third instance", LIMIT_SECONDS)
    # A member of a streams group runs before it has anything.
    wait_for(
        lambda: {store: third.table(store) for store in tables} == tables, "the same tables", LIMIT_SECONDS
    )
    assert third.restored("numbers") == USERS
    check_places(tables["places"])
    assert not [failure for app in (*two, third) for failure in app.failures()]


def test_instances_with_threads_know_where_a_key_is(start: Start, broker: BrokerProcess) -> None:
    """Interactive queries by streams groups: each instance finds each key at the one that has it."""
    admin = make_topics(broker.bootstrap)
    # So many that each thread has some.
    admin.create_partitions([NewPartitions("orders", 8)])["orders"].result(60)
    fill_tables(broker.bootstrap)
    order(broker.bootstrap, range(100))
    ports = (7001, 7002)
    apps = [
        start({**SETTINGS["streams"], "num.stream.threads": "2", "application.server": f"localhost:{port}"})
        for port in ports
    ]

    def is_known() -> bool:
        places = {
            key: port
            for app, port in zip(apps, ports, strict=True)
            for key in app.table("numbers")
            if key.startswith("user")  # else the store is not there
        }
        return all(app.host("numbers", key) == places.get(key) for app in apps for key in EVERYBODY)

    wait_for(is_known, "both to know where each key is", 60)
    assert not [failure for app in apps for failure in app.failures()]


def check_settings(found: dict[str, dict[str, str]]) -> None:
    """As an Apache Kafka tells them."""
    common = {"message.timestamp.type": "CreateTime"}
    table = {**common, "cleanup.policy": "compact"}
    passing = {
        **common,
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
    }
    assert found["by-user-repartition"] == passing
    assert found["counts-changelog"] == found["numbers-changelog"] == found["places-changelog"] == table
    assert found["counts-then-changelog"] == {**table, "min.compaction.lag.ms": "90000000"}
    windows = {**common, "cleanup.policy": "compact,delete", "retention.ms": "86460000"}
    assert found["per-minute-changelog"] == windows
    assert "cities-changelog" not in found  # the topic itself is the table's changelog


def check_places(places: dict[str, str]) -> None:
    """A join of two tables by what one of them has as a value."""
    assert places == {f"user{user}": f"city{user % 3} in country{user % 3}" for user in range(USERS)}
