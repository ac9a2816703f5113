"""What is asked of a client's token (JWT, RFC 7519): who signed it, for whom it is, whether it holds now.

The time is an argument; keys are those that `jwks.py` has at the moment. Mirrors Kafka's `BrokerJwtValidator`
(KIP-768), and for tests `OAuthBearerUnsecuredValidatorCallbackHandler`, which believes what a token says.
PyJWT is needed to look at signatures, and loaded by who needs it.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.security.bearer import INSUFFICIENT_SCOPE, InvalidToken, Token

if TYPE_CHECKING:
    from broker.security.jwks import KeysOf, SigningKey
    from config.security import SecurityConfig

ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""by the type of a key how it may sign; those whose key is a shared secret are not among them"""
Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a token has to say."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_ms: int = 0
    """how far the clock of who made it may be off"""
    user_claim: str = "sub"
    scope_claim: str = "scope"

    @staticmethod
    def of(keys: SecurityConfig) -> Rules:
        return Rules(
            audience=keys.sasl_oauthbearer_expected_audience,
            issuer=keys.sasl_oauthbearer_expected_issuer,
            skew_ms=keys.sasl_oauthbearer_clock_skew_seconds * 1000,
            user_claim=keys.sasl_oauthbearer_sub_claim_name,
            scope_claim=keys.sasl_oauthbearer_scope_claim_name,
        )


def validate_signed(text: str, keys_of: KeysOf, rules: Rules, now_ms: int) -> Token:
    """What a token says that one of these keys signed. InvalidToken."""
    claims = _signed_claims(text, keys_of)
    expires_ms, issued_ms, begins_ms = (_second(claims, name) for name in ("exp", "iat", "nbf"))
    if expires_ms is None or issued_ms is None:
        raise InvalidToken(f"it has no {'exp' if expires_ms is None else 'iat'}")
    if expires_ms <= now_ms - rules.skew_ms:
        raise InvalidToken(f"its time was over at {expires_ms} ms")
    if expires_ms < max(issued_ms, begins_ms or 0):
        raise InvalidToken("its time is over before it was made, or begins")
    if begins_ms is not None and begins_ms > now_ms + rules.skew_ms:
        raise InvalidToken(f"its time begins at {begins_ms} ms")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken(f"it is of {claims.get('iss')}, and has to be of {rules.issuer}")
    audience = claims.get("aud", [])
    audience = [audience] if isinstance(audience, str) else audience
    if (audience or rules.audience) and not set(rules.audience) & set(_strings("aud", audience)):
        wanted = ", ".join(rules.audience) or "nobody in particular (sasl.oauthbearer.expected.audience)"
        raise InvalidToken(f"it is for {audience}, and has to be for {wanted}")
    scopes = claims.get(rules.scope_claim)
    if scopes is not None:
        _check_scopes(rules.scope_claim, scopes)
    return Token(_user(claims, rules.user_claim), expires_ms)


def _signed_claims(text: str, keys_of: KeysOf) -> Claims:
    import jwt

    if text.count(".") != 2:
        raise InvalidToken("it does not have three parts")
    try:
        header = jwt.get_unverified_header(text)
        algorithm, key_id = header.get("alg"), header.get("kid")
        fitting = [one for one in keys_of(key_id) if _fits(one, algorithm)]
        for key in fitting:
            try:
                body = jwt.PyJWS().decode(text, key.key, algorithms=[str(algorithm)])
            except jwt.InvalidSignatureError:
                continue
            return _object(body)
    except jwt.PyJWTError as problem:
        raise InvalidToken(f"it cannot be read: {problem}") from None
    known = "signed it, though it has the name" if fitting else "has the name"
    raise InvalidToken(f"no key that is known {known} {key_id} and signs by {algorithm}")


def _fits(key: SigningKey, algorithm: object) -> bool:
    """Whether a key signs by an algorithm."""
    return algorithm in ALGORITHMS.get(key.kind, ()) and key.algorithm in (None, algorithm)


def _object(body: bytes) -> Claims:
    try:
        claims = json.loads(body)
    except ValueError:
        claims = None
    if not isinstance(claims, dict):
        raise InvalidToken("it has no claims")
    return claims


def _time(claims: Claims, name: str) -> int | None:
    """A time in ms; None where the token does not say it."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise InvalidToken(f"its {name} is no time")
    return int(value * 1000)


def _second(claims: Claims, name: str) -> int | None:
    """A time in ms, of whole seconds, as JSON Web Tokens are looked at in Kafka; None: see `_time`."""
    time_ms = _time(claims, name)
    return None if time_ms is None else time_ms // 1000 * 1000


def _user(claims: Claims, name: str) -> str:
    user = claims.get(name)
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"its {name} names nobody")
    return user.strip()


def _strings(name: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidToken(f"its {name} is not made of texts")
    return value


def _check_scopes(name: str, value: object) -> None:
    scopes = [one.strip() for one in _strings(name, [value] if isinstance(value, str) else value)]
    if "" in scopes or len(set(scopes)) < len(scopes):
        raise InvalidToken(f"its {name} has an empty text, or one twice")


# Tokens that nobody signed


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredRules:
    """What an unsigned token has to say."""

    user_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: tuple[str, ...] = ()
    skew_ms: int = 0

    @staticmethod
    def of(settings: Mapping[str, str]) -> UnsecuredRules:
        """As the options of a JAAS text have it. ValueError."""

        def said(name: str, default: str) -> str:
            return settings.get(f"unsecuredValidator{name}", "").strip() or default

        return UnsecuredRules(
            user_claim=said("PrincipalClaimName", "sub"),
            scope_claim=said("ScopeClaimName", "scope"),
            required_scopes=tuple(said("RequiredScope", "").split()),
            skew_ms=int(said("AllowableClockSkewMs", "0")),
        )


def validate_unsecured(text: str, rules: UnsecuredRules, now_ms: int) -> Token:
    """What a token says that nobody signed. InvalidToken."""
    parts = text.split(".")
    if len(parts) != 3 or parts[2] or not all(parts[:2]):
        raise InvalidToken("it does not have two parts and an empty signature")
    try:
        header, claims = (_object(urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2])
    except (binascii.Error, ValueError):
        raise InvalidToken("its parts are not in base64") from None
    if header.get("alg") != "none":
        raise InvalidToken("its algorithm has to be none")
    expires_ms, issued_ms = _time(claims, "exp"), _time(claims, "iat")
    if expires_ms is None or expires_ms <= now_ms - rules.skew_ms:
        raise InvalidToken("its time is over, or it does not say when that is")
    if issued_ms is not None and (issued_ms > now_ms + rules.skew_ms or issued_ms >= expires_ms):
        raise InvalidToken("it was made later than now, or than its time is over")
    user = _user(claims, rules.user_claim)
    scopes = claims.get(rules.scope_claim, [])
    scopes = [scopes] if isinstance(scopes, str) else scopes
    missing = set(rules.required_scopes).difference(_strings(rules.scope_claim, scopes))
    if missing:
        wanted = f"[{', '.join(rules.required_scopes)}]"
        raise InvalidToken(f"its scope has to have {wanted}", INSUFFICIENT_SCOPE, wanted)
    return Token(user, expires_ms)
