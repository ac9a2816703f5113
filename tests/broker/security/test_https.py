"""Goal: what is asked over HTTP can be asked encrypted, of a broker that shows its certificate, by clients
that may show theirs; and who does not shake hands is in nobody's way.

Method: a broker in the loop whose HTTP listener speaks TLS, asked by Python's own client and by kompakt's
commands; certificates are made on the spot.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from broker import listening
from broker.cli.asking import ask
from broker.security.tls import RENEWAL_MS
from broker.testing import Kompakt
from config.broker import BrokerConfig
from config.load import read_environment
from tests.broker.client import LIMIT_SECONDS
from tests.broker.conftest import World, problem_at_start
from tests.broker.test_questions import MakeWorld
from tests.certificates import Certificates

ROOT = Path(__file__).parents[3]
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
def make_https(make_world: MakeWorld, certificates: Certificates) -> MakeWorld:
    async def make(**settings: str) -> World:
        own = {
            "http_port": "0",
            "http_security_protocol": "SSL",
            "ssl_keystore_location": certificates.broker,
            "ssl_truststore_location": certificates.authority,
        }
        return await make_world(**{**own, **settings})

    return make


def trusting(certificates: Certificates, own: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.authority)
    if own is not None:
        context.load_cert_chain(own)
    return context


def url_of(world: World, path: str, scheme: str = "https") -> str:
    return f"{scheme}://127.0.0.1:{world.broker.http.port}{path}"


async def status(world: World, path: str, context: ssl.SSLContext, **headers: str) -> int:
    """Of the answer to a question."""

    def asked() -> int:
        request = urllib.request.Request(url_of(world, path), headers=headers)
        try:
            with urllib.request.urlopen(request, context=context) as answer:
                code: int = answer.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        return code

    return await asyncio.to_thread(asked)


async def test_everything_is_asked_encrypted(make_https: MakeWorld, certificates: Certificates) -> None:
    world = await make_https()
    assert world.broker.http.scheme == "https"
    for path in ("/healthz", "/metrics", "/console/", "/api/broker"):
        assert await status(world, path, trusting(certificates)) == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        await status(world, "/healthz", ssl.create_default_context())
    with pytest.raises(OSError):
        await asyncio.to_thread(urllib.request.urlopen, url_of(world, "/healthz", "http"))


async def test_other_sites_are_refused_as_without_tls(
    make_https: MakeWorld, certificates: Certificates
) -> None:
    world, trust = await make_https(), trusting(certificates)
    own = f"https://127.0.0.1:{world.broker.http.port}"
    assert await status(world, "/api/broker", trust, Origin=own) == 200
    assert await status(world, "/api/broker", trust, Origin="https://elsewhere.example") == 403


async def test_a_new_certificate_is_taken_while_it_serves(
    make_https: MakeWorld, certificates: Certificates, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(certificates.directory, own)
    renewed = Certificates(own)
    world = await make_https(listener_name_http_ssl_keystore_location=renewed.broker)

    async def subject() -> object:
        port, trust = world.broker.http.port, trusting(certificates)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        shown = writer.get_extra_info("peercert")["subject"]
        writer.close()
        return shown

    assert await subject() == ((("commonName", "broker"),),)
    renewed.sign("broker", "/CN=renewed")
    while await subject() != ((("commonName", "renewed"),),):
        world.clock.advance(RENEWAL_MS)
        await asyncio.sleep(0.01)


async def test_clients_are_who_their_certificate_says(
    make_https: MakeWorld, certificates: Certificates
) -> None:
    """Those that show one: it is asked for, and not demanded."""
    world = await make_https(
        authorizer_class_name=AUTHORIZER,
        super_users="User:client",
        listener_name_http_ssl_client_auth="requested",
        listener_name_http_ssl_principal_mapping_rules="RULE:^CN=(client)$/$1/",
        connection_failed_authentication_delay_ms="0",
    )
    known = trusting(certificates, certificates.client)
    assert await status(world, "/api/broker", known) == 200
    assert await status(world, "/api/broker", trusting(certificates)) == 401
    assert await status(world, "/api/broker", trusting(certificates, certificates.broker)) == 401, "no rule"
    assert await status(world, "/api/broker", known, Authorization="Basic cm9vdDp4") == 401, "says another"


async def test_what_the_listeners_of_kafka_demand_is_not_demanded_of_browsers(
    make_https: MakeWorld, certificates: Certificates
) -> None:
    world = await make_https(ssl_client_auth="required")
    assert await status(world, "/healthz", trusting(certificates)) == 200


def test_a_listener_of_kafkas_that_is_called_http_demands_it() -> None:
    settings = {"listener.security.protocol.map": "HTTP:SSL", "ssl.client.auth": "required"}
    files = {"ssl.keystore.location": "broker.pem", "ssl.truststore.location": "ca.pem"}
    config = BrokerConfig.parse({"listeners": "HTTP://127.0.0.1:0", **settings, **files})
    assert config.security_of(config.endpoints[0]).keys.ssl_client_auth == "required"
    assert config.http_security.keys.ssl_client_auth == "none"


async def test_who_shakes_no_hands_is_in_nobodys_way_and_is_cut_off(
    make_https: MakeWorld, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_SECONDS", 1.0)
    world = await make_https(http_max_connections="1")
    silent = [await asyncio.open_connection("127.0.0.1", world.broker.http.port) for _ in range(5)]
    assert await status(world, "/healthz", trusting(certificates)) == 200
    for reader, writer in silent:
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_who_shakes_no_hands_has_a_place_and_takes_no_more(
    make_https: MakeWorld, certificates: Certificates
) -> None:
    """Each connection is a descriptor, and partitions need some."""
    world = await make_https(http_max_connections="3")
    silent = [await asyncio.open_connection("127.0.0.1", world.broker.http.port) for _ in range(40)]
    for reader, _ in silent[:37]:
        async with asyncio.timeout(LIMIT_SECONDS):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
    assert await status(world, "/healthz", trusting(certificates)) == 200
    for _, writer in silent:
        writer.close()


async def test_what_comes_with_the_last_of_the_handshake_is_answered(
    make_https: MakeWorld, certificates: Certificates
) -> None:
    """Clients of TLS 1.3 ask in the flight that ends it."""
    world = await make_https()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting(certificates).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    reader, writer = await asyncio.open_connection("127.0.0.1", world.broker.http.port)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(1 << 16))
    client.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    writer.write(outgoing.read())  # the end of the handshake, and the request
    answer = b""
    async with asyncio.timeout(LIMIT_SECONDS):
        while b"\r\n" not in answer:
            incoming.write(await reader.read(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer += client.read(1 << 16)
    assert answer.startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_connection_that_is_one_too_many_is_refused_behind_its_handshake(
    make_https: MakeWorld, certificates: Certificates
) -> None:
    world, trust = await make_https(http_max_connections="1"), trusting(certificates)
    port = world.broker.http.port
    first, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    assert await status(world, "/healthz", trust) == 200, "who asks nothing gives way"
    assert await first.read() == b""
    writer.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"http_security_protocol": "HTTPS"}, "http.security.protocol"),
        ({"http_security_protocol": "SSL"}, "Listener HTTP (SSL): it needs the broker's certificate and key"),
        ({"listener_name_http_ssl_client_auth": "none"}, "is for a listener that is not among listeners"),
        (
            {
                "http_security_protocol": "SSL",
                "listener_name_http_ssl_keystore_location": "{broker}",
                "listener_name_http_ssl_principal_mapping_rules": "RULE:",
            },
            "not a rule like",
        ),
        (
            {
                "http_security_protocol": "SSL",
                "listener_name_http_ssl_keystore_location": "{missing}",
            },
            "ssl.keystore.location",
        ),
    ],
)
def test_settings_that_cannot_be(
    settings: dict[str, str], words: str, tmp_path: Path, certificates: Certificates
) -> None:
    places = {"broker": certificates.broker, "missing": str(tmp_path / "none.pem")}
    texts = {name: text.format(**places) for name, text in settings.items()}
    own = {"listeners": "PLAINTEXT://127.0.0.1:0", "http_port": "0"}
    assert words in asyncio.run(problem_at_start(tmp_path / "data", **own, **texts))


@pytest.mark.parametrize("speaks", ["PLAINTEXT", "SSL"])
async def test_elsewhere_it_is_told_that_passwords_can_be_read(
    make_https: MakeWorld, speaks: str, caplog: pytest.LogCaptureFixture
) -> None:
    await make_https(http_security_protocol=speaks, http_host="0.0.0.0", authorizer_class_name=AUTHORIZER)
    assert ("is not encrypted" in caplog.text) == (speaks == "PLAINTEXT")


def health(port: object, **more: str) -> str:
    """What the health check of the container image says; "" when all is well."""
    command = [sys.executable, str(ROOT / "docker" / "health.py")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOMPAKT_")}
    environment |= {"KAFKA_HTTP_PORT": str(port), **more}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("speaks", ["PLAINTEXT", "SSL"])
async def test_the_containers_health_check_asks_as_the_broker_answers(
    make_https: MakeWorld, speaks: str
) -> None:
    world = await make_https(http_security_protocol=speaks)
    port = world.broker.http.port
    assert await asyncio.to_thread(health, port) == ""
    world.broker.is_ready = False
    assert "HTTP Error 503" in await asyncio.to_thread(health, port)
    await world.stop()
    assert "refused" in await asyncio.to_thread(health, port)
    await world.start()


def test_the_containers_health_check_beside_a_service_that_is_called_kafka_http() -> None:
    """The broker passes over its address, and listens where it does by itself."""
    words = health("tcp://10.0.0.1:80")
    assert "InvalidURL" not in words and "nonnumeric" not in words
    assert read_environment({"KAFKA_HTTP_PORT": "tcp://10.0.0.1:80"}) == {}


@pytest.mark.parametrize("speaks", ["PLAINTEXT", "SSL"])
async def test_the_containers_health_check_asks_no_proxy(make_https: MakeWorld, speaks: str) -> None:
    """One that is set for the container knows no 127.0.0.1 of this machine."""
    port = (await make_https(http_security_protocol=speaks)).broker.http.port
    proxy = "http://127.0.0.1:1"
    assert await asyncio.to_thread(lambda: health(port, http_proxy=proxy, https_proxy=proxy)) == ""


async def test_the_containers_health_check_where_certificates_are_demanded(
    make_https: MakeWorld, certificates: Certificates
) -> None:
    """Who is refused for having none has met a broker that is alive; who has one is told how it is."""
    world = await make_https(listener_name_http_ssl_client_auth="required")
    port = world.broker.http.port
    assert await asyncio.to_thread(health, port) == ""
    own = {"KOMPAKT_HTTP_CERTIFICATE": certificates.client}
    assert await asyncio.to_thread(lambda: health(port, **own)) == ""
    world.broker.is_ready = False
    assert "HTTP Error 503" in await asyncio.to_thread(lambda: health(port, **own))
    await world.stop()
    assert "refused" in await asyncio.to_thread(health, port)
    await world.start()


# The command


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith(("KOMPAKT_HTTP_", "SSL_CERT_"))]:
        monkeypatch.delenv(name)
    return monkeypatch


async def failure(where: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that cannot ask."""
    with pytest.raises(Exception) as ended:
        await asyncio.to_thread(ask, where, "/api/broker")
    assert getattr(ended.value, "exit_code", None) == 2
    return capsys.readouterr().err


