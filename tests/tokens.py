"""Who gives out tokens (JWT) for OAUTHBEARER in tests: keys, the key set that tells of them, tokens."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE, ISSUER = "kompakt", "https://tokens.example"
HOUR_S = 3600


class Issuer:
    """Has keys, by name; `key_set` tells of those that are `shown`."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, Any]] = {
            "rsa": ("RS256", rsa.generate_private_key(public_exponent=65537, key_size=2048)),
            "ec": ("ES256", ec.generate_private_key(ec.SECP256R1())),
        }
        self.shown = set(self.keys)

    def add(self, name: str, *, edwards: bool = False) -> None:
        """One more key, which is not shown yet."""
        if edwards:
            self.keys[name] = ("EdDSA", ed25519.Ed25519PrivateKey.generate())
        else:
            self.keys[name] = ("RS256", rsa.generate_private_key(public_exponent=65537, key_size=2048))

    def key_set(self) -> bytes:
        rows = []
        for name in sorted(self.shown):
            algorithm, key = self.keys[name]
            made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
            rows.append({**made, "kid": name, "use": "sig"})
        return json.dumps({"keys": rows}).encode()

    def token(self, key: str = "rsa", *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Signed by a key; claims that are None are left out."""
        algorithm, private = self.keys[key]
        said = {name: value for name, value in {**usual_claims(), **claims}.items() if value is not None}
        named = {"kid": key} if headers is None else headers
        return jwt.PyJWS().encode(json.dumps(said).encode(), private, algorithm=algorithm, headers=named)


def usual_claims() -> dict[str, Any]:
    now = int(time.time())
    return {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now - 1, "exp": now + HOUR_S}


def unsigned(header: dict[str, Any] | None = None, signature: str = "", **claims: Any) -> str:
    """A token that nobody signed, of somebody called alice; claims that are None are left out."""
    said = {"sub": "alice", "iat": int(time.time()) - 1, "exp": int(time.time()) + HOUR_S, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    parts = [json.dumps(one).encode() for one in ({"alg": "none"} if header is None else header, said)]
    return ".".join([*(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), signature])


def first_message(token: str, for_whom: str = "", **extensions: str) -> bytes:
    """What a client says first (RFC 7628)."""
    pairs = {"auth": f"Bearer {token}", **extensions}
    said = "".join(f"{name}={value}\x01" for name, value in pairs.items())
    return f"n,{f'a={for_whom}' if for_whom else ''},\x01{said}\x01".encode()
