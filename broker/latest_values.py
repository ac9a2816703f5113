"""What a partition of a coordinator's topic says: the last value of every key, read on a thread at start.

Mirrors the loading half of Kafka's GroupMetadataManager and TransactionStateManager. What a transaction
wrote counts from its marker on, but by the place where it stands: a later record of the same key, written
before the marker, is the newer one, and a tombstone ends it for good. Nearly all batches
hold one record, so that the work a batch would outweigh that a record: the records of many plain batches are
joined and located at once, and whoever asks decodes a key once, not once a record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy

from protocol.batch import HEADER_BYTES, BatchHeader, is_intact
from protocol.compression import Codec
from protocol.control import ControlType, control_type
from protocol.errors import ErrorCode, KafkaError
from protocol.records import (
    KEY_BYTES,
    KEY_POSITION,
    OFFSET_DELTA,
    VALUE_BYTES,
    VALUE_POSITION,
    Buffer,
    as_array,
    decode_batch,
    locate,
    payload,
)

if TYPE_CHECKING:
    from storage.log import Log

logger = logging.getLogger(__name__)

_Entry = tuple[bytes, int, bytes | None]
"""key, offset, value"""


class LatestValues(NamedTuple):
    """What a partition says."""

    values: dict[bytes, tuple[int, bytes]]
    """of every key its last record's offset and value; what a tombstone ended is not there"""
    undecided: dict[int, list[_Entry]]
    """by producer id, the records of a transaction whose marker is not there and that nothing has ended"""


_RECORDS_AT_ONCE = 4096


def read_latest_values(log: Log) -> LatestValues:
    """Read a whole partition, waiting for the disk; a transaction's records count from its marker on."""
    reader = _Reader()
    for header, data in log.scan(log.log_start_offset):
        try:
            reader.take(header, data)
        except KafkaError as error:
            # Whatever else the partition says can still be served.
            logger.error(
                "batch at offset %d of %s skipped: %s", header.base_offset, log.topic_partition, error
            )
    return reader.finish()


class _Reader:
    """Owned by: the thread that reads."""

    def __init__(self) -> None:
        self._latest: dict[bytes, tuple[int, bytes]] = {}
        self._open_transactions: dict[int, list[_Entry]] = {}
        self._ended: dict[bytes, int] = {}
        """where the last tombstone of a key stands, as long as a transaction may have written it before"""
        self._joined: list[tuple[BatchHeader, Buffer]] = []
        self._joined_records = 0

    def take(self, header: BatchHeader, data: memoryview) -> None:
        if not is_intact(data, 0, header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "it fails its checksum")
        if header.is_control:
            self._end_transaction(header, data)
        elif header.is_transactional:
            entries = [(r.key, r.offset, r.value) for r in decode_batch(data) if r.key is not None]
            self._open_transactions.setdefault(header.producer_id, []).extend(entries)
        elif header.record_count > 0:
            is_plain = header.codec == Codec.NONE
            records = data[HEADER_BYTES:] if is_plain else payload(data, 0, header).data
            self._joined.append((header, records))
            self._joined_records += header.record_count
            if self._joined_records >= _RECORDS_AT_ONCE:
                self._read_joined()

    def finish(self) -> LatestValues:
        self._read_joined()
        undecided = {
            producer_id: self._not_ended(entries) for producer_id, entries in self._open_transactions.items()
        }
        return LatestValues(self._latest, undecided)

    def _end_transaction(self, header: BatchHeader, data: memoryview) -> None:
        self._read_joined()
        entries = self._open_transactions.pop(header.producer_id, [])
        if any(control_type(record.key) is ControlType.COMMIT for record in decode_batch(data)):
            self._apply(self._not_ended(entries))
        if not self._open_transactions:
            self._ended.clear()

    def _not_ended(self, entries: list[_Entry]) -> list[_Entry]:
        return [entry for entry in entries if entry[1] > self._ended.get(entry[0], -1)]

    def _read_joined(self) -> None:
        joined, self._joined, self._joined_records = self._joined, [], 0
        if not joined:
            return
        try:
            self._apply(_entries(joined))
        except KafkaError:
            for header, section in joined:
                try:
                    self._apply(_entries([(header, section)]))
                except KafkaError as error:
                    logger.error("batch at offset %d skipped: %s", header.base_offset, error)

    def _apply(self, entries: Iterable[_Entry]) -> None:
        latest = self._latest
        for key, offset, value in entries:
            if key in latest and latest[key][0] > offset:
                continue
            if value is not None:
                latest[key] = (offset, value)
                continue
            latest.pop(key, None)
            if self._open_transactions:
                self._ended[key] = offset


def _entries(joined: list[tuple[BatchHeader, Buffer]]) -> list[_Entry]:
    """The keyed records of the batches, in order."""
    counts = [header.record_count for header, _ in joined]
    data = b"".join([section for _, section in joined])
    table = locate(as_array(data), sum(counts))
    offsets = numpy.repeat([header.base_offset for header, _ in joined], counts) + table[OFFSET_DELTA]
    rows = zip(
        offsets.tolist(),
        table[KEY_POSITION].tolist(),
        table[KEY_BYTES].tolist(),
        table[VALUE_POSITION].tolist(),
        table[VALUE_BYTES].tolist(),
        strict=True,
    )
    return [
        (data[key : key + key_size], offset, None if size < 0 else data[value : value + size])
        for offset, key, key_size, value, size in rows
        if key_size >= 0
    ]
