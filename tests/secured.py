"""A broker whose listeners want TLS and passwords, kompakt or Apache Kafka: the same settings for both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from tests.certificates import Certificates
from tests.kafka.broker import KafkaBroker
from tests.kafka.tools import Tools
from tests.process import BrokerProcess, free_port
from tests.waiting import wait_for

USER, PASSWORD = "alice", 'se"cret; = ,\\ß'
SHORT_SESSION_MS = 1500
PROTOCOLS = {
    "SASLPLAIN": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "TLS": "SSL",
    "SHORT": "SASL_PLAINTEXT",
}
"""of each listener; who comes by TLS has to show a certificate, and SHORT knows SCRAM-SHA-256 only"""
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def free_addresses() -> dict[str, str]:
    return {name: f"127.0.0.1:{free_port()}" for name in PROTOCOLS}


def jaas(module: str, **values: str) -> str:
    quoted = {name: text.replace("\\", "\\\\").replace('"', '\\"') for name, text in values.items()}
    return " ".join([module, "required", *(f'{name}="{text}"' for name, text in quoted.items())]) + ";"


def security_settings(certificates: Certificates) -> dict[str, str]:
    """The same keys for both brokers."""
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.broker,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.authority,
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.connections.max.reauth.ms": str(SHORT_SESSION_MS),
    }
    for name in ("saslplain", "sasltls", "short"):
        prefix = f"listener.name.{name}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = jaas(PLAIN_MODULE, **{f"user_{USER}": PASSWORD})
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
    return settings


def as_property(text: str) -> str:
    """A value as a file of properties has it."""
    return text.replace("\\", "\\\\").encode("ascii", "backslashreplace").decode().replace("\\xdf", "\\u00df")


class SecuredKafka(KafkaBroker):
    """`address` has where each of the listeners is; a plain one is there as well."""

    def __init__(
        self,
        directory: Path,
        tools: Tools,
        certificates: Certificates,
        settings: Mapping[str, str] | None = None,
        *,
        measured: tuple[str, ...] = (),
    ) -> None:
        super().__init__(directory, tools=tools, measured=measured)
        self.topic = ""
        self.address = free_addresses()
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **PROTOCOLS}
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}"
        listeners += "".join(f",{name}://{address}" for name, address in self.address.items())
        secured = {**security_settings(certificates), **(settings or {})}
        self.settings = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            **{name: as_property(text) for name, text in secured.items()},
        }


class SecuredBroker(BrokerProcess):
    """kompakt, likewise."""

    def __init__(
        self, data: Path, certificates: Certificates, settings: Mapping[str, str] | None = None
    ) -> None:
        self.topic = ""
        self.address = free_addresses()
        listeners = "PLAINTEXT://127.0.0.1:0"
        listeners += "".join(f",{name}://{address}" for name, address in self.address.items())
        own = {
            "listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items()),
        }
        super().__init__(data, {**own, **security_settings(certificates), **(settings or {})})


def add_user(bootstrap: str, user: str = USER, password: str = PASSWORD) -> None:
    """The SCRAM passwords live in the cluster's metadata."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    kinds = confluent_kafka.admin.ScramMechanism
    for kind in (kinds.SCRAM_SHA_256, kinds.SCRAM_SHA_512):  # a request may name a user once
        credential = confluent_kafka.admin.ScramCredentialInfo(kind, 4096)
        change = confluent_kafka.admin.UserScramCredentialUpsertion(user, credential, password.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(60)

    def is_known() -> bool:
        told = admin.describe_user_scram_credentials([user])[user]
        try:
            return len(told.result(60).scram_credential_infos) == 2
        except confluent_kafka.KafkaException:
            return False

    wait_for(is_known, f"{user} to be known: Kafka tells of a change a moment after it has answered it")
