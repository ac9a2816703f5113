"""Erase a key: no file of the log holds a value of it any more, and a receipt says so.

A tombstone is written behind the last value, the active segment is closed, all is cleaned, and then the
files are searched again, for what no reader sees as well. The receipt tells what was found there: whether the
values are gone, and until when the tombstone, which holds the key, and the files that were replaced stay.
What a disk keeps of a file that was removed is the file system's affair.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.questions.compactions import Compactions, Wish
from broker.questions.explain import hold
from broker.questions.partitions import facts_of, moment_of
from config.topic import OFFSET, TopicConfig
from protocol.records import encode_batch
from storage.key_search import KeySearch, find_key

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.partition import Partition
    from storage.layout import TopicPartition
    from storage.log import Log

MOST_VERSIONS = 100_000
"""that are looked at: where there are more, nothing is proved"""


@dataclass(frozen=True, slots=True)
class Erasing:
    """Who erases, and which key. Owned by: event loop."""

    broker: Broker
    compactions: Compactions
    key: bytes
    reading: Callable[..., Awaitable[Any]]
    """runs what reads files on an I/O thread, few at a time"""

    async def erase(self, partition: Partition) -> dict[str, Any] | None:
        """The receipt for one partition; None where it has nothing of the key. KafkaError: there is no
        tombstone, for it could not be written.
        """
        log = partition.log
        before = await self._search(log)
        if not before.versions:
            return None if not before.problems else {"is_erased": False, "error": "; ".join(before.problems)}
        values = [record.offset for record in before.versions if record.value is not None]
        tombstone = await self._committed_tombstone(log, before)
        if tombstone is None:
            tombstone = await self._write_tombstone(partition)
        done = await self.compactions.compact(partition.topic_partition, Wish(roll=True))
        return {
            "values": len(values),
            "is_cut": before.is_cut,
            "last_value_offset": max(values, default=None),
            "tombstone_offset": tombstone,
            **await self._left(log, tombstone, done),
        }

    async def _search(self, log: Log) -> KeySearch:
        found: KeySearch = await self.reading(
            lambda: find_key(log, self.key, history=True, hidden=True, most=MOST_VERSIONS, bare=True)
        )
        return found

    async def _committed_tombstone(self, log: Log, found: KeySearch) -> int | None:
        """The offset of the newest version, where that is a tombstone and not of a transaction that was
        aborted or may be.
        """
        newest = found.versions[0]
        if newest.value is not None:
            return None
        seen: KeySearch = await self.reading(lambda: find_key(log, self.key))
        return newest.offset if seen.versions and seen.versions[0].offset == newest.offset else None

    async def _write_tombstone(self, partition: Partition) -> int:
        now_ms = self.broker.clock.now_ms()
        appended = partition.append(encode_batch([(now_ms, self.key, None, ())], now_ms=now_ms), now_ms)
        flushed = partition.when_flushed(appended.last_offset + 1)
        if flushed is not None:
            await flushed
        return appended.last_offset

    async def _left(self, log: Log, tombstone: int, done: dict[str, Any]) -> dict[str, Any]:
        """What the files hold now: nothing is concluded from what the cleaner says."""
        after = await self._search(log)
        left = [one.offset for one in after.versions if one.offset <= tombstone and one.value is not None]
        newer = [one.offset for one in after.versions if one.offset > tombstone and one.value is not None]
        is_erased = not left and not after.problems and not after.is_cut
        why = done.get("error") or done.get("held_back_by") or "; ".join(after.problems)
        if after.is_cut:
            why = why or f"there are more than {MOST_VERSIONS} versions, not all of them were looked at"
        has_tombstone = any(one.offset == tombstone for one in after.versions)
        until_ms = await self.reading(_horizon, log, tombstone) if has_tombstone else None
        if not is_erased:
            why = why or await self.broker.run_blocking(self._reason, log)
        return {
            "is_erased": is_erased,
            "values_left": left[::-1],
            "written_since": newer[::-1],
            "held_back_by": None if is_erased else why,
            "sentence": None if is_erased else await self._sentence(log.topic_partition),
            "has_tombstone": has_tombstone,
            "tombstone_until_ms": until_ms,
            "files_until_ms": self.broker.clock.now_ms() + log.config.file_delete_delay_ms,
        }

    def _reason(self, log: Log) -> str:
        """On an I/O thread: why what is left is not being cleaned, though something was."""
        reason = self.broker.cleaner.assess(log).reason
        return "it was written while it was cleaned" if reason is None else reason.value

    async def _sentence(self, topic_partition: TopicPartition) -> str | None:
        """What holds back what is left, and until when, as explain says it; None: it would not say it."""
        topic, at = self.broker.topics.get(topic_partition.topic), moment_of(self.broker, topic_partition)
        if topic is None or at is None:
            return None
        return await self.broker.run_blocking(lambda: hold(facts_of(self.broker, topic, at)))


def _horizon(log: Log, offset: int) -> int | None:
    """On an I/O thread: from when on a cleaning removes the tombstone there; None: no cleaning has met it."""
    return next((header.delete_horizon_ms for header, _ in log.scan(offset, offset + 1)), None)


def why_not(config: TopicConfig) -> str | None:
    """Why nothing of a topic can be erased so."""
    if not config.is_compacted:
        policy = ",".join(sorted(config.cleanup_policy)) or "none"
        return f"it is not compacted (cleanup.policy is {policy}): its records go with its retention"
    if config.compaction_strategy != OFFSET:
        return (
            f"its compaction.strategy is {config.compaction_strategy}: the last record of a key, which a "
            "tombstone would be, need not be the one that stays"
        )
    return None
