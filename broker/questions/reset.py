"""Where a group would read on after a reset, as `kafka-consumer-groups.sh --reset-offsets` finds it.
Blocking.

What lies before the log start or behind the end becomes the start or the end, as that tool does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.log import Log

EARLIEST, LATEST, OFFSET, TIME = "earliest", "latest", "offset", "time"
PLACES = (EARLIEST, LATEST, OFFSET, TIME)
WITH_VALUE = (OFFSET, TIME)


def new_offset(log: Log, to: str, value: int) -> int:
    """The offset to commit; `value` is an offset, or a time in ms since 1970: then the first record at or
    after it is meant, or the end where there is none.
    """
    if to == EARLIEST:
        return log.log_start_offset
    wanted = value
    if to == TIME:
        found = log.offset_for_timestamp(value)
        wanted = log.high_watermark if found is None else found.offset
    if to == LATEST:
        wanted = log.high_watermark
    return min(max(wanted, log.log_start_offset), log.high_watermark)
