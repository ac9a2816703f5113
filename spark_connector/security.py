"""How a connection is secured: Kafka's `security.protocol`, `ssl.*` and `sasl.*` options as one frozen value.

Option strings in, a `Security` out; nothing is opened here (see `authentication.py`). Secrets are in no
`repr` and in no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spark_connector.errors import ConnectorError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
LOGIN_MODULES = ("PlainLoginModule", "ScramLoginModule")

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

_TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([=;])|([^\s"\'=;]+))', re.DOTALL)
_PEM = re.compile(r"[ \t]*(-----BEGIN [^-]+-----)\s(.*?)\s(-----END [^-]+-----)", re.DOTALL)


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


def as_pem(text: str) -> str:
    """PEM as OpenSSL wants it: Kafka takes any space for a line's end, so texts may be one line, or indented.

    A block with headers of its own, which have colons, stays as it is.
    """

    def lines(block: re.Match[str]) -> str:
        body = block[2] if ":" in block[2] else "\n".join(block[2].split())
        return f"{block[1]}\n{body}\n{block[3]}\n"

    return _PEM.sub(lines, text)


def _require_pem(values: Mapping[str, str], store: str) -> None:
    kind = values.get(f"kafka.ssl.{store}.type", "PEM").strip().upper()
    if kind in JAVA_STORES:
        raise ConnectorError(
            f"kafka.ssl.{store}.type={kind} is not supported, PEM is. {how_to_convert(store)}"
        )
    if kind != "PEM":
        raise ConnectorError(f"kafka.ssl.{store}.type must be PEM, not {kind}")


def how_to_convert(store: str) -> str:
    """The commands that make a PEM file of a Java key store."""
    to_pkcs12 = (
        f"keytool -importkeystore -srckeystore {store}.jks -destkeystore {store}.p12 -deststoretype PKCS12"
    )
    only = "-nokeys" if store == "truststore" else "-nodes"
    to_pem = f"openssl pkcs12 -in {store}.p12 {only} -out {store}.pem"
    return f"Convert it: `{to_pkcs12}` (a JKS only), then `{to_pem}`, and set kafka.ssl.{store}.type=PEM"


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
    """The settings of the one login module of a JAAS text: `Class required username="a" password="b";`.

    Values may stand in double or single quotes, or bare. No message repeats any of the text: it is secret.
    """
    tokens = list(_jaas_tokens(text))
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise _jaas_error("it must end with a semicolon")
    module, control = tokens[0][1].rsplit(".", 1)[-1], tokens[1][1].lower()
    if module not in LOGIN_MODULES:
        raise _jaas_error(f"its login module must be one of {', '.join(LOGIN_MODULES)}")
    if control not in ("required", "requisite", "sufficient", "optional"):
        raise _jaas_error("after the login module stands `required`")
    body = tokens[2:-1]
    if ("sign", ";") in body:
        raise _jaas_error("it must have one login module")
    if len(body) % 3:
        raise _jaas_error("its settings must be name=value, values with other signs in double quotes")
    settings = {}
    for index in range(0, len(body), 3):
        name, equals, value = body[index : index + 3]
        if name[0] != "word" or equals != ("sign", "=") or value[0] == "sign":
            raise _jaas_error("its settings must be name=value, values with other signs in double quotes")
        settings[name[1]] = value[1]
    return settings


def _jaas_tokens(text: str) -> Iterator[tuple[str, str]]:
    text = text.strip()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _jaas_error("a quotation mark is missing")
        position = match.end()
        double, single, sign, word = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            yield "quoted", re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        else:
            yield ("sign", sign) if sign else ("word", word)


def _jaas_error(reason: str) -> ConnectorError:
    return ConnectorError(
        f"kafka.sasl.jaas.config cannot be read: {reason}. Its form: "
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";'
    )
