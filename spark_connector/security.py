"""How a connection is secured: Kafka's `security.protocol`, `ssl.*` and `sasl.*` options as one frozen value.

Option strings in, a `Security` out; nothing is opened here (see `authentication.py`). Secrets are in no
`repr` and in no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol import jaas
from protocol.pem import as_pem, how_to_convert
from spark_connector.errors import ConnectorError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")

_JAVA = "it names Java classes or algorithms of Java, and no Java runs here"
REFUSED = {
    "kafka.sasl.login.class": _JAVA,
    "kafka.sasl.login.callback.handler.class": _JAVA,
    "kafka.sasl.client.callback.handler.class": _JAVA,
    "kafka.security.providers": _JAVA,
    "kafka.ssl.engine.factory.class": _JAVA,
    "kafka.ssl.provider": _JAVA,
    "kafka.ssl.keymanager.algorithm": _JAVA,
    "kafka.ssl.trustmanager.algorithm": _JAVA,
    "kafka.ssl.cipher.suites": "the names are Java's; the system's own choice of ciphers is used",
}
JAVA_STORES = ("JKS", "PKCS12")


@dataclass(frozen=True)
class Trust:
    """Whose certificates are believed: PEM text, or the path of a PEM file; neither is the system's own."""

    certificates: str = ""
    path: str = ""


@dataclass(frozen=True)
class Identity:
    """The client's own certificate and key: PEM text, or the path of one PEM file with both."""

    chain: str = ""
    key: str = field(default="", repr=False)
    path: str = ""
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True)
class Security:
    """What is done with a new socket before the first question. The default is nothing."""

    uses_tls: bool = False
    trust: Trust = Trust()
    identity: Identity | None = None
    checks_host_name: bool = True
    tls_versions: tuple[str, ...] = TLS_VERSIONS
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def protocol(self) -> str:
        """Kafka's word for it."""
        if self.mechanism:
            return "SASL_SSL" if self.uses_tls else "SASL_PLAINTEXT"
        return "SSL" if self.uses_tls else "PLAINTEXT"


PLAINTEXT = Security()


def parse_security(values: Mapping[str, str]) -> Security:
    """The security options, their names in lower case; ConnectorError names the one that is wrong."""
    protocol = values.get("kafka.security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ConnectorError(f"kafka.security.protocol must be one of {', '.join(PROTOCOLS)}, not {protocol}")
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    for name, reason in REFUSED.items():
        if values.get(name, "").strip():
            raise ConnectorError(f"option {name} is not supported: {reason}")
    uses_tls = protocol.endswith("SSL")
    mechanism, username, password = _sasl(values) if protocol.startswith("SASL") else ("", "", "")
    return Security(
        uses_tls=uses_tls,
        trust=_trust(values) if uses_tls else Trust(),
        identity=_identity(values) if uses_tls else None,
        checks_host_name=_checks_host_name(values),
        tls_versions=_tls_versions(values),
        mechanism=mechanism,
        username=username,
        password=password,
    )


# --- TLS


def _trust(values: Mapping[str, str]) -> Trust:
    _require_pem(values, "truststore")
    certificates = values.get("kafka.ssl.truststore.certificates", "").strip()
    path = values.get("kafka.ssl.truststore.location", "").strip()
    if certificates and path:
        raise ConnectorError(
            "kafka.ssl.truststore.location and kafka.ssl.truststore.certificates exclude each other"
        )
    if certificates and "-----BEGIN CERTIFICATE" not in certificates:
        raise ConnectorError(
            "kafka.ssl.truststore.certificates must be PEM text (-----BEGIN CERTIFICATE-----)"
        )
    return Trust(as_pem(certificates), path)


def _identity(values: Mapping[str, str]) -> Identity | None:
    _require_pem(values, "keystore")
    chain = values.get("kafka.ssl.keystore.certificate.chain", "").strip()
    key = values.get("kafka.ssl.keystore.key", "").strip()
    path = values.get("kafka.ssl.keystore.location", "").strip()
    if bool(chain) != bool(key):
        raise ConnectorError(
            "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key are needed together"
        )
    if chain and path:
        raise ConnectorError(
            "kafka.ssl.keystore.location and kafka.ssl.keystore.certificate.chain exclude each other"
        )
    if not chain and not path:
        return None
    return Identity(as_pem(chain), as_pem(key), path, values.get("kafka.ssl.key.password", ""))


def _require_pem(values: Mapping[str, str], store: str) -> None:
    kind = values.get(f"kafka.ssl.{store}.type", "PEM").strip().upper()
    if kind in JAVA_STORES:
        raise ConnectorError(
            f"kafka.ssl.{store}.type={kind} is not supported, PEM is. "
            f"{how_to_convert(store, f'kafka.ssl.{store}.type')}"
        )
    if kind != "PEM":
        raise ConnectorError(f"kafka.ssl.{store}.type must be PEM, not {kind}")


def _checks_host_name(values: Mapping[str, str]) -> bool:
    algorithm = values.get("kafka.ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", ""):
        raise ConnectorError(
            f"kafka.ssl.endpoint.identification.algorithm must be https or empty, not {algorithm}"
        )
    return algorithm == "https"


def _tls_versions(values: Mapping[str, str]) -> tuple[str, ...]:
    given = values.get("kafka.ssl.enabled.protocols", ",".join(TLS_VERSIONS))
    versions = tuple(sorted({part.strip() for part in given.split(",") if part.strip()}))
    if not versions or not set(versions) <= set(TLS_VERSIONS):
        raise ConnectorError(
            f"kafka.ssl.enabled.protocols must be some of {', '.join(TLS_VERSIONS)}, not {given}"
        )
    return versions


# --- SASL


def _sasl(values: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = values.get("kafka.sasl.mechanism", "").strip().upper()
    if mechanism not in MECHANISMS:
        said = (
            f"not {mechanism}"
            if mechanism
            else "and was not given (GSSAPI, Kafka's default, is not supported)"
        )
        raise ConnectorError(f"kafka.sasl.mechanism must be one of {', '.join(MECHANISMS)}, {said}")
    text = values.get("kafka.sasl.jaas.config", "")
    if not text.strip():
        raise ConnectorError(
            f"kafka.sasl.jaas.config is needed for {mechanism}: "
            f'org.apache.kafka.common.security.{_PACKAGE[mechanism]} required username="..." password="...";'
        )
    settings = parse_jaas(text)
    username, password = settings.get("username", ""), settings.get("password", "")
    if not username or not password:
        raise ConnectorError("kafka.sasl.jaas.config must give a username and a password")
    if settings.get("tokenauth", "").lower() == "true":
        raise ConnectorError("kafka.sasl.jaas.config: delegation tokens (tokenauth) are not supported")
    return mechanism, username, password


_PACKAGE = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}


def parse_jaas(text: str) -> dict[str, str]:
    """The settings of the one login module of a JAAS text: `Class required username="a" password="b";`."""
    try:
        return jaas.parse_jaas(text).settings
    except ValueError as problem:
        raise ConnectorError(
            f"kafka.sasl.jaas.config cannot be read: {problem}. Its form: "
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";'
        ) from None
