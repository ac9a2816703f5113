"""Goal: topics and offsets are found as Spark's own source finds them, and trouble is tried again, then told.

Method: `Cluster` and the planning functions against fake brokers.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable

import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import ApiVersionsResponse
from protocol.records import encode_batch
from spark_connector import client
from spark_connector.client import Cluster, connect
from spark_connector.errors import ConnectorError
from spark_connector.offsets import EARLIEST, LATEST, TopicPartition
from spark_connector.options import Options, parse_options
from spark_connector.planning import find_existing, find_partitions, locate
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]


def topics(*names: str) -> dict[TopicPartition, FakeLog]:
    return {TopicPartition(name, number): FakeLog() for name in names for number in (1, 0)}


def found(broker: FakeBroker, **options: str) -> list[str]:
    parsed = parse_options(options_for(broker, **options))
    return [str(partition) for partition in find_partitions(connect(parsed.client), parsed.subscription)]


def test_subscriptions(start_broker: Start) -> None:
    broker = start_broker(topics("t", "u", "uu", "__hidden"))
    broker.internal.add("__hidden")
    assert found(broker, subscribe="u, t") == ["t-0", "t-1", "u-0", "u-1"]
    assert found(broker, assign='{"u":[1]}') == ["u-1"]
    assert found(broker, subscribePattern="u+") == ["u-0", "u-1", "uu-0", "uu-1"]
    assert found(broker, subscribePattern="u$") == ["u-0", "u-1", "uu-0", "uu-1"]
    assert found(broker, subscribePattern="^u$") == ["u-0", "u-1"]
    assert found(broker, subscribePattern=".*") == [
        f"{topic}-{n}" for topic in ("t", "u", "uu") for n in (0, 1)
    ]
    assert found(broker, subscribe="__hidden") == ["__hidden-0", "__hidden-1"]
    assert found(broker, subscribePattern="nothing") == []


def test_internal_topics_are_told_by_their_flag(start_broker: Start) -> None:
    """A user's topic may begin with underscores."""
    broker = start_broker(topics("__mine"))
    assert found(broker, subscribePattern="__.*") == ["__mine-0", "__mine-1"]


