"""PEM texts as Kafka's settings have them, made into what OpenSSL reads."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"[ \t]*(-----BEGIN [^-]+-----)\s(.*?)\s(-----END [^-]+-----)", re.DOTALL)


def as_pem(text: str) -> str:
    """Kafka takes any space for a line's end, so texts may be one line, or indented.

    A block with headers of its own, which have colons, stays as it is.
    """

    def lines(block: re.Match[str]) -> str:
        body = block[2] if ":" in block[2] else "\n".join(block[2].split())
        return f"{block[1]}\n{body}\n{block[3]}\n"

    return _BLOCK.sub(lines, text)


def how_to_convert(store: str, key: str) -> str:
    """The commands that make a PEM file of a Java key store; `key` is the setting that says so then."""
    to_pkcs12 = (
        f"keytool -importkeystore -srckeystore {store}.jks -destkeystore {store}.p12 -deststoretype PKCS12"
    )
    only = "-nokeys" if store == "truststore" else "-nodes"
    to_pem = f"openssl pkcs12 -in {store}.p12 {only} -out {store}.pem"
    return f"Convert it: `{to_pkcs12}` (a JKS only), then `{to_pem}`, and set {key}=PEM"
