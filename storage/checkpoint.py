"""The small text files: offset checkpoints, leader epochs, partition metadata, meta.properties. As Kafka
writes them.

All are replaced in one step (temporary file, fsync, rename, fsync of the directory). A damaged checkpoint
is an empty one: everything in it can be found out again.
"""

from __future__ import annotations

import base64
import binascii
import logging
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage import layout
from storage.file import SYSTEM_DISK, Disk, read_whole, replace_whole, write_whole
from storage.layout import TopicPartition

logger = logging.getLogger(__name__)

VERSION = 0


class OffsetCheckpoint:
    """A file of `topic partition offset` lines below a version and a count (Kafka's `OffsetCheckpointFile`).

    Owned by: whoever writes it, one thread at a time.
    """

    def __init__(self, path: Path, disk: Disk = SYSTEM_DISK) -> None:
        self.path = path
        self._disk = disk

    def read(self) -> dict[TopicPartition, int]:
        """What the file says; empty when it is missing or damaged, and a damaged one is replaced by that."""
        lines = _read_lines(self._disk, self.path)
        if not lines:
            return {}  # made by Kafka, never written
        try:
            rows = _checked_rows(lines)
            found = {}
            for row in rows:
                topic, partition, offset = row.split(" ")
                found[TopicPartition(topic, int(partition))] = int(offset)
            return found
        except ValueError as problem:
            logger.warning("%s is damaged (%s): taken as empty", self.path, problem)
            self.write({})
            return {}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
        replace_whole(self._disk, self.path, _with_head(rows))


def _read_lines(disk: Disk, path: Path) -> list[str]:
    try:
        return read_whole(disk, path).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return [str(VERSION), "0"]


def _checked_rows(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) < 2:
        raise ValueError("no version and count")
    if int(lines[0]) != VERSION:
        raise ValueError(f"version {lines[0]}")
    if int(lines[1]) != len(lines) - 2:
        raise ValueError(f"{len(lines) - 2} lines instead of {lines[1]}")
    return lines[2:]


def _with_head(rows: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(rows)), *rows)).encode()


def read_leader_epochs(disk: Disk, directory: Path) -> list[tuple[int, int]] | None:
    """(epoch, start offset) in the order of the file; None when it is missing or damaged."""
    path = directory / layout.LEADER_EPOCH_CHECKPOINT
    if not path.exists():
        return None
    try:
        entries = []
        for row in _checked_rows(_read_lines(disk, path)):
            epoch, start_offset = row.split(" ")
            entries.append((int(epoch), int(start_offset)))
        return entries
    except ValueError as problem:
        logger.warning("%s is damaged (%s): found out again", path, problem)
        return None


def write_leader_epochs(disk: Disk, directory: Path, entries: Sequence[tuple[int, int]]) -> Path:
    """The file. Not synced here: the batches say the same, and the next flush job syncs both."""
    path = directory / layout.LEADER_EPOCH_CHECKPOINT
    temporary = path.with_name(path.name + ".tmp")
    rows = [f"{epoch} {start_offset}" for epoch, start_offset in entries]
    write_whole(disk, temporary, _with_head(rows), is_durable=False)
    disk.rename(temporary, path)
    return path


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka's text form of an id: base64url without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """ValueError when this is no id."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (binascii.Error, ValueError) as problem:
        raise ValueError(f"{text!r} is no id: {problem}") from None


def read_topic_id(disk: Disk, directory: Path) -> uuid.UUID | None:
    """The topic id of `partition.metadata`; None when the file is missing or damaged."""
    try:
        lines = (
            read_whole(disk, directory / layout.PARTITION_METADATA).decode("utf-8", "replace").splitlines()
        )
    except FileNotFoundError:
        return None
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        if values.get("version") != str(VERSION):
            raise ValueError("no version 0")
        return decode_uuid(values.get("topic_id", ""))
    except ValueError as problem:
        logger.warning("%s of %s is damaged: %s", layout.PARTITION_METADATA, directory.name, problem)
        return None


def write_topic_id(disk: Disk, directory: Path, topic_id: uuid.UUID) -> Path:
    """The file. Not synced here: the first flush of the log syncs it, and the directory."""
    path = directory / layout.PARTITION_METADATA
    text = f"version: {VERSION}\ntopic_id: {encode_uuid(topic_id)}\n"
    write_whole(disk, path, text.encode(), is_durable=False)
    return path


def read_properties(disk: Disk, path: Path) -> dict[str, str] | None:
    """A Java properties file of plain `key=value` lines; None when it is missing."""
    try:
        lines = read_whole(disk, path).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return None
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith(("#", "!")))
    return {name.strip(): value.strip() for name, value in pairs}


def write_properties(disk: Disk, path: Path, values: Mapping[str, str]) -> None:
    lines = ["#", *(f"{name}={value}" for name, value in sorted(values.items()))]
    replace_whole(disk, path, "".join(f"{line}\n" for line in lines).encode())
