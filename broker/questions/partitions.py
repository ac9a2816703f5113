"""The facts about partitions that the answers rest on: what belongs to the event loop is taken there, the
rest read on an I/O thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.cleaning_history import is_done
from broker.policy_lint import policy_warning
from broker.questions.explain import Facts, OpenTransaction, Settings, Waiting, numbers
from broker.questions.words import LAST_MS
from cleaner.selection import Reason
from protocol.errors import KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topic import Topic
    from storage.log import Log


@dataclass(frozen=True, slots=True)
class Moment:
    """What only the event loop may look at, taken there."""

    log: Log
    transactions: Mapping[int, int]
    aborted_ms: Mapping[int, int | None]
    last_gain: int | None
    closes_idle_ms: int | None
    warning: str | None


def moment_of(broker: Broker, topic_partition: TopicPartition) -> Moment | None:
    """On the event loop; None when the partition is not served."""
    partition = broker.partitions.get(topic_partition)
    if partition is None:
        return None
    transactions = partition.log.producers.open_transactions()
    runs = [one for one in broker.cleanings.runs(topic_partition, partition.topic_id) if is_done(one)]
    return Moment(
        partition.log,
        transactions,
        {one: broker.transactions.due_ms(topic_partition, one) for one in transactions},
        sum(runs[-1]["removed"].values()) if runs else None,
        broker.idle_segments.due_ms(partition.log),
        policy_warning(topic_partition.topic, partition.log.config),
    )


def facts_of(broker: Broker, topic: Topic, at: Moment, gain: int | None = None) -> Facts:
    """On an I/O thread."""
    log, config = at.log, topic.config
    active = log.segments[-1]
    assessment, if_rolled, problem = None, None, log.offline_reason
    if problem is None:
        try:
            assessment = broker.cleaner.assess(log)
            if assessment.reason is Reason.ACTIVE_SEGMENT:
                if_rolled = broker.cleaner.assess(log, rolled_at=log.log_end_offset)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if assessment is not None and assessment.reason is Reason.OFFLINE:  # meanwhile
            assessment, problem = None, log.offline_reason
    return Facts(
        settings=Settings(
            ",".join(sorted(config.cleanup_policy)) or "none",
            config.min_compaction_lag_ms,
            config.max_compaction_lag_ms,
            config.segment_bytes,
            config.segment_ms,
        ),
        assessment=assessment,
        problem=problem,
        held=broker.cleaner.uncleanable(log.topic_partition),
        transactions=_open_transactions(at) if problem is None else (),
        active_bytes=active.size_bytes,
        rolls_after_ms=_rolls_after_ms(at) if problem is None else None,
        log_end_offset=log.log_end_offset,
        pauses=broker.cleaner.state_of(log.topic_partition).pauses,
        off_by=broker.cleaner_pool.off_by,
        gain=gain,
        last_gain=at.last_gain,
        closes_idle_ms=at.closes_idle_ms,
        cleaner_problem=broker.cleaner.problem,
        tombstones_waiting=_waiting(broker, log),
        warning=at.warning,
        empty_values=broker.cleaner.empty_values(log) if log.config.is_compacted and problem is None else 0,
        if_rolled=if_rolled,
        moves_to=broker.moves.target_of(log.topic_partition),
    )


def _waiting(broker: Broker, log: Log) -> Waiting | None:
    """The tombstones of the last cleaning that wait for a time, or whose time is over."""
    kept, horizon_ms = broker.cleaner.tombstones_kept(log.topic_partition)
    return Waiting(kept, horizon_ms) if kept and horizon_ms >= 0 else None


def _open_transactions(at: Moment) -> tuple[OpenTransaction, ...]:
    """The oldest first, with the time of their first record."""
    found = []
    for producer_id, first_offset in sorted(at.transactions.items(), key=lambda item: item[1]):
        since_ms = None
        with contextlib.suppress(KafkaError, OSError):  # a damaged segment has its own sentence
            header = next((one for one, _ in at.log.scan(first_offset)), None)
            since_ms = None if header is None or header.base_timestamp < 0 else header.base_timestamp
        found.append(OpenTransaction(producer_id, first_offset, since_ms, at.aborted_ms[producer_id]))
    return tuple(found)


def _rolls_after_ms(at: Moment) -> int | None:
    """From when on the next record closes the active segment; None: only its size does."""
    active = at.log.segments[-1]
    if not active.size_bytes:
        return None
    first = active.first_batch_timestamp
    due_ms = (first if first >= 0 else active.created_ms) + at.log.config.max_segment_ms
    return due_ms - active.roll_jitter_ms if due_ms <= LAST_MS else None


def explained(
    broker: Broker, topic: Topic, moments: Sequence[tuple[int, Moment]], runs: Mapping[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """On an I/O thread: the answer for each partition. `runs` are dry runs by partition."""
    answers = []
    for index, at in moments:
        dry = runs.get(index)
        gain = None if dry is None or "error" in dry else sum(dry["removed"].values())
        facts = facts_of(broker, topic, at, gain)
        log = at.log
        answers.append(
            {
                "partition": index,
                **numbers(facts),
                "log_start_offset": log.log_start_offset,
                "last_stable_offset": log.last_stable_offset,
                "high_watermark": log.high_watermark,
                "log_end_offset": log.log_end_offset,
                "size_bytes": log.size_bytes,
                "dry_run": dry,
            }
        )
    return answers
