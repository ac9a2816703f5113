"""All logs of a broker: start-up, checkpoints, deletion, clean shutdown (`LogManager`).

The directories of `log.dirs` are taken one by one (`data_directory.py`); their `meta.properties` say whose
they are (`directory_set.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from storage import layout
from storage.checkpoint import read_topic_id, settled_topic_id
from storage.data_directory import DataDirectory, DataDirectoryError
from storage.deleted import DeletedDirectories
from storage.directory_set import DirectorySet
from storage.file import POOL, SYSTEM_DISK, Disk, default_capacity
from storage.key_hashes import KeyHashes
from storage.layout import TopicPartition
from storage.log import Log
from storage.log_copy import settle_move
from storage.opening import open_log, unavailable_log
from storage.page_cache import look_at_device
from storage.removal import Removals
from storage.together import together
from storage.types import LogLimits

if TYPE_CHECKING:
    from config.broker import BrokerConfig
    from config.topic import TopicConfig

logger = logging.getLogger(__name__)

CLOSING_THREADS = 16
MOST_WISHES = 10_000
NAMED = 5
"""so many of what is alike are named in a line"""


def _is_there(path: Path) -> bool:
    """A disk that answers nothing has nothing, and is no reason not to use another."""
    try:
        return path.exists()
    except OSError:
        return False


def _topic_ids(
    partitions: Sequence[tuple[DataDirectory, TopicPartition]], id_of: Callable[[str], uuid.UUID | None]
) -> dict[str, uuid.UUID]:
    """One for each topic: partitions of a topic that nobody knows may have none in their files, as before
    Kafka 2.8, and clients that ask by id would be refused all those that got another one than the first.
    """
    found: dict[str, uuid.UUID] = {}
    for directory, one in partitions:
        if one.topic not in found:
            topic_id = id_of(one.topic)
            with contextlib.suppress(OSError):  # who opens it says so
                path = directory.path / layout.partition_directory_name(one)
                topic_id = topic_id or read_topic_id(SYSTEM_DISK, path, lambda place: None)
            if topic_id is not None:
                found[one.topic] = topic_id
    return {one.topic: found.get(one.topic) or uuid.uuid4() for _, one in partitions}


class LogManager:
    """Owned by: event loop; `open_all`, `reopen`, `checkpoint` and `close` run on any one thread."""

    def __init__(
        self,
        directories: Sequence[Path],
        config: BrokerConfig,
        now_ms: Callable[[], int],
        disk: Disk = SYSTEM_DISK,
    ) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.logs_to_recover = 0
        self.segments_recovered = 0
        self.segments_to_recover = 0
        """of the logs that are being opened now; how many the others have is not known before"""
        self._recovering = threading.Lock()
        self.removals = Removals()
        self.disk = disk
        self._now_ms = now_ms
        self.checkpointing = threading.Lock()
        self.deleted = DeletedDirectories(disk, self.removals, now_ms)
        self._unopened: set[TopicPartition] = set()
        self._wished: dict[TopicPartition, DataDirectory] = {}
        self.key_hashes = KeyHashes(config.log_cleaner_key_hashes_bytes)
        self._limits = LogLimits(
            producer_expiration_ms=config.producer_id_expiration_ms,
            max_producers=config.max_producers_per_partition,
            max_decompressed_bytes=config.max_decompressed_batch_bytes,
            key_hashes=self.key_hashes,
        )
        POOL.capacity = config.max_open_files or default_capacity()
        self.directories: list[DataDirectory] = []
        try:
            for path in directories:
                self._check_other_than_before(path)
                self.directories.append(DataDirectory(path, disk))
                self._note_partitions(self.directories[-1])
            self._set = DirectorySet(self.directories, config.node_id, disk, is_fresh=not self._unopened)
            self.cluster_id = self._set.cluster_id
        except BaseException:
            self.back_out()
            raise
        for directory in self.directories:
            for gone in directory.deleted():
                self.deleted.add(gone)

    def follow(self, config: BrokerConfig) -> None:
        """Take up what may change while the logs are open, and is no topic's."""
        self._limits.producer_expiration_ms = config.producer_id_expiration_ms

    def _check_other_than_before(self, path: Path) -> None:
        """Its lock would be taken for another broker's."""
        for other in self.directories:
            if os.path.realpath(path) == os.path.realpath(other.path):
                raise DataDirectoryError(f"{path} and {other.path} are one directory: name it once")

    def _note_partitions(self, directory: DataDirectory) -> None:
        """What there is to open. No partition may be in two directories: either could be the one that is
        served, and the other's records would be gone.
        """
        found = set(directory.partitions())
        others = [one.path for one in self.directories if one is not directory]
        both = found & self._unopened
        twice = sorted(str(one) for one in both if not settle_move(self.disk, one, directory.path, others))
        if twice:
            raise DataDirectoryError(
                f"{', '.join(twice)} in {directory.path} is in another data directory as well: "
                "move one of the two out of the way"
            )
        self._unopened |= found

    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise DataDirectoryError when one of them is missing and a data directory may be: one is empty that
        others are not (its disk is not mounted, most likely), or `log.dirs` does not name it any more. What
        would be made in its place would begin at offset 0, and hide its records.
        """
        self._set.expect_none_of(
            [one for one in partitions if one not in self.logs and one not in self._unopened]
        )

    def admit_new_directories(self) -> None:
        """Take those into the cluster that were added to `log.dirs`, nothing being missed. OSError."""
        self._set.admit_new()
        for directory in self.directories:
            with contextlib.suppress(OSError):
                look_at_device(directory.path / layout.META_PROPERTIES)

    @property
    def was_clean(self) -> bool:
        """Whether every directory was left in order."""
        return all(directory.was_clean for directory in self.directories)

    def directory_of(self, log: Log) -> DataDirectory:
        """The data directory that holds this log."""
        parent = log.directory.parent
        return next(directory for directory in self.directories if directory.path == parent)

    def last_known_end(self, topic_partition: TopicPartition) -> int:
        """Where a log ended at least, when this was last written down; 0 where nobody knows."""
        return max(directory.recovery_points.get(topic_partition, 0) for directory in self.directories)

    # Opening

    def open_all(
        self,
        config_of: Callable[[str], TopicConfig],
        threads: int,
        topic_id_of: Callable[[str], uuid.UUID | None] = lambda topic: None,
        why_not: Callable[[TopicPartition, Path], str | None] = lambda topic_partition, directory: None,
    ) -> None:
        """Open every log there is, after a crash so many a directory at a time; one that cannot be opened is
        left out, said why. `topic_id_of` helps a log whose `partition.metadata` a power cut emptied; what
        `why_not` has a reason against is left alone.
        """
        work = [
            (directory, topic_partition)
            for directory in self.directories
            for topic_partition in directory.partitions()
            if topic_partition in self._unopened and self._is_wanted(directory, topic_partition, why_not)
        ]
        self.logs_to_recover = len(work)
        ids = _topic_ids(work, topic_id_of)
        damaged: list[str] = []

        def open_one(item: tuple[DataDirectory, TopicPartition]) -> None:
            directory, topic_partition = item
            config = config_of(topic_partition.topic)
            try:
                log = self._open(directory, topic_partition, config, ids[topic_partition.topic], damaged)
                if directory.was_kafkas:  # by its stop it has begun the next one, in its quorum log only
                    with contextlib.suppress(KafkaError):  # a full disk
                        log.begin_epoch(log.leader_epoch + 1)
            except Exception as error:  # whatever is wrong with one log, the others are served
                if not isinstance(error, OSError | KafkaError):
                    logger.error("%s could not be opened", topic_partition, exc_info=error)
                path = directory.path / layout.partition_directory_name(topic_partition)
                reason = f"it could not be opened: {error}"
                self.logs[topic_partition] = unavailable_log(
                    path, topic_partition, ids[topic_partition.topic], config, reason
                )
            self.logs_to_recover -= 1

        # After a clean stop nothing is read that would take long: threads would only fight for the GIL, at
        # every file they open (twice the time).
        at_once = 1 if self.was_clean else max(1, threads * len(self.directories))
        together(open_one, work, at_once, "recover")
        self.segments_to_recover = 0  # a log that could not be opened left some
        if damaged:  # a power cut may empty all of those that were written last
            logger.warning(
                "%s is damaged, and made anew, in %d partitions: %s",
                layout.PARTITION_METADATA, len(damaged), ", ".join(sorted(damaged)[:NAMED]),
            )  # fmt: skip
        if not self.was_clean and work:
            logger.info("recovered %d logs, %d segments", len(work), self.segments_recovered)

    def _is_wanted(
        self,
        directory: DataDirectory,
        topic_partition: TopicPartition,
        why_not: Callable[[TopicPartition, Path], str | None],
    ) -> bool:
        path = directory.path / layout.partition_directory_name(topic_partition)
        try:
            reason = why_not(topic_partition, path)
        except OSError:  # who opens it finds out, and says so
            return True
        if reason is not None:
            logger.warning("%s is left alone: %s", path, reason)
            self._unopened.discard(topic_partition)
        return reason is None

    def open_log(
        self,
        topic_partition: TopicPartition,
        config: TopicConfig,
        topic_id: uuid.UUID | None = None,
        *,
        cuts_at_damage: bool = False,
    ) -> Log:
        """Open (or make) one log.

        After a crash, damage below the recovery point is kept, and what follows it is served, unless the log
        `cuts_at_damage`: one that has to be read as a whole.
        """
        name = layout.partition_directory_name(topic_partition)
        for directory in self.directories:
            if (directory.path / name).is_dir():
                return self._open(directory, topic_partition, config, topic_id, cuts_at_damage=cuts_at_damage)
        return self.create(topic_partition, topic_id or uuid.uuid4(), config)

    def _open(
        self,
        directory: DataDirectory,
        topic_partition: TopicPartition,
        config: TopicConfig,
        topic_id: uuid.UUID | None,
        damaged: list[str] | None = None,
        *,
        cuts_at_damage: bool = False,
    ) -> Log:
        """Where the topic's id cannot be read is told to `damaged`."""
        is_all_suspect = cuts_at_damage and not directory.was_clean
        recovery_point = 0 if is_all_suspect else directory.recovery_points.get(topic_partition, 0)
        log = open_log(
            directory.path / layout.partition_directory_name(topic_partition),
            topic_partition,
            config,
            topic_id=topic_id,
            now_ms=self._now_ms(),
            disk=self.disk,
            removals=self.removals,
            log_start_offset=directory.log_starts.get(topic_partition, 0),
            recovery_point=recovery_point,
            is_clean=directory.was_clean,
            limits=self._limits,
            segments_left=self._segments_left,
            tell_damage=None if damaged is None else damaged.append,
        )
        if topic_id is not None and topic_id != log.topic_id:
            log.topic_id = settled_topic_id(self.disk, log.directory, log.topic_id, topic_id)
        self.logs[topic_partition] = log
        directory.log_count += 1
        self._unopened.discard(topic_partition)
        return log

    def reopen(self, old: Log) -> Log:
        """On a thread: a log that is offline and let go of, opened once more, repaired as after a crash. It
        takes the old one's place with `take`. OSError, KafkaError.
        """
        topic_partition, directory = old.topic_partition, self.directory_of(old)
        log_start_offset, recovery_point = old.log_start_offset, old.recovery_point
        if topic_partition in self._unopened:
            log_start_offset = directory.log_starts.get(topic_partition, 0)
            recovery_point = directory.recovery_points.get(topic_partition, 0)
        if not old.directory.is_dir():
            raise FileNotFoundError(f"{old.directory} is gone")
        return self.open_again(old, old.directory, log_start_offset, recovery_point, writes_again=True)

    def open_again(
        self,
        old: Log,
        path: Path,
        log_start_offset: int,
        recovery_point: int,
        *,
        is_clean: bool = False,
        writes_again: bool = False,
    ) -> Log:
        """On a thread: what takes the place of `old`, from the files in `path`. OSError, KafkaError."""
        log = open_log(
            path,
            old.topic_partition,
            old.config,
            topic_id=old.topic_id,
            now_ms=self._now_ms(),
            disk=self.disk,
            removals=self.removals,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            limits=self._limits,
            is_clean=is_clean,
            writes_again=writes_again,
        )
        log.compacted_to = max(log.compacted_to, old.compacted_to)
        return log

    def take(self, log: Log) -> None:
        """Put a log that was opened anew in the place of the one that was offline."""
        if log.topic_partition in self._unopened:
            self._unopened.discard(log.topic_partition)
            self.directory_of(log).log_count += 1
        self.logs[log.topic_partition] = log

    def _segments_left(self, change: int) -> None:
        """A log that is opened has found so many segments to read through, or read one (-1)."""
        with self._recovering:
            self.segments_to_recover += change
            self.segments_recovered += change < 0

    def wish(self, topic_partition: TopicPartition, directory: DataDirectory) -> None:
        """Where a partition is to be made that is not there; of very many this is not remembered."""
        if len(self._wished) < MOST_WISHES:
            self._wished[topic_partition] = directory

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> Log:
        """A new log, in the directory that has fewest and takes it. FileExistsError when there is one."""
        name = layout.partition_directory_name(topic_partition)
        if topic_partition in self.logs:
            raise FileExistsError(f"{topic_partition} exists")
        for path in (one.path / name for one in self.directories):
            if path.is_symlink() and not _is_there(path):  # its disk is not mounted, most likely
                raise FileExistsError(
                    f"{path} leads to nothing: mount what it leads to, or remove it to have "
                    f"{topic_partition} begin anew, without records"
                )
            if _is_there(path):
                what = "exists" if path.is_dir() else "is no directory: move it away"
                raise FileExistsError(f"{path} {what}")
        wished = self._wished.pop(topic_partition, None)
        for directory in sorted(self.directories, key=lambda one: (one is not wished, one.log_count)):
            try:
                return self._create_in(directory, topic_partition, topic_id, config)
            except OSError as error:
                failure = error
                if _is_there(directory.path / name):  # it could not be taken back, and would be there twice
                    break
                logger.warning("%s cannot be made in %s: %s", topic_partition, directory.path, error)
        raise failure

    def _create_in(
        self,
        directory: DataDirectory,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: TopicConfig,
    ) -> Log:
        path = directory.path / layout.partition_directory_name(topic_partition)
        try:
            with self.checkpointing:
                directory.forget(topic_partition)
            return self._open(directory, topic_partition, config, topic_id)
        except OSError:
            with contextlib.suppress(OSError):
                self.disk.remove_tree(path)  # or it would stand in the way for good
            raise

    # Deleting

    def delete(self, topic_partition: TopicPartition) -> Path:
        """Take a log away; its files go with `deleted.remove`. The data directory, for `deleted.sync`. After
        an OSError nothing has changed.
        """
        directory = self.take_away(self.logs[topic_partition])
        del self.logs[topic_partition]
        return directory

    def take_away(self, log: Log) -> Path:
        """As `delete`, of a log whose place another one has."""
        path = log.mark_deleted()
        self.directory_of(log).log_count -= 1
        self.deleted.add(path)
        log.abandon()
        return path.parent

    # Keeping

    def checkpoint(self, path: Path | None = None) -> None:
        """Write recovery points and log start offsets, on a thread, of all directories or of one. OSError of
        the first that fails, after the others.
        """
        failures = []
        with self.checkpointing:
            logs = list(self.logs.values())
            for directory in self.directories:
                if path not in (None, directory.path):
                    continue
                own = [
                    log
                    for log in logs
                    if log.directory.parent == directory.path and log.topic_partition not in self._unopened
                ]
                try:
                    directory.write_checkpoints(own, self._unopened)
                except OSError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Flush and close every log, write the checkpoints, say that all is in order, unlock the directories.

        A directory with a log that was neither opened nor left in order by its last broker is not in order.
        """
        logs = list(self.logs.values())
        closed = together(self._close_log, logs, CLOSING_THREADS, "close")  # they wait for the disk
        unclean = {log.directory.parent for log, is_closed in zip(logs, closed, strict=True) if not is_closed}
        for directory in self.directories:
            try:
                self.checkpoint(directory.path)
                is_in_order = directory.was_clean or not self._unopened
                if not is_in_order and not self._unopened.isdisjoint(directory.partitions()):
                    continue
                if directory.path not in unclean:
                    directory.mark_clean()
            except OSError as error:
                logger.error("the clean shutdown of %s could not be marked: %s", directory.path, error)
        self._unlock()

    @staticmethod
    def _close_log(log: Log) -> bool:
        try:
            log.close()
        except OSError as error:
            logger.error("%s could not be closed: %s", log.name, error)
            log.abandon()
            return False
        return log.offline_reason is None

    def abandon(self) -> None:
        """Let go of everything as it is, as a crash would."""
        for log in self.logs.values():
            log.abandon()
        self._unlock()

    def back_out(self) -> None:
        """The start failed before it changed a log: what was left in order still is."""
        for log in self.logs.values():
            log.abandon()
        for directory in self.directories:
            if directory.was_clean:
                directory.mark_clean()
        self._unlock()

    def _unlock(self) -> None:
        for directory in self.directories:
            directory.unlock()
