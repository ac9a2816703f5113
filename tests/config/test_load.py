"""Goal: settings of file, environment and flags come together in the right order, and every wrong one is
named.

Method: `load` is called with texts as a user would give them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from config.broker import BrokerConfig
from config.definition import ConfigError
from config.harmless import HARMLESS
from config.listeners import Endpoint
from config.load import environment_key, load, parse_assignment, read_environment, read_properties
from config.together import check_threads


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.ms=2\nlog.roll.ms=2\n")
    environment = {"KAFKA_LOG_RETENTION_MS": "3", "KAFKA_LOG_ROLL_MS": "3"}
    config = load(file=file, environment=environment, settings={"log.roll.ms": "4"})
    assert (config.num_partitions, config.log_retention_ms, config.log_roll_ms) == (2, 3, 4)
    assert config.static == {"num.partitions": "2", "log.retention.ms": "3", "log.roll.ms": "4"}


def test_a_later_alias_wins_over_an_earlier_name(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/a\nbroker.id=3\n")
    config = load(file=file, environment={"KAFKA_LOG_DIR": "/b", "KAFKA_NODE_ID": "4"})
    assert config.log_dirs == ("/b",)
    assert config.node_id == 4


@pytest.mark.parametrize("names", [("KAFKA_LOG_DIRS", "KAFKA_LOG_DIR"), ("KAFKA_LOG_DIR", "KAFKA_LOG_DIRS")])
def test_of_one_source_the_keys_own_name_wins(names: tuple[str, str]) -> None:
    """As in Kafka, in whatever order the environment gives them."""
    environment = {name: name for name in names}
    assert load(environment=environment).log_dirs == ("KAFKA_LOG_DIRS",)


def test_defaults_of_the_command() -> None:
    config = load()
    assert config.endpoints == [Endpoint("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092)]
    assert config.http_port == 9644
    assert config.log_dirs == ("data",)
    assert config.group_initial_rebalance_delay_ms == 100


def test_flags() -> None:
    config = load(port=1234, http_port=-1, data=["/a", "/b"])
    assert config.endpoints[0].port == 1234
    assert config.http_port == -1
    assert config.log_dirs == ("/a", "/b")


@pytest.mark.parametrize("name", ["my data, v2", " data", "data ", "data\n", ","])
def test_a_directory_that_would_be_another_in_the_list_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^Invalid value [^:]*for --data: No name of a directory"
    ) as refused:
        load(data=["/a", name])
    assert f" {name} " in refused.value.message
    assert load(data=["/a", "my data v2"]).log_dirs == ("/a", "my data v2")


def test_port_replaces_that_of_the_first_listener() -> None:
    settings = {
        "listeners": "IN://[::1]:1,OUT://host:2",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
    }
    config = load(settings=settings, port=7)
    assert config.listeners == ("IN://[::1]:7", "OUT://host:2")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B_C", "a-b.c"),
        ("KAFKA_NODE_ID", "node.id"),
    ],
)
def test_environment_names_are_those_of_kafkas_images(name: str, key: str) -> None:
    assert environment_key(name) == key


@pytest.mark.parametrize(
    "name",
    [
        "KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JMX_PORT", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_HOME",
        "KAFKA_PORT_9092_TCP_ADDR", "KAFKA_SERVICE_HOST", "KAFKA_", "OTHER_NUM_PARTITIONS", "KAFKA_VERSION",
        "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_ENABLE_KRAFT", "KAFKA_PORT",
    ],
)  # fmt: skip
def test_what_is_no_setting_is_left_alone(name: str) -> None:
    assert read_environment({name: "x"}) == {}


def test_names_of_bitnamis_images_are_the_same_settings() -> None:
    told = {"KAFKA_CFG_LOG_CLEANUP_POLICY": "compact", "KAFKA_CFG_NUM_PARTITIONS": "3", "KAFKA_CFG_": "x"}
    assert read_environment(told) == {"log.cleanup.policy": "compact", "num.partitions": "3"}
    assert load(environment=told).num_partitions == 3


@pytest.mark.parametrize("is_first", [True, False])
def test_kafkas_own_name_wins_over_bitnamis(*, is_first: bool) -> None:
    names = ["KAFKA_NUM_PARTITIONS", "KAFKA_CFG_NUM_PARTITIONS"]
    environment = {name: name for name in (names if is_first else reversed(names))}
    assert read_environment(environment) == {"num.partitions": "KAFKA_NUM_PARTITIONS"}


def test_what_is_wrong_is_told_by_bitnamis_name() -> None:
    with pytest.raises(ConfigError, match=r"KAFKA_CFG_NUM_PARTITIONS in the environment"):
        load(environment={"KAFKA_CFG_NUM_PARTITIONS": "many"})


def test_services_beside_the_broker_are_no_settings() -> None:
    """Kubernetes tells every pod of a service `kafka-http`, or `kafka-ui`, in these variables."""
    for name in ("KAFKA_UI", "KAFKA_HTTP"):
        told = {
            f"{name}_SERVICE_HOST": "10.0.0.7",
            f"{name}_SERVICE_PORT": "80",
            f"{name}_SERVICE_PORT_WEB": "80",
            f"{name}_PORT": "tcp://10.0.0.7:80",
            f"{name}_PORT_80_TCP": "tcp://10.0.0.7:80",
            f"{name}_PORT_80_TCP_PROTO": "tcp",
            f"{name}_PORT_80_TCP_PORT": "80",
            f"{name}_PORT_80_TCP_ADDR": "10.0.0.7",
        }
        assert read_environment(told) == {}
    assert read_environment({"KAFKA_HTTP_PORT": "9644"}) == {"http.port": "9644"}


def test_every_wrong_setting_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load(
            environment={"KAFKA_NO_SUCH_KEY": "1"},
            settings={"num.partitions": "x", "log.roll.ms": "0", "ssl.keystore.password": "x"},
        )
    lines = caught.value.message.splitlines()
    assert len(lines) == 4
    for part in ("no.such.key", "num.partitions", "log.roll.ms", "ssl.keystore.password is not supported"):
        assert sum(part in line for line in lines) == 1


def test_a_wrong_setting_names_the_file_or_variable_it_was_found_in(tmp_path: Path) -> None:
    """KAFKA_TOPIC is a client's variable: nobody knows a setting `topic`, nor where to look for it."""
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=x\nlog.dir=\nsasl.mechanism=PLAIN\nbroker.id=-1\n")
    environment = {"KAFKA_TOPIC": "orders", "KAFKA_LOG_RETENTION_HOURS": "0", "KAFKA_BROKER_ID": "y"}
    with pytest.raises(ConfigError) as caught:
        load(file=file, environment=environment, settings={"log.roll.ms": "z", "log.roll.hours": "z"})
    lines = caught.value.message.splitlines()
    for key, ending in {
        "num.partitions": f" (in {file})",
        "log.dir": f" (in {file})",
        "sasl.mechanism": f" (in {file})",
        "topic": " (KAFKA_TOPIC in the environment)",
        "log.retention.hours": " (KAFKA_LOG_RETENTION_HOURS in the environment)",
        "broker.id": " (KAFKA_BROKER_ID in the environment)",
        "log.roll.ms": "Not a number of type LONG",
        "log.roll.hours": "Not a number of type INT",
    }.items():
        (line,) = [line for line in lines if f"onfiguration {key}" in line]
        assert line.endswith(ending)
        lines.remove(line)
    assert not lines


