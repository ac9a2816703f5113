"""What the quorum log of an Apache Kafka says of its topics: their ids, how many partitions they have, and
the settings they were given; of its users, and the rules and quotas for them; and which producer ids it has
given.

Kafka's directory has it as `__cluster_metadata-0`, or that of `metadata.log.dir` if there is one: snapshots
(KIP-630) and, behind the newest of them, segments, both of record batches whose values are metadata records
(KIP-631). It is read once, where topics are adopted (`adoption.py`, `security/adoption.py`), and never
written. A metadata transaction (KIP-868) that was aborted counts for nothing. Mirrors Kafka's
`MetadataDelta`.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from protocol.batch import BatchHeader, is_intact, iterate_headers
from protocol.codegen import decode
from protocol.errors import ErrorCode, KafkaError, MalformedFrame, UnsupportedVersion
from protocol.messages.quorum import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from protocol.records import Record, decode_batch
from protocol.varint import read_unsigned
from storage.checkpoint import read_properties
from storage.data_directory import CLUSTER_METADATA
from storage.directory_set import CLUSTER_ID
from storage.file import SYSTEM_DISK
from storage.integrity import Place, survey
from storage.layout import META_PROPERTIES, partition_directory_name

if TYPE_CHECKING:
    from broker.node import Node

logger = logging.getLogger(__name__)

NAME = partition_directory_name(CLUSTER_METADATA)
FRAME_VERSION = 1
RECORDS: dict[int, type[Any]] = {
    2: TopicRecord,
    4: ConfigRecord,
    9: RemoveTopicRecord,
    11: UserScramCredentialRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
}
"""by their keys; all others are about something else"""
PARTITION = 3
_PARTITION_HEAD = struct.Struct(">i16s")
"""number and topic id, with which a partition's record begins in every version"""
BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25
TOPIC_RESOURCE = 2
SNAPSHOT = ".checkpoint"
LOG = ".log"


class KafkasTopic(NamedTuple):
    """A topic as Kafka had it; the settings are those that it was given itself."""

    topic_id: UUID
    partition_count: int
    settings: dict[str, str]


class KafkasSecurity(NamedTuple):
    """Users, rules and quotas as Kafka had them, and the first producer id that it has given to nobody."""

    credentials: list[UserScramCredentialRecord]
    rules: list[AccessControlEntryRecord]
    quotas: list[ClientQuotaRecord]
    next_producer_id: int


class Partition(NamedTuple):
    """There is a partition of this number."""

    topic_id: UUID
    number: int


class _Image:
    """All of it at one offset. Owned by: who reads."""

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        self.counts: dict[UUID, int] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.rules: dict[UUID, AccessControlEntryRecord] = {}
        self.quotas: dict[tuple[frozenset[tuple[str, str | None]], str], ClientQuotaRecord] = {}
        self.next_producer_id = 0

    def copy(self) -> _Image:
        made = _Image()
        made.names, made.counts = dict(self.names), dict(self.counts)
        made.settings = {name: dict(settings) for name, settings in self.settings.items()}
        made.credentials, made.rules = dict(self.credentials), dict(self.rules)
        made.quotas = dict(self.quotas)
        made.next_producer_id = self.next_producer_id
        return made

    def apply(self, record: Any) -> None:
        if isinstance(record, TopicRecord):
            self.names[record.topic_id] = record.name
        elif isinstance(record, Partition):
            self.counts[record.topic_id] = max(self.counts.get(record.topic_id, 0), record.number + 1)
        elif isinstance(record, RemoveTopicRecord):
            self.counts.pop(record.topic_id, None)
            self.settings.pop(self.names.pop(record.topic_id, ""), None)
        elif isinstance(record, UserScramCredentialRecord):
            self.credentials[record.name, record.mechanism] = record
        elif isinstance(record, RemoveUserScramCredentialRecord):
            self.credentials.pop((record.name, record.mechanism), None)
        elif isinstance(record, AccessControlEntryRecord):
            self.rules[record.id] = record
        elif isinstance(record, RemoveAccessControlEntryRecord):
            self.rules.pop(record.id, None)
        elif isinstance(record, ClientQuotaRecord):
            entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
            self.quotas.pop((entity, record.key), None)
            if not record.remove:
                self.quotas[entity, record.key] = record
        elif isinstance(record, ProducerIdsRecord):
            self.next_producer_id = record.next_producer_id
        elif record.resource_type == TOPIC_RESOURCE:
            settings = self.settings.setdefault(record.resource_name, {})
            if record.value is None:
                settings.pop(record.name, None)
            else:
                settings[record.name] = record.value


