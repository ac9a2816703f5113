"""Options in the wrong place: of streams in a batch read, of batches in a stream, of what is not asked for.

An end in a stream is refused, as Spark's own source refuses it; all else is passed over with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from spark_connector.errors import ConnectorError
from spark_connector.option_table import NAMES

logger = logging.getLogger("kompakt.spark")

STREAM_ONLY = (
    "maxoffsetspertrigger",
    "maxbytespertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
    "commitoffsets",
)
BATCH_ONLY = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp", "asof", "view")
NEEDED: Mapping[str, tuple[str, ...]] = {
    "keylessrecords": ("view=latest",),
    "viewmemorybytes": ("view=latest",),
    "groupid": ("commitOffsets=true",),
    "maxtriggerdelay": ("minOffsetsPerTrigger",),
    "startingoffsetsbytimestampstrategy": ("startingTimestamp", "startingOffsetsByTimestamp"),
}
"""Options that do nothing by themselves, each with what it needs: one of these."""


@dataclass(frozen=True)
class Misplaced:
    """The options that were given and are not for every read. Picklable."""

    stream_only: tuple[str, ...] = ()
    batch_only: tuple[str, ...] = ()
    lonely: tuple[str, ...] = ()

    @classmethod
    def among(cls, values: Mapping[str, str]) -> Misplaced:
        """Those among options whose names are in lower case."""
        return cls(
            stream_only=tuple(NAMES[name] for name in STREAM_ONLY if name in values),
            batch_only=tuple(NAMES[name] for name in BATCH_ONLY if name in values),
            lonely=tuple(
                NAMES[name]
                for name, needed in NEEDED.items()
                if name in values and not any(_is_there(values, each) for each in needed)
            ),
        )

    def judge_batch(self) -> None:
        """Warn of what a batch read ignores."""
        if self.stream_only:
            logger.warning("%s are for streams; a batch read ignores them", ", ".join(self.stream_only))
        self._warn_of_lonely(self.stream_only)

    def judge_stream(self, *, is_pushdown: bool) -> None:
        """Warn of what a stream ignores; ConnectorError for an end, which it cannot have."""
        if self.batch_only:
            raise ConnectorError(
                f"{', '.join(self.batch_only)}: a stream has no end; such options are for batch reads"
            )
        if is_pushdown:
            logger.warning("pushdown is for batch reads; a stream ignores it, and Spark filters")
        self._warn_of_lonely(())

    def _warn_of_lonely(self, told: tuple[str, ...]) -> None:
        """But for what is ignored anyway, as the user has been `told`."""
        for name in self.lonely:
            if name not in told:
                needed = " or ".join(NEEDED[name.lower()])
                logger.warning("%s means nothing without %s and is ignored", name, needed)


def _is_there(values: Mapping[str, str], needed: str) -> bool:
    """Whether `needed`, an option or `option=word`, was given."""
    name, _, word = needed.partition("=")
    given = values.get(name.lower())
    return given is not None and word in ("", given.strip().lower())