def test_what_a_value_says_is_not_taken_for_the_key_or_another_setting() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environment={"KAFKA_LOG_ROLL_MS": "configuration node.id: 1\n2", "KAFKA_NODE_ID": "1"})
    (part,) = caught.value.parts
    assert part.key == "log.roll.ms"
    assert part.message.endswith(" (KAFKA_LOG_ROLL_MS in the environment)")


def test_harmless_keys_are_taken_and_do_nothing() -> None:
    texts = dict.fromkeys(HARMLESS, "whatever")
    texts["controller.quorum.voters"] = "1@localhost:9093"
    texts["confluent.license.topic.replication.factor"] = "1"
    texts["remote.log.storage.system.enable"] = "false"
    assert load(settings=texts) == BrokerConfig()
    assert all(HARMLESS.values())


def test_what_kafka_has_and_kompakt_has_not_is_no_misspelling() -> None:
    names = ("create.topic.policy.class.name", "client.quota.callback.class", "remote.fetch.max.wait.ms")
    for name in (*names, "principal.builder.class"):
        with pytest.raises(ConfigError, match=rf"^Configuration {name} is not supported"):
            load(settings={name: "1"})
    with pytest.raises(ConfigError, match="is not supported"):
        load(settings={"remote.log.storage.system.enable": "true"})


