"""Directories of topics that nobody knows: those of a Kafka data directory become topics, others stay. How
many partitions such a topic had, and which settings, is in Kafka's quorum log, if that lies beside or in
`metadata.log.dir`.

A directory whose name ends in a number is soon made, of a copy (`orders-0-20261123`) or of something else. As
a topic it would have all the partitions before that number as well.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID, uuid4

from broker.quorum_log import NAME, KafkasTopic, read_topics
from broker.topic import CLUSTER_METADATA_TOPIC, METADATA_TOPIC
from config.topic import topic_rows
from protocol.errors import KafkaError
from storage import layout
from storage.checkpoint import read_topic_id, write_topic_id
from storage.file import SYSTEM_DISK
from storage.layout import TopicPartition
from storage.small_files import sync_file

if TYPE_CHECKING:
    from broker.topic import Topic
    from storage.log import Log


logger = logging.getLogger(__name__)

KAFKAS_OWN = frozenset((CLUSTER_METADATA_TOPIC, METADATA_TOPIC))
"""directories of these names are no topic to adopt"""


class KnownTopics(Protocol):
    """The registry, as far as adoption looks at it."""

    found: dict[str, KafkasTopic]

    def knows(self, name: str) -> bool:
        """Whether there is such a topic, or one is on its way out."""

    def by_id(self, topic_id: UUID) -> Topic | None:
        """The topic of an id."""


class AdoptionError(Exception):
    """What an Apache Kafka has left cannot be taken over as it was; the message says why and what to do."""


def check_home(home: Path | None, metadata_log_dir: str | None, directories: Sequence[Path]) -> None:
    """At a first start: AdoptionError where a Kafka's directories are without the quorum log of which its
    settings speak. Without users and rules all might be open, and they are read but once.
    """
    if home is not None or not metadata_log_dir or not any(map(_is_kafkas, directories)):
        return
    raise AdoptionError(
        f"{NAME} is neither in {metadata_log_dir} (metadata.log.dir) nor in log.dirs: it has the users, "
        "rules (ACLs), quotas and topic settings of the Apache Kafka whose directories these are. Put it "
        "there, or take metadata.log.dir out of the configuration to start without all that"
    )


def _is_kafkas(directory: Path) -> bool:
    """Whether there is what no kompakt has made that was never served."""
    names = [path.name for path in directory.iterdir()]
    found = filter(None, map(layout.parse_partition_directory, names))
    return layout.BOOTSTRAP_CHECKPOINT in names or any(one.topic not in KAFKAS_OWN for one in found)


def topics_of_kafka(
    home: Path | None, directories: Sequence[Path], is_known: Callable[[str], bool]
) -> dict[str, KafkasTopic]:
    """Before logs are opened: what Kafka knew of topics that are found in its directories and are not known
    here, by name; `home` has the quorum log.
    """
    try:
        topics = {} if home is None else read_topics(home)
        places = _places(directories) if topics else {}
        return {
            name: topic._replace(settings=_taken(name, topic.settings))
            for name, topic in topics.items()
            if not is_known(name)
            and any(read_topic_id(SYSTEM_DISK, place) == topic.topic_id for place in places.get(name, ()))
        }
    except (OSError, KafkaError) as error:
        logger.error("the settings that Apache Kafka gave to its topics are not read: %s", error)
        return {}


def _places(directories: Sequence[Path]) -> dict[str, list[Path]]:
    """The directories of each topic; those of an earlier one of its name may be among them."""
    places = defaultdict(list)
    for path in (path for directory in directories for path in directory.iterdir()):
        topic_partition = layout.parse_partition_directory(path.name)
        if topic_partition is not None and path.is_dir():
            places[topic_partition.topic].append(path)
    return places


def _taken(name: str, settings: dict[str, str]) -> dict[str, str]:
    """Those that there are here; the others are told."""
    left_out = sorted(settings.keys() - topic_rows().keys())
    if left_out:
        logger.warning("settings of topic %s mean nothing here: %s", name, ", ".join(left_out))
    return {key: value for key, value in settings.items() if key not in left_out}


def why_not_adopted(
    topics: KnownTopics, most_partitions: int, topic_partition: TopicPartition, directory: Path
) -> str | None:
    """Why a directory is no partition, for all its name; None when it is one. OSError."""
    if topics.knows(topic_partition.topic):
        return None
    names = [path.name for path in directory.iterdir()]
    if layout.PARTITION_METADATA not in names and not any(map(layout.parse_segment_file, names)):
        return "no file of a log is in it"
    if topic_partition.partition >= most_partitions:
        return f"its number is not below max.partitions.per.topic ({most_partitions})"
    topic_id = read_topic_id(SYSTEM_DISK, directory, lambda place: None)  # who opens it tells damage
    if topic_id is None:
        return None
    own = topics.found.get(topic_partition.topic)
    if own is not None and topic_partition.partition >= own.partition_count and topic_id != own.topic_id:
        return f"Apache Kafka's topic has {own.partition_count} partitions, and another id"
    known = topics.by_id(topic_id)
    kafkas = (name for name, found in topics.found.items() if found.topic_id == topic_id)
    other = known.name if known is not None else next(kafkas, None)
    if other not in (None, topic_partition.topic):
        return f"{layout.PARTITION_METADATA} says that it is a copy of one of {other}"
    return None


def topics_found(topics: KnownTopics, logs: Iterable[TopicPartition]) -> dict[str, int]:
    """Those that nobody knows, by name, and how many partitions each has by its directories."""
    counts: dict[str, int] = {}
    for name, index in logs:
        if name not in KAFKAS_OWN and not topics.knows(name):
            counts[name] = max(counts.get(name, 0), index + 1)
    return counts


def id_for(topics: KnownTopics, logs: Sequence[Log]) -> UUID:
    """The id of a topic that is found as these. Where another one has it, of which nobody knows either, one
    of the two is a copy of the other under another name: it gets an id of its own, or clients that ask by id
    would be given the records of whichever was adopted last.
    """
    topic_id = logs[0].topic_id
    other = topics.by_id(topic_id)
    if other is None:
        return topic_id
    new_id = uuid4()
    logger.warning("%s has the id of %s: it gets another one", logs[0].topic_partition.topic, other.name)
    for log in logs:
        log.topic_id = new_id
        try:
            sync_file(SYSTEM_DISK, write_topic_id(SYSTEM_DISK, log.directory, new_id))
        except OSError as error:
            logger.error("the new id of %s is not written down: %s", log.topic_partition, error)
    return new_id


def with_partitions_found(topic: Topic, logs: Mapping[TopicPartition, Log], most: int) -> Topic:
    """A known topic with the partitions that it has by its directories. Those that follow on its own and bear
    its id are its own as well: that it grew was in a part of `__kompakt_metadata` that is lost, or later than
    the copy that was put in its place. Itself where there are none.
    """
    if topic.name in KAFKAS_OWN:
        return topic
    count = topic.partition_count
    while count < most and (log := logs.get(TopicPartition(topic.name, count))) is not None:
        if log.offline_reason is not None or log.topic_id != topic.topic_id:
            logger.warning("%s is not known to be of its topic, and left alone", log.directory)
            break
        count += 1
    if count == topic.partition_count:
        return topic
    logger.warning(
        "topic %s has %d partitions by its directories, and %d were known: it has all of them",
        topic.name, count, topic.partition_count,
    )  # fmt: skip
    return replace(topic, partition_count=count)
