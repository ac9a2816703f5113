"""Keys, values and headers on a terminal: all of it is a client's word, and none may move the cursor."""

from __future__ import annotations

import base64
from typing import Any

SHOWN_LETTERS = 60


def readable(text: str | None, data: bytes) -> str:
    """The text, or where the bytes are none, they in hex; line ends stay."""
    if text is None:
        return f"0x{data.hex()}"
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in text
    )


def one_line(text: str) -> str:
    """A name that a client chose."""
    return readable(text, b"").replace("\n", "\\n")


def header(one: dict[str, Any]) -> str:
    """name=value, in one line."""
    data = None if one["value_base64"] is None else base64.b64decode(one["value_base64"])
    value = "null" if data is None else readable(one["value"], data)
    return one_line(f"{one['key']}={value}")


def headers(row: dict[str, Any]) -> str:
    """All of a record."""
    return ", ".join(header(one) for one in row["headers"])


def short(row: dict[str, Any], name: str) -> str | None:
    """A key or a value in one line that is not too long; None where there is none."""
    if row[f"{name}_base64"] is None:
        return None
    text = readable(row[name], base64.b64decode(row[f"{name}_base64"])).replace("\n", "\\n")
    return text if len(text) <= SHOWN_LETTERS else f"{text[: SHOWN_LETTERS - 1]}…"
