"""Goal: secured clusters are read with the options that users of Spark's own source write.

Method: options and JAAS texts as pure functions; SCRAM against the example of its standard and a broker that
cheats; then a real Apache Kafka, and a kompakt, with a listener of each kind, certificates made here,
read without a Spark session; at last both sources in one session with the very same options.
"""

from __future__ import annotations

import base64
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from spark_connector import connection
from spark_connector.authentication import Refused, Scram, authenticate
from spark_connector.client import Cluster
from spark_connector.errors import AuthenticationError, ConnectorError
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.security import MECHANISMS, Security, parse_jaas, parse_security
from spark_connector.shape import Shape
from tests.certificates import Certificates
from tests.kafka.tools import Tools
from tests.secured import PASSWORD, USER, SecuredBroker, SecuredKafka, add_user
from tests.spark.test_commits import lag_of
from tests.spark.test_spark import create_topic, produce, reader, received
from tests.thoroughness import slow
from tests.waiting import wait_for

Secured = SecuredKafka | SecuredBroker
BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(password: str = PASSWORD, module: str = SCRAM, user: str = USER) -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{module} required username="{user}" password="{quoted}";'


# --- options


@pytest.mark.parametrize(
    "text",
    [
        f'{SCRAM} required username="u" password="p";',
        f"{PLAIN}  REQUIRED\n  username='u'\tpassword='p' ;\n",
        f'kafkashaded.{SCRAM} required username=u password="p" ;',
        f"{PLAIN} required password=p username = u;",
    ],
)
def test_jaas_texts(text: str) -> None:
    assert parse_jaas(text) == {"username": "u", "password": "p"}


def test_a_quoted_password_may_hold_anything() -> None:
    assert parse_jaas(jaas())["password"] == PASSWORD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{SCRAM} required username="u" password="hunter2"', "end with a semicolon"),
        (f'{SCRAM} required username="u" password="hunter2;', "quotation mark"),
        (f'{SCRAM} username="u" password="hunter2";', "stands `required`"),
        (f'{SCRAM} required username="u" password "hunter2";', "name=value"),
        (f"{SCRAM} required password=hunter2=x;", "name=value"),
        (f"{SCRAM} required username=u; {SCRAM} required password=hunter2;", "one login module"),
        ("com.sun.security.auth.module.Krb5LoginModule required password=hunter2;", "login module must be"),
        (f'{SCRAM} required password="hunter2";', "username and a password"),
        (f'{SCRAM} required username="u" password="hunter2" tokenauth=true;', "delegation tokens"),
        ("hunter2", "end with a semicolon"),
    ],
)
def test_a_wrong_jaas_text_is_said_without_its_secrets(text: str, message: str) -> None:
    values = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
    with pytest.raises(ConnectorError, match=message) as caught:
        parse_options({**BASE, **values, "kafka.sasl.jaas.config": text})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kafka.security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism must be one of .*GSSAPI"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"},
            "SCRAM-SHA-512, not OAUTHBEARER",
        ),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            "kafka.sasl.jaas.config is needed for PLAIN: .*PlainLoginModule required",
        ),
        ({"kafka.ssl.truststore.type": "JKS"}, "keytool -importkeystore .*openssl pkcs12 .*type=PEM"),
        ({"kafka.ssl.keystore.type": "pkcs12"}, "openssl pkcs12 -in keystore.p12 -nodes"),
        ({"kafka.ssl.truststore.type": "BKS"}, "must be PEM, not BKS"),
        ({"kafka.ssl.truststore.certificates": "hello"}, "must be PEM text"),
        (
            {
                "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE",
                "kafka.ssl.truststore.location": "x",
            },
            "exclude each other",
        ),
        ({"kafka.ssl.keystore.key": "x"}, "are needed together"),
        (
            {
                "kafka.ssl.keystore.key": "x",
                "kafka.ssl.keystore.certificate.chain": "x",
                "kafka.ssl.keystore.location": "x",
            },
            "exclude each other",
        ),
        ({"kafka.ssl.endpoint.identification.algorithm": "ldap"}, "https or empty, not ldap"),
        ({"kafka.ssl.enabled.protocols": "SSLv3"}, "TLSv1.2, TLSv1.3, not SSLv3"),
        ({"kafka.ssl.engine.factory.class": "com.X"}, "no Java runs here"),
        ({"kafka.ssl.cipher.suites": "X"}, "the names are Java's"),
    ],
)
def test_what_is_wrong_is_said(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConnectorError, match=message):
        parse_options({**BASE, "kafka.security.protocol": "SSL", **values})