def test_properties_file_format() -> None:
    text = (
        "# comment\n! comment\n\n a.b = 1 \nc:2\nd 3\ne\\:f=4\nlong=one,\\\n   two\nu=\\u0041\\t!\nempty=\n"
        "equal=a=b\n"
    )
    assert read_properties(text) == {
        "a.b": "1",
        "c": "2",
        "d": "3",
        "e:f": "4",
        "long": "one,two",
        "u": "A\t!",
        "empty": "",
        "equal": "a=b",
    }


@pytest.mark.parametrize("value", [r"\u12", r"a\u00g0b", r"\u", r"\\\u12", "x\\\n\\u12\n"])
def test_a_malformed_escape_is_refused_as_in_java(tmp_path: Path, value: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"# \\u is said here\nlog.dirs=a\\\n  b\nlog.roll.ms={value}\nnode.id=1\n")
    with pytest.raises(ConfigError) as refused:
        load(file=file)
    assert str(refused.value).startswith(
        f"Cannot read {file}, line 4: Malformed \\uxxxx encoding: log.roll.ms="
    )


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\x852\nb=3\u20284\x0b5\x1c6\n", {"a": "1\x852", "b": "3\u20284\x0b5\x1c6"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a\xa0b\x0b=\xa01\n", {"a\xa0b\x0b": "\xa01"}),
        ("\f a\f1\f2 \n", {"a": "1\f2"}),
        ("b=c\\ \nd=e\n", {"b": "c", "d": "e"}),
        ("b=c\\\\\nd=e\n", {"b": "c\\", "d": "e"}),
        ("b=c\\\r\n \t\fd=e\\\n\nf=g", {"b": "cd=e", "f": "g"}),
        ("b=c\\\n# d\n\\\n# e\nf=\\", {"b": "c# d", "f": ""}),
        ("=1\n: 2\na\n", {"a": ""}),
    ],
)
def test_a_file_is_split_as_by_java(text: str, settings: dict[str, str]) -> None:
    """But for blanks at the end of a value, which Kafka trims; `kafka/test_properties.py` asks it."""
    assert read_properties(text) == settings


def test_an_escaped_backslash_before_a_u_is_none() -> None:
    assert read_properties(r"log.dirs=c:\\u12") == {"log.dirs": r"c:\u12"}


