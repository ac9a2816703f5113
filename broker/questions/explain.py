"""Why a partition is or is not being compacted now: one sentence, and the numbers behind it. Pure.

The verdict is the cleaner's own (`cleaner/selection.py`), so that the answer can never differ from what the
cleaner does; here it gets its words, and what has to happen before the partition is cleaned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from broker.questions.words import duration, moment, size
from cleaner.quarantine import Uncleanable
from cleaner.selection import MAX_TIME_MS, Assessment, Reason, Trigger
from cleaner.statistics import LEFT_OUT_NAMES

COUNTED = (None, Reason.RATIO, Reason.NOTHING_DIRTY)
"""where a dry run has looked at what is to be cleaned; elsewhere something holds that back, it saw nothing"""
HOLDS = (
    Reason.IN_PROGRESS,
    Reason.DRY_RUN,
    Reason.PAUSED,
    Reason.UNCLEANABLE,
    Reason.NO_VERSION,
    Reason.LAST_STABLE_OFFSET,
    Reason.COMPACTION_LAG,
)
ELIGIBLE = "eligible"
NOTHING_TO_GAIN = "nothing_to_gain"
NO_VERSION = (
    "Not cleaned: compaction.strategy is header, but nothing names the header with the version. Set "
    "compaction.strategy.header, or log.cleaner.compaction.strategy.header for all topics, or set "
    "compaction.strategy to another one."
)
RETENTION_OFF = "Nor does anything delete by retention then: that of compact,delete is the cleaner's."
COMPACT_NOW = "`kompakt topics compact`"
ABORT = "`kompakt topics abort`"
WHOSE = "`kompakt transactions`"
SHOWN_TRANSACTIONS = 3


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An undecided transaction; `since_ms` is the timestamp of its first record, if that is known,
    `aborted_ms` when its timeout is over (None: nothing ends it by itself).
    """

    producer_id: int
    first_offset: int
    since_ms: int | None
    aborted_ms: int | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Tombstones that a cleaning from `horizon_ms` on removes."""

    tombstones: int
    horizon_ms: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What of the topic's settings decides."""

    cleanup_policy: str
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    segment_bytes: int
    segment_ms: int


@dataclass(frozen=True, slots=True)
class Facts:
    """A partition at one moment. `assessment` is None when the log could not be weighed: `problem` says why.

    `gain` is what a dry run found, `last_gain` what the last cleaning removed; each in records.
    """

    settings: Settings
    assessment: Assessment | None
    problem: str | None
    held: Uncleanable | None
    transactions: tuple[OpenTransaction, ...]
    active_bytes: int
    rolls_after_ms: int | None
    log_end_offset: int
    pauses: int
    off_by: str | None
    """the setting by which the cleaner is off, None where it runs"""
    gain: int | None = None
    last_gain: int | None = None
    closes_idle_ms: int | None = None
    """when the active segment is closed if nobody writes (segment.idle.ms)"""
    cleaner_problem: str | None = None
    """why no cleaning can begin at all, though the cleaner is on"""
    tombstones_waiting: Waiting | None = None
    """what the last cleaning kept, where nothing but another cleaning will make it go"""
    warning: str | None = None
    """what is wrong with the topic's policy (W15)"""
    empty_values: int = 0
    """records of closed segments with a key and a value that is empty, not null (W10)"""
    if_rolled: Assessment | None = None
    """what would hold if the active segment were closed now, where that is all that is dirty"""
    moves_to: str | None = None
    """the data directory that it is on its way to"""


def bytes_until_eligible(assessment: Assessment) -> int | None:
    """How many more closed dirty bytes lift the ratio above its threshold; None when none can."""
    threshold = assessment.threshold
    if threshold >= 1.0:
        return None
    missing = (threshold * assessment.total_bytes - assessment.cleanable_bytes) / (1.0 - threshold)
    return max(0, ceil(missing) + 1)


def code(facts: Facts) -> str:
    """The verdict as one word."""
    found = facts.assessment
    if found is None:
        return Reason.OFFLINE.name.lower()
    if facts.gain == 0 and found.reason in (None, Reason.RATIO) and not _is_for_tombstones(found):
        return NOTHING_TO_GAIN
    return ELIGIBLE if found.reason is None else found.reason.name.lower()


def _is_for_tombstones(found: Assessment) -> bool:
    return found.trigger is Trigger.EXPIRED_TOMBSTONES


