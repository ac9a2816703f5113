"""Goal: unmodified clients come in with tokens (OAUTHBEARER), as their users set them up, bring new ones
before the old are over, and learn that one is not taken.

Method: one broker process with a file of keys; librdkafka, aiokafka, kafka-python and Kafka's tools.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth
import pytest

from tests.kafka.fixtures import kafka_tools  # noqa: F401
from tests.kafka.tools import Tools, environment
from tests.process import BrokerProcess, free_port
from tests.tokens import AUDIENCE, ISSUER, Issuer
from tests.waiting import wait_for

SECONDS = 60.0
COUNT = 100
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SHORT_S = 20
"""librdkafka asks for a new token when four fifths of its time are over"""


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("tokens")
    keys = directory / "keys.json"
    keys.write_bytes(issuer.key_set())
    started = BrokerProcess(
        directory / "data",
        {
            "listeners": f"PLAINTEXT://127.0.0.1:0,TOKENS://127.0.0.1:{free_port()}",
            "listener.security.protocol.map": "TOKENS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        },
    ).start()
    yield started
    status, log = started.stop(), started.log()
    started.close()
    assert status == 0, log
    assert "Traceback" not in log, log


def place(broker: BrokerProcess) -> str:
    return broker.settings["listeners"].partition("TOKENS://")[2]


def librdkafka(broker: BrokerProcess, issuer: Issuer, seconds: int = 3600, **claims: Any) -> dict[str, Any]:
    """Its options; `asked` counts how often it wants a token."""
    asked: list[float] = []

    def token(_: str) -> tuple[str, float]:
        asked.append(time.time())
        ends = int(time.time()) + seconds
        return issuer.token(**{"exp": ends, **claims}), float(ends)

    return {
        "bootstrap.servers": place(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
        "asked": asked,
    }


def test_librdkafka(broker: BrokerProcess, issuer: Issuer) -> None:
    given = librdkafka(broker, issuer)
    given.pop("asked")
    producer = confluent_kafka.Producer(given)
    for number in range(COUNT):
        producer.produce("rd", b"%d" % number)
    assert producer.flush(SECONDS) == 0
    consumer = confluent_kafka.Consumer({**given, "group.id": "rd", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rd"])
    values: list[Any] = []
    wait_for(lambda: len(values.extend(consumer.consume(COUNT, 1)) or values) >= COUNT, "all records")
    consumer.close()
    assert [one.value() for one in values] == [b"%d" % number for number in range(COUNT)]


def test_librdkafka_brings_a_new_token_before_the_old_one_is_over(
    broker: BrokerProcess, issuer: Issuer
) -> None:
    given = librdkafka(broker, issuer, SHORT_S)
    asked = given.pop("asked")
    problems: list[Any] = []
    producer = confluent_kafka.Producer({**given, "error_cb": problems.append})
    began = time.time()

    def is_through() -> bool:
        producer.produce("short", b"x")
        assert producer.flush(SECONDS) == 0
        return time.time() > began + 1.5 * SHORT_S

    wait_for(is_through, "half as long again as a token holds")
    assert len(asked) >= 2
    assert not problems, "a session that ends closes the connection"


def test_librdkafka_is_told_that_its_token_is_not_taken(broker: BrokerProcess, issuer: Issuer) -> None:
    given = librdkafka(broker, issuer, aud="another")
    given.pop("asked")
    problems: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer({**given, "error_cb": problems.append})
    producer.produce("rd", b"x")
    wait_for(lambda: producer.poll(0.1) is not None and problems, "the error")
    assert problems[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert '{"status":"invalid_token"}' in problems[0].str()
    producer.purge()
    wait_for(lambda: "it is for ['another'], and has to be for kompakt" in broker.log(), "why, in the log")


class Given(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def token(self) -> str:
        return self._issuer.token()


def test_aiokafka(broker: BrokerProcess, issuer: Issuer) -> None:
    async def run() -> list[bytes | None]:
        given: dict[str, Any] = {
            "bootstrap_servers": place(broker),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Given(issuer),
        }
        async with aiokafka.AIOKafkaProducer(**given) as producer:
            for number in range(10):
                await producer.send_and_wait("aio", b"%d" % number)
        consumer = aiokafka.AIOKafkaConsumer("aio", auto_offset_reset="earliest", **given)
        async with consumer:
            return [(await asyncio.wait_for(anext(consumer), SECONDS)).value for _ in range(10)]

    assert asyncio.run(run()) == [b"%d" % number for number in range(10)]


def test_kafka_python(broker: BrokerProcess, issuer: Issuer) -> None:
    class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return issuer.token("ec")

    given = {
        "bootstrap_servers": place(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
    }
    producer = kafka.KafkaProducer(**given)
    for number in range(10):
        producer.send("py", b"%d" % number).get(SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer("py", auto_offset_reset="earliest", **given)
    assert [next(consumer).value for _ in range(10)] == [b"%d" % number for number in range(10)]
    consumer.close()


@pytest.mark.java
def test_the_console_tools(
    kafka_tools: Tools,  # noqa: F811
    broker: BrokerProcess,
    issuer: Issuer,
    tmp_path: Path,
) -> None:
    """Java's client, with its token in a file."""
    token, config = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(issuer.token())
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={MODULE} required;\nsasl.login.callback.handler.class={handler}\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}",)
    at = ("--bootstrap-server", place(broker), "--topic", "console", "--command-config", config)
    lines = "".join(f"v{number}\n" for number in range(50))
    for name, more, given in (
        ("kafka-topics", ("--create",), ""),
        ("kafka-console-producer", (), lines),
        ("kafka-console-consumer", ("--from-beginning", "--max-messages", 50), ""),
    ):
        done = subprocess.run(
            kafka_tools.command(name, *at, *more, options=options),
            input=given,
            capture_output=True,
            text=True,
            timeout=180,
            env=environment(),
        )
        assert done.returncode == 0, (done.args, done.stderr)
    assert done.stdout == lines