def test_trouble_with_other_topics_is_no_trouble(start_broker: Start) -> None:
    """A pattern looks at all topics of a cluster; only what is wrong with those it matches counts."""
    broker = start_broker(topics("orders", "orders-eu", "foreign"))
    broker.topic_errors = {"foreign": ErrorCode.INVALID_TOPIC_EXCEPTION}
    expected = ["orders-0", "orders-1", "orders-eu-0", "orders-eu-1"]
    assert found(broker, subscribePattern="^orders") == expected
    broker.topic_errors = {"foreign": ErrorCode.LEADER_NOT_AVAILABLE}
    assert found(broker, subscribePattern="^orders") == expected
    broker.topic_errors = {"orders-eu": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(ConnectorError, match="topic orders-eu: TOPIC_AUTHORIZATION_FAILED"):
        found(broker, subscribePattern="^orders")
    with pytest.raises(ConnectorError, match="topic orders-eu: TOPIC_AUTHORIZATION_FAILED"):
        found(broker, subscribePattern="eu$")
    assert found(broker, subscribePattern="^orders$") == ["orders-0", "orders-1"]


def test_trouble_with_other_topics_hides_no_topic_that_is_left(start_broker: Start) -> None:
    """The look at all topics that failOnDataLoss=false takes when one of those named is gone."""
    broker = start_broker(topics("t", "foreign"))
    broker.topic_errors = {"foreign": ErrorCode.INVALID_TOPIC_EXCEPTION}
    options = parsed(broker, subscribe="t,gone")
    places = find_existing(connect(options.client), options.subscription, set())
    assert list(map(str, places)) == ["t-0", "t-1"]


def test_what_does_not_exist_is_told_soon(start_broker: Start) -> None:
    broker = start_broker(topics("t"))
    with pytest.raises(ConnectorError, match="topic absent: UNKNOWN_TOPIC_OR_PARTITION"):
        found(broker, subscribe="absent", kafka__default__api__timeout__ms="60000")
    with pytest.raises(ConnectorError, match="assign names partitions that do not exist: t-5"):
        found(broker, assign='{"t":[0,5]}')


def parsed(broker: FakeBroker, **options: str) -> Options:
    return parse_options(options_for(broker, **options))


def test_positions(start_broker: Start) -> None:
    logs = topics("t")
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    logs[first].times = {500: 7}
    logs[second].times = {500: 9, 600: 10}
    broker = start_broker(logs)

    def start(text: str, value: str, latest_if_none: bool = False) -> dict[TopicPartition, int]:
        options = parsed(broker, **{text: value})
        assert options.starting is not None
        return locate(
            connect(options.client), options.starting, [first, second], latest_if_none=latest_if_none
        )

    assert start("startingOffsets", "earliest") == {first: EARLIEST, second: EARLIEST}
    assert start("startingOffsets", '{"t":{"0":3,"1":-2}}') == {first: 3, second: EARLIEST}
    assert start("startingTimestamp", "500") == {first: 7, second: 9}
    by_partition = "startingOffsetsByTimestamp"
    assert start(by_partition, '{"t":{"0":500,"1":600}}') == {first: 7, second: 10}
    assert start("startingTimestamp", "600", latest_if_none=True) == {first: LATEST, second: 10}
    logs[first].log_start_offset, logs[first].high_watermark = 3, 8
    assert start("startingTimestamp", "-2") == {first: 3, second: 0}
    assert start("startingTimestamp", "-1") == {first: 8, second: 0}
    assert start(by_partition, '{"t":{"0":-1,"1":500}}') == {first: 8, second: 9}
    with pytest.raises(ConnectorError, match="t-0 has no record at or after 600"):
        start("startingTimestamp", "600")
    for option in ("startingOffsets", by_partition):
        with pytest.raises(ConnectorError, match=f"{option} must name each partition .*missing: t-1"):
            start(option, '{"t":{"0":3}}')
        with pytest.raises(ConnectorError, match="not among the partitions to read: u-0"):
            start(option, '{"t":{"0":3,"1":3},"u":{"0":3}}')


def test_ends_depend_on_the_isolation_level(start_broker: Start) -> None:
    logs = logs_of([encode_batch([(1, b"k", b"v", ())] * 5)])
    logs[TopicPartition("t", 0)].last_stable_offset = 2
    broker = start_broker(logs)
    for level, end in (("read_committed", 2), ("read_uncommitted", 5)):
        cluster = connect(parsed(broker, kafka__isolation__level=level).client)
        assert cluster.latest_offsets(logs) == {TopicPartition("t", 0): end}


def test_nobody_answers() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        settings = parse_options(
            {
                "kafka.bootstrap.servers": f"127.0.0.1:{port}",
                "subscribe": "t",
                "kafka.default.api.timeout.ms": "200",
                "kafka.retry.backoff.ms": "1",
            }
        ).client
        with pytest.raises(ConnectorError, match=rf"looking up topics failed for 0.2 s .*127.0.0.1:{port}"):
            connect(settings).describe(None)


def test_a_second_bootstrap_server_is_tried(start_broker: Start) -> None:
    broker = start_broker(topics("t"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{closed.getsockname()[1]},{broker.bootstrap}"
        assert found(broker, kafka__bootstrap__servers=servers) == ["t-0", "t-1"]


def test_a_server_that_is_silent_is_waited_for_once(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose machine is gone: nothing says so, for as long as a connection may take to be made."""
    broker = start_broker(topics("t"))
    silent, waited = ("127.0.0.1", 1), []
    create = socket.create_connection

    def connect_to(address: tuple[str, int], timeout_s: float) -> socket.socket:
        if address != silent:
            return create(address, timeout_s)
        waited.append(timeout_s)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect_to)
    monkeypatch.setattr(random, "sample", lambda servers, _: list(servers))
    servers = f"127.0.0.1:1,{broker.bootstrap}"
    settings = parsed(broker, kafka__bootstrap__servers=servers).client
    cluster = Cluster(settings)
    for _ in range(3):
        assert cluster.describe(["t"]) == {"t": [0, 1]}
        broker._server.close_connections()
    cluster.close()
    assert waited == [10]


def test_the_time_for_a_connection_grows_as_in_kafkas_clients(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By socket.connection.setup.timeout.ms; an answer has its own time, which is a limit of this one too."""
    broker = start_broker(topics("t"))
    waited: list[float] = []
    create = socket.create_connection

    def refuse(address: tuple[str, int], timeout_s: float) -> socket.socket:
        waited.append(timeout_s)
        if len(waited) < 5:
            raise TimeoutError("timed out")
        return create(address, timeout_s)

    monkeypatch.setattr(socket, "create_connection", refuse)
    name = "kafka__socket__connection__setup__timeout"
    for more, expected in (({}, [10, 20, 30, 30, 30]), ({"kafka__request__timeout__ms": "5000"}, [5] * 5)):
        waited.clear()
        cluster = Cluster(parsed(broker, **more, kafka__default__api__timeout__ms="60000").client)
        cluster.describe(["t"])
        with cluster.any_connection() as made:
            assert made._socket.gettimeout() == (5 if more else 30)
        cluster.close()
        assert waited == expected
    given = parsed(broker, **{f"{name}__ms": "7", f"{name}__max__ms": "9"}).client
    assert (given.setup_timeout_ms, given.setup_timeout_max_ms) == (7, 9)


def test_a_broker_that_comes_back(start_broker: Start) -> None:
    """Its kept connections are dead: found out, thrown away, opened anew."""
    broker = start_broker(topics("t"))
    cluster = connect(parsed(broker).client)
    assert cluster.describe(["t"]) == {"t": [0, 1]}
    broker._server.close_connections()
    assert cluster.describe(["t"]) == {"t": [0, 1]}
    broker.closes = 2
    assert cluster.earliest_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 0}


def test_transient_codes_are_tried_again_and_others_told(start_broker: Start) -> None:
    broker = start_broker(topics("t"))
    log = broker.logs[TopicPartition("t", 0)]
    cluster = connect(parsed(broker, kafka__default__api__timeout__ms="30000").client)
    log.error = ErrorCode.LEADER_NOT_AVAILABLE
    healing = threading.Timer(0.05, setattr, (log, "error", ErrorCode.NONE))
    healing.start()
    assert cluster.latest_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 0}
    healing.join()
    log.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(ConnectorError, match="the offsets of t-0: TOPIC_AUTHORIZATION_FAILED"):
        cluster.latest_offsets([TopicPartition("t", 0)])


def test_a_broker_too_old_or_too_new_is_told(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = start_broker(topics("t"))
    for served, message in (((0, 3), "versions 0 to 3 of API 1"), ((13, 18), "versions 13 to 18 of API 1")):
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=1, min_version=served[0], max_version=served[1]),
            ApiVersionsResponse.ApiVersion(api_key=2, min_version=0, max_version=9),
            ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=9),
        ]
        monkeypatch.setattr(broker, "answer", lambda request, keys=keys: ApiVersionsResponse(api_keys=keys))
        with pytest.raises(ConnectorError, match=message):
            connect(parsed(broker).client).describe(["t"])


def test_something_else_than_kafka_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        settings = parse_options(
            {"kafka.bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}", "subscribe": "t"}
        ).client
        with pytest.raises(ConnectorError, match="is it a Kafka listener without TLS"):
            connect(settings).describe(None)
        thread.join()


def test_a_cluster_belongs_to_its_process(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked worker must not write into its parent's sockets."""
    settings = parsed(start_broker(topics("t"))).client
    mine = connect(settings)
    assert connect(settings) is mine
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert connect(settings) is not mine


def test_idle_connections_are_bounded(start_broker: Start) -> None:
    broker = start_broker(topics("t"))
    cluster = Cluster(parsed(broker).client)
    address = ("127.0.0.1", broker.port)
    held = [cluster.connection(address) for _ in range(client.IDLE_CONNECTIONS + 3)]
    for manager in held:
        manager.__enter__()
    for manager in held:
        manager.__exit__(None, None, None)
    assert len(cluster._idle[address]) == client.IDLE_CONNECTIONS
    cluster.close()
    assert not cluster._idle[address]
