"""The topics that groups divide: which there are, what a regular expression stands for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from broker.patterns import compiled
from broker.topic import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.security.authorizer import Authorizer
    from broker.topics import TopicRegistry

Partitions = Mapping[UUID, frozenset[int]]
"""partitions by topic id, no topic without any"""
MayKnow = Callable[[str], bool]
"""whether a client may describe a topic of this name"""


def everything(name: str) -> bool:
    """What a client may know where there are no rules."""
    return True


class GroupTopics:
    """The registry as groups see it. Owned by: event loop."""

    def __init__(self, registry: TopicRegistry, authorizer: Authorizer | None) -> None:
        self.registry = registry
        self._authorizer = authorizer

    @property
    def version(self) -> int:
        """Another one whenever a topic came, went, or got more partitions, or rules changed."""
        return self.registry.version + (0 if self._authorizer is None else self._authorizer.version)

    @property
    def has_rules(self) -> bool:
        """Whether there may be topics that a client may not know."""
        return self._authorizer is not None

    def sizes(self, names: Iterable[str]) -> dict[UUID, int]:
        """Number of partitions by topic id, of those of `names` that exist."""
        topics = (self.registry.get(name) for name in names)
        return {topic.topic_id: topic.partition_count for topic in topics if topic is not None}

    def size_of(self, name: str) -> int | None:
        """Number of partitions of a topic; None where there is none of this name."""
        topic = self.registry.get(name)
        return None if topic is None else topic.partition_count

    def names(self, partitions: Mapping[UUID, Iterable[int]]) -> dict[UUID, str]:
        """The names of topics that still exist."""
        topics = (self.registry.by_id(topic_id) for topic_id in partitions)
        return {topic.topic_id: topic.name for topic in topics if topic is not None}

    def id_of(self, name: str) -> UUID | None:
        topic = self.registry.get(name)
        return None if topic is None else topic.topic_id

    def matching(self, regex: str, may_know: MayKnow) -> frozenset[str]:
        """The names of all topics that a regular expression matches as a whole and that who asks may know,
        `__consumer_offsets` among them as in Kafka; what only kompakt has is nobody's to read by chance.

        INVALID_REGULAR_EXPRESSION where it is none.
        """
        pattern = compiled(regex, "SubscribedTopicRegex")
        names = (topic.name for topic in self.registry.all() if topic.name != METADATA_TOPIC)
        return frozenset(name for name in names if pattern.fullmatch(name) and may_know(name))


def metadata_hash(sizes: Mapping[UUID, int]) -> int:
    """Tells whether what a group divides is what it divided before; 0: nothing.

    An int64 as Kafka stores one, of our own making: a broker that takes the group over assigns anew once.
    """
    if not sizes:
        return 0
    text = ",".join(f"{topic_id}:{size}" for topic_id, size in sorted(sizes.items()))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)
