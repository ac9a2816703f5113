"""Who is let in, and how connections are secured: the keys, and what they come to for one listener. Pure.

Keys of `ssl.*` and `sasl.*` hold for every listener; `listener.name.<listener>.<key>` sets them for one, and
`listener.name.<listener>.<mechanism>.<key>` for one mechanism there. Mirrors Kafka's `SslConfigs`,
`BrokerSecurityConfigs` and the prefixes of `ListenerName`. Secrets are in no `repr` and in no message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from config.definition import ConfigError, Row, Type, key, parse, rows_of

PLAIN, SCRAM_MECHANISMS = "PLAIN", ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*SCRAM_MECHANISMS, PLAIN)
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
LISTENER_PREFIX = "listener.name."
JAAS = "sasl.jaas.config"
SASL_SSL, CLIENT_AUTH = "SASL_SSL", "ssl_client_auth"
REAUTH = "connections.max.reauth.ms"
PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="...";'
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZERS = ("", STANDARD_AUTHORIZER, "kafka.security.authorizer.AclAuthorizer")
"""none, Kafka's, and the one of clusters with a ZooKeeper, whose rules are the same"""


def _check_store(kind: str) -> str | None:
    return None if kind.upper() == "PEM" else "String must be one of: PEM"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """The values that hold where no listener has its own. Owned by: any thread (immutable)."""

    ssl_keystore_type: str = key(
        Type.STRING, "PEM", "The format of the broker's certificate and key (Kafka: JKS too)",
        check=_check_store,
    )  # fmt: skip
    ssl_keystore_location: str | None = key(
        Type.STRING, None,
        "A PEM file with the broker's private key and its certificates, its own first; it is read again when "
        "it has changed",
    )  # fmt: skip
    ssl_keystore_certificate_chain: str | None = key(
        Type.PASSWORD, None, "The certificates themselves, as PEM text, instead of the file"
    )
    ssl_keystore_key: str | None = key(
        Type.PASSWORD, None, "The private key itself, as PEM text, beside ssl.keystore.certificate.chain"
    )
    ssl_key_password: str | None = key(
        Type.PASSWORD, None, "The password of the private key, if it is encrypted"
    )
    ssl_truststore_type: str = key(
        Type.STRING, "PEM", "The format of the certificates that clients' are signed by (Kafka: JKS too)",
        check=_check_store,
    )  # fmt: skip
    ssl_truststore_location: str | None = key(
        Type.STRING, None, "A PEM file with the certificates of the authorities that sign clients'"
    )
    ssl_truststore_certificates: str | None = key(
        Type.PASSWORD, None, "Those certificates themselves, as PEM text, instead of the file"
    )
    ssl_client_auth: str = key(
        Type.STRING, "none",
        "Whether clients have to show a certificate: it must be signed by one of the truststore, and its "
        "subject is the principal. Listeners that speak SASL_SSL ask for none, unless it is set for them",
        one_of=("none", "requested", "required"),
    )  # fmt: skip
    ssl_enabled_protocols: tuple[str, ...] = key(
        Type.LIST, TLS_VERSIONS, "The versions of TLS that are spoken", one_of=TLS_VERSIONS,
        allows_empty=False,
    )  # fmt: skip
    ssl_principal_mapping_rules: str = key(
        Type.STRING, "DEFAULT",
        "How the subject of a client's certificate becomes its name: RULE:pattern/replacement/[LU], the "
        "first that matches; DEFAULT is the subject as it is",
    )  # fmt: skip
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        Type.LIST, SCRAM_MECHANISMS, "How clients may prove who they are (Kafka: GSSAPI)",
        one_of=MECHANISMS, allows_empty=False,
    )  # fmt: skip
    sasl_server_max_receive_size: int = key(
        Type.INT, 524_288, "The largest request of a client that has not said who it is, bytes", at_least=1024
    )
    connections_max_reauth_ms: int = key(
        Type.LONG, 0,
        "After so long a client has to prove again who it is (KIP-368), or its connection is closed; 0 never",
        at_least=0,
    )  # fmt: skip
    connection_failed_authentication_delay_ms: int = key(
        Type.INT, 100, "How long a client waits for the answer that refuses it: guessing takes time",
        at_least=0,
    )  # fmt: skip
    authorizer_class_name: str = key(
        Type.STRING, "",
        f"Whether rules (ACLs) say who may do what: {STANDARD_AUTHORIZER}, or none, and all may do all",
        one_of=AUTHORIZERS,
    )  # fmt: skip
    super_users: str = key(
        Type.STRING, "", "Who may do everything whatever the rules say: User:alice;User:bob"
    )
    allow_everyone_if_no_acl_found: bool = key(
        Type.BOOLEAN, False, "Whether all may do all with a resource that no rule is about"
    )


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """What holds for the clients of one listener."""

    protocol: str
    keys: SecurityConfig = field(default_factory=SecurityConfig, repr=False)
    plain_jaas: str = field(default="", repr=False)
    """the text that names the users of the mechanism PLAIN"""
    reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """`connections.max.reauth.ms` of single mechanisms"""

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def is_secured(self) -> bool:
        return self.uses_tls or self.uses_sasl

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def session_ms(self, mechanism: str) -> int:
        """How long a client is believed; 0 for ever."""
        return self.reauth_ms.get(mechanism, self.keys.connections_max_reauth_ms)


