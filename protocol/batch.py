"""The header of a RecordBatch v2 (magic 2): 61 bytes at fixed positions, read, made and sealed here only.

Kafka's `DefaultRecordBatch`. The records section behind the header belongs to `records.py`; a header never
needs it, so appending, fetching and indexing cost the same for one record as for ten thousand. Bit 6 of the
attributes is KIP-534's delete horizon, which makes `base_timestamp` a future time.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import crc32c

from protocol.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12  # base offset and batch length: what `batch_length` does not count
MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
PRODUCER_POSITION = 43
ATTRIBUTES_POSITION = 21  # the checksum covers everything from here on

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1

TIMESTAMP_CREATE_TIME = 0
TIMESTAMP_LOG_APPEND_TIME = 1

_FROM_ATTRIBUTES = Struct(">hiqqqhii")
_BEFORE_ATTRIBUTES = Struct(">qiibI")
_LENGTH = Struct(">i")
unpack_header = Struct(">qiibIhiqqqhii").unpack_from
"""the values of a `BatchHeader` where there are surely 61 bytes; `parse_header` where there may be fewer"""
encode_prefix = Struct(">qii").pack
"""(base offset, batch length, leader epoch): the first 16 bytes of a batch, all that the broker assigns, and
none of what the checksum covers"""
_new_header = tuple.__new__  # what `_make` does, without its Python


_PRODUCER = Struct(">qhi")


def unpack_producer(data: Buffer) -> tuple[int, int, int]:
    """The producer's id and epoch and the first sequence, where there are surely 61 bytes."""
    producer_id, epoch, base_sequence = _PRODUCER.unpack_from(data, PRODUCER_POSITION)
    return producer_id, epoch, base_sequence


class BatchHeader(NamedTuple):
    """The fields of one batch header in wire order."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last offset; sequences wrap from 2**31 - 1 to 0. -1 without a producer."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """`TIMESTAMP_CREATE_TIME` (0) or `TIMESTAMP_LOG_APPEND_TIME` (1)."""
        return TIMESTAMP_LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME else TIMESTAMP_CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of this batch may go (KIP-534), or None when no cleaning has met them yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, its values unchecked; CORRUPT_MESSAGE when 61 bytes are not there."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{len(buffer) - position} bytes are too few for a batch header"
        )
    return _new_header(BatchHeader, unpack_header(buffer, position))


def checksum(buffer: Buffer, position: int, size_bytes: int) -> int:
    """CRC-32C of the batch at `position`, from its attributes on, as its header should carry it."""
    crc: int = crc32c.crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size_bytes])
    return crc


def is_intact(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the whole batch is there and its bytes are those that its checksum was made of."""
    size_bytes = header.size_bytes
    if size_bytes < HEADER_BYTES or len(buffer) - position < size_bytes:
        return False
    return checksum(buffer, position, size_bytes) == header.crc


def iterate_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch; stops at an incomplete tail.

    KafkaError when the bytes are no batches: INVALID_RECORD for the message formats before magic 2,
    CORRUPT_MESSAGE otherwise. Checksums are the caller's to check.
    """
    position = 0
    end = len(buffer)
    while end - position > MAGIC_POSITION:
        size_bytes = _LENGTH.unpack_from(buffer, position + 8)[0] + LENGTH_PREFIX_BYTES
        magic = buffer[position + MAGIC_POSITION]
        if magic != MAGIC:
            if magic < MAGIC:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"only record batches with magic 2 are taken, not {magic}"
                )
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} at position {position}")
        if size_bytes < HEADER_BYTES:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"a batch of {size_bytes} bytes at position {position}"
            )
        if end - position < size_bytes:
            return
        yield position, _new_header(BatchHeader, unpack_header(buffer, position))
        position += size_bytes


def seal_header(header: BatchHeader, payload: Buffer) -> bytes:
    """The 61 bytes of `header`, its length, magic and checksum made right for `payload` as it is stored."""
    covered = _FROM_ATTRIBUTES.pack(*header[5:])
    crc = crc32c.crc32c(payload, crc32c.crc32c(covered))
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload)
    return _BEFORE_ATTRIBUTES.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc) + covered


def build_batch(
    payload: Buffer,
    *,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """One whole batch around `payload`, the records section as stored (compressed if `attributes` say so)."""
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return b"".join((seal_header(header, payload), payload))
