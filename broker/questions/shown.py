"""Keys, values and headers as JSON: as text where they are text, in base64 always, for JSON has no bytes."""

from __future__ import annotations

import base64
import codecs
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.records import Record

SHOWN_BYTES = 16 << 10
"""of a key, a value or a header that is one of many; `NAME_bytes` tells how long it is"""


def in_full(name: str, data: bytes | None) -> dict[str, Any]:
    """The whole of it."""
    if data is None:
        return {name: None, f"{name}_base64": None}
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        text = None
    return {name: text, f"{name}_base64": base64.b64encode(data).decode()}


def at_most(name: str, data: bytes | None) -> dict[str, Any]:
    """The first bytes of it, and how many it has."""
    if data is None or len(data) <= SHOWN_BYTES:
        return {**in_full(name, data), f"{name}_bytes": None if data is None else len(data)}
    begin = data[:SHOWN_BYTES]
    whole_letters = codecs.getincrementaldecoder("utf-8")()  # a letter that is cut is left out
    try:
        text = whole_letters.decode(begin)
    except UnicodeDecodeError:
        text = None
    return {name: text, f"{name}_base64": base64.b64encode(begin).decode(), f"{name}_bytes": len(data)}


def record_row(record: Record) -> dict[str, Any]:
    """One record among many."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "is_tombstone": record.value is None,
        **at_most("key", record.key),
        **at_most("value", record.value),
        "headers": [{"key": name, **at_most("value", value)} for name, value in record.headers],
    }
