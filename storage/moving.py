"""A partition moves from one data directory to another: what of that changes files.

A copy (`log_copy.py`) that is whole gets the partition's name in its data directory, then the directory it
came from is renamed for its removal, as in Kafka. Between the two there are two of that name: the copy bears
a mark, by which the next start knows which one is to go.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from storage.checkpoint import read_topic_id, write_topic_id
from storage.log import Log
from storage.log_copy import LogCopy, mark_moved, unmark_moved
from storage.manager import LogManager


class LogMover:
    """Each raises OSError. `prepare` and `is_of` are for the event loop, the others for one thread while it
    waits.
    """

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._disk = logs.disk

    def prepare(self, log: Log, path: Path) -> None:
        """From now on a start knows of the move."""
        self._disk.make_directory(path)
        try:
            self._name(log, path)
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.remove_tree(path)
            raise

    def _name(self, log: Log, path: Path) -> None:
        """Say whose the copy is: an Apache Kafka that finds one without takes it for a stray one."""
        write_topic_id(self._disk, path, log.topic_id)

    def is_of(self, log: Log, path: Path) -> bool:
        """Whether a copy is of this topic, and not of an earlier one of its name."""
        return read_topic_id(self._disk, path) in (None, log.topic_id)

    def begin(self, log: Log, path: Path) -> LogCopy:
        """A copy of a log to be made in `path`, which is empty, or was left unfinished by an earlier one."""
        for left in path.iterdir():
            self._disk.unlink(left)
        self._name(log, path)
        return LogCopy(self._disk, log.directory, path)

    def discard(self, path: Path) -> None:
        """A copy is not wanted any more."""
        if path.exists():
            self._disk.remove_tree(path)
            self._disk.sync_directory(path.parent)

    def finish(self, old: Log, copy: LogCopy) -> Log:
        """The log that takes the place of `old`, which is held, in the directory of its copy, with what is
        still missing there. OSError, KafkaError: nothing has changed.
        """
        logs = self._logs
        old.settle()
        copy.finish(old)
        mark_moved(self._disk, copy.directory, old.directory, old.active_segment.base_offset)
        target = next(one for one in logs.directories if one.path == copy.directory.parent)
        with logs.checkpointing:  # until its log is here they would be written without it
            target.expect(old)
            log = logs.open_again(
                old, copy.directory, old.log_start_offset, old.recovery_point, is_clean=True
            )
            try:
                # Files keep the last batch of each, retries may be of five.
                log.producers.restore(old.producers)
                log.producers.high_watermark_moved(log.high_watermark)
                log.move_to(target.path / old.directory.name)
                try:
                    self._disk.sync_directory(target.path)
                except OSError:
                    log.move_to(copy.directory)
                    raise
            except BaseException:
                log.abandon()
                raise
            logs.logs[old.topic_partition] = log
        target.log_count += 1
        return log

    def end(self, old: Log, log: Log) -> None:
        """`old`, whose place `log` has, was taken away; its files go by the next turn: readers may end."""
        directory = self._logs.directory_of(old)
        self._disk.sync_directory(directory.path)
        with self._logs.checkpointing:
            directory.forget(old.topic_partition)
        unmark_moved(self._disk, log.directory)