def sentence(facts: Facts) -> str:
    """The verdict for a person, and what is wrong with the policy."""
    words = _verdict(facts)
    if facts.empty_values:
        words += f" {_empty_values(facts.empty_values)}"
    return words if facts.warning is None else f"{words} Warning: {facts.warning}"


def _empty_values(count: int) -> str:
    """Some clients write an empty text where null was meant, and the key stays (W10)."""
    have = "has" if count == 1 else "have"
    of = f"Of the records in closed segments {count} {have} a key and an empty value"
    return f"{of}, which is no tombstone: to delete a key write null."


def _verdict(facts: Facts) -> str:
    found = facts.assessment
    if found is None:
        return f"The log is offline: {facts.problem}."
    words = _of_reason(facts, found)
    if facts.gain == 0 and found.reason in COUNTED:
        words = f"Nothing to gain: a cleaning now would remove no record. {words}"
    elif facts.last_gain == 0 and found.reason in (None, Reason.RATIO):
        words += " The last cleaning removed nothing."
    if found.reason is Reason.NOT_COMPACTED:
        return words
    if facts.cleaner_problem is not None:
        return f"{words} But nothing is cleaned at all: {facts.cleaner_problem}."
    if facts.off_by is None:
        return words
    off = f"The cleaner is off ({facts.off_by}): only {COMPACT_NOW} cleans."
    rest = f" {RETENTION_OFF}" if "delete" in facts.settings.cleanup_policy else ""
    return f"{words} {off}{rest}"


def _of_reason(facts: Facts, found: Assessment) -> str:
    settings = facts.settings
    match found.reason:
        case None:
            return _eligible(found, settings)
        case Reason.RATIO:
            return _ratio(facts, found)
        case Reason.NOT_COMPACTED:
            return f"Not compacted: cleanup.policy is {settings.cleanup_policy}."
        case Reason.IN_PROGRESS:
            return "It is being cleaned right now."
        case Reason.DRY_RUN:
            return "A dry run looks at it right now; it is not cleaned meanwhile."
        case Reason.PAUSED if facts.moves_to is not None:
            return f"It is not cleaned while it moves to {facts.moves_to}."
        case Reason.PAUSED:
            return f"Its cleaning is paused, {facts.pauses} time{'s' * (facts.pauses != 1)}."
        case Reason.UNCLEANABLE:
            return _uncleanable(facts.held)
        case Reason.NO_VERSION:
            return NO_VERSION
        case Reason.EMPTY:
            return _empty(facts.log_end_offset)
        case Reason.ACTIVE_SEGMENT:
            return f"All that is dirty is in the active segment, which is still written. {_roll(facts)}"
        case Reason.LAST_STABLE_OFFSET:
            return _unstable(facts, found)
        case Reason.COMPACTION_LAG:
            return _lagging(found, settings)
        case _:
            words = f"Nothing was written since the last cleaning, which reached offset {found.end}."
            return words + _tombstones(facts, found)


def hold(facts: Facts) -> str | None:
    """What keeps closed segments from being cleaned whoever asks for it, and until when; None: nothing."""
    found = facts.assessment
    return _of_reason(facts, found) if found is not None and found.reason in HOLDS else None


def _empty(end_offset: int) -> str:
    if end_offset == 0:
        return "Nothing is written yet."
    return (
        f"No record is left: all below its end, offset {end_offset}, were deleted (retention, DeleteRecords)."
    )


def _eligible(found: Assessment, settings: Settings) -> str:
    if _is_for_tombstones(found):
        why = "its tombstones are past delete.retention.ms (compaction.expired.tombstones.enable)"
    elif found.dirty_ratio > found.threshold:
        why = (
            f"{size(found.cleanable_bytes)} of {size(found.total_bytes)} are dirty, a ratio of "
            f"{found.dirty_ratio:.2f} above min.cleanable.dirty.ratio {found.threshold:g}"
        )
    else:
        why = (
            f"its oldest dirty record is {duration(found.compaction_delay_ms)} over "
            f"max.compaction.lag.ms ({duration(settings.max_compaction_lag_ms)})"
        )
    return f"Due to be cleaned: {why}."


def _uncleanable(held: Uncleanable | None) -> str:
    if held is None:  # released while it was asked
        return "It could not be cleaned, and is tried again now."
    return (
        f"It cannot be cleaned since {moment(held.since_ms)}: {held.error}. "
        f"Failed {held.failures} time{'s' * (held.failures != 1)}, tried again at {moment(held.retry_ms)}."
    )


