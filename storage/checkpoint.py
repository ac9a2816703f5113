"""The small text files: offset checkpoints, leader epochs, partition metadata, meta.properties. As Kafka
writes them.

Those of a data directory are replaced in one step (temporary file, fsync, rename, fsync of the directory);
those of a partition are synced by the next flush of its log. A damaged checkpoint is an empty one: everything
in it can be found out again. Those of log starts and of the cleaner have a copy with a checksum.
"""

from __future__ import annotations

import base64
import binascii
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import crc32c

from storage import layout
from storage.file import SYSTEM_DISK, Disk
from storage.layout import TopicPartition
from storage.small_files import read_whole, replace_whole, room_or_none, sync_file, write_whole

logger = logging.getLogger(__name__)

VERSION = 0


class OffsetCheckpoint:
    """A file of `topic partition offset` lines below a version and a count (Kafka's `OffsetCheckpointFile`).

    Owned by: whoever writes it, one thread at a time.
    """

    def __init__(
        self,
        path: Path,
        disk: Disk = SYSTEM_DISK,
        witness: CheckpointWitness | None = None,
        judge: Callable[[bytes, bytes], bytes] | None = None,
    ) -> None:
        """`judge(bytes, their copy)`: what they have to be; `judged` unless it is given."""
        self.path = path
        self._disk = disk
        self._witness = witness
        self._judge = judge or judged

    def read(self) -> dict[TopicPartition, int]:
        """What the file says, or had to say; empty when it is missing, or damaged and nobody knows better.
        A damaged one is replaced, and so is a witness that is not of it.
        """
        data = _read_or_none(self._disk, self.path)
        if data is None:
            return {}
        kept = self._witness.read() if self._witness else data
        right = data if kept is None else self._judge(data, kept)
        is_in_order = data == right == kept
        if right != data:
            logger.warning("%s is damaged: put right from the copy beside it", self.path)
        try:
            found = parse_offsets(right)
        except ValueError as problem:
            logger.warning("%s is damaged (%s): taken as empty", self.path, problem)
            found, is_in_order = {}, False
        if not is_in_order:
            with room_or_none():
                self.write(found)
        return found

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        data = encode_offsets(offsets)
        if self._witness:
            self._witness.write(data)
        replace_whole(self._disk, self.path, data)


class CheckpointWitness:
    """A second copy of a checkpoint, with a checksum: Kafka's file has none, so that a digit which a flipped
    bit made another digit would be believed, and records hidden, or deleted values brought back by a cleaning
    that passes their tombstones over. Kafka neither reads nor writes it.

    It is written first. So after a crash between the two the checkpoint is one write behind, which is no
    damage, or differs by a bit and is put right to what it was to become.
    """

    def __init__(self, path: Path, disk: Disk = SYSTEM_DISK) -> None:
        self.path = path
        self._disk = disk

    def read(self) -> bytes | None:
        """The copy; None when there is none that is whole."""
        data = _read_or_none(self._disk, self.path)
        if data is None:
            return None
        copy = unsealed(data)
        if copy is None:
            logger.warning("%s is damaged and not used", self.path)
        return copy

    def write(self, copy: bytes) -> None:
        replace_whole(self._disk, self.path, sealed(copy))


def sealed(text: bytes) -> bytes:
    """A line with the checksum of a text, and the text."""
    return b"crc32c %08x\n%s" % (crc32c.crc32c(text), text)


def unsealed(data: bytes) -> bytes | None:
    """The text in these bytes; None when its checksum is wrong."""
    text = data.partition(b"\n")[2]
    return text if data == sealed(text) else None


def judged(data: bytes, kept: bytes) -> bytes:
    """What a checkpoint with these bytes has to hold: its copy, if they are that but for one bit, or are
    damaged; else themselves, because Kafka may have written them since.
    """
    if _is_one_bit_off(data, kept):
        return kept
    try:
        parse_offsets(data)
        return data
    except ValueError:
        return kept


def judged_lower(data: bytes, kept: bytes) -> bytes:
    """As `judged`, where nobody knows who stopped last: of offsets that are one bit apart the lower one, for
    an Apache Kafka may have written them. For the cleaner, which then cleans a part again; with too high a
    one it would pass over tombstones, and remove them before the values that they delete.
    """
    right = judged(data, kept)
    if right == data:
        return data
    try:
        found, copied = parse_offsets(data), parse_offsets(kept)
    except ValueError:
        return kept
    is_lower = found.keys() == copied.keys() and sum(found.values()) < sum(copied.values())
    return data if is_lower else kept


