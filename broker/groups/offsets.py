"""The committed offsets of one group: appended, visible, expired. Pure.

Mirrors the offset half of Kafka's GroupMetadata. A commit is *pending* from its append until the record is
durable, and becomes visible to OffsetFetch only then, so that no consumer resumes from a position that a
power cut could take back. A commit of a transaction is *undecided* until the transaction ends. The place of
the record in `__consumer_offsets` decides which of two commits is newer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from protocol.schema import ZERO_UUID
from storage.layout import TopicPartition

IdOf = Callable[[str], UUID | None]
"""the id of the topic of a name; None where there is none"""


@dataclass(slots=True, eq=False)
class Commit:
    """One committed position. `log_offset` is the place of its record; -1 until it is appended."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # Only commits of OffsetCommit v2-4 that name a retention carry it; -1 otherwise.
    expire_timestamp_ms: int = -1
    log_offset: int = -1
    # Of which of the topics that have had the name; ZERO_UUID where its record says nothing of it.
    topic_id: UUID = ZERO_UUID


class GroupOffsets:
    """Owned by: event loop."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Commit] = {}
        self._pending: dict[TopicPartition, list[Commit]] = {}
        # By producer id.
        self._undecided: dict[int, dict[TopicPartition, Commit]] = {}

    @property
    def is_empty(self) -> bool:
        return not self.committed and not self._pending and not self._undecided

    def append(self, topic_partition: TopicPartition, commit: Commit) -> None:
        """The record was appended and is not durable yet."""
        self._pending.setdefault(topic_partition, []).append(commit)

    def complete(self, topic_partition: TopicPartition, commit: Commit) -> None:
        """The record is durable. A commit that was removed meanwhile stays removed."""
        if self._take(topic_partition, commit):
            self.load(topic_partition, commit)

    def fail(self, topic_partition: TopicPartition, commit: Commit) -> None:
        """The record will never be durable."""
        self._take(topic_partition, commit)

    def load(self, topic_partition: TopicPartition, commit: Commit) -> None:
        """Make a durable commit visible unless a newer one is."""
        current = self.committed.get(topic_partition)
        if current is None or current.log_offset < commit.log_offset:
            self.committed[topic_partition] = commit

    def load_all(self, commits: dict[TopicPartition, Commit]) -> None:
        """As `load`, of all that a start has read: in one step, where nothing is known yet."""
        if not self.committed:
            self.committed = commits
            return
        for topic_partition, commit in commits.items():
            self.load(topic_partition, commit)

    def remove(self, topic_partition: TopicPartition) -> None:
        self.committed.pop(topic_partition, None)
        self._pending.pop(topic_partition, None)
        for commits in self._undecided.values():
            commits.pop(topic_partition, None)

    def known(self) -> set[TopicPartition]:
        """Every partition with a commit, durable, decided or not."""
        return self.committed.keys() | self._pending.keys() | self.undecided()

    # transactions

    def append_undecided(self, producer_id: int, topic_partition: TopicPartition, commit: Commit) -> None:
        """The record of a transaction was appended (T195)."""
        self._undecided.setdefault(producer_id, {})[topic_partition] = commit

    def fail_undecided(self, producer_id: int, topic_partition: TopicPartition, commit: Commit) -> None:
        """The record will never be durable."""
        commits = self._undecided.get(producer_id, {})
        if commits.get(topic_partition) is commit:
            del commits[topic_partition]

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The transaction's marker is durable."""
        for topic_partition, commit in self._undecided.pop(producer_id, {}).items():
            if is_commit:
                self.load(topic_partition, commit)

    def undecided(self) -> set[TopicPartition]:
        """Partitions with a commit of a transaction that goes on."""
        return {topic_partition for commits in self._undecided.values() for topic_partition in commits}

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        base_ms: Callable[[Commit], int],
        is_kept: Callable[[str], bool],
    ) -> list[TopicPartition]:
        """What may go (T196): retention has passed since `base_ms`, and neither a commit under way nor
        `is_kept(topic)` holds it."""
        undecided = self.undecided()
        return [
            topic_partition
            for topic_partition, commit in self.committed.items()
            if topic_partition not in self._pending
            and topic_partition not in undecided
            and not is_kept(topic_partition.topic)
            and _is_expired(commit, now_ms, retention_ms, base_ms)
        ]

    def of_topics(self, topics: Iterable[str]) -> list[TopicPartition]:
        wanted = frozenset(topics)
        return [topic_partition for topic_partition in self.known() if topic_partition.topic in wanted]

    def of_others(self, id_now: IdOf, id_first: IdOf) -> list[TopicPartition]:
        """What was committed, durable, decided or not, for a topic that is not the one of its name now: it
        is gone, or was made again. A commit without an id is of the topic that had the name first.
        """
        ids: dict[str, tuple[int | None, int | None]] = {}  # as numbers, which are compared quickly
        others: dict[TopicPartition, None] = {}
        for commits in (self.committed, *self._undecided.values()):
            for topic_partition, commit in commits.items():
                name = topic_partition.topic
                if name not in ids:
                    ids[name] = _number(id_now(name)), _number(id_first(name))
                now_id, first_id = ids[name]
                if now_id is None or now_id != (commit.topic_id.int or first_id):
                    others[topic_partition] = None
        return list(others)

    def _take(self, topic_partition: TopicPartition, commit: Commit) -> bool:
        waiting = self._pending.get(topic_partition, [])
        if not any(other is commit for other in waiting):
            return False
        waiting[:] = [other for other in waiting if other is not commit]
        if not waiting:
            del self._pending[topic_partition]
        return True


def _number(topic_id: UUID | None) -> int | None:
    return None if topic_id is None else topic_id.int


def _is_expired(commit: Commit, now_ms: int, retention_ms: int, base_ms: Callable[[Commit], int]) -> bool:
    if commit.expire_timestamp_ms >= 0:
        return now_ms >= commit.expire_timestamp_ms
    return now_ms - base_ms(commit) >= retention_ms