@cache
def security_rows() -> dict[str, Row]:
    """The keys of this table, by name."""
    return rows_of(SecurityConfig)


def is_of_listeners(name: str) -> bool:
    """Whether a listener may have its own value of a key."""
    return name.startswith(("ssl.", "sasl.")) or name == REAUTH


def security_of(
    listener: str, protocol: str, common: SecurityConfig, settings: Mapping[str, str]
) -> ListenerSecurity:
    """What holds for a listener; `settings` are all keys with a listener's prefix. ConfigError with one line
    for each that is wrong.
    """
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    own: dict[str, Any] = {}
    jaas: dict[str, str] = {}
    reauth_ms: dict[str, int] = {}
    problems: list[ConfigError] = []
    for name, text in settings.items():
        if not name.lower().startswith(prefix):
            continue
        rest = name[len(prefix) :]
        mechanism, _, of_mechanism = rest.partition(".")
        row = security_rows().get(rest)
        try:
            if row is not None and is_of_listeners(rest):
                own[row.attribute] = parse(row, text, name=name)
            elif mechanism.upper() in MECHANISMS and of_mechanism == JAAS:
                jaas[mechanism.upper()] = text
            elif mechanism.upper() in MECHANISMS and of_mechanism == REAUTH:
                reauth_ms[mechanism.upper()] = parse(security_rows()[REAUTH], text, name=name)
            else:
                problems.append(ConfigError(f"Configuration {name} is not supported: no such key", name))
        except ConfigError as error:
            problems.append(error)
    if protocol == SASL_SSL:  # the client says who it is; a listener may ask for both (KIP-684)
        own.setdefault(CLIENT_AUTH, "none")
    # Not `replace`: the common values may be a whole BrokerConfig.
    keys = SecurityConfig(
        **{
            one.name: own.get(one.name, getattr(common, one.name))
            for one in dataclasses.fields(SecurityConfig)
        }
    )
    found = ListenerSecurity(protocol, keys, jaas.get(PLAIN, ""), reauth_ms)
    problems += _problems_of_tls(listener, found) if found.uses_tls else []
    if found.uses_sasl and PLAIN in keys.sasl_enabled_mechanisms and not found.plain_jaas:
        name = f"{prefix}{PLAIN.lower()}.{JAAS}"
        problems.append(
            ConfigError(f"Configuration {name} is missing: the users of {PLAIN}, as {PLAIN_USERS}", name)
        )
    if problems:
        raise ConfigError.together(problems)
    return found


def _problems_of_tls(listener: str, security: ListenerSecurity) -> list[ConfigError]:
    keys = security.keys
    problems = []
    texts = (keys.ssl_keystore_certificate_chain, keys.ssl_keystore_key)
    if bool(texts[0]) != bool(texts[1]):
        problems.append("ssl.keystore.certificate.chain and ssl.keystore.key are needed together")
    elif not keys.ssl_keystore_location and not texts[0]:
        problems.append("it needs the broker's certificate and key: ssl.keystore.location=FILE.pem")
    elif keys.ssl_keystore_location and texts[0]:
        problems.append("ssl.keystore.location and ssl.keystore.certificate.chain exclude each other")
    if keys.ssl_truststore_location and keys.ssl_truststore_certificates:
        problems.append("ssl.truststore.location and ssl.truststore.certificates exclude each other")
    has_trust = keys.ssl_truststore_location or keys.ssl_truststore_certificates
    if keys.ssl_client_auth != "none" and not has_trust:
        problems.append(
            f"ssl.client.auth={keys.ssl_client_auth} needs the certificates of who signs clients': "
            "ssl.truststore.location=FILE.pem"
        )
    name = f"{listener} ({security.protocol})"
    return [ConfigError(f"Listener {name}: {problem}", "listeners") for problem in problems]