def judged_kafkas(data: bytes, kept: bytes) -> bytes:
    """Where an Apache Kafka stopped last: what it wrote, whatever a copy says that is older."""
    return data


def _is_one_bit_off(found: bytes, right: bytes) -> bool:
    if len(found) != len(right):
        return False
    return (int.from_bytes(found, "big") ^ int.from_bytes(right, "big")).bit_count() == 1


def _read_or_none(disk: Disk, path: Path) -> bytes | None:
    try:
        return read_whole(disk, path)
    except FileNotFoundError:
        return None


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; ValueError when it is damaged. Kafka makes the file empty when it starts,
    and writes it when there is something to write.
    """
    found = {}
    for row in _checked_rows(data) if data else ():
        topic, partition, offset = row.split(" ")
        found[TopicPartition(topic, int(partition))] = int(offset)
    return found


def written_log_start(directory: Path) -> int:
    """Where the data directory's checkpoint says that the log in `directory` starts, for who only looks: 0
    where it says nothing, or is damaged.

    DeleteRecords moves the start within a segment, which its files do not show.
    """
    directory = directory.resolve()
    topic_partition = layout.parse_partition_directory(directory.name)
    if topic_partition is None:
        return 0
    try:
        starts = parse_offsets(read_whole(SYSTEM_DISK, directory.parent / layout.LOG_START_CHECKPOINT))
    except (OSError, ValueError):
        return 0
    return starts.get(topic_partition, 0)


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return _with_head(rows)


def _checked_rows(data: bytes) -> Sequence[str]:
    lines = data.decode("utf-8", "replace").splitlines()
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
        for row in _checked_rows(read_whole(disk, path)):
            epoch, start_offset = row.split(" ")
            entries.append((int(epoch), int(start_offset)))
        return entries
    except ValueError as problem:
        logger.warning("%s is damaged (%s): found out again", path, problem)
        return None


def write_leader_epochs(disk: Disk, directory: Path, entries: Sequence[tuple[int, int]]) -> Path:
    """The file. Not synced here: the batches say the same, and the next flush job syncs both."""
    path = directory / layout.LEADER_EPOCH_CHECKPOINT
    temporary = path.with_name(path.name + layout.TEMPORARY_SUFFIX)
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


def topic_id_in(data: bytes) -> uuid.UUID:
    """The topic id of a `partition.metadata`; ValueError when it is damaged."""
    lines = data.decode("utf-8", "replace").splitlines()
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    if values.get("version") != str(VERSION):
        raise ValueError(f"no version {VERSION}")
    return decode_uuid(values.get("topic_id", ""))


def _warn_of_damage(place: str) -> None:
    logger.warning("%s is damaged in %s", layout.PARTITION_METADATA, place)


def read_topic_id(
    disk: Disk, directory: Path, tell: Callable[[str], None] = _warn_of_damage
) -> uuid.UUID | None:
    """The topic id of `partition.metadata`; None when the file is missing, or damaged, which it tells."""
    try:
        return topic_id_in(read_whole(disk, directory / layout.PARTITION_METADATA))
    except FileNotFoundError:
        return None
    except ValueError as problem:
        tell(f"{directory.name} ({problem})")
        return None


def write_topic_id(disk: Disk, directory: Path, topic_id: uuid.UUID) -> Path:
    """The file. Not synced here: the first flush of the log syncs it, and the directory."""
    path = directory / layout.PARTITION_METADATA
    write_whole(disk, path, _encode_topic_id(topic_id), is_durable=False)
    return path


def _encode_topic_id(topic_id: uuid.UUID) -> bytes:
    return f"version: {VERSION}\ntopic_id: {encode_uuid(topic_id)}\n".encode()


def settled_topic_id(disk: Disk, directory: Path, found: uuid.UUID, known: uuid.UUID) -> uuid.UUID:
    """The id of a partition whose file says another one than its topic has: that of the topic, and the file
    is put right, if a flipped bit is the difference, of which no checksum tells.
    """
    path = directory / layout.PARTITION_METADATA
    if _is_one_bit_off(read_whole(disk, path), _encode_topic_id(known)):
        logger.warning("%s is damaged by one bit: put right, its topic has another id", path)
        with room_or_none():
            sync_file(disk, write_topic_id(disk, directory, known))
        return known
    logger.error(
        "%s has the id %s of another topic, its own has %s: clients that ask by id are refused. "
        "If the records are of this topic, stop the broker and delete the file",
        path, encode_uuid(found), encode_uuid(known),
    )  # fmt: skip
    return found


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
