"""SCRAM (RFC 5802, RFC 7677): the keys that are made of a password, and the fields of its messages.

Both sides of a conversation are made of these: the Spark connector's (`spark_connector/authentication.py`)
and the broker's (`broker/security/sasl.py`).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's, of its messages and records"""
LEAST_ITERATIONS = 4096


class Credential(NamedTuple):
    """What a broker keeps of a password: enough to know it when it is proved, not to prove it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def keyed(mechanism: str, key: bytes, message: bytes) -> bytes:
    """HMAC with the mechanism's hash."""
    return hmac.new(key, message, HASHES[mechanism]).digest()


def hashed(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()


def salt_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The slow step, which keeps guesses slow: for clients, and where users are made."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def client_key(mechanism: str, salted_password: bytes) -> bytes:
    return keyed(mechanism, salted_password, b"Client Key")


def credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """What is kept of a salted password."""
    stored_key = hashed(mechanism, client_key(mechanism, salted_password))
    return Credential(salt, stored_key, keyed(mechanism, salted_password, b"Server Key"), iterations)


def combined(left: bytes, right: bytes) -> bytes:
    """One bit by bit over the other: a key hidden by a signature, or shown again."""
    return bytes(one ^ other for one, other in zip(left, right, strict=True))


def fields_of(message: bytes) -> dict[str, str]:
    """The fields of a message, by their letter; none of one that is no text."""
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError:
        return {}
    return {name: value for name, _, value in parts}
