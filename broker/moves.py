"""Partitions on their way into another of `log.dirs` (AlterReplicaLogDirs, KIP-113).

The files are copied on a thread while the partition is served as before, one partition at a time, until
little is left; for the moment that the rest takes, no record is taken, and producers wait. What a stop
interrupts goes on with the next start. Mirrors `ReplicaAlterLogDirsThread`, but that a move that fails, for
want of room say, is over: the partition stays where it is, and the log says why.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from broker.node import Node
from broker.topic import METADATA_TOPIC
from cleaner.manager import CleanerManager
from cleaner.throttle import Throttle
from protocol.errors import ErrorCode, KafkaError
from storage import layout
from storage.log_copy import Extents, LogCopy
from storage.moving import LogMover

if TYPE_CHECKING:
    from broker.partition import Partition
    from storage.data_directory import DataDirectory
    from storage.layout import TopicPartition
    from storage.log import Log

logger = logging.getLogger(__name__)

LAST_BYTES = 4 * 1024 * 1024
"""so many may be copied while the partition takes no records"""


class GivenUp(Exception):
    """Nobody wants the move any more, or the broker stops."""


class HeldUp(Exception):
    """A partition takes no records for the moment in which a move ends; `over` is its end."""

    def __init__(self, over: asyncio.Future[None]) -> None:
        super().__init__("a partition is being moved")
        self.over = over


class Move:
    """One of them. Owned by: event loop; `copy` is a thread's."""

    __slots__ = (
        "copy",
        "directory",
        "is_at_work",
        "is_given_up",
        "path",
        "size_bytes",
        "task",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, directory: DataDirectory, path: Path, size_bytes: int
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.path = path
        self.size_bytes = size_bytes
        """of the log, when it was asked for"""
        self.copy: LogCopy | None = None
        self.is_at_work = False
        self.is_given_up = False
        self.task: asyncio.Task[None]


class Moves:
    """Owned by: event loop."""

    def __init__(self, node: Node, cleaner: CleanerManager) -> None:
        self._node = node
        self._cleaner = cleaner
        self._moves: dict[TopicPartition, Move] = {}
        self.ending: dict[TopicPartition, asyncio.Future[None]] = {}
        """what takes no records for a moment, and the end of it"""
        self._coming_bytes: Counter[DataDirectory] = Counter()
        """what there was, when they were asked for, of those that are on their way into each"""
        self._turn = asyncio.Lock()
        self._mover = LogMover(node.logs)
        self._throttle = Throttle(node.config.replica_alter_log_dirs_io_max_bytes_per_second)
        self._is_stopping = False

    def all(self) -> tuple[Move, ...]:
        """Those that are not over."""
        return tuple(self._moves.values())

    def target_of(self, topic_partition: TopicPartition) -> str | None:
        """The directory that a partition is on its way to; any thread."""
        move = self._moves.get(topic_partition)
        return str(move.directory.path) if move is not None else None

    async def settled(self, topic_partition: TopicPartition) -> None:
        """Return when records are taken: at once, but for the moment in which a move ends."""
        over = self.ending.get(topic_partition)
        if over is not None:
            await asyncio.wait({over})

    def check(self, topic: str, indexes: Iterable[int]) -> None:
        """HeldUp when one of the partitions takes no records in this moment."""
        for index in indexes:
            over = self.ending.get((topic, index))  # type: ignore[call-overload]  # a plain tuple does
            if over is not None:
                raise HeldUp(over)

    # asked for

    async def begin(self, topic_partition: TopicPartition, path: str) -> None:
        """Have a partition move to the data directory `path`, in place of where it was to move before; to
        where it is: have it stay there. KafkaError with Kafka's codes.
        """
        try:
            name = layout.future_directory_name(topic_partition)
        except ValueError as problem:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(problem)) from None
        directory = self._directory(path)
        while (known := self._moves.get(topic_partition)) is not None:
            if known.directory is directory:
                return
            await self.give_up(topic_partition)
        partition = self._node.partitions.get(topic_partition)
        if partition is None:
            self._node.logs.wish(topic_partition, directory)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"it is made in {path} when it comes")
        log = partition.log
        if log.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition}: {log.offline_reason}")
        if topic_partition.topic == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{METADATA_TOPIC} stays where it is")
        if log.directory.parent == directory.path:
            return
        try:
            self._check_room(log, directory)
            self._mover.prepare(log, directory.path / name)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._add(Move(topic_partition, directory, directory.path / name, log.size_bytes))
        await asyncio.sleep(0)  # of thousands, each its turn

    def _directory(self, path: str) -> DataDirectory:
        for directory in self._node.logs.directories:
            if str(directory.path.absolute()) == path:
                return directory
        there = ", ".join(str(directory.path.absolute()) for directory in self._node.logs.directories)
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of log.dirs: {there}")

    def _check_room(self, log: Log, directory: DataDirectory) -> None:
        """Where what moves there already has no room beside it, others would have none either."""
        needed = log.size_bytes + self._coming_bytes[directory]
        free = shutil.disk_usage(directory.path).free
        if free < needed:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} has {free} bytes left, {needed} are needed"
            )

    def resume(self) -> None:
        """At a start: those that the last stop interrupted begin again."""
        for directory in self._node.logs.directories:
            for topic_partition, path in directory.futures():
                partition = self._node.partitions.get(topic_partition)
                if (
                    partition is None
                    or topic_partition in self._moves
                    or not self._mover.is_of(partition.log, path)
                ):
                    logger.warning("%s is left alone: nothing of %s moves there", path, topic_partition)
                else:
                    self._add(Move(topic_partition, directory, path, partition.log.size_bytes))

    def _add(self, move: Move) -> None:
        key = move.topic_partition
        self._moves[key] = move
        self._coming_bytes[move.directory] += move.size_bytes
        logger.info("%s is to move to %s", key, move.directory.path)
        move.task = asyncio.get_running_loop().create_task(self._run(move), name=f"move {key}")

    async def give_up(self, topic_partition: TopicPartition) -> None:
        """Return when the partition is not on its way: wherever it is, its files may be taken away then."""
        move = self._moves.get(topic_partition)
        if move is not None:
            move.is_given_up = True
            if not move.is_at_work:
                move.task.cancel()
            await asyncio.wait({move.task})
            if self._moves.get(topic_partition) is move:  # it had not even begun
                self._remove(move)
                await self._discard(move)

    async def stop(self) -> None:
        """Return when nothing is copied; what was begun goes on with the next start."""
        self._is_stopping = True
        if self._moves:
            await asyncio.wait([move.task for move in self._moves.values()])

    # one after the other

    async def _run(self, move: Move) -> None:
        key, path = move.topic_partition, move.directory.path
        began_ms = self._node.clock.now_ms()
        try:
            async with self._turn:
                move.is_at_work = True
                await self._move(move)
        except (GivenUp, asyncio.CancelledError):
            if not self._is_stopping:
                logger.info("%s does not move to %s any more", key, path)
                await self._discard(move)
        except Exception as error:
            is_our_bug = not isinstance(error, OSError | KafkaError)
            shown = error if is_our_bug else None
            logger.error("%s does not move to %s: %s", key, path, error, exc_info=shown)
            self._node.metrics_state.internal_errors += is_our_bug
            await self._discard(move)
        else:
            logger.info("%s has moved to %s in %d ms", key, path, self._node.clock.now_ms() - began_ms)
        finally:
            self._remove(move)

    def _remove(self, move: Move) -> None:
        del self._moves[move.topic_partition]
        self._coming_bytes[move.directory] -= move.size_bytes

    async def _discard(self, move: Move) -> None:
        try:
            await self._node.run_blocking(self._mover.discard, move.path)
        except OSError as error:
            logger.warning("%s cannot be removed: %s", move.path, error)

    def _check(self, move: Move) -> None:
        if move.is_given_up or self._is_stopping:
            raise GivenUp

    async def _move(self, move: Move) -> None:
        node, cleaner, key = self._node, self._cleaner, move.topic_partition
        self._check(move)
        partition = node.partitions.get(key)
        if partition is None or partition.log.directory.parent == move.directory.path:
            raise GivenUp
        await node.run_blocking(cleaner.abort_and_pause, key)
        try:
            copy = move.copy = await node.run_blocking(self._mover.begin, partition.log, move.path)
            await self._copy(move, partition, copy)
            await self._exchange(move, partition, copy)
        finally:
            if cleaner.state_of(key).pauses:  # else the partition was deleted, and that with it
                cleaner.resume(key)

    async def _copy(self, move: Move, partition: Partition, copy: LogCopy) -> None:
        """Until little is left."""
        log = partition.log

        def look_up() -> None:
            self._check(move)
            rate = self._node.config.replica_alter_log_dirs_io_max_bytes_per_second
            if rate != self._throttle.bytes_per_second:
                self._throttle.set_rate(rate)

        def took(size_bytes: int) -> None:
            look_up()
            self._throttle.take(size_bytes, look_up)

        while True:
            extents = Extents.of(log)
            try:
                await self._node.run_blocking(copy.catch_up, extents, took)
            except FileNotFoundError:
                if log.segments[0].base_offset == extents.segments[0].base_offset:
                    raise
                continue  # retention was quicker
            finally:
                self._check(move)
            self._check_served(partition)
            if log.size_bytes - copy.copied_bytes <= LAST_BYTES:
                return

    def _check_served(self, partition: Partition) -> None:
        """A log that was opened anew after a failure may have lost what the copy has."""
        if self._node.partitions.get(partition.topic_partition) is not partition:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log was opened anew: move it once more")
        if partition.log.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.offline_reason)

    async def _exchange(self, move: Move, partition: Partition, copy: LogCopy) -> None:
        """The copy, made whole, takes the place of the log."""
        node, old, key = self._node, partition.log, move.topic_partition
        over = self.ending[key] = asyncio.get_running_loop().create_future()
        old.hold()
        try:
            log = await self._finish(partition, copy)
        except BaseException:
            old.hold(False)
            raise
        finally:
            del self.ending[key]
            over.set_result(None)
        source = old.directory.parent
        try:
            await node.run_blocking(self._cleaner.checkpoints.move, source, log.directory.parent, key)
            node.logs.take_away(old)
            await node.run_blocking(self._mover.end, old, log)
        except OSError as error:
            logger.warning("what %s has left in %s is removed by the next start: %s", key, source, error)

    async def _finish(self, partition: Partition, copy: LogCopy) -> Log:
        """While the log is held: the one that is served in its place."""
        node, old, key = self._node, partition.log, partition.topic_partition
        await partition.all_flushed()
        self._check_served(partition)
        log = await node.run_blocking(self._mover.finish, old, copy)
        log.update_config(old.config)
        if node.partitions.get(key) is partition:  # else the topic was deleted, and this log goes with it
            node.exchange(log)
        return log