def _ratio(facts: Facts, found: Assessment) -> str:
    missing = bytes_until_eligible(found)
    words = (
        f"Not dirty enough: {size(found.cleanable_bytes)} of {size(found.total_bytes)} are dirty, a ratio of "
        f"{found.dirty_ratio:.2f}, not above min.cleanable.dirty.ratio {found.threshold:g}"
    )
    undecided = found.uncleanable_bytes[Reason.LAST_STABLE_OFFSET] if facts.transactions else 0
    ways = [] if missing is None or undecided else [_more(missing, facts)]
    if found.next_eligible_ms is not None:
        ways.append(f"at {moment(found.next_eligible_ms)} by {_by_time(found)}")
    if missing is None:
        words += f", which no ratio exceeds: only max.compaction.lag.ms or {COMPACT_NOW} can make it due"
    words = f"{words}; eligible {' or '.join(ways)}." if ways else f"{words}."
    if not undecided:
        return words
    return (
        f"{words} {size(undecided)} more, and all that is written now, are held back by "
        f"{_transactions(facts.transactions)}.{_remedy(facts.transactions)}"
    )


def _more(missing: int, facts: Facts) -> str:
    """What has to be written, closed and old enough; what follows an open transaction waits for its end."""
    words = f"after {size(missing)} more in closed segments"
    if facts.settings.min_compaction_lag_ms > 0:
        words += " that are older than min.compaction.lag.ms"
    if facts.transactions:
        words += f", behind the end of {_transactions(facts.transactions)},"
    return words


def _lagging(found: Assessment, settings: Settings) -> str:
    words = (
        f"The first dirty segment, from offset {found.end} on, holds a record younger than "
        f"min.compaction.lag.ms ({duration(settings.min_compaction_lag_ms)})"
    )
    if found.lag_ends_ms is None or found.lag_ends_ms >= MAX_TIME_MS:
        return f"{words}."
    words += f", and is kept whole until {moment(found.lag_ends_ms)}"
    if found.next_eligible_ms is None:
        return f"{words}; that alone will not make it due."
    if found.next_eligible_ms == found.lag_ends_ms:
        return f"{words}."
    return f"{words}; eligible at {moment(found.next_eligible_ms)} by {_by_time(found)}."


def _by_time(found: Assessment) -> str:
    """What makes it eligible at that time."""
    if found.next_eligible_ms == found.tombstones_expire_ms:
        return "compaction.expired.tombstones.enable"
    if found.next_eligible_ms == found.max_lag_ends_ms:
        return "max.compaction.lag.ms"
    return "the end of min.compaction.lag.ms for more of it"


def _tombstones(facts: Facts, found: Assessment) -> str:
    waiting = facts.tombstones_waiting
    if found.tombstones_expire_ms is None and waiting is not None:
        are = "tombstone" if waiting.tombstones == 1 else "tombstones"
        return (
            f" {waiting.tombstones} {are} that it kept may go from {moment(waiting.horizon_ms)} on, with the "
            f"next cleaning: write more, run {COMPACT_NOW}, or set compaction.expired.tombstones.enable."
        )
    if found.tombstones_expire_ms is None:
        return ""
    return f" Its tombstones may go at {moment(found.tombstones_expire_ms)}; then it is cleaned again."


def _roll(facts: Facts) -> str:
    words = (
        f"It holds {size(facts.active_bytes)} of {size(facts.settings.segment_bytes)} (segment.bytes) "
        "and is closed when full"
    )
    if facts.rolls_after_ms is not None:
        settings = facts.settings
        by = "max.compaction.lag.ms" if settings.max_compaction_lag_ms < settings.segment_ms else "segment.ms"
        words += f", or by the first record after {moment(facts.rolls_after_ms)} ({by})"
    if facts.closes_idle_ms is not None:
        words += f", or at {moment(facts.closes_idle_ms)} if nobody writes (segment.idle.ms)"
    else:
        words += "; segment.idle.ms would close it without one"
    held = _if_closed(facts)
    if held is not None:
        return f"{words}. {held}"
    return (
        f"{words}." if facts.closes_idle_ms is not None else f"{words}, {COMPACT_NOW} with --roll does now."
    )


