"""What a batch must be to be appended, and what the broker changes about it. Pure: bytes and numbers.

Mirrors Kafka's `UnifiedLog.analyzeAndValidateRecords` and `LogValidator`. The stored bytes are the client's
own but for the first 16 (offset, length, leader epoch), unless the topic has its own codec or stamps
LogAppendTime. Offsets are assigned by whoever writes: `protocol.batch.encode_prefix`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.topic import OFFSET, PRODUCER
from protocol import records as record_room
from protocol.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    checksum,
    iterate_headers,
    parse_header,
    seal_header,
    unpack_header,
)
from protocol.compression import CODEC_NAMES, Codec, codec_of, compress
from protocol.control import Marker, decode_marker
from protocol.errors import ErrorCode, InvalidRecords, KafkaError
from protocol.lz4_frames import why_unreadable
from protocol.one_look import UNPACKED_BYTES, Usual, desk, is_ready, is_usual

if TYPE_CHECKING:
    from config.topic import TopicConfig

Buffer = bytes | bytearray | memoryview

LONG_MIN = -(2**63)
LONG_MAX = 2**63 - 1
# librdkafka's largest batch. Kafka has no limit here, and so answers more bytes than it was sent.
MAX_RECORD_ERRORS = 10_000

_new_tuple = tuple.__new__  # of a named one, without its Python
OK = record_room.OK
KEYLESS = record_room.KEYLESS


class AppendRules:
    """What the settings of a topic ask of a batch, worked out once."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "codec_level",
        "is_compacted",
        "max_decompressed_bytes",
        "max_message_bytes",
        "name",
        "remembers_keys",
        "segment_bytes",
        "stamps_append_time",
        "usual",
    )

    def __init__(self, config: TopicConfig, name: str, max_decompressed_bytes: int) -> None:
        self.name = name
        self.max_decompressed_bytes = max(max_decompressed_bytes, config.max_message_bytes)
        self.is_compacted = config.is_compacted
        # A cleaning by versions has to look at the records themselves.
        self.remembers_keys = config.is_compacted and config.compaction_strategy == OFFSET
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.codec, self.codec_level = chosen_codec(config, config.compression_type)
        self.usual = self._usual()

    def _usual(self) -> Usual:
        """Of what is no more than to be stored as it came."""
        codecs = {Codec.NONE, Codec.LZ4} if self.codec is None else {self.codec}
        if self.remembers_keys or self.max_decompressed_bytes < UNPACKED_BYTES:
            codecs.discard(Codec.LZ4)  # records that are unpacked to be looked at are not kept
        if self.stamps_append_time or self.before_max_ms != LONG_MAX:
            codecs.clear()
        max_bytes = min(self.max_message_bytes, self.segment_bytes)
        return Usual.of(max_bytes, codecs, self.after_max_ms, requires_keys=self.is_compacted)


def chosen_codec(config: TopicConfig, kind: str) -> tuple[Codec | None, int | None]:
    """The codec of this name, and the level that the topic has for it (None: the codec's own default); no
    codec for `producer`, which keeps what is there.
    """
    if kind == PRODUCER:
        return None, None
    codec = CODEC_NAMES[kind]
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    level = levels.get(codec)
    return codec, None if codec is Codec.GZIP and level == -1 else level


def read_single_batch(records: Buffer, rules: AppendRules) -> BatchHeader:
    """The header of the one batch that `records` must be; the refusals of everything else."""
    size = len(records)
    if size < HEADER_BYTES:
        if size > MAGIC_POSITION and records[MAGIC_POSITION] < MAGIC:
            raise _old_format(rules)
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{size} bytes for {rules.name} are no record batch")
    header: BatchHeader = _new_tuple(BatchHeader, unpack_header(records))
    if header.magic != MAGIC:
        if 0 <= header.magic < MAGIC:
            raise _old_format(rules)
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch for {rules.name} has magic {header.magic}")
    if header.batch_length + LENGTH_PREFIX_BYTES != size:
        if HEADER_BYTES <= header.size_bytes < size and len(list(iterate_headers(records))) > 1:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"Records for {rules.name} are more than one batch; one is allowed"
            )
        # Sent again, a cut batch would be as short: the client must not try, as it would a corrupt one.
        is_cut = header.size_bytes > size
        raise KafkaError(
            ErrorCode.INVALID_RECORD if is_cut else ErrorCode.CORRUPT_MESSAGE,
            f"a batch for {rules.name} says {header.size_bytes} bytes and has {size}",
        )
    return header


