"""Goal: the keys of TLS and SASL hold for the listener and mechanism that they name, as in Kafka, and what is
missing is said before the broker starts.

Method: settings as they stand in files of properties and in the environment, and what holds for a listener.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from config.broker import BrokerConfig
from config.definition import ConfigError
from config.load import load
from config.security import ListenerSecurity

README = Path(__file__).parents[2] / "README.md"
TWO = "A://127.0.0.1:1,B://127.0.0.1:2"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'

SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def of(config: BrokerConfig, listener: str) -> ListenerSecurity:
    (endpoint,) = [one for one in config.endpoints if one.name == listener]
    return config.security_of(endpoint)


def test_a_listener_has_its_own_values() -> None:
    config = load(
        settings={
            "listeners": TWO,
            "listener.security.protocol.map": "A:SASL_SSL,B:SSL",
            "ssl.keystore.location": "common.pem",
            "ssl.truststore.location": "authorities.pem",
            "connections.max.reauth.ms": "9000",
            "listener.name.a.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.a.plain.sasl.jaas.config": JAAS,
            "listener.name.a.plain.connections.max.reauth.ms": "1000",
            "listener.name.b.ssl.keystore.location": "own.pem",
            "listener.name.b.ssl.client.auth": "required",
        }
    )
    first, second = of(config, "A"), of(config, "B")
    assert (first.protocol, first.uses_tls, first.uses_sasl) == ("SASL_SSL", True, True)
    assert (second.protocol, second.uses_tls, second.uses_sasl) == ("SSL", True, False)
    assert first.keys.ssl_keystore_location == "common.pem"
    assert second.keys.ssl_keystore_location == "own.pem"
    assert (first.keys.ssl_client_auth, second.keys.ssl_client_auth) == ("none", "required")
    assert first.keys.sasl_enabled_mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert second.keys.sasl_enabled_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert (first.session_ms("PLAIN"), first.session_ms("SCRAM-SHA-512")) == (1000, 9000)
    assert first.plain_jaas == JAAS


def test_who_says_who_it_is_need_not_show_a_certificate_as_well() -> None:
    """KIP-684."""
    settings = {
        "listeners": "SSL://:1,SASL_SSL://:2",
        "ssl.keystore.location": "a.pem",
        "ssl.truststore.location": "b.pem",
        "ssl.client.auth": "required",
    }
    config = load(settings=settings)
    assert of(config, "SSL").keys.ssl_client_auth == "required"
    assert of(config, "SASL_SSL").keys.ssl_client_auth == "none"
    config = load(settings={**settings, "listener.name.sasl_ssl.ssl.client.auth": "required"})
    assert of(config, "SASL_SSL").keys.ssl_client_auth == "required"


def test_from_the_environment_of_a_container() -> None:
    config = load(
        environment={
            "KAFKA_LISTENERS": "SASL_PLAINTEXT://:9092",
            "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256",
            "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG": JAAS,
            "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_SCRAM___SHA___256_SASL_JAAS_CONFIG": SCRAM_JAAS,
        }
    )
    assert of(config, "SASL_PLAINTEXT").plain_jaas == JAAS


def test_secrets_are_in_no_repr() -> None:
    config = load(
        settings={
            "listeners": "SASL_SSL://:1",
            "sasl.enabled.mechanisms": "PLAIN",
            "ssl.keystore.key": "secret",
            "ssl.keystore.certificate.chain": "secret",
            "ssl.key.password": "secret",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        }
    )
    assert "secret" not in repr(of(config, "SASL_SSL"))
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "SSL://:1"}, "Listener SSL (SSL): it needs the broker's certificate and key: ssl.key"),
        (
            {"listeners": "SSL://:1", "ssl.keystore.key": "k"},
            "ssl.keystore.certificate.chain and ssl.keystore.key are needed together",
        ),
        (
            {
                "listeners": "SSL://:1",
                "ssl.keystore.location": "l",
                "ssl.keystore.key": "k",
                "ssl.keystore.certificate.chain": "c",
            },
            "ssl.keystore.location and ssl.keystore.certificate.chain exclude each other",
        ),
        (
            {"listeners": "SSL://:1", "ssl.keystore.location": "l", "ssl.client.auth": "requested"},
            "ssl.client.auth=requested needs the certificates of who signs clients': ssl.truststore.location",
        ),
        (
            {
                "listeners": "SSL://:1",
                "ssl.keystore.location": "l",
                "ssl.truststore.location": "l",
                "ssl.truststore.certificates": "c",
            },
            "ssl.truststore.location and ssl.truststore.certificates exclude each other",
        ),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type: String must be one of: PEM"),
        ({"ssl.client.auth": "maybe"}, "String must be one of: none, requested, required"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "String must be one of: TLSv1.2, TLSv1.3"),
        (
            {"sasl.enabled.mechanisms": "GSSAPI"},
            "String must be one of: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "PLAIN"},
            "listener.name.sasl_plaintext.plain.sasl.jaas.config is missing: the users of PLAIN, as org",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://:1", "listener.name.sasl_plaintext.num.partitions": "3"},
            "Configuration listener.name.sasl_plaintext.num.partitions is not supported: no such key",
        ),
        (
            {"listener.name.plaintext.connections.max.reauth.ms": "x"},
            "for configuration listener.name.plaintext.connections.max.reauth.ms: Not a number",
        ),
        (
            {"listener.name.other.ssl.key.password": "x"},
            "listener.name.other.ssl.key.password is for a listener that is not among listeners",
        ),
        ({"authorizer.class.name": "com.acme.Mine"}, "for configuration authorizer.class.name"),
    ],
)
def test_what_is_missing_or_wrong_is_said(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(settings=settings)
    assert words in refused.value.message


def test_each_wrong_value_is_one_line_and_no_secret_is_in_it() -> None:
    with pytest.raises(ConfigError) as refused:
        load(
            settings={
                "listeners": "SASL_SSL://:1",
                "ssl.key.password": "hunter2",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": "hunter2",
                "listener.name.sasl_ssl.ssl.client.auth": "x",
                "listener.name.sasl_ssl.nonsense": "hunter2",
            }
        )
    assert len(refused.value.parts) == len(refused.value.message.splitlines()) == 3
    assert "hunter2" not in refused.value.message


def test_the_settings_of_the_readme_are_taken(tmp_path: Path) -> None:
    chapter = README.read_text().partition("## Security")[2].partition("\n## ")[0]
    file = tmp_path / "server.properties"
    file.write_text("\n".join(re.findall(r"^    ([a-z.]+ = .*)$", chapter, re.MULTILINE)))
    config = load(file=file)
    assert [(one.name, one.protocol, one.advertised_host) for one in config.endpoints] == [
        ("PLAINTEXT", "PLAINTEXT", "127.0.0.1"),
        ("SASL_SSL", "SASL_SSL", "kafka.acme.com"),
    ]
    assert config.ssl_keystore_location == "/etc/kompakt/broker.pem"
    assert config.authorizer_class_name.endswith("StandardAuthorizer")
    assert config.super_users == "User:ANONYMOUS"


def test_kafkas_controllers_settings_are_left_alone() -> None:
    config = load(
        settings={
            "listeners": "PLAINTEXT://:1,CONTROLLER://:2",
            "controller.listener.names": "CONTROLLER",
            "listener.name.controller.ssl.client.auth": "required",
        }
    )
    assert [one.name for one in config.endpoints] == ["PLAINTEXT"]
