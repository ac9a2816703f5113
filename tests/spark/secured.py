"""An Apache Kafka whose listeners want TLS and passwords, and the certificates for it, made on the spot."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from tests.kafka.broker import KafkaBroker
from tests.kafka.tools import Tools
from tests.process import free_port

USER, PASSWORD = "alice", 'se"cret; = ,\\ß'
SHORT_SESSION_MS = 1500


@dataclass(frozen=True)
class Certificates:
    """One authority, a broker for 127.0.0.1 and a client, both signed by it; PEM files."""

    directory: Path

    @property
    def authority(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def broker(self) -> str:
        return str(self.directory / "broker.pem")

    @property
    def client(self) -> str:
        return str(self.directory / "client.pem")

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()


def openssl() -> str | None:
    return shutil.which("openssl")


def make_certificates(directory: Path) -> Certificates:
    """Keys are elliptic: quick to make."""

    def run(*arguments: str) -> None:
        subprocess.run([openssl() or "openssl", *arguments], cwd=directory, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run(
        "req",
        "-x509",
        *curve,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=test authority",
    )
    for name in ("broker", "client"):
        run("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (directory / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
        signing = (
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "extensions",
        )
        run("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")
        pem = (directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text()
        (directory / f"{name}.pem").write_text(pem)
    run("pkcs12", "-export", "-in", "client.pem", "-out", "client.p12", "-passout", "pass:x")
    run(
        "pkcs8",
        "-topk8",
        "-in",
        "client.key",
        "-out",
        "locked.key",
        "-passout",
        "pass:unlock",
        "-v2",
        "aes256",
    )
    return Certificates(directory)


class SecuredKafka(KafkaBroker):
    """Four more listeners; `address` has where each of them is."""

    def __init__(self, directory: Path, tools: Tools, certificates: Certificates) -> None:
        super().__init__(directory, tools=tools)
        self.topic = ""
        self.address = {name: f"127.0.0.1:{free_port()}" for name in ("SASLPLAIN", "SASLTLS", "TLS", "SHORT")}
        protocols = {
            "PLAINTEXT": "PLAINTEXT",
            "CONTROLLER": "PLAINTEXT",
            "SASLPLAIN": "SASL_PLAINTEXT",
            "SASLTLS": "SASL_SSL",
            "TLS": "SSL",
            "SHORT": "SASL_PLAINTEXT",
        }
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}"
        listeners += "".join(f",{name}://{address}" for name, address in self.address.items())
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        # A file of properties reads \\ as \, and the JAAS text in it reads \" as ".
        password = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
        self.settings = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
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
            escaped = password.encode("ascii", "backslashreplace").decode().replace("\\xdf", "\\u00df")
            self.settings[f"{prefix}.plain.sasl.jaas.config"] = f'{plain} user_{USER}="{escaped}";'
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                self.settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = scram

    def add_user(self) -> None:
        """The SCRAM passwords live in the cluster's metadata."""
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap})
        kinds = confluent_kafka.admin.ScramMechanism
        for kind in (kinds.SCRAM_SHA_256, kinds.SCRAM_SHA_512):  # a request may name a user once
            credential = confluent_kafka.admin.ScramCredentialInfo(kind, 4096)
            change = confluent_kafka.admin.UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(60)