def test_all_is_understood() -> None:
    values = {
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas(),
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.ssl.enabled.protocols": "TLSv1.3",
    }
    made = parse_options({**BASE, **values}).client.security
    assert (made.uses_tls, made.mechanism, made.username, made.password) == (
        True,
        MECHANISMS[2],
        USER,
        PASSWORD,
    )
    assert (made.trust.path, made.checks_host_name, made.tls_versions) == ("/ca.pem", False, ("TLSv1.3",))
    assert made.protocol == "SASL_SSL"
    assert pickle.loads(pickle.dumps(made)) == made
    assert (
        parse_security({"kafka.security.protocol": "PLAINTEXT", "kafka.ssl.cipher.suites": "x"}) == Security()
    )


def test_secrets_are_in_no_repr() -> None:
    values = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas("hunter2"),
        "kafka.ssl.keystore.key": "hunter2",
        "kafka.ssl.keystore.certificate.chain": "chain",
        "kafka.ssl.key.password": "hunter2",
        "kafka.ssl.truststore.password": "hunter2",
    }
    parsed = parse_options({**BASE, **values})
    assert parsed.client.security.password == "hunter2"
    assert "hunter2" not in f"{parsed!r} {parsed} {parsed.client.security!r}"


# --- SCRAM


def test_the_example_of_the_standard() -> None:
    """RFC 7677, section 3."""
    scram = Scram("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = scram.final(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    for wrong in (b"v=AAAA", b"v=", b"", b"e=invalid-proof", b"\xff"):
        with pytest.raises(Refused):
            scram.verify(wrong)


def test_names_are_escaped() -> None:
    assert Scram("SCRAM-SHA-512", "a=b,c", "x", nonce="N").first() == b"n,,n=a=3Db=2Cc,r=N"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"r=other,s=QQ==,i=4096", "nonce"),
        (b"r=N,s=QQ==,i=4096", "nonce"),
        (b"r=Nmore,s=QQ==,i=1", "1 SCRAM iterations"),
        (b"r=Nmore,s=QQ==,i=2000000000", "SCRAM iterations"),
        (b"r=Nmore,s=QQ==", "malformed"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_a_broker_that_cheats(answer: bytes, message: str) -> None:
    """A replayed nonce, few iterations (a cheap guess), very many (a long wait)."""
    with pytest.raises(Refused, match=message):
        Scram("SCRAM-SHA-256", "u", "p", nonce="N").final(answer)


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    """It answers every token with success."""
    nonces: list[str] = []

    def ask(request: Any, response: type[Any]) -> Any:
        if response is SaslHandshakeResponse:
            return SaslHandshakeResponse()
        if not nonces:
            nonces.append(request.auth_bytes.decode().rpartition("r=")[2])
            salt = base64.b64encode(b"salt").decode()
            return SaslAuthenticateResponse(auth_bytes=f"r={nonces[0]}x,s={salt},i=4096".encode())
        return SaslAuthenticateResponse(auth_bytes=b"v=QUFBQQ==")

    security = Security(mechanism="SCRAM-SHA-256", username=USER, password=PASSWORD)
    with pytest.raises(AuthenticationError, match="it does not know the password") as caught:
        authenticate(security, ask, "broker:1")
    assert PASSWORD not in str(caught.value)


# --- a real cluster


@pytest.fixture(scope="session", params=[slow("Apache Kafka"), "kompakt"])
def kafka(
    request: pytest.FixtureRequest,
    kafka_tools: Tools,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Secured]:
    """With one user and one topic of 30 records."""
    directory = tmp_path_factory.mktemp("secured")
    broker: Secured
    if request.param == "kompakt":
        broker = SecuredBroker(directory / "data", certificates)
    else:
        broker = SecuredKafka(directory, kafka_tools, certificates)
    try:
        broker.start()
        add_user(broker.bootstrap)
        broker.topic = create_topic(broker.bootstrap)
        produce(broker.bootstrap, broker.topic, 30)
        yield broker
    finally:
        broker.close()


def options(kafka: Secured, listener: str, protocol: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.address[listener],
        "kafka.security.protocol": protocol,
        "kafka.default.api.timeout.ms": "60000",
        "subscribe": kafka.topic,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def sasl(mechanism: str, **text: str) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {"kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": jaas(**{"module": module, **text})}


def rows(given: dict[str, str]) -> int:
    """How many records a batch read finds."""
    parsed = parse_options(given)
    reader = BatchReader(parsed, Shape.of(["value"]))
    return sum(made.num_rows for task in reader.partitions() for made in reader.read(task))


@pytest.mark.java
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("listener", "protocol"), [("SASLPLAIN", "SASL_PLAINTEXT"), ("SASLTLS", "SASL_SSL")])
def test_a_password_opens_the_door(
    kafka: Secured, certificates: Certificates, listener: str, protocol: str, mechanism: str
) -> None:
    trust = {"kafka.ssl.truststore.location": certificates.authority, "kafka.ssl.truststore.type": "PEM"}
    assert rows({**options(kafka, listener, protocol), **sasl(mechanism), **trust}) == 30


@pytest.mark.java
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("text", [{"password": "wrong"}, {"user": "mallory"}], ids=["password", "user"])
def test_a_wrong_password_is_refused_at_once(
    kafka: Secured, monkeypatch: pytest.MonkeyPatch, mechanism: str, text: dict[str, str]
) -> None:
    """One connection, one error, no second try."""
    opened: list[tuple[str, int]] = []
    create = socket.create_connection
    monkeypatch.setattr(
        connection.socket, "create_connection", lambda *given: opened.append(given[0]) or create(*given)
    )
    with pytest.raises(AuthenticationError) as caught:
        rows({**options(kafka, "SASLPLAIN", "SASL_PLAINTEXT"), **sasl(mechanism, **text)})
    said = str(caught.value)
    assert said.startswith(
        f"{kafka.address['SASLPLAIN']} refuses user {text.get('user', USER)} ({mechanism})"
    )
    assert "kafka.sasl.jaas.config" in said
    assert text.get("password", PASSWORD) not in said
    assert len(opened) == 1


@pytest.mark.java
def test_a_mechanism_that_is_not_offered(kafka: Secured) -> None:
    with pytest.raises(AuthenticationError, match=r"does not offer .*=PLAIN; it offers SCRAM-SHA-256"):
        rows({**options(kafka, "SHORT", "SASL_PLAINTEXT"), **sasl("PLAIN")})


@pytest.mark.java
def test_certificates_of_the_client(kafka: Secured, certificates: Certificates) -> None:
    """As one PEM file, as texts, with an encrypted key."""
    base = options(kafka, "TLS", "SSL", kafka__ssl__truststore__location=certificates.authority)
    assert rows({**base, "kafka.ssl.keystore.location": certificates.client}) == 30
    chain = {"kafka.ssl.keystore.certificate.chain": certificates.text("client.crt")}
    assert rows({**base, **chain, "kafka.ssl.keystore.key": certificates.text("client.key")}) == 30
    locked = {**base, **chain, "kafka.ssl.keystore.key": certificates.text("locked.key")}
    assert rows({**locked, "kafka.ssl.key.password": "unlock"}) == 30
    for password in ("", "hunter2"):
        with pytest.raises(
            ConnectorError, match=r"kafka\.ssl\.key\.password if the key is encrypted"
        ) as caught:
            rows({**locked, "kafka.ssl.key.password": password})
        assert "hunter2" not in str(caught.value)
    with pytest.raises(AuthenticationError, match=r"TLS failed: .*kafka\.ssl\.keystore\.location"):
        rows(base)


@pytest.mark.java
@pytest.mark.parametrize("line", ["{}", "    {}\n", "\t{}\r\n"], ids=["one line", "indented", "CRLF"])
def test_pem_texts_with_any_space(kafka: Secured, certificates: Certificates, line: str) -> None:
    """Kafka's own parser takes them, and options of SQL or in indented strings look like this."""

    def text(name: str) -> str:
        lines = certificates.text(name).splitlines()
        return " ".join(lines) if line == "{}" else "".join(map(line.format, lines))

    base = options(kafka, "TLS", "SSL", kafka__ssl__truststore__certificates=text("ca.pem"))
    for key, password in (("client.key", ""), ("locked.key", "unlock")):
        own = {
            "kafka.ssl.keystore.certificate.chain": text("client.crt"),
            "kafka.ssl.keystore.key": text(key),
        }
        assert rows({**base, **own, "kafka.ssl.key.password": password}) == 30


@pytest.mark.java
def test_certificates_of_the_broker(kafka: Secured, certificates: Certificates) -> None:
    """Trusted by file or text; refused when unknown, or for another host, unless that is allowed."""
    base = {**options(kafka, "SASLTLS", "SASL_SSL"), **sasl("SCRAM-SHA-512")}
    trusted = {**base, "kafka.ssl.truststore.certificates": certificates.text("ca.pem")}
    assert rows(trusted) == 30
    with pytest.raises(AuthenticationError, match=r"not trusted: .*kafka\.ssl\.truststore\.location"):
        rows(base)
    elsewhere = {"kafka.bootstrap.servers": kafka.address["SASLTLS"].replace("127.0.0.1", "localhost")}
    with pytest.raises(AuthenticationError, match=r"localhost.*endpoint\.identification\.algorithm"):
        rows({**trusted, **elsewhere})
    assert rows({**trusted, **elsewhere, "kafka.ssl.endpoint.identification.algorithm": ""}) == 30
    assert rows({**trusted, "kafka.ssl.enabled.protocols": "TLSv1.2"}) == 30


def test_files_that_are_no_pem(certificates: Certificates, tmp_path: Path) -> None:
    """Java's stores are told by their first bytes, whatever they are called."""
    base = {**BASE, "kafka.security.protocol": "SSL"}
    java = tmp_path / "store"
    java.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    broken = tmp_path / "broken.pem"
    broken.write_text("hello")
    pkcs12 = str(certificates.directory / "client.p12")
    for path, message in (
        (str(java), "is a JKS file. Convert it: `keytool -importkeystore"),
        (pkcs12, "is a PKCS12 file. Convert it"),
        (str(tmp_path / "absent"), "No such file.*on each executor"),
        (str(broken), "broken.pem"),
    ):
        for store in ("truststore", "keystore"):
            settings = parse_options({**base, f"kafka.ssl.{store}.location": path}).client
            with pytest.raises(ConnectorError, match=message):
                Cluster(settings).describe(None)


@pytest.mark.java
@pytest.mark.parametrize(
    ("listener", "protocol", "message"),
    [
        ("SASLPLAIN", "PLAINTEXT", r"does the listener speak PLAINTEXT \(kafka.security.protocol\)"),
        ("SASLTLS", "SASL_PLAINTEXT", r"kafka.security.protocol"),
        ("SASLPLAIN", "SSL", "is it a TLS listener"),
        ("TLS", "SASL_SSL", "TLS failed|has no SASL|refuses SASL"),
    ],
)
def test_the_wrong_protocol_for_a_listener(
    kafka: Secured, certificates: Certificates, listener: str, protocol: str, message: str
) -> None:
    chosen = options(kafka, listener, protocol, kafka__ssl__truststore__location=certificates.authority)
    with pytest.raises(ConnectorError, match=message):
        rows({**chosen, **sasl("SCRAM-SHA-256"), "kafka.default.api.timeout.ms": "1000"})


@pytest.mark.java
def test_a_session_that_ends(kafka: Secured) -> None:
    """The broker closes what lives longer than connections.max.reauth.ms: no task gets such a connection."""
    parsed = parse_options({**options(kafka, "SHORT", "SASL_PLAINTEXT"), **sasl("SCRAM-SHA-256")})
    cluster = Cluster(parsed.client)
    host, _, port = kafka.address["SHORT"].partition(":")
    with cluster.connection((host, int(port))) as first:
        assert first.is_usable
    with cluster.connection((host, int(port))) as again:
        assert again is first
    wait_for(lambda: not first.is_usable, "the session to end")
    with cluster.connection((host, int(port))) as second:
        assert second is not first
    cluster.close()


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_both_sources_take_the_same_options(
    spark: Any, peer: str, kafka: Secured, certificates: Certificates
) -> None:
    given = {**options(kafka, "SASLTLS", "SASL_SSL"), **sasl("SCRAM-SHA-512")}
    given |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": certificates.authority}
    found = [
        sorted(map(str, spark.read.format(source).options(**given).load().collect()))
        for source in (peer, "kompakt")
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 30


def commits_work(bootstrap: str, topic: str) -> bool:
    """Whether the broker has a coordinator yet; asked for one, a new broker begins to prepare it."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "first-of-all"})
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 1)], asynchronous=False)
    except confluent_kafka.KafkaException:
        return False
    finally:
        consumer.close()
    return True


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_writes_and_commits_take_the_same_options(
    spark: Any, kafka: Secured, certificates: Certificates, tmp_path: Path
) -> None:
    """A stream out of a topic into another, over TLS with a password, whose group shows where it is."""
    given = {**options(kafka, "SASLTLS", "SASL_SSL"), **sasl("SCRAM-SHA-512")}
    given |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": certificates.authority}
    copy, group = create_topic(kafka.bootstrap), "secured-group"
    wait_for(lambda: commits_work(kafka.bootstrap, kafka.topic), "the broker's topic of offsets")
    source = spark.readStream.format("kompakt").options(**given, startingOffsets="earliest")
    frame = source.options(groupId=group, commitOffsets="true", includeHeaders="true").load()
    del given["subscribe"]
    sink = frame.drop("topic", "offset", "timestampType").writeStream.format("kompakt")
    sink = sink.options(**given, topic=copy, includeHeaders="true")
    query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    found = [
        received(reader(spark, kafka.bootstrap, topic, includeHeaders="true").load())
        for topic in (kafka.topic, copy)
    ]
    assert found[1] == [record._replace(topic=copy) for record in found[0]]
    assert len(found[0]) == 30
    assert lag_of(kafka.bootstrap, kafka.topic, group) == {0: 0, 1: 0, 2: 0}


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("does", ["read", "write"])
def test_a_refused_password_through_spark(spark: Any, kafka: Secured, does: str) -> None:
    """Who refuses whom, and which option to look at, without the password."""
    wrong = sasl("SCRAM-SHA-256", password="hunter2")
    given = {**options(kafka, "SASLPLAIN", "SASL_PLAINTEXT"), **wrong}
    with pytest.raises(Exception, match="AuthenticationError: ") as caught:
        if does == "read":
            spark.read.format("kompakt").options(**given).load().count()
        else:
            given["topic"] = given.pop("subscribe")
            rows_to_write = spark.range(2).selectExpr("CAST(id AS STRING) AS value")
            rows_to_write.write.format("kompakt").options(**given).mode("append").save()
    (line, *_) = [line for line in str(caught.value).splitlines() if "AuthenticationError: " in line]
    assert f"{kafka.address['SASLPLAIN']} refuses user {USER} (SCRAM-SHA-256)" in line
    assert "kafka.sasl.jaas.config" in line
    assert "hunter2" not in str(caught.value)
