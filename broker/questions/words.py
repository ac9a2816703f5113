"""Numbers as a person reads them: times in UTC, sizes, durations, quotas; and whom a quota is for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

UNITS = ("bytes", "kB", "MB", "GB", "TB")
STEP = 1000
FROM_HERE_WHOLE = 10_000
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""the begin of the year 1 and the end of 9999, the first and the last that can be written"""

QUOTA_UNITS = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "%",
    "controller_mutation_rate": "partitions/s",
    "connection_creation_rate": "connections/s",
}
ENTITY_WORDS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
"""as `kafka-configs.sh` calls the parts of an entity, in its order"""


def moment(time_ms: int) -> str:
    """2026-11-21 13:51:39 UTC; also of a time before 1970, which a person may ask for."""
    if not FIRST_MS <= time_ms <= LAST_MS:
        return f"{time_ms} ms"
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC).replace(tzinfo=None)} UTC"


def size(size_bytes: int) -> str:
    """1.5 MB."""
    value, unit = float(size_bytes), 0
    while value >= STEP and unit + 1 < len(UNITS):
        value /= STEP
        unit += 1
    return f"{size_bytes} bytes" if unit == 0 else f"{value:.1f} {UNITS[unit]}"


def duration(time_ms: int) -> str:
    """Three digits of the largest unit of which there are two: 90 s, 2 h, 8.27 min."""
    for name, length_ms in (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if time_ms >= 2 * length_ms:
            return f"{float(format(time_ms / length_ms, '.3g')):g} {name}"
    return f"{time_ms} ms"


def quota(key: str, value: float | str) -> str:
    """5 242 880 bytes/s; a value that is no finite number comes as its name."""
    unit = f" {QUOTA_UNITS[key]}" if key in QUOTA_UNITS else ""
    return f"{amount(value)}{unit}"


def amount(value: float | str) -> str:
    """5 242 880, or 12.5; what is beyond ten thousand needs no fraction."""
    if isinstance(value, str):
        return value
    if abs(value) >= FROM_HERE_WHOLE:
        value = round(value)
    whole, _, fraction = f"{value:,.3f}".replace(",", " ").partition(".")
    fraction = fraction.rstrip("0")
    if value and not fraction and whole.strip("-") == "0":
        return f"{value:.3g}"
    return f"{whole}.{fraction}" if fraction else whole


def entity(names: Mapping[str, str | None]) -> str:
    """user-principal 'alice', the default client-id."""
    parts = [(words, names[kind]) for kind, words in ENTITY_WORDS.items() if kind in names]
    return ", ".join(f"the default {words}" if name is None else f"{words} '{name}'" for words, name in parts)
