"""Goal: unmodified clients produce and consume over TLS and with passwords, as with a secured Apache Kafka,
and learn in their own words why they are refused.

Method: one broker process with a listener of each kind; librdkafka, aiokafka, kafka-python and Kafka's tools,
each with the options that its users write. (The Spark connector: tests/spark/test_security.py.)
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

from tests.certificates import Certificates
from tests.kafka.fixtures import kafka_tools  # noqa: F401
from tests.kafka.tools import Tools
from tests.secured import (
    PASSWORD,
    PLAIN_MODULE,
    PROTOCOLS,
    SCRAM_MODULE,
    SHORT_SESSION_MS,
    USER,
    SecuredBroker,
    add_user,
    jaas,
)
from tests.thoroughness import slow
from tests.waiting import wait_for

COUNT = 500
SECONDS = 60.0
SASL = [
    (listener, mechanism)
    for listener in ("SASLPLAIN", "SASLTLS")
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
]


@contextlib.contextmanager
def running(broker: SecuredBroker) -> Iterator[None]:
    """Started, and stopped in order at the end, with nothing of our own gone wrong."""
    broker.start()
    yield
    status, log = broker.stop(), broker.log()
    broker.close()
    assert status == 0, log
    assert "Traceback" not in log, log


@pytest.fixture(scope="module")
def secured(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path_factory.mktemp("secured") / "data", certificates)
    with running(broker):
        add_user(broker.bootstrap)
        yield broker


def options(
    broker: SecuredBroker, certificates: Certificates, listener: str, mechanism: str = "", **more: Any
) -> dict[str, Any]:
    """As librdkafka has them."""
    given: dict[str, Any] = {
        "bootstrap.servers": broker.address[listener],
        "security.protocol": PROTOCOLS[listener],
        "ssl.ca.location": certificates.authority,
    }
    if mechanism:
        given |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    elif listener == "TLS":
        given |= {
            "ssl.certificate.location": str(certificates.directory / "client.crt"),
            "ssl.key.location": str(certificates.directory / "client.key"),
        }
    return {**given, **more}


def round_trip(given: dict[str, Any], topic: str) -> None:
    producer = confluent_kafka.Producer(given)
    errors: list[object] = []
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number * 300, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    assert errors == [None] * COUNT
    consumer = confluent_kafka.Consumer({**given, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    wait_for(lambda: values.extend(_polled(consumer)) or len(values) >= COUNT, "all records")
    consumer.close()
    assert values == [b"%d" % number * 300 for number in range(COUNT)]


def _polled(consumer: confluent_kafka.Consumer) -> list[bytes | None]:
    return [message.value() for message in consumer.consume(COUNT, 0.2)]


@pytest.mark.parametrize(("listener", "mechanism"), [*SASL, ("TLS", ""), ("SHORT", "SCRAM-SHA-256")])
def test_librdkafka(
    secured: SecuredBroker, certificates: Certificates, listener: str, mechanism: str
) -> None:
    topic = f"{listener}-{mechanism}"
    round_trip(options(secured, certificates, listener, mechanism), topic)


def test_librdkafka_says_again_who_it_is(secured: SecuredBroker, certificates: Certificates) -> None:
    """KIP-368: nothing is lost, nothing fails, while sessions end one after the other."""
    given = options(secured, certificates, "SHORT", "SCRAM-SHA-256")
    lost: list[object] = []
    producer = confluent_kafka.Producer({**given, "error_cb": lost.append})
    errors: list[object] = []
    before = sessions(secured)
    until = time.monotonic() + SECONDS
    while sessions(secured) < before + 4 and time.monotonic() < until:
        producer.produce("again", b"x", on_delivery=lambda error, _: errors.append(error))
        producer.poll(SHORT_SESSION_MS / 10_000)
    assert producer.flush(SECONDS) == 0
    assert sessions(secured) >= before + 4
    assert not lost and set(errors) == {None}


def sessions(broker: SecuredBroker) -> int:
    (line,) = [
        line
        for line in broker.http("/metrics").splitlines()
        if line.startswith("kompakt_authentications_total ")
    ]
    return int(float(line.split()[1]))


@pytest.mark.parametrize(
    ("listener", "mechanism", "change", "words"),
    [
        ("SASLPLAIN", "PLAIN", {"sasl.password": "x"}, "Authentication failed: Invalid username or password"),
        (
            "SASLTLS",
            "SCRAM-SHA-512",
            {"sasl.password": "x"},
            "due to invalid credentials with SASL mechanism",
        ),
        ("SASLPLAIN", "SCRAM-SHA-256", {"sasl.username": "x"}, "due to invalid credentials with SASL mech"),
        ("SHORT", "PLAIN", {}, "Unsupported SASL mechanism: broker's supported mechanisms: SCRAM-SHA-256"),
    ],
)
def test_librdkafka_is_told_why(
    secured: SecuredBroker,
    certificates: Certificates,
    listener: str,
    mechanism: str,
    change: dict[str, str],
    words: str,
) -> None:
    said: list[confluent_kafka.KafkaError] = []
    given = options(secured, certificates, listener, mechanism, **change, error_cb=said.append)
    producer = confluent_kafka.Producer(given)
    wait_for(lambda: producer.poll(0.1) is not None and any(words in one.str() for one in said), words)
    assert said[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_librdkafka_without_its_certificate(secured: SecuredBroker, certificates: Certificates) -> None:
    given = options(secured, certificates, "TLS")
    del given["ssl.certificate.location"], given["ssl.key.location"]
    before = len(secured.log())
    producer = confluent_kafka.Producer(given)
    wait_for(
        lambda: (
            producer.poll(0.1) is not None
            and "TLS: peer did not return a certificate" in secured.log()[before:]
        ),
        "a line about it",
    )


@pytest.mark.parametrize(("listener", "mechanism"), SASL)
def test_aiokafka(secured: SecuredBroker, certificates: Certificates, listener: str, mechanism: str) -> None:
    given = {
        "bootstrap_servers": secured.address[listener],
        "security_protocol": PROTOCOLS[listener],
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_context": ssl.create_default_context(cafile=certificates.authority),
    }
    topic = f"aio-{listener}-{mechanism}"

    async def run() -> list[bytes | None]:
        async with aiokafka.AIOKafkaProducer(**given) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, b"%d" % number)
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **given) as consumer:
            return [(await consumer.getone()).value for _ in range(10)]

    assert asyncio.run(asyncio.wait_for(run(), SECONDS)) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize(("listener", "mechanism"), SASL)
def test_kafka_python(
    secured: SecuredBroker, certificates: Certificates, listener: str, mechanism: str
) -> None:
    given = {
        "bootstrap_servers": secured.address[listener],
        "security_protocol": PROTOCOLS[listener],
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": certificates.authority,
    }
    topic = f"py-{listener}-{mechanism}"
    producer = kafka.KafkaProducer(**given)
    for number in range(10):
        producer.send(topic, b"%d" % number).get(SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", **given)
    assert [next(consumer).value for _ in range(10)] == [b"%d" % number for number in range(10)]
    consumer.close()


# Kafka's own tools


def properties(path: Path, **values: str) -> str:
    path.write_text("".join(f"{name.replace('_', '.')}={text}\n" for name, text in values.items()))
    return str(path)


def in_file(text: str) -> str:
    """As a file of properties has it."""
    return text.replace("\\", "\\\\").replace("ß", "\\u00df")


@pytest.mark.java
@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("SASLTLS", "SCRAM-SHA-512"), slow("SASLPLAIN", "PLAIN"), ("TLS", "")],
)
def test_the_console_tools(
    kafka_tools: Tools,  # noqa: F811
    secured: SecuredBroker,
    certificates: Certificates,
    tmp_path: Path,
    listener: str,
    mechanism: str,
) -> None:
    values = {
        "security_protocol": PROTOCOLS[listener],
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": certificates.authority,
    }
    if mechanism:
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        values |= {
            "sasl_mechanism": mechanism,
            "sasl_jaas_config": in_file(jaas(module, username=USER, password=PASSWORD)),
        }
    else:  # Java reads keys of PKCS8 with their certificates
        values |= {"ssl_keystore_type": "PEM", "ssl_keystore_location": certificates.client}
    config = properties(tmp_path / "client.properties", **values)
    at = ("--bootstrap-server", secured.address[listener])
    topic = f"console-{listener}"
    kafka_tools.run("kafka-topics", *at, "--command-config", config, "--create", "--topic", topic)
    lines = "".join(f"v{number}\n" for number in range(50))
    kafka_tools.run("kafka-console-producer", *at, "--topic", topic, "--command-config", config, stdin=lines)
    printed = kafka_tools.run(
        "kafka-console-consumer", *at, "--topic", topic, "--command-config", config,
        *("--from-beginning", "--max-messages", 50, "--group", topic),
    )  # fmt: skip
    assert printed == lines


@pytest.mark.java
def test_kafka_configs_makes_users_and_they_come_in(
    kafka_tools: Tools,  # noqa: F811
    secured: SecuredBroker,
    certificates: Certificates,
) -> None:
    at = ("--bootstrap-server", secured.bootstrap, "--entity-type", "users", "--entity-name", "bob")
    first = "SCRAM-SHA-256=[iterations=8192,password=bobs]"
    said = kafka_tools.run("kafka-configs", *at, "--alter", "--add-config", first)
    assert "Completed updating config for user bob." in said
    kafka_tools.run("kafka-configs", *at, "--alter", "--add-config", "SCRAM-SHA-512=[password=bobs]")
    described = kafka_tools.run("kafka-configs", *at, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described and "SCRAM-SHA-512=iterations=4096" in described
    bob = {"sasl.username": "bob", "sasl.password": "bobs"}
    round_trip(options(secured, certificates, "SASLTLS", "SCRAM-SHA-512", **bob), "bob")
    kafka_tools.run("kafka-configs", *at, "--alter", "--delete-config", "SCRAM-SHA-512")
    said_to: list[confluent_kafka.KafkaError] = []
    given = options(secured, certificates, "SASLTLS", "SCRAM-SHA-512", **bob, error_cb=said_to.append)
    producer = confluent_kafka.Producer(given)
    wait_for(lambda: producer.poll(0.1) is not None and bool(said_to), "an error")
    assert said_to[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


# Rules


@pytest.fixture(scope="module")
def ruled(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Who comes in plainly is the administrator, and alice may do what rules say."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker = SecuredBroker(tmp_path_factory.mktemp("ruled") / "data", certificates, settings)
    with running(broker):
        yield broker


def rule(
    broker: SecuredBroker, resource: str, name: str, operation: str, permission: str = "ALLOW"
) -> confluent_kafka.admin.AclBinding:
    """By librdkafka's admin client."""
    kinds = confluent_kafka.admin
    made = kinds.AclBinding(
        kinds.ResourceType[resource], name, kinds.ResourcePatternType.LITERAL, f"User:{USER}", "*",
        kinds.AclOperation[operation], kinds.AclPermissionType[permission],
    )  # fmt: skip
    admin = kinds.AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.create_acls([made]).values():
        done.result(SECONDS)
    return made


