"""Numbers as a person reads them: times in UTC, sizes, durations."""

from __future__ import annotations

from datetime import UTC, datetime

UNITS = ("bytes", "kB", "MB", "GB", "TB")
STEP = 1000
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""the begin of the year 1 and the end of 9999, the first and the last that can be written"""


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
