"""What answers without records mean, at offsets that the log should have. Pure; times are parameters.

A hole at the log's end (compaction, markers) is answered with nothing, at once, for ever. So is, for a while,
an offset whose segment a broker has to fetch from far away. The log's last offset tells them apart: records
there are what a fetch in a hole would give, so without them the broker is slow, which is waited for and then
an error. Where nothing comes there either, the rest is a hole after HOLE_PATIENCE_S of silence, no sooner.
"""

from __future__ import annotations

from enum import Enum

# Every read of such a log waits so long. Kafka gives a read from an object store 0.5 s before it answers with
# nothing (remote.fetch.max.wait.ms), keeps a log's end at hand, and never moves away what it compacts.
HOLE_PATIENCE_S = 1.0
# Between questions about a hole: Kafka answers there at once, however long it was told to wait for records.
PAUSE_S = 0.05


class Verdict(Enum):
    """What to do after another answer without records."""

    ASK_AGAIN = "ask again"
    LOOK_AT_THE_END = "ask for the log's last offset first"
    HOLE = "nothing is left below the visible end"
    TOO_LONG = "the poll timeout is over"


class Silence:
    """How long there were no records at an offset, and what was seen meanwhile. Owned by: one `Fetcher`."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.end()

    def end(self) -> None:
        """Records came, or what was silent is not asked for any more."""
        self._since: float | None = None
        self._looks = 0
        self.is_end_there = False

    @property
    def has_begun(self) -> bool:
        return self._since is not None

    def look_at_end(self, *, has_records: bool) -> None:
        """The answer to a question for the log's last offset."""
        self._looks += 1
        self.is_end_there = self.is_end_there or has_records

    def judge(self, now_s: float, *, is_visible: bool, is_throttled: bool) -> Verdict:
        """After an answer without records. `is_visible`: the broker says that it has the range's end."""
        if self._since is None:
            self._since = now_s
            return Verdict.ASK_AGAIN
        silent_s = now_s - self._since
        if is_visible and not is_throttled and not self.is_end_there:
            if self._looks and silent_s >= min(HOLE_PATIENCE_S, self._limit_s):
                return Verdict.HOLE
            return Verdict.LOOK_AT_THE_END
        return Verdict.ASK_AGAIN if silent_s <= self._limit_s else Verdict.TOO_LONG
