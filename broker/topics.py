"""The topics, their ids and settings, which are records of `__kompakt_metadata`:

    {"name": "a", "type": "topic"}  {"configs": {"cleanup.policy": "compact"}, "id": "0f…", "partitions": 3}

A null value removes the topic. A topic on its way out bears `"deleting": true` until its directories are
renamed, so that a crash in between neither brings it back nor leaves half of it (`topic_deletions.py`).
Mirrors Kafka's `ReplicationControlManager`, `ConfigurationControlManager` and `TopicsImage`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from broker.adoption import check_home, id_for, topics_found, topics_of_kafka, with_partitions_found
from broker.metadata_log import METADATA_PARTITION, MetadataLog, State
from broker.node import Node
from broker.policy_lint import warn
from broker.quorum_log import home_of
from broker.topic import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    Topic,
    adopted_overrides,
)
from config.definition import ConfigError
from config.topic import TopicConfig, collision_form, topic_name_problem
from protocol.errors import ErrorCode, KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.quorum_log import KafkasTopic
    from storage.log import Log

logger = logging.getLogger(__name__)

TOPIC = "topic"
GROWTH_LIMIT_SECONDS = 25.0
"""a change to a topic waits for so long until it has its partitions: clients wait 30 s for an answer"""


class TopicRegistry:
    """Owned by: event loop; `load`, `config_of` and `id_of` may run on any thread before the broker listens.

    Start: `load(state)`, behind the broker's dynamic settings; then the logs are opened (`config_of` says
    how); then `reconcile()` serves them all, makes what is missing, ends what was being deleted.
    """

    def __init__(self, node: Node, metadata: MetadataLog) -> None:
        self._node = node
        self._metadata = metadata
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._forms: dict[str, str] = {}
        self._deleting: dict[str, int] = {}
        """topics on their way out, by name: how many partitions they have"""
        self._growing: dict[str, asyncio.Future[None]] = {}
        """topics whose partitions are being made, by name: the end of it"""
        self.found: dict[str, KafkasTopic] = {}
        """what a Kafka knew of topics that are to be adopted, by name"""
        self._is_stopping = False
        self.version = 0
        """another one whenever a topic came, went, or got more partitions"""

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def name_rows(self, rows: Iterable[Any]) -> None:
        """Of a request that has `topic_id` where older versions have `name`: give each row the name of its
        topic; it stays empty where no topic has that id."""
        for row in rows:
            topic = self._by_id.get(row.topic_id)
            if topic is not None:
                row.name = topic.name

    def all(self) -> list[Topic]:
        """Every topic, by name, the internal ones among them. On any thread."""
        return sorted(self._topics.values(), key=attrgetter("name"))

    def config_of(self, name: str) -> TopicConfig:
        """The values that hold for a topic; those of an unknown one delete nothing."""
        topic = self._topics.get(name)
        return topic.config if topic is not None else self._resolve(name, self._adopted(name))

    def _adopted(self, name: str) -> dict[str, str]:
        found = self.found.get(name)
        return adopted_overrides(name, None if found is None else found.settings)

    def knows(self, name: str) -> bool:
        """Whether there is such a topic, or one is on its way out."""
        return name in self._topics or name in self._deleting

    def id_of(self, name: str) -> uuid.UUID | None:
        """The id of a topic; None when it is unknown."""
        topic = self._topics.get(name)
        return None if topic is None else topic.topic_id

    # Start

    def load(self, state: State) -> None:
        """Take in what `__kompakt_metadata` says of topics."""
        self._put(self._metadata.topic)
        for (kind, name), value in state.items():
            if kind != TOPIC:
                continue
            if name == CLUSTER_METADATA_TOPIC:  # made before this was refused; `reconcile` ends it
                logger.error(
                    "there can be no topic %s, the name is that of Kafka's quorum log: it is dropped, its "
                    "directories stay; under another name they are adopted by the next start",
                    name,
                )
                self._deleting[name] = 0
                continue
            if value.get("deleting"):
                self._deleting[name] = value["partitions"]
                continue
            overrides = dict(value["configs"])
            self._put(
                Topic(
                    name,
                    uuid.UUID(value["id"]),
                    value["partitions"],
                    overrides,
                    self._resolve(name, overrides),
                    name in INTERNAL_TOPICS,
                )
            )
        metadata = self._metadata
        if not metadata.was_served or not (metadata.is_new or self._deleting or len(self._topics) > 1):
            # Else what was set here, and may be lost, is newer than what Kafka knew.
            home, directories = home_of(self._node), [one.path for one in self._node.logs.directories]
            if not metadata.was_served and len(self._topics) == 1:
                check_home(home, self._node.config.metadata_log_dir, directories)
            self.found = topics_of_kafka(home, directories, self.knows)

    def _resolve(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        """The values of a stored topic; what is no longer understood is left out with a line."""

        def resolved(values: Mapping[str, str]) -> TopicConfig:
            is_internal = name in INTERNAL_TOPICS
            return TopicConfig.resolve(values, self._node.config, is_internal=is_internal, is_stored=True)

        try:
            return resolved(overrides)
        except ConfigError:
            good: dict[str, str] = {}
            for key, text in overrides.items():
                try:
                    resolved({**good, key: text})
                except ConfigError as error:
                    logger.error("a setting of topic %s is left out: %s", name, error.message)
                else:
                    good[key] = text
            return resolved(good)

    def reconcile(self) -> list[tuple[str, int]]:
        """Serve every log; make the partitions that miss one, adopt logs nobody knows, end deletions: the
        names of those topics, and how many partitions they had.
        """
        logs = self._node.logs
        logs.expect(one for topic in self.all() for one in topic.partitions())
        logs.admit_new_directories()
        self._node.serve(logs.logs[METADATA_PARTITION])
        deleted = self._end_deletions()
        self._adopt(logs.logs)
        for topic in self.all():
            for topic_partition in topic.partitions():
                log = logs.logs.get(topic_partition)
                if log is None:
                    ended = logs.last_known_end(topic_partition)
                    log = logs.create(topic_partition, topic.topic_id, topic.config)
                    if ended:
                        words = "%s had no directory, and ended at %d: what it held is lost, it starts empty"
                        logger.error(words, topic_partition, ended)
                    else:
                        logger.warning("%s had no directory; it starts empty", topic_partition)
                self._node.serve(log)
        return deleted

    def _end_deletions(self) -> list[tuple[str, int]]:
        deleted, logs = [], self._node.logs
        for name, partition_count in tuple(self._deleting.items()):
            try:
                for index in range(partition_count):
                    if TopicPartition(name, index) in logs.logs:
                        logs.delete(TopicPartition(name, index))
            except OSError as error:
                logger.error("%s is not wholly deleted, the next start ends it: %s", name, error)
                continue
            deleted.append((name, partition_count))
            del self._deleting[name]
            try:
                self._append(name, None)
            except KafkaError as error:  # a full disk: the next start does it
                logger.warning("the deletion of %s is not written down: %s", name, error.message)
        return deleted

    def _adopt(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Directories of a Kafka data directory become topics. By settings that nobody gave them nothing is
        deleted until somebody says so.
        """
        for name, partition_count in topics_found(self, logs).items():
            topic_id = id_for(self, [log for key, log in logs.items() if key.topic == name])
            overrides, is_known = self._adopted(name), name in self.found
            if is_known:  # other brokers may have had the last ones, and keys and groups go by the number
                partition_count = max(partition_count, self.found[name].partition_count)
            logger.log(
                logging.INFO if is_known else logging.WARNING,
                "adopted topic %s with %d partitions; its settings are %s: %s",
                name, partition_count, "those of its Apache Kafka" if is_known else "unknown", overrides,
            )  # fmt: skip
            config, is_internal = self._resolve(name, overrides), name in INTERNAL_TOPICS
            self._store(Topic(name, topic_id, partition_count, overrides, config, is_internal))
        for topic in self.all():
            grown = with_partitions_found(topic, logs, self._node.config.max_partitions_per_topic)
            if grown is not topic:
                self._store(grown)

    # Changes

    def check_new_name(self, name: str) -> None:
        """Raise when no topic of this name can be made."""
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if name in self._topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in self._growing:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is being made.")
        if name in self._deleting:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is still being deleted.")
        form = collision_form(name)
        making = (growing for growing in self._growing if collision_form(growing) == form)
        other = self._forms.get(form) or next(making, None)
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )

    def create(self, name: str, partitions: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """Make a topic of few partitions at once; it is durable when `metadata.flushed()` returns."""
        topic = self._new(name, partitions, overrides or {})
        self._append(name, topic.stored())
        made: list[TopicPartition] = []
        try:
            for topic_partition in topic.partitions():
                self._make_log(topic, topic_partition)
                made.append(topic_partition)
        except KafkaError:
            self._unmake(topic, None, made)
            raise
        self._put(topic)
        return topic

    async def create_durably(self, name: str, partitions: int, overrides: Mapping[str, str]) -> Topic:
        """Make a topic of any size, others being served meanwhile; it is there when this returns."""
        topic = self._new(name, partitions, overrides)
        self._growing[name] = asyncio.get_running_loop().create_future()
        await self._node.changes.to_the_end(f"create {name}", self._grow(topic, None))
        return topic

    async def add_partitions(self, name: str, partition_count: int) -> Topic:
        """Grow a topic to `partition_count` partitions, others being served meanwhile."""
        topic = self._existing(name)
        grown = replace(topic, partition_count=partition_count)
        self._growing[name] = asyncio.get_running_loop().create_future()
        await self._node.changes.to_the_end(f"grow {name}", self._grow(grown, topic))
        return grown

    async def _grow(self, topic: Topic, before: Topic | None) -> None:
        """Make the partitions that `topic` has more than `before`, or none of them."""
        made: list[TopicPartition] = []
        try:
            self._append(topic.name, topic.stored())
            # A power cut shall leave no directories of which nobody knows the settings.
            await self._metadata.flushed()
            for topic_partition in topic.partitions():
                if self._is_stopping:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping")
                if before is None or topic_partition.partition >= before.partition_count:
                    self._make_log(topic, topic_partition)
                    made.append(topic_partition)
                    await asyncio.sleep(0)
        except KafkaError:
            self._unmake(topic, before, made)
            raise
        finally:
            self._growing.pop(topic.name).set_result(None)
        # The broker's settings, which are the topic's defaults, may have changed meanwhile.
        grown = replace(topic, config=self._resolve(topic.name, topic.overrides))
        self._put(grown)
        self._configure_logs(grown)

    def is_growing(self, name: str) -> bool:
        """Whether partitions of a topic are being made."""
        return name in self._growing

    async def settled(self, name: str) -> None:
        """Return when a topic is not growing any more, or after a while; then changes to it are refused."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GROWTH_LIMIT_SECONDS):
                while (growing := self._growing.get(name)) is not None:
                    await asyncio.wait({growing})

    def set_overrides(self, name: str, overrides: Mapping[str, str]) -> Topic:
        """Replace a topic's own settings; its logs follow at once."""
        topic = self._existing(name)
        try:
            config = TopicConfig.resolve(overrides, self._node.config, is_internal=topic.is_internal)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
        changed = replace(topic, overrides=dict(overrides), config=config)
        self._store(changed)
        self._configure_logs(changed)
        return changed

    def begin_deletion(self, name: str) -> Topic:
        """The topic is gone for clients, and there can be none of its name until `end_deletion`."""
        topic = self._existing(name)
        self._append(name, {**topic.stored(), "deleting": True})
        self._deleting[name] = topic.partition_count
        self._remove(topic)
        return topic

    def end_deletion(self, topic: Topic) -> None:
        """Nothing of it is left."""
        del self._deleting[topic.name]  # a new topic's record may as well take the place of this one's end
        self._append(topic.name, None)

    def begin_stop(self) -> None:
        """Give up what is only half made: nobody was told of it yet."""
        self._is_stopping = True

    def follow_broker(self) -> None:
        """The broker's settings have changed, which are the defaults of topics: their logs follow at once."""
        for topic in self.all():
            if topic.name != METADATA_TOPIC:
                resolved = replace(topic, config=self._resolve(topic.name, topic.overrides))
                self._put(resolved)
                self._configure_logs(resolved)

    # Parts

    def _existing(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        if name in self._growing:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Topic '{name}' is still growing; try again.")
        return topic

    def _new(self, name: str, partitions: int, overrides: Mapping[str, str]) -> Topic:
        """A topic as it will be; KafkaError when it cannot be made."""
        self.check_new_name(name)
        try:
            is_internal = name in INTERNAL_TOPICS
            config = TopicConfig.resolve(overrides, self._node.config, is_internal=is_internal)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
        return Topic(name, uuid.uuid4(), partitions, dict(overrides), config, is_internal)

    def _make_log(self, topic: Topic, topic_partition: TopicPartition) -> None:
        node = self._node
        try:
            node.serve(node.logs.create(topic_partition, topic.topic_id, topic.config))
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot make {topic_partition}: {error}"
            ) from error

    def _unmake(self, topic: Topic, before: Topic | None, made: Iterable[TopicPartition]) -> None:
        """Take back what was made of a topic that could not be made or grown; what was in its way is not
        ours to remove. Where a disk does not let go of a new topic, the next start does it.
        """
        stored = None if before is None else before.stored()
        if before is None:
            self._node.metrics_state.topics.pop(topic.name, None)
        for topic_partition in made:
            self._node.forget(topic_partition)
            try:
                self._node.logs.delete(topic_partition)
            except OSError as error:
                logger.error("%s was made for nothing, and stays for now: %s", topic_partition, error)
                if before is None:
                    stored = {**topic.stored(), "deleting": True}
                    self._deleting[topic.name] = topic.partition_count
        self._append(topic.name, stored)

    def _configure_logs(self, topic: Topic) -> None:
        for topic_partition in topic.partitions():
            partition = self._node.partitions.get(topic_partition)
            if partition is not None and partition.log.config != topic.config:
                partition.update_config(topic.config)

    def _store(self, topic: Topic) -> None:
        self._append(topic.name, topic.stored())
        self._put(topic)

    def _put(self, topic: Topic) -> None:
        before = self._topics.get(topic.name)
        if before is None or before.config != topic.config:
            warn(topic.name, topic.config)
        self.version += before is None or before.partition_count != topic.partition_count
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._forms[collision_form(topic.name)] = topic.name

    def _remove(self, topic: Topic) -> None:
        self.version += 1
        del self._topics[topic.name]
        if self._by_id.get(topic.topic_id) is topic:
            del self._by_id[topic.topic_id]
        self._forms.pop(collision_form(topic.name), None)  # of two that were adopted either may be there

    def _append(self, name: str, value: Mapping[str, Any] | None) -> None:
        self._metadata.append(TOPIC, name, value)
