"""Who is let in, and how connections are secured: the keys, and what they come to for one listener. Pure.

Keys of `ssl.*` and `sasl.*` hold for every listener; `listener.name.<listener>.<key>` sets them for one, and
`listener.name.<listener>.<mechanism>.<key>` for one mechanism there. Mirrors Kafka's `SslConfigs`,
`BrokerSecurityConfigs` and the prefixes of `ListenerName`. Secrets are in no `repr` and in no message.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from config.definition import ConfigError, Row, Type, key, parse, rows_of
from config.listeners import OF_A_LISTENER

PLAIN, SCRAM_MECHANISMS, OAUTHBEARER = "PLAIN", ("SCRAM-SHA-256", "SCRAM-SHA-512"), "OAUTHBEARER"
MECHANISMS = (*SCRAM_MECHANISMS, PLAIN, OAUTHBEARER)
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
LISTENER_PREFIX = "listener.name."
JAAS = "sasl.jaas.config"
HANDLER, JWKS = "sasl.server.callback.handler.class", "sasl.oauthbearer.jwks.endpoint.url"
_OAUTH = "org.apache.kafka.common.security.oauthbearer."
SIGNED_TOKENS = (
    f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler",
)
"""who looks at signatures, by the name that it has now and the one that it had"""
OF_TOKENS = "sasl.oauthbearer."
UNSECURED_TOKENS = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SASL_SSL, CLIENT_AUTH = "SASL_SSL", "ssl_client_auth"
REAUTH = "connections.max.reauth.ms"
HTTP = "HTTP"
"""the name of the listener of /metrics, /healthz, /api/ and the console, for settings of its own"""
PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="...";'
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZERS = ("", STANDARD_AUTHORIZER, "kafka.security.authorizer.AclAuthorizer")
"""none, Kafka's, and the one of clusters with a ZooKeeper, whose rules are the same"""


def _check_store(kind: str) -> str | None:
    return None if kind.upper() == "PEM" else "String must be one of: PEM"