def _if_closed(facts: Facts) -> str | None:
    """What would hold back what is in the active segment if that were closed now; None: nothing would. A
    flush that is on its way is none: who closes a segment by hand waits for it.
    """
    found, lag_ms = facts.if_rolled, facts.settings.min_compaction_lag_ms
    holds = [f"held back by {_transactions(facts.transactions)}"] if facts.transactions else []
    if found is not None and found.reason is Reason.COMPACTION_LAG:
        ends_ms = found.lag_ends_ms
        until = "" if ends_ms is None or ends_ms >= MAX_TIME_MS else f", until {moment(ends_ms)}"
        holds.append(f"kept for min.compaction.lag.ms ({duration(lag_ms)}){until}")
    if not holds:
        return None
    return f"Closed now, it would be {', and '.join(holds)}." + (
        _remedy(facts.transactions) if facts.transactions else ""
    )


def _unstable(facts: Facts, found: Assessment) -> str:
    where = f"the last stable offset stands at {found.first_uncleanable_offset} of {facts.log_end_offset}"
    if not facts.transactions:
        return f"All that is dirty is not flushed to disk yet: {where}."
    return f"Held back by {_transactions(facts.transactions)}: {where}.{_remedy(facts.transactions)}"


def _transactions(open_ones: Sequence[OpenTransaction]) -> str:
    told = [
        f"the open transaction of producer {one.producer_id}"
        + ("" if one.since_ms is None else f" since {moment(one.since_ms)}")
        + f" (offset {one.first_offset}"
        + ("" if one.aborted_ms is None else f", aborted at {moment(one.aborted_ms)}")
        + ")"
        for one in open_ones[:SHOWN_TRANSACTIONS]
    ]
    more = len(open_ones) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _remedy(open_ones: Sequence[OpenTransaction]) -> str:
    """Whose it is, or who can end what no coordinator of an Apache Kafka has left word of."""
    if all(one.aborted_ms is not None for one in open_ones):
        return f" {WHOSE} tells whose it is."
    return f" Nobody here ends it by itself: {ABORT} does."


def numbers(facts: Facts) -> dict[str, Any]:
    """Everything behind the sentence, as JSON has it."""
    found, settings = facts.assessment, facts.settings
    answer: dict[str, Any] = {
        "reason": code(facts),
        "sentence": sentence(facts),
        "cleanup_policy": settings.cleanup_policy,
        "min_compaction_lag_ms": settings.min_compaction_lag_ms,
        "max_compaction_lag_ms": settings.max_compaction_lag_ms,
        "is_cleaner_running": facts.off_by is None,
        "pauses": facts.pauses,
        "active_bytes": facts.active_bytes,
        "segment_bytes": settings.segment_bytes,
        "rolls_after_ms": facts.rolls_after_ms,
        "closes_idle_ms": facts.closes_idle_ms,
        "warning": facts.warning,
        "empty_values": facts.empty_values,
        "open_transactions": [
            {
                "producer_id": one.producer_id,
                "first_offset": one.first_offset,
                "since_ms": one.since_ms,
                "aborted_ms": one.aborted_ms,
            }
            for one in facts.transactions
        ],
        "uncleanable": None,
    }
    if facts.held is not None:
        answer["uncleanable"] = {
            "error": facts.held.error,
            "since_ms": facts.held.since_ms,
            "failures": facts.held.failures,
            "retry_ms": facts.held.retry_ms,
        }
    if found is not None:
        answer |= _weights(found)
        if found.reason is Reason.UNCLEANABLE and facts.held is not None:
            answer["next_eligible_ms"] = facts.held.retry_ms
    return answer


def _weights(found: Assessment) -> dict[str, Any]:
    return {
        "first_dirty_offset": found.first_dirty_offset,
        "first_uncleanable_offset": found.first_uncleanable_offset,
        "cleanable_to_offset": found.end,
        "clean_bytes": found.clean_bytes,
        "cleanable_bytes": found.cleanable_bytes,
        "uncleanable_bytes": {name: found.uncleanable_bytes[why] for why, name in LEFT_OUT_NAMES.items()},
        "dirty_ratio": found.dirty_ratio,
        "min_cleanable_dirty_ratio": found.threshold,
        "bytes_until_eligible": bytes_until_eligible(found) if found.reason is Reason.RATIO else None,
        "next_eligible_ms": found.next_eligible_ms,
        "compaction_delay_ms": found.compaction_delay_ms,
        "trigger": None if found.trigger is None else found.trigger.name.lower(),
        "tombstones_expire_ms": found.tombstones_expire_ms,
    }
