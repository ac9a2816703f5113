"""What the last look at each log found, as long as another one could find nothing else.

The threads look at every compacted log again and again; most have not changed meanwhile, and to weigh one
takes six times as long as to see that. An `Assessment` stays what it is until the log, its settings, a
checkpoint or what holds it changes, or until a time comes at which a rule lets go or asks for a cleaning.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from cleaner.selection import Assessment

if TYPE_CHECKING:
    from storage.log import Log

FOREVER_MS = 2**63


def figures_of(log: Log) -> tuple[Hashable, ...]:
    """All of a log that `Assessment`s are made of. Closed segments never change, but are replaced."""
    return log.segments, log.log_start_offset, log.log_end_offset, log.last_stable_offset, log.config


def stays_until_ms(found: Assessment) -> int:
    """When time alone may make it another; `found.now_ms` where others decide whether it is cleaned."""
    if found.is_cleanable:
        return found.now_ms
    times = (found.next_eligible_ms, found.lag_ends_ms, found.max_lag_ends_ms)
    return min((time for time in times if time is not None), default=FOREVER_MS)


class LastLook:
    """Owned by: any thread, under the manager's lock."""

    def __init__(self) -> None:
        self._found: dict[Log, tuple[Hashable, Assessment]] = {}

    def over(
        self,
        logs: Iterable[Log],
        now_ms: int,
        state_of: Callable[[Log], Hashable],
        assess: Callable[[Log], Assessment | None],
    ) -> list[tuple[Log, Assessment]]:
        """Each log with its assessment, which `assess` is asked for where the last one may no longer hold:
        where `state_of` gives another state, or time has come, or goes backwards. A log for which there is
        none is left out. Logs that are not among `logs` are forgotten.
        """
        before, self._found = self._found, {}
        seen = []
        for log in logs:
            state = state_of(log)  # before it is weighed: a change meanwhile is one since
            known, found = before.get(log, (None, None))
            if found is None or known != state or not found.now_ms <= now_ms < stays_until_ms(found):
                found = assess(log)
            if found is None:
                continue
            seen.append((log, found))
            # When kept tombstones expire is also found in statistics, which are made when there is time.
            if not log.config.compaction_expired_tombstones_enable:
                self._found[log] = state, found
        return seen