def _old_format(rules: AppendRules) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD, f"Records for {rules.name} must be only record batches with magic 2"
    )


def check_trusted(records: Buffer, rules: AppendRules) -> BatchHeader:
    """A batch of the broker's own: the size must be right, the rest is believed."""
    header = read_single_batch(records, rules)
    if header.size_bytes > rules.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{header.size_bytes} bytes for {rules.name} do not fit into a segment of {rules.segment_bytes}",
        )
    return header


def marker_of(records: Buffer, header: BatchHeader) -> Marker | None:
    """The end of a transaction that a batch of a coordinator is, if it is one."""
    if not header.is_control or header.producer_id < 0 or not header.record_count:
        return None
    record = record_room.decode_batch(records)[0]
    return decode_marker(record.key, record.value)


class Checked(NamedTuple):
    """A batch as it is to be stored (offsets apart); its records if a cleaner would have to unpack them."""

    records: Buffer
    header: BatchHeader
    section: record_room.Bytes | None


def check_from_client(records: Buffer, rules: AppendRules, now_ms: int) -> Checked:
    """The batch as it is to be stored; KafkaError when it is refused."""
    size, data = len(records), record_room.as_array(records)
    if is_ready() and is_usual(data, 0, size, now_ms, *rules.usual, *desk().workspace):
        return Checked(records, _new_tuple(BatchHeader, unpack_header(records)), None)
    header = read_single_batch(records, rules)
    if size > rules.max_message_bytes or size > rules.segment_bytes:
        raise _too_large(size, rules)
    max_delta, payload = _checked_records(records, header, rules)
    attributes, target = header.attributes, rules.codec
    codec = attributes & CODEC_MASK
    if rules.stamps_append_time:
        return _restamped(records, header, payload, rules, now_ms)
    if attributes & LOG_APPEND_TIME:
        raise InvalidRecords(
            ErrorCode.INVALID_TIMESTAMP,
            f"{rules.name}: producers do not set the timestamp type LogAppendTime",
        )
    true_max = header.base_timestamp + max_delta
    if not LONG_MIN <= true_max <= LONG_MAX:
        raise InvalidRecords(
            ErrorCode.INVALID_TIMESTAMP, f"{rules.name}: the timestamp {true_max} takes more than 64 bits"
        )
    if rules.before_max_ms != LONG_MAX or now_ms + rules.after_max_ms < true_max:
        _check_timestamps(payload, header, rules, now_ms)
    if true_max != header.max_timestamp or (target is not None and target != codec):
        return _rewritten(records, header._replace(max_timestamp=true_max), payload, rules)
    return Checked(records, header, payload if codec and rules.remembers_keys else None)


def _checked_records(
    records: Buffer, header: BatchHeader, rules: AppendRules
) -> tuple[int, record_room.Bytes]:
    """The largest timestamp delta of a batch, and its records; KafkaError when it is not what its header
    says.
    """
    attributes, count = header.attributes, header.record_count
    if checksum(records, 0, header.size_bytes) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch for {rules.name} does not have its checksum")
    if (
        header.base_offset
        or count != header.last_offset_delta + 1
        or count <= 0
        or attributes & (CONTROL | DELETE_HORIZON)
        or (header.producer_id >= 0 and header.base_sequence < 0)
    ):
        raise InvalidRecords(ErrorCode.INVALID_RECORD, _what_is_wrong(header, rules))
    payload = _unpacked(records, header, rules)
    fault, index, max_delta = record_room.validate_records(payload, count, rules.is_compacted)
    if fault != OK:
        raise _refused(fault, index, payload, count, rules)
    return max_delta, payload


def _unpacked(records: Buffer, header: BatchHeader, rules: AppendRules) -> record_room.Bytes:
    """The records, uncompressed. What cannot be read is refused for good: the checksum was right, and sent
    again the bytes would be the same.
    """
    try:
        payload = record_room.payload(records, 0, header, rules.max_decompressed_bytes)
    except KafkaError as error:
        if error.code != ErrorCode.CORRUPT_MESSAGE:
            raise
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD, f"A batch for {rules.name} cannot be read: {error.message}"
        ) from None
    if header.codec == Codec.LZ4:
        reason = why_unreadable(memoryview(records)[HEADER_BYTES:])
        if reason is not None:
            raise InvalidRecords(
                ErrorCode.INVALID_RECORD,
                f"A batch for {rules.name} could not be read by Kafka's consumers: its lz4 data {reason}",
            )
    return payload