async def test_commands_ask_encrypted(
    make_https: MakeWorld,
    certificates: Certificates,
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    world = await make_https(
        authorizer_class_name=AUTHORIZER,
        super_users="User:CN=client",
        listener_name_http_ssl_client_auth="required",
    )
    address = f"127.0.0.1:{world.broker.http.port}"
    where = f"https://{address}"
    assert "KOMPAKT_HTTP_CA names the file of who has signed it" in await failure(where, capsys)
    assert "where it speaks TLS: https:// before the address" in await failure(address, capsys)
    environment.setenv("KOMPAKT_HTTP_CA", str(tmp_path / "none.pem"))
    assert "KOMPAKT_HTTP_CA has to be a file with certificates, as PEM" in await failure(where, capsys)
    environment.setenv("KOMPAKT_HTTP_CA", certificates.authority)
    assert "where it demands a certificate: KOMPAKT_HTTP_CERTIFICATE names" in await failure(where, capsys)
    environment.setenv("KOMPAKT_HTTP_CERTIFICATE", str(certificates.directory / "locked.key"))
    assert "KOMPAKT_HTTP_CERTIFICATE has to be a file" in await failure(where, capsys)
    environment.setenv("KOMPAKT_HTTP_CERTIFICATE", certificates.client)
    assert (await asyncio.to_thread(ask, where, "/api/broker"))["topics"] == 0


async def test_a_command_is_told_that_the_broker_speaks_no_tls(
    make_world: MakeWorld, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = await make_world(http_port="0")
    said = await failure(f"https://127.0.0.1:{world.broker.http.port}", capsys)
    assert "it speaks no TLS: leave out https://" in said


def test_the_broker_for_tests_says_where_it_is(certificates: Certificates) -> None:
    settings = {"http.port": "0", "http.security.protocol": "SSL"}
    with Kompakt({**settings, "ssl.keystore.location": certificates.broker}) as broker:
        answer = urllib.request.urlopen(f"{broker.http}/healthz", context=trusting(certificates))
        with answer:
            assert answer.status == 200