def home_of(node: Node) -> Path | None:
    """The directory whose quorum log counts, for all that the broker has; None where no one has any. That of
    `metadata.log.dir` comes first, as in Kafka, unless it is another cluster's. OSError.
    """
    places = [directory.path for directory in node.logs.directories]
    apart = Path(node.config.metadata_log_dir) if node.config.metadata_log_dir else None
    if apart is not None and (apart / NAME).is_dir():
        whose = (read_properties(SYSTEM_DISK, apart / META_PROPERTIES) or {}).get(CLUSTER_ID)
        if whose in (None, node.cluster_id):
            return apart
        logger.warning("%s is left alone: of cluster %s, this is %s", apart, whose, node.cluster_id)
    return next((place for place in places if (place / NAME).is_dir()), None)


def read_topics(data_directory: Path) -> dict[str, KafkasTopic]:
    """The topics by name; none where there is no quorum log. OSError, KafkaError: it cannot be read."""
    image = _read(data_directory)
    return {
        name: KafkasTopic(topic_id, image.counts.get(topic_id, 0), image.settings.get(name, {}))
        for topic_id, name in image.names.items()
    }


def read_security(data_directory: Path) -> KafkasSecurity | None:
    """What is known of clients; None where there is no quorum log. OSError, KafkaError: it cannot be read."""
    if not (data_directory / NAME).is_dir():
        return None
    image = _read(data_directory)
    return KafkasSecurity(
        list(image.credentials.values()),
        list(image.rules.values()),
        list(image.quotas.values()),
        image.next_producer_id,
    )


def _read(data_directory: Path) -> _Image:
    directory = data_directory / NAME
    if not directory.is_dir():
        return _Image()
    try:
        return _image(_records(directory))
    except KafkaError as error:
        raise KafkaError(error.code, f"{directory}: {error.message}") from error


def _image(records: Iterable[tuple[int, Any]]) -> _Image:
    image, before = _Image(), None
    for key, record in records:
        if key == BEGIN_TRANSACTION:
            before = image.copy()
        elif key in (END_TRANSACTION, ABORT_TRANSACTION):
            image, before = image if key == END_TRANSACTION or before is None else before, None
        elif record is not None:
            image.apply(record)
    return image if before is None else before  # one that never ended is aborted as well


def _records(directory: Path) -> Iterator[tuple[int, Any]]:
    """The newest snapshot's and what follows it: the key of each, and the record if it is one of ours."""
    snapshots = sorted(path for path in directory.iterdir() if path.suffix == SNAPSHOT)
    start = 0
    if snapshots:
        start = int(snapshots[-1].stem.partition("-")[0])
        yield from map(_decoded, chain.from_iterable(records for _, records in _batches(snapshots[-1])))
    logs = sorted(path for path in directory.iterdir() if path.suffix == LOG)
    next_offset = None
    for path in logs:
        for header, records in _batches(path, is_last=path == logs[-1]):
            wanted = min(header.base_offset, start) if next_offset is None else next_offset
            if header.base_offset != wanted:  # nobody compacts it
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path.name}: offset {wanted} is missing")
            next_offset = header.next_offset
            yield from (_decoded(record) for record in records if record.offset >= start)


def _batches(path: Path, *, is_last: bool = False) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """The batches of a file with their records; none of a batch that is about the log itself."""
    data = path.read_bytes()
    good = memoryview(data)[: _good_end(path, data, is_last=is_last)]
    for position, header in iterate_headers(good):
        yield header, [] if header.is_control else decode_batch(good, position)


def _good_end(path: Path, data: bytes, *, is_last: bool) -> int:
    """Where the good batches end. A kill leaves a batch that is cut off, or not yet written, at the end of
    the last segment: it was never in force, and Kafka cuts it off as well. KafkaError for any other damage,
    after which Kafka would go on without all that follows.
    """
    end = 0
    with contextlib.suppress(KafkaError):  # no batch at all
        for position, header in iterate_headers(data):
            if not is_intact(data, position, header):
                break
            end = position + header.size_bytes
    if end == len(data):
        return end
    base_offset = int(path.stem) if path.suffix == LOG else 0
    place = Place(base_offset, len(data), None, None)
    damages = survey(lambda position, size: data[position : position + size], place).damages
    if is_last and damages and damages[0].position == end and damages[0].end == len(data):
        logger.warning("%s: what is behind byte %d was never wholly written, and left out", path, end)
        return end
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path.name}: no good batch at byte {end}")


def _decoded(record: Record) -> tuple[int, Any]:
    """The key of a metadata record, and the record itself if it is one of ours."""
    raw = bytes(record.value or b"")
    try:
        frame_version, position = read_unsigned(raw, 0)
        if frame_version != FRAME_VERSION:
            raise UnsupportedVersion(f"frame version {frame_version}")
        key, position = read_unsigned(raw, position)
        version, position = read_unsigned(raw, position)
        if key == PARTITION:
            number, topic_id = _PARTITION_HEAD.unpack_from(raw, position)
            return key, Partition(UUID(bytes=topic_id), number)
        return key, decode(RECORDS[key], version, raw, position) if key in RECORDS else None
    except (IndexError, struct.error, MalformedFrame, UnsupportedVersion) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the metadata record at offset {record.offset}: {error}"
        ) from error