def _too_large(size: int, rules: AppendRules) -> KafkaError:
    if size > rules.max_message_bytes:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {rules.name} is {size} bytes which exceeds the maximum "
            f"configured value of {rules.max_message_bytes}",
        )
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"The record batch of {size} bytes for {rules.name} exceeds the segment size {rules.segment_bytes}",
    )


def _what_is_wrong(header: BatchHeader, rules: AppendRules) -> str:
    """The first reason to refuse a header that is whole but not a client's."""
    if header.base_offset:
        return (
            f"The baseOffset of the record batch in the append to {rules.name} should be 0, "
            f"but it is {header.base_offset}"
        )
    if header.is_control:
        return f"Clients are not allowed to write control records to {rules.name}"
    if header.has_delete_horizon:
        return f"Clients are not allowed to set a delete horizon in {rules.name}"
    if header.last_offset_delta < 0:
        return f"Batch for {rules.name} has an invalid offset range: [0, {header.last_offset_delta}]"
    if header.record_count <= 0:
        return (
            f"Invalid reported count for record batch: {header.record_count} in topic partition {rules.name}"
        )
    if header.record_count != header.last_offset_delta + 1:
        return (
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records "
            f"{header.record_count} in topic partition {rules.name}"
        )
    return (
        f"Invalid sequence number {header.base_sequence} in record batch with producerId "
        f"{header.producer_id} in topic partition {rules.name}"
    )


def _refused(
    fault: int, index: int, payload: record_room.Bytes, count: int, rules: AppendRules
) -> KafkaError:
    if fault != KEYLESS:
        return InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"Record {index} of the batch for {rules.name}: {record_room.FAULTS[fault]}",
            [(int(index), record_room.FAULTS[fault])],
        )
    text = f"{record_room.FAULTS[KEYLESS]} in topic partition {rules.name}"
    keyless = record_room.keyless_records(payload, count)
    found = keyless[:MAX_RECORD_ERRORS]
    return InvalidRecords(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(keyless)} record errors in total: {text}",
        [(int(number), text) for number in found],
    )


def _check_timestamps(
    payload: record_room.Bytes, header: BatchHeader, rules: AppendRules, now_ms: int
) -> None:
    """Each record's CreateTime must lie in the topic's window; a record without a time passes."""
    times = (
        record_room.locate(payload, header.record_count)[record_room.TIMESTAMP_DELTA] + header.base_timestamp
    )
    earliest = now_ms - rules.before_max_ms
    latest = now_ms + rules.after_max_ms
    wrong = ((times < earliest) | (times > latest)) & (times != NO_TIMESTAMP)
    if not wrong.any():
        return
    errors = [
        (
            int(index),
            f"Timestamp {int(times[index])} of message with offset {int(index)} is out of range. "
            f"The timestamp should be within [{earliest}, {latest}]",
        )
        for index in wrong.nonzero()[0][:MAX_RECORD_ERRORS]
    ]
    raise InvalidRecords(
        ErrorCode.INVALID_TIMESTAMP,
        f"One or more records have been rejected due to invalid timestamp: {errors[0][1]}",
        errors,
    )


def _restamped(
    records: Buffer, header: BatchHeader, payload: record_room.Bytes, rules: AppendRules, now_ms: int
) -> Checked:
    """The batch with the broker's time instead of the producers' (LogAppendTime)."""
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    return _rewritten(records, stamped, payload, rules)


def _rewritten(
    records: Buffer, header: BatchHeader, payload: record_room.Bytes, rules: AppendRules
) -> Checked:
    """The batch under a changed header, its records recompressed if the topic wants another codec."""
    codec = codec_of(header.codec)
    target = codec if rules.codec is None else rules.codec
    if target == codec:
        stored: Buffer = memoryview(records)[HEADER_BYTES:]
    else:
        stored = compress(target, payload.data, rules.codec_level)
        header = header._replace(attributes=header.attributes & ~CODEC_MASK | target)
        size = HEADER_BYTES + len(stored)
        if size > rules.max_message_bytes or size > rules.segment_bytes:
            raise _too_large(size, rules)
    sealed = seal_header(header, stored)
    section = payload if target and rules.remembers_keys else None
    return Checked(b"".join((sealed, stored)), parse_header(sealed), section)
