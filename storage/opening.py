"""A log from its directory: what there is of its files and its topic's id, repaired or made."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from storage import recovery
from storage.checkpoint import read_topic_id, write_topic_id
from storage.compaction_reach import read_reach
from storage.file import SYSTEM_DISK, Disk
from storage.layout import TopicPartition
from storage.log import Log
from storage.removal import Removals
from storage.small_files import sync_file
from storage.types import LogLimits

if TYPE_CHECKING:
    from config.topic import TopicConfig


def open_log(
    directory: Path,
    topic_partition: TopicPartition,
    config: TopicConfig,
    *,
    topic_id: uuid.UUID | None = None,
    now_ms: int = 0,
    disk: Disk = SYSTEM_DISK,
    removals: Removals | None = None,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    is_clean: bool = False,
    limits: LogLimits | None = None,
    segments_left: Callable[[int], None] = lambda change: None,
    writes_again: bool = False,
    tell_damage: Callable[[str], None] | None = None,
) -> Log:
    """The log of `directory`, made if missing, repaired unless shut down cleanly. May take long.

    `tell_damage` is told if the topic's id cannot be read, else it is logged.
    """
    limits, is_new = limits or LogLimits(), not directory.exists()
    if is_new:
        disk.make_directory(directory)
    known_id = read_topic_id(disk, directory, *([tell_damage] if tell_damage is not None else ()))
    log_id = known_id or topic_id or uuid.uuid4()
    if known_id is None:  # first of all: where a full disk refuses it, no file is left open
        path = write_topic_id(disk, directory, log_id)
    request = recovery.LoadRequest(
        disk=disk, directory=directory, config=config, log_start_offset=log_start_offset,
        recovery_point=recovery_point, is_clean=is_clean or is_new, now_ms=now_ms, limits=limits,
        segments_left=segments_left, writes_again=writes_again,
    )  # fmt: skip
    loaded = recovery.load(request)
    log = Log(topic_partition, log_id, directory, config, loaded, disk, removals or Removals(), limits)
    reach = 0 if is_new else read_reach(disk, directory)
    log.compacted_to = log.log_end_offset if reach is None else reach
    if known_id is None:
        log.sync_later(lambda: sync_file(disk, path), log.sync_directory)
    if is_new:
        log.sync_later(log.sync_directory, lambda: disk.sync_directory(log.directory.parent))
    return log


def unavailable_log(
    directory: Path, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig, reason: str
) -> Log:
    """A log that could not be opened: offline, its files untouched."""
    loaded = recovery.unavailable(SYSTEM_DISK, directory)
    log = Log(topic_partition, topic_id, directory, config, loaded, SYSTEM_DISK, Removals(), LogLimits())
    log.take_offline(reason)
    return log