def _check_url(url: str) -> str | None:
    return (
        None
        if re.match("(https?|file)://?.", url, re.IGNORECASE)
        else "It has to be a URL of https, http or file"
    )


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
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(
        Type.STRING, None,
        "Where the keys are that sign the tokens of OAUTHBEARER (KIP-768), as a JSON Web Key Set: a URL of "
        "https, http or file", check=_check_url,
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        Type.LONG, 3_600_000, "How often these keys are asked for; for one that is not known at once",
        at_least=1_000,
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(
        Type.LONG, 100, "How soon they are asked for again, if they could not be had; later each time",
        at_least=1,
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(
        Type.LONG, 10_000, "But no later than this", at_least=1
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = key(
        Type.LIST, (), "For whom a token may be: it has to name one of these; one that names somebody is "
        "refused where this is empty",
    )  # fmt: skip
    sasl_oauthbearer_expected_issuer: str | None = key(
        Type.STRING, None, "Who a token has to be of; unless set, whoever has the key"
    )
    sasl_oauthbearer_clock_skew_seconds: int = key(
        Type.INT, 30, "How far the clock of who makes tokens may be off", at_least=0
    )
    sasl_oauthbearer_sub_claim_name: str = key(
        Type.STRING, "sub", "What of a token is the name of the client"
    )
    sasl_oauthbearer_scope_claim_name: str = key(
        Type.STRING, "scope", "What of a token is its scope, which must not say anything twice"
    )
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
    oauth_jaas: str = field(default="", repr=False)
    """the options of the mechanism OAUTHBEARER"""
    believes_tokens: bool = False
    """whether tokens are believed that nobody signed"""

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
    listener: str,
    protocol: str,
    common: SecurityConfig,
    settings: Mapping[str, str],
    *,
    says_who: bool = False,
) -> ListenerSecurity:
    """What holds for a listener; `settings` are all keys with a listener's prefix. `says_who`: its clients
    say who they are, so that `ssl.client.auth` of all listeners is not for them. ConfigError with one line
    for each that is wrong.
    """
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    own: dict[str, Any] = {}
    said: dict[tuple[str, str], Any] = {}
    problems: list[ConfigError] = []
    for name, text in settings.items():
        if name.lower().startswith(prefix) and name[len(prefix) :] not in OF_A_LISTENER:
            try:
                _take(name, name[len(prefix) :], text, own, said)
            except ConfigError as error:
                problems.append(error)
    if protocol == SASL_SSL or says_who:  # a listener may ask for both (KIP-684)
        own.setdefault(CLIENT_AUTH, "none")
    # Not `replace`: the common values may be a whole BrokerConfig.
    keys = SecurityConfig(
        **{
            one.name: own.get(one.name, getattr(common, one.name))
            for one in dataclasses.fields(SecurityConfig)
        }
    )
    found = ListenerSecurity(
        protocol,
        keys,
        plain_jaas=said.get((PLAIN, JAAS), ""),
        reauth_ms={mechanism: said[mechanism, key] for mechanism, key in said if key == REAUTH},
        oauth_jaas=said.get((OAUTHBEARER, JAAS), ""),
        believes_tokens=said.get((OAUTHBEARER, HANDLER)) == UNSECURED_TOKENS,
    )
    problems += _problems_of_tls(listener, found) if found.uses_tls else []
    problems += _problems_of_sasl(prefix, found) if found.uses_sasl else []
    if problems:
        raise ConfigError.together(problems)
    return found


def _take(name: str, rest: str, text: str, own: dict[str, Any], said: dict[tuple[str, str], Any]) -> None:
    """Note what a key of a listener, `rest` without its prefix, says: of itself or of a mechanism.
    ConfigError.
    """
    first, _, of_mechanism = rest.partition(".")
    mechanism, rows = first.upper(), security_rows()
    if rest in rows and is_of_listeners(rest):
        own[rows[rest].attribute] = parse(rows[rest], text, name=name)
    elif mechanism == OAUTHBEARER and of_mechanism in rows and of_mechanism.startswith(OF_TOKENS):
        own[rows[of_mechanism].attribute] = parse(rows[of_mechanism], text, name=name)
    elif mechanism == OAUTHBEARER and of_mechanism == HANDLER:
        if text not in (*SIGNED_TOKENS, UNSECURED_TOKENS):
            raise ConfigError.of_value(
                text, name, f"It has to be {SIGNED_TOKENS[0]}, or for tests {UNSECURED_TOKENS}"
            )
        said[mechanism, of_mechanism] = text
    elif mechanism in MECHANISMS and of_mechanism == JAAS:
        said[mechanism, of_mechanism] = text
    elif mechanism in MECHANISMS and of_mechanism == REAUTH:
        said[mechanism, of_mechanism] = parse(rows[REAUTH], text, name=name)
    else:
        raise ConfigError(f"Configuration {name} is not supported: no such key", name)


def _problems_of_sasl(prefix: str, security: ListenerSecurity) -> list[ConfigError]:
    keys = security.keys
    problems = []
    if PLAIN in keys.sasl_enabled_mechanisms and not security.plain_jaas:
        name = f"{prefix}{PLAIN.lower()}.{JAAS}"
        problems.append(
            ConfigError(f"Configuration {name} is missing: the users of {PLAIN}, as {PLAIN_USERS}", name)
        )
    if OAUTHBEARER in keys.sasl_enabled_mechanisms and not (
        security.believes_tokens or keys.sasl_oauthbearer_jwks_endpoint_url
    ):
        name = f"{prefix}{OAUTHBEARER.lower()}.{HANDLER}"
        problems.append(
            ConfigError(
                f"Configuration {JWKS} is missing: where the keys are that sign tokens, a URL of https, http "
                f"or file. For tests {name}={UNSECURED_TOKENS} believes tokens that nobody signed",
                JWKS,
            )
        )
    return problems


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