def test_a_file_may_begin_with_the_mark_that_editors_put_there(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.roll.ms=5\n", encoding="utf-8-sig")
    assert load(file=file).log_roll_ms == 5


def test_a_file_that_is_no_utf_8_is_latin_1_as_for_java(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("# Größe\nlog.roll.ms=5\nlog.dirs=/büro\n".encode("latin-1"))
    config = load(file=file)
    assert (config.log_roll_ms, list(config.log_dirs)) == (5, ["/büro"])


def test_a_file_in_utf_16_is_refused_by_that_name(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.roll.ms=5\n", encoding="utf-16")
    with pytest.raises(ConfigError, match="it is UTF-16; save it as UTF-8"):
        load(file=file)


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        load(file=tmp_path / "none")


def test_assignment() -> None:
    assert parse_assignment("a=b=c") == ("a", "b=c")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_assignment("a")


CONTAINER = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093,HOST://0.0.0.0:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:19092,HOST://localhost:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_NUM_PARTITIONS": "3",
}


def test_g33_a_compose_file_for_kafka_starts_kompakt() -> None:
    """G33: each listener advertises its own address; the controller's listener is not opened."""
    config = load(environment=CONTAINER)
    assert config.endpoints == [
        Endpoint("PLAINTEXT", "", 19092, "broker", 19092),
        Endpoint("HOST", "0.0.0.0", 9092, "localhost", 9092),
    ]
    assert config.num_partitions == 3


KAFKAS_OWN_MAP = (
    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
)


def test_kafkas_own_server_properties_are_taken(tmp_path: Path) -> None:
    """Its map names protocols that no listener of it speaks."""
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        f"controller.listener.names=CONTROLLER\nlistener.security.protocol.map={KAFKAS_OWN_MAP}\n"
    )
    assert load(file=file).endpoints == [Endpoint("PLAINTEXT", "", 9092, "localhost", 9092)]


@pytest.mark.parametrize(
    ("listeners", "protocols", "spoken"),
    [
        ("SSL://:9093", "", "SSL"),
        ("PLAINTEXT://:1,SASL_SSL://:2", "", "SASL_SSL"),
        ("sasl_plaintext://:9093", "", "SASL_PLAINTEXT"),
        ("A://:9093", "A:SSL", "SSL"),
        ("A://:9093", "b:PLAINTEXT, a:sasl_ssl", "SASL_SSL"),
        ("PLAINTEXT://:9093", "PLAINTEXT:SSL", "SSL"),
        ("SSL://:9093", KAFKAS_OWN_MAP, "SSL"),
        ("SSL://:9093", "SSL:PLAINTEXT", "PLAINTEXT"),
        ("PLAINTEXT://:9093", "B:SSL", "PLAINTEXT"),
        ("A://:9093", "A:PLAINTEXT", "PLAINTEXT"),
    ],
)
def test_a_listener_is_never_plain_where_security_was_asked_for(
    listeners: str, protocols: str, spoken: str
) -> None:
    settings = {
        "listeners": listeners,
        "listener.security.protocol.map": protocols,
        "ssl.keystore.location": "broker.pem",
    }
    assert load(settings=settings).endpoints[-1].protocol == spoken


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "localhost:9092"}, "Not an address"),
        ({"listeners": "A://h:65536"}, "Not an address"),
        ({"listeners": ""}, "must not be empty"),
        ({"listeners": "SSL://:1,SSL://:2"}, "its own name"),
        ({"listeners": "A://:1"}, "No security protocol defined for listener A: .*A:PLAINTEXT"),
        (
            {"listeners": "EXTERNAL://:1", "listener.security.protocol.map": "EXTERNL:SASL_SSL"},
            "No security protocol defined for listener EXTERNAL",
        ),
        (
            {"listeners": "A://:1", "listener.security.protocol.map": KAFKAS_OWN_MAP},
            "No security protocol defined for listener A",
        ),
        ({"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"}, "No listener"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "can reach"),
        ({"advertised.listeners": "OTHER://h:1"}, "set listeners as well, which has PLAINTEXT$"),
        ({"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://other:1"}, "are told one address"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "Not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:TLS"}, "Not NAME:PROTOCOL"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "Invalid value 1 for configuration log.cleaner.max.compaction.lag.ms: It must not be below",
        ),
        ({"group.min.session.timeout.ms": "2", "group.max.session.timeout.ms": "1"}, "must not be above"),
        *(
            ({key: value}, f"must be between {bounds}")
            for kind in ("consumer", "share", "streams")
            for key, value, bounds in (
                (
                    f"group.{kind}.session.timeout.ms",
                    "44999",
                    rf"group.{kind}.min.session.timeout.ms \(45000",
                ),
                (f"group.{kind}.max.session.timeout.ms", "44999", f"group.{kind}.min.session.timeout.ms"),
                (
                    f"group.{kind}.heartbeat.interval.ms",
                    "999",
                    rf"group.{kind}.min.heartbeat.interval.ms \(1000",
                ),
                (
                    f"group.{kind}.min.heartbeat.interval.ms",
                    "15001",
                    f"group.{kind}.min.heartbeat.interval.ms",
                ),
            )
        ),
        (
            {
                "group.share.heartbeat.interval.ms": "15000",
                "group.share.session.timeout.ms": "15000",
                "group.share.min.session.timeout.ms": "15000",
            },
            "must be below group.share.session.timeout.ms",
        ),
        (
            {"group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"},
            "must be between",
        ),
        ({"group.share.max.share.sessions": "199"}, "must not be below group.share.max.size"),
        ({"group.streams.num.standby.replicas": "3"}, "must not be above group.streams.max.standby.replicas"),
        ({"default.replication.factor": "3"}, "no more than 1"),
        ({"log.retention.ms": "0"}, "log.retention.ms: It must be at least 1, or -1"),
        ({"log.retention.hours": "0"}, "log.retention.hours: It must be at least 1, or -1"),
        ({"log.cleaner.dedupe.buffer.size": "47"}, "room for no key"),
        ({"log.cleaner.dedupe.buffer.size": "96", "log.cleaner.threads": "4"}, "room for no key"),
        ({"log.cleaner.io.buffer.load.factor": "0"}, "room for no key"),
        ({"num.partitions": "10001"}, "max.partitions.per.topic"),
    ],
)
def test_what_does_not_fit_together(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(settings=settings)


def test_dynamic_settings_come_before_static_ones() -> None:
    config = load(settings={"log.retention.ms": "1", "num.partitions": "2"})
    changed = config.with_dynamic({"log.retention.ms": "2", "log.roll.ms": "3"}, {"log.retention.ms": "4"})
    assert (changed.log_retention_ms, changed.log_roll_ms, changed.num_partitions) == (4, 3, 2)
    back = changed.with_dynamic({}, {})
    assert (back.log_retention_ms, back.log_roll_ms) == (1, None)


def test_t27_threads_may_be_halved_or_doubled() -> None:
    for wanted in (2, 3, 8):
        check_threads(4, wanted)
    for wanted in (1, 9):
        with pytest.raises(ConfigError, match="current value 4"):
            check_threads(4, wanted)
    with pytest.raises(ConfigError, match="at least 1"):
        check_threads(1, 0)


def test_t27_from_no_thread_to_one() -> None:
    check_threads(0, 1)
    with pytest.raises(ConfigError, match="not be greater than 1 where there is no thread"):
        check_threads(0, 2)


def test_t27_half_of_an_odd_number_is_rounded_down() -> None:
    """Kafka's `LogCleaner.validateReconfiguration` divides whole numbers."""
    check_threads(3, 1)
    check_threads(5, 2)
    with pytest.raises(ConfigError, match="at least half the current value 5"):
        check_threads(5, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"group.share.max.share.sessions": "200"},
        {"num.partitions": "10000"},
        {"log.cleaner.dedupe.buffer.size": "480", "log.cleaner.threads": "2"},
        {"log.cleaner.dedupe.buffer.size": "48"},
        {"group.streams.num.standby.replicas": "2"},
        {"listeners": "PLAINTEXT://h:65535"},
    ],
)
def test_what_just_fits_together(settings: dict[str, str]) -> None:
    """The limit itself is allowed; each thread's map has room for some keys."""
    load(settings=settings)