def test_librdkafka_by_rules(ruled: SecuredBroker, certificates: Certificates) -> None:
    """Denied, allowed, and denied again, each in its words."""
    given = options(ruled, certificates, "SASLTLS", "PLAIN")
    producer = confluent_kafka.Producer(given)
    errors: list[confluent_kafka.KafkaError] = []

    def produce() -> None:
        try:
            producer.produce("by-rules", b"v", on_delivery=lambda error, _: errors.append(error))
        except confluent_kafka.KafkaException as problem:  # it knows of the topic already
            errors.append(problem.args[0])
        assert producer.flush(SECONDS) == 0

    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": ruled.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic("by-rules", 1, 1)])["by-rules"].result(SECONDS)
    produce()
    assert errors.pop().code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    writing = rule(ruled, "TOPIC", "by-rules", "WRITE")
    wait_for(lambda: produce() or errors.pop() is None, "a record to be taken")
    consumer = confluent_kafka.Consumer({**given, "group.id": "by-rules", "auto.offset.reset": "earliest"})
    consumer.subscribe(["by-rules"])
    message = _error_of(consumer)
    assert message.code() == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
    rule(ruled, "GROUP", "by-rules", "READ")
    message = _error_of(consumer)
    assert message.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    rule(ruled, "TOPIC", "by-rules", "READ")
    values: list[bytes | None] = []
    wait_for(lambda: values.extend(_values(consumer)) or values, "the record")
    assert values[0] == b"v"
    consumer.close()
    removing = confluent_kafka.admin.AclBindingFilter(
        writing.restype, writing.name, writing.resource_pattern_type, writing.principal, writing.host,
        writing.operation, writing.permission_type,
    )  # fmt: skip
    (removed,) = admin.delete_acls([removing]).values()
    assert removed.result(SECONDS) == [writing]
    produce()
    assert errors.pop().code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_librdkafka_finds_by_a_pattern_what_it_may_know(
    ruled: SecuredBroker, certificates: Certificates
) -> None:
    """And what it may know from then on, as soon as a rule says so; the rest is nobody's in the group."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": ruled.bootstrap})
    names = ["found-open", "found-later", "found-never"]
    for made in admin.create_topics([confluent_kafka.admin.NewTopic(name, 1, 1) for name in names]).values():
        made.result(SECONDS)
    rule(ruled, "GROUP", "finders", "READ")
    rule(ruled, "TOPIC", "found-open", "READ")
    consumer = confluent_kafka.Consumer(
        {
            **options(ruled, certificates, "SASLTLS", "PLAIN"),
            "group.id": "finders",
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe(["^found-.*"])

    def assigned() -> set[str]:
        consumer.poll(0.1)
        return {place.topic for place in consumer.assignment()}

    wait_for(lambda: assigned() == {"found-open"}, "what it may read")
    rule(ruled, "TOPIC", "found-later", "READ")
    wait_for(lambda: assigned() == {"found-open", "found-later"}, "what it may read now")
    consumer.close()


def _error_of(consumer: confluent_kafka.Consumer) -> confluent_kafka.KafkaError:
    found: list[confluent_kafka.KafkaError] = []

    def look() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is not None:
            found.append(message.error())
        return bool(found)

    wait_for(look, "an error")
    return found[0]


def _values(consumer: confluent_kafka.Consumer) -> list[bytes | None]:
    return [message.value() for message in consumer.consume(1, 0.2) if message.error() is None]


@pytest.mark.java
def test_kafka_acls_makes_lists_and_removes_rules(
    kafka_tools: Tools,  # noqa: F811
    ruled: SecuredBroker,
) -> None:
    at = ("--bootstrap-server", ruled.bootstrap)
    said = kafka_tools.run(
        "kafka-acls", *at, "--add", "--allow-principal", "User:bob", "--producer", "--topic", "prices",
        "--transactional-id", "tx",
    )  # fmt: skip
    assert "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=prices" in said
    kafka_tools.run(
        "kafka-acls", *at, "--add", "--deny-principal", "User:eve", "--operation", "Read", "--group", "g",
        "--resource-pattern-type", "prefixed", "--deny-host", "10.0.0.1",
    )  # fmt: skip
    listed = kafka_tools.run("kafka-acls", *at, "--list")
    assert "(principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    assert "(principal=User:bob, host=*, operation=CREATE, permissionType=ALLOW)" in listed
    assert "(principal=User:eve, host=10.0.0.1, operation=READ, permissionType=DENY)" in listed
    assert "ResourcePattern(resourceType=GROUP, name=g, patternType=PREFIXED)" in listed
    kafka_tools.run("kafka-acls", *at, "--remove", "--topic", "prices", "--force")
    listed = kafka_tools.run("kafka-acls", *at, "--list")
    assert "prices" not in listed and "User:eve" in listed
