"""Goal: a TLS listener serves what a plain one does, knows clients by their certificates, says in a line
why it refuses one, and takes new certificates while it serves.

Method: a broker in the loop with certificates made on the spot, clients by Python's own TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from broker.security import tls_transport
from broker.security.principal import ANONYMOUS
from broker.security.tls import RENEWAL_MS
from protocol.framing import encode_request
from protocol.messages.metadata import MetadataRequest
from storage.layout import TopicPartition
from tests.broker.client import LIMIT_SECONDS, Client, until
from tests.broker.conftest import World, fetch_request, problem_at_start, produce_request
from tests.certificates import Certificates, make_certificates

MakeWorld = Callable[..., Awaitable[World]]
TOPICS = MetadataRequest(topics=[])
KIB = 1024


@pytest.fixture
async def make_secure(make_world: MakeWorld, certificates: Certificates) -> MakeWorld:
    async def make(**settings: str) -> World:
        own = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl_keystore_location": certificates.broker,
            "ssl_truststore_location": certificates.authority,
            "connections_max_idle_ms": "-1",
        }
        return await make_world(**{**own, **settings})

    return make


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    made: list[Client] = []

    async def to(world: World, context: ssl.SSLContext) -> Client:
        port = world.broker.listeners[0].port
        client = Client(*await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 30), "test")
        made.append(client)
        return client

    yield to
    for client in made:
        with contextlib.suppress(ssl.SSLError):  # an alert that nobody has read
            await client.close()


Connect = Callable[[World, ssl.SSLContext], Awaitable[Client]]


def trusting(certificates: Certificates, identity: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.authority)
    if identity is not None:
        context.load_cert_chain(certificates.directory / identity)
    return context


def principals(world: World) -> set[str]:
    return {connection.principal for connection in world.broker.servers[0].connections}


async def is_refused(world: World, connect: Connect, context: ssl.SSLContext) -> bool:
    """Whether the broker breaks it off; with TLS 1.3 the client learns of it behind its own handshake."""
    try:
        client = await connect(world, context)
        client.send(TOPICS, 9)
        async with asyncio.timeout(LIMIT_SECONDS):
            return await client.reader.read(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


# Serving


async def test_large_answers_come_whole(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates
) -> None:
    """Regions of files, in pieces, to several clients side by side."""
    world = await make_secure()
    world.topic()
    values = [bytes([number]) * 700 * KIB for number in range(8)]
    writer = await connect(world, trusting(certificates))
    for value in values:
        assert (await world.produce(writer, world.batch((b"k", value)))).error_code == 0
    clients = [await connect(world, trusting(certificates)) for _ in range(3)]
    request = fetch_request([("t", 0, 0)], partition_max_bytes=1 << 26)
    answers = await asyncio.gather(*(client.ask(request, 12) for client in clients))
    sizes = {len(answer.responses[0].partitions[0].records) for answer in answers}
    assert len(sizes) == 1 and sizes.pop() > sum(map(len, values))
    assert await world.values(writer) == values[:1]  # of a partition at most 1 MiB is asked for


async def test_a_client_that_does_not_read_stops_nobody(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates
) -> None:
    world = await make_secure()
    world.topic()
    lazy, other = [await connect(world, trusting(certificates)) for _ in range(2)]
    for _ in range(8):
        await world.produce(other, world.batch((b"k", b"v" * 900 * KIB)))
    request = fetch_request([("t", 0, 0)], partition_max_bytes=1 << 26)
    lazy.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(10):
        lazy.send(request, 12)
    for _ in range(20):
        assert (await other.ask(TOPICS, 9)).brokers
    counters = world.broker.metrics_state
    assert counters.unread_bytes < 3 * 8 * 900 * KIB, "more than one answer was made that nobody reads"
    lazy.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(10):
        assert len(await lazy.receive_frame()) > 8 * 900 * KIB


async def test_the_stop_waits_for_no_handshake(make_secure: MakeWorld, certificates: Certificates) -> None:
    world = await make_secure()
    _, writer = await asyncio.open_connection("127.0.0.1", world.broker.listeners[0].port)
    await world.restart()
    writer.close()


# Who clients are


@pytest.mark.parametrize(
    ("rules", "principal"),
    [("DEFAULT", "User:CN=client"), ("RULE:^CN=(.*)$/$1@acme/U", "User:CLIENT@ACME")],
)
async def test_a_certificate_says_who_a_client_is(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates, rules: str, principal: str
) -> None:
    world = await make_secure(ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    client = await connect(world, trusting(certificates, "client.pem"))
    assert (await client.ask(TOPICS, 9)).brokers
    assert principals(world) == {principal}
    assert world.broker.metrics_state.authentications == 1


async def test_a_client_without_a_certificate_is_nobody(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates
) -> None:
    world = await make_secure(ssl_client_auth="requested")
    client = await connect(world, trusting(certificates))
    assert (await client.ask(TOPICS, 9)).brokers
    assert principals(world) == {ANONYMOUS}
    assert world.broker.metrics_state.authentications == 0


async def test_where_a_certificate_is_required(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_secure(ssl_client_auth="required")
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):  # the broker's alert
        client = await connect(world, trusting(certificates))
        client.send(TOPICS, 9)
        await client.receive_frame()
    assert "TLS: peer did not return a certificate" in caplog.text
    assert world.broker.metrics_state.failed_authentications == 1
    assert not world.broker.servers[0].connections


async def test_a_certificate_of_another_authority(
    make_secure: MakeWorld,
    connect: Connect,
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await make_secure(ssl_client_auth="requested")
    strange = make_certificates(tmp_path)
    context = trusting(certificates)
    context.load_cert_chain(strange.client)
    assert await is_refused(world, connect, context)
    assert "TLS: certificate verify failed" in caplog.text


async def test_a_client_that_no_rule_names(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_secure(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^OU=(.*)$/$1/")
    assert await is_refused(world, connect, trusting(certificates, "client.pem"))
    assert "no rule of ssl.principal.mapping.rules applies to CN=client" in caplog.text


# Who is not let in


async def test_a_client_that_speaks_no_tls(make_secure: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    world = await make_secure()
    client = await world.connect()
    client.send(TOPICS, 9)
    assert await client.reader.read() is not None  # an alert perhaps, and the end
    await until(lambda: world.broker.metrics_state.failed_authentications == 1)
    assert "TLS: wrong version number" in caplog.text or "TLS: record layer failure" in caplog.text


async def test_a_version_that_is_not_spoken(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_secure(ssl_enabled_protocols="TLSv1.3")
    old = trusting(certificates)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert await is_refused(world, connect, old)
    assert "TLS: unsupported protocol" in caplog.text
    assert not await is_refused(world, connect, trusting(certificates))


async def test_who_is_silent_is_cut_off(
    make_secure: MakeWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_SECONDS", 0.05)
    world = await make_secure()
    client = await world.connect()
    assert await client.is_closed_by_peer()
    assert "TLS: no handshake in 0.05 s" in caplog.text
    assert world.broker.metrics_state.failed_authentications == 1


class BareTls:
    """A client's side of TLS by hand, so that a test may send what is none."""

    def __init__(self, client: Client, context: ssl.SSLContext) -> None:
        self._client = client
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    async def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._client.send_bytes(self._outgoing.read())
                self._incoming.write(await self._client.reader.read(1 << 16))
            else:
                return self._client.send_bytes(self._outgoing.read())

    def sealed(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_sealed_bytes_may_come_in_any_pieces(
    make_secure: MakeWorld, certificates: Certificates, step: int
) -> None:
    world = await make_secure()
    client = await world.connect()
    tls = BareTls(client, trusting(certificates))
    await tls.shake_hands()
    counters = world.broker.metrics_state
    frames = [b"".join(encode_request(TOPICS, 9, number, "c")) for number in range(20)]
    sealed = tls.sealed(b"".join(frames))
    for begin in range(0, len(sealed), step):
        client.send_bytes(sealed[begin : begin + step])
        await asyncio.sleep(0)
    await until(lambda: counters.requests[3] == 20)


async def test_a_broken_record_ends_its_connection_alone(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_secure()
    other = await connect(world, trusting(certificates))
    client = await world.connect()
    tls = BareTls(client, trusting(certificates))
    await tls.shake_hands()
    sealed = bytearray(tls.sealed(b"".join(encode_request(TOPICS, 9, 1, "c"))))
    sealed[-1] ^= 1
    client.send_bytes(bytes(sealed))
    assert await asyncio.wait_for(client.reader.read(), LIMIT_SECONDS) is not None
    words = ("decryption failed or bad record mac", "record layer failure")  # before OpenSSL 3.5, and since
    assert any(f"TLS: {reason}" in caplog.text for reason in words)
    assert world.broker.metrics_state.failed_authentications == 0
    assert world.broker.metrics_state.requests[3] == 0
    assert (await other.ask(TOPICS, 9)).brokers


async def test_who_only_looks_is_not_told(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """As health checks of balancers do."""
    world = await make_secure()
    looking = await world.connect()
    await looking.close()
    assert not await is_refused(world, connect, trusting(certificates))
    assert "refused" not in caplog.text
    assert world.broker.metrics_state.failed_authentications == 0


async def test_handshakes_count_as_connections(
    make_secure: MakeWorld, connect: Connect, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_secure(max_connections="2")
    idle = [await world.connect() for _ in range(2)]
    await until(lambda: len(world.broker.servers[0].connections) == 2)
    third = await world.connect()
    assert await third.is_closed_by_peer()
    assert "too many connections" in caplog.text
    for client in idle:
        await client.close()
    await until(lambda: not world.broker.servers[0].connections)
    assert not await is_refused(world, connect, trusting(certificates))


# Files and texts


async def test_a_new_certificate_is_taken_while_the_broker_serves(
    make_secure: MakeWorld,
    connect: Connect,
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = tmp_path / "own"
    shutil.copytree(certificates.directory, own)
    renewed = Certificates(own)
    world = await make_secure(ssl_keystore_location=renewed.broker)

    async def subject() -> object:
        client = await connect(world, trusting(certificates))
        return client.writer.get_extra_info("peercert")["subject"]

    assert await subject() == ((("commonName", "broker"),),)
    before = await connect(world, trusting(certificates))
    _spoil(renewed)
    await _minute(world)
    await until(lambda: "keeps the certificate that it has: ssl.keystore.location" in caplog.text)
    assert await subject() == ((("commonName", "broker"),),)
    renewed.sign("broker", "/CN=renewed")
    await _minute(world)
    while await subject() != ((("commonName", "renewed"),),):
        await _minute(world)
    assert (await before.ask(TOPICS, 9)).brokers


def _spoil(certificates: Certificates) -> None:
    Path(certificates.broker).write_text("half of a file")


async def _minute(world: World) -> None:
    world.clock.advance(RENEWAL_MS)
    await _turns()


async def _turns() -> None:
    """A moment in which threads and the loop get on."""
    await asyncio.sleep(0.01)


def _start(tmp_path: Path, **settings: str) -> str:
    """What a broker says that cannot start with these settings; "" when it can."""
    own = {"listeners": "SSL://127.0.0.1:0", "http_port": "-1"}
    return asyncio.run(problem_at_start(tmp_path / "data", **own, **settings))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.pem", "ssl.keystore.location {}: No such file or directory"),
        ("client.p12", "ssl.keystore.location {} is a PKCS12 file, PEM is needed. Convert it: `keytool"),
        ("ca.pem", "ssl.keystore.location {} cannot be used: "),
        ("client.crt", "ssl.keystore.location {} cannot be used: "),
        ("locked.pem", "and ssl.key.password if the key is encrypted"),
    ],
)
def test_a_file_that_is_no_certificate_with_its_key(
    certificates: Certificates, tmp_path: Path, name: str, words: str
) -> None:
    _lock(certificates)
    path = certificates.directory / name
    assert words.format(path) in _start(tmp_path, ssl_keystore_location=str(path))


def _lock(certificates: Certificates) -> None:
    text = certificates.text("locked.key") + certificates.text("client.crt")
    (certificates.directory / "locked.pem").write_text(text)


def test_an_encrypted_key_with_its_password(certificates: Certificates, tmp_path: Path) -> None:
    _lock(certificates)
    path = str(certificates.directory / "locked.pem")
    assert "cannot be used" in _start(tmp_path, ssl_keystore_location=path, ssl_key_password="wrong")
    assert _start(tmp_path, ssl_keystore_location=path, ssl_key_password="unlock") == ""


def test_texts_instead_of_files(certificates: Certificates, tmp_path: Path) -> None:
    """In one line, as files of properties and environments have them."""
    texts = {
        "ssl_keystore_certificate_chain": certificates.text("broker.crt").replace("\n", " "),
        "ssl_keystore_key": certificates.text("broker.key").replace("\n", " "),
        "ssl_truststore_certificates": certificates.text("ca.pem").replace("\n", " "),
        "ssl_client_auth": "required",
    }
    assert _start(tmp_path, **texts) == ""
    broken = {**texts, "ssl_truststore_certificates": "no certificate"}
    assert "ssl.truststore.certificates has no certificate that can be read" in _start(tmp_path, **broken)
    assert not list(tmp_path.glob("kompakt-*.pem"))


@pytest.mark.parametrize("has_memory", [True, False])
def test_texts_where_no_temporary_file_can_be_made(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_memory: bool
) -> None:
    """They need none, but for a Python that is built for old systems."""
    texts = {
        "ssl_keystore_certificate_chain": certificates.text("broker.crt"),
        "ssl_keystore_key": certificates.text("broker.key"),
    }
    if not has_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
        assert _start(tmp_path, **texts) == ""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    said = _start(tmp_path, **texts)
    if has_memory and hasattr(os, "memfd_create"):
        assert said == ""
    else:
        assert said.startswith("ssl.keystore.key and ssl.keystore.certificate.chain cannot be used, for no ")
        assert "TMPDIR may name a place, or ssl.keystore.location a file" in said


def test_a_truststore_that_is_none(certificates: Certificates, tmp_path: Path) -> None:
    own = {"ssl_keystore_location": certificates.broker, "ssl_client_auth": "required"}
    path = certificates.directory / "client.key"
    said = _start(tmp_path, **own, ssl_truststore_location=str(path))
    assert f"ssl.truststore.location {path} has no certificate that can be read" in said


def test_rules_that_are_none(certificates: Certificates, tmp_path: Path) -> None:
    said = _start(tmp_path, ssl_keystore_location=certificates.broker, ssl_principal_mapping_rules="RULE:x")
    assert said.startswith("Invalid value RULE:x for configuration ssl.principal.mapping.rules: not a rule")


@pytest.mark.parametrize(("count", "size"), [(1, 10), (300, 4 * KIB)])
async def test_what_comes_together_with_the_end_is_taken(
    make_secure: MakeWorld, certificates: Certificates, count: int, size: int
) -> None:
    """A producer that waits for no answer says its last words and leaves, all in one piece."""
    world = await make_secure()
    world.topic()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.broker.listeners[0].port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(certificates).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(1 << 16))
    batch = world.batch((b"k", bytes(size)))
    for number in range(count):
        tls.write(b"".join(encode_request(produce_request([("t", 0, batch)], acks=0), 9, number, "c")))
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.unwrap()
    writer.write(outgoing.read())
    assert await asyncio.wait_for(reader.read(), LIMIT_SECONDS), "it says that it is the end, too"
    writer.close()
    log = world.broker.partitions[TopicPartition("t", 0)].log
    await until(lambda: log.log_end_offset == count)
