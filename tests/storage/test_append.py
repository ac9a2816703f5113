"""Goal: a log takes what Kafka takes, refuses what Kafka refuses, and a refused batch leaves no trace.

Method: batches are appended to a real log in a temporary directory; after every refusal the file and
the offsets are what they were, and the next good batch gets the next offset.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest

from config.broker import BrokerConfig, broker_rows
from config.topic import TopicConfig
from protocol.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    parse_header,
    seal_header,
)  # fmt: skip
from protocol.compression import Codec, compress
from protocol.errors import ErrorCode, InvalidRecords, KafkaError
from protocol.kernel import load_numba
from protocol.lz4_frames import why_unreadable
from protocol.native import MISSING
from protocol.one_look import desk, is_usual
from protocol.records import DEFAULT_LIMIT_BYTES, as_array, decode_batch, encode_batch, encode_record
from storage.append import AppendRules, check_from_client
from storage.types import Origin
from tests.storage.builders import NOW_MS, LogBuilder, batch
from tests.storage.conftest import MakeLog


def changed(data: bytes, **fields: Any) -> bytes:
    """`data` under a changed header that has the right checksum."""
    header = parse_header(data)._replace(**fields)
    return seal_header(header, data[HEADER_BYTES:]) + data[HEADER_BYTES:]


def refused(log: LogBuilder, data: bytes, now_ms: int = NOW_MS) -> KafkaError:
    """The refusal of `data`; the log is as it was."""
    before = (log.log.log_end_offset, log.log.size_bytes, log.log.segments)
    with pytest.raises(KafkaError) as caught:
        log.log.append(data, now_ms=now_ms)
    assert (log.log.log_end_offset, log.log.size_bytes, log.log.segments) == before
    assert log.log.active_segment.file.size() == log.log.active_segment.size_bytes
    return caught.value


def test_s1_offsets_count_from_zero(log: LogBuilder) -> None:
    assert [log.append().base_offset for _ in range(3)] == [0, 1, 2]
    appended = log.append(b"a", b"b", b"c")
    assert (appended.base_offset, appended.last_offset) == (3, 5)
    assert appended.log_append_time_ms == -1
    assert log.offsets() == [0, 1, 2, 3, 4, 5]


def test_s2_every_partition_has_an_offset_zero(make_log: MakeLog) -> None:
    one, other = make_log(), make_log(name="orders-3")
    assert one.append().base_offset == other.append().base_offset == 0


def test_bytes_are_stored_as_they_came_but_for_the_prefix(log: LogBuilder) -> None:
    log.append()
    data = batch(b"x", b"y", timestamp=NOW_MS - 5)
    log.log.append(memoryview(data), now_ms=NOW_MS)
    stored = log.log.read(1, 10_000, upper_offset=3).read()
    assert stored[16:] == data[16:]
    assert parse_header(stored).base_offset == 1
    assert data == batch(b"x", b"y", timestamp=NOW_MS - 5), "the client's buffer was not touched"


@pytest.mark.parametrize("codec", list(Codec))
def test_t144_compacted_topic_refuses_keyless_records(make_log: MakeLog, codec: Codec) -> None:
    log = make_log(cleanup_policy="compact")
    data = encode_batch(
        [
            (NOW_MS, b"k", b"1", ()),
            (NOW_MS, None, b"2", ()),
            (NOW_MS, b"k", None, ()),
            (NOW_MS, None, b"4", ()),
        ],
        codec=codec,
    )
    error = refused(log, data)
    assert isinstance(error, InvalidRecords)
    assert error.code is ErrorCode.INVALID_RECORD
    text = "Compacted topic cannot accept message without key in topic partition orders-2"
    assert error.record_errors == [(1, text), (3, text)]
    assert log.append().base_offset == 0


def test_t144_the_policy_counts_when_it_is_changed(log: LogBuilder, make_log: MakeLog) -> None:
    log.append(key=None)
    log.log.update_config(make_log(name="orders-9", cleanup_policy="compact,delete").config)
    assert refused(log, batch(key=None)).code is ErrorCode.INVALID_RECORD


def test_t146_batch_above_max_message_bytes(make_log: MakeLog) -> None:
    log = make_log(max_message_bytes=200)
    assert refused(log, batch(b"x" * 200)).code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.append(b"x" * 100).base_offset == 0
    data = batch(b"x" * 200)
    log = make_log(name="orders-3", max_message_bytes=len(data) - 1)
    assert refused(log, data).code is ErrorCode.MESSAGE_TOO_LARGE
    log = make_log(name="orders-4", max_message_bytes=len(data))
    assert log.log.append(data, now_ms=NOW_MS).base_offset == 0


def test_t147_batch_above_segment_bytes(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200)
    data = batch(b"x" * 200)
    assert refused(log, data).code is ErrorCode.RECORD_LIST_TOO_LARGE
    log = make_log(name="orders-3", segment_bytes=len(data) - 1, max_message_bytes=len(data))
    assert refused(log, data).code is ErrorCode.RECORD_LIST_TOO_LARGE
    log = make_log(name="orders-4", segment_bytes=len(data) - 1, max_message_bytes=len(data) - 1)
    assert refused(log, data).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_t147_a_batch_may_fill_a_segment(make_log: MakeLog, origin: Origin) -> None:
    data = batch(b"x" * 200)
    log = make_log(segment_bytes=len(data))
    for offset in range(2):
        assert log.log.append(data, now_ms=NOW_MS, origin=origin).base_offset == offset
    assert [segment.size_bytes for segment in log.log.segments] == [len(data)] * 2


@pytest.mark.parametrize("position", [21, 40, 60, 70])
def test_t148_wrong_checksum(log: LogBuilder, position: int) -> None:
    data = bytearray(batch(b"value"))
    data[position] ^= 1
    assert refused(log, bytes(data)).code is ErrorCode.CORRUPT_MESSAGE


ODD_FIELDS = (
    {"record_count": 3},
    {"record_count": 0, "last_offset_delta": -1},
    {"base_offset": 7},
    {"leader_epoch": 3},
    {"magic": 1},
    {"attributes": CONTROL},
    {"attributes": LOG_APPEND_TIME},
    {"attributes": DELETE_HORIZON},
    {"attributes": 1 << 8},
    {"attributes": 5},
    {"producer_id": 4, "producer_epoch": 0, "base_sequence": -1},
    {"producer_id": 4, "producer_epoch": 0, "base_sequence": 9},
    {"max_timestamp": 5},
    {"base_timestamp": 2**63 - 1},
    {"base_timestamp": -(2**63)},
)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_one_look_at_a_batch_finds_what_two_find(policy: str) -> None:
    """Header, checksum and records by one kernel, lz4 unpacked in it, or step by step where nothing is
    usual: the same batches are taken, the others refused with the same words.
    """
    load_numba()
    config = TopicConfig.resolve({"cleanup.policy": policy}, BrokerConfig())
    one_look, two_looks = AppendRules(config, "t", 1 << 30), AppendRules(config, "t", 1 << 30)
    assert one_look.usual.crc32c != MISSING != one_look.usual.lz4
    is_lz4_usual = bool(one_look.usual.codecs >> Codec.LZ4 & 1)
    assert is_lz4_usual == (policy == "delete")  # else its keys are remembered
    two_looks.usual = two_looks.usual._replace(codecs=0)
    dice = random.Random(policy)
    outcomes = set()
    usual_count = 0
    for _ in range(1500):
        items = [
            (
                NOW_MS + dice.choice((0, 0, 0, 0, 1 << 40)),
                dice.choice((b"k", b"key", b"key", None)),
                dice.randbytes(5) * dice.choice((0, *[1, 40] * 10, 250_000)),
                (),
            )
            for _ in range(dice.choice((1, 2, 9)))
        ]
        codec = dice.choice((Codec.NONE, Codec.LZ4))
        data = bytearray(encode_batch(items, codec=codec, level=dice.choice((None, 9))))
        kind = dice.randrange(5)
        if kind == 0:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        elif kind == 1:  # with the checksum that belongs to it
            data[dice.randrange(HEADER_BYTES, len(data))] ^= 1 << dice.randrange(8)
            data = bytearray(changed(bytes(data)))
        elif kind == 2:
            data = bytearray(changed(bytes(data), **dice.choice(ODD_FIELDS)))
        outcome = [_looked_at(memoryview(data), rules) for rules in (one_look, two_looks)]
        assert outcome[0] == outcome[1]
        outcomes.add(outcome[0][0])
        arguments = as_array(data), 0, len(data), NOW_MS, *one_look.usual, *desk().workspace
        is_taken = is_usual(*arguments)
        assert outcome[0][0] == "taken" or not is_taken
        usual_count += is_taken
    assert usual_count > 100
    errors = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}
    assert outcomes >= {"taken", ErrorCode.MESSAGE_TOO_LARGE} | errors


def _looked_at(data: memoryview, rules: AppendRules) -> tuple[object, ...]:
    try:
        taken = check_from_client(data, rules, NOW_MS)
    except InvalidRecords as error:
        return error.code, error.message, error.record_errors
    except KafkaError as error:
        return error.code, error.message
    return "taken", bytes(taken.records), taken.header


def test_t149_control_batch_from_a_client(log: LogBuilder) -> None:
    data = batch()
    assert refused(log, changed(data, attributes=CONTROL)).code is ErrorCode.INVALID_RECORD


def test_t83_delete_horizon_from_a_client(log: LogBuilder) -> None:
    assert refused(log, changed(batch(), attributes=DELETE_HORIZON)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"record_count": 2}, "Inconsistent batch offset range [0, 0] and count of records 2"),
        ({"record_count": 3, "last_offset_delta": 2}, "not as many records as the batch header says"),
        ({"record_count": 0, "last_offset_delta": -1}, "an invalid offset range: [0, -1]"),
        ({"record_count": 0, "last_offset_delta": 0}, "Invalid reported count for record batch: 0"),
        ({"record_count": -1}, "Invalid reported count for record batch: -1"),
        ({"last_offset_delta": 5}, "Inconsistent batch offset range [0, 5] and count of records 1"),
        ({"last_offset_delta": -1}, "an invalid offset range: [0, -1]"),
        ({"base_offset": 7}, "should be 0, but it is 7"),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, "Invalid sequence number -1"),
        ({"producer_id": 0, "producer_epoch": 0, "base_sequence": -1}, "Invalid sequence number -1"),
    ],
    ids=str,
)
def test_t150_counts_and_ranges_that_contradict_each_other(
    log: LogBuilder, fields: dict[str, int], reason: str
) -> None:
    error = refused(log, changed(batch(), **fields))
    assert error.code is ErrorCode.INVALID_RECORD
    assert reason in error.message


def test_t150_a_batch_of_no_record(log: LogBuilder) -> None:
    data = changed(batch()[:HEADER_BYTES], record_count=0, last_offset_delta=-1)
    empty = changed(data, batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES)
    assert refused(log, empty).code is ErrorCode.INVALID_RECORD


def test_t150_more_than_one_batch(log: LogBuilder) -> None:
    assert refused(log, batch() + batch()).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("size", [0, 1, 20, 60, 61, 70])
def test_t150_cut_off_batch(log: LogBuilder, size: int) -> None:
    data = batch(b"some value that makes it longer")[:size]
    assert refused(log, data).code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_t150_records_that_are_none(log: LogBuilder) -> None:
    data = batch(b"value")
    garbage = data[:HEADER_BYTES] + b"\xff" * (len(data) - HEADER_BYTES)
    assert refused(log, changed(garbage)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_t151_older_formats(log: LogBuilder, magic: int) -> None:
    data = bytearray(batch(b"value"))
    data[16] = magic
    error = refused(log, bytes(data))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "magic 2" in error.message


def test_t151_unknown_magic(log: LogBuilder) -> None:
    data = bytearray(batch(b"value"))
    data[16] = 3
    assert refused(log, bytes(data)).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("kind", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_t152_the_topic_has_its_own_codec(make_log: MakeLog, kind: str) -> None:
    log = make_log(compression_type=kind)
    for codec in Codec:
        log.append(b"a" * 300, b"b" * 300, codec=codec)
    codecs = {header.codec for header, _ in log.log.scan(0)}
    assert codecs == {0 if kind == "uncompressed" else Codec[kind.upper()]}
    assert [record.value for record in log.records()] == [b"a" * 300, b"b" * 300] * 5


@pytest.mark.parametrize(
    ("kind", "low", "high"), [("gzip", 1, 9), ("gzip", 1, -1), ("lz4", 1, 12), ("zstd", -50, 19)]
)
def test_the_level_of_the_topics_codec(make_log: MakeLog, kind: str, low: int, high: int) -> None:
    chance = random.Random(1)
    value = b" ".join(b"word-%d" % chance.randrange(300) for _ in range(3000))
    sizes = []
    for level in (low, high):
        settings = {"compression_type": kind, f"compression_{kind}_level": level}
        log = make_log(name=f"level{level}-0", **settings)
        log.append(value)
        assert [record.value for record in log.records()] == [value]
        sizes.append(log.log.size_bytes)
    assert sizes[0] > sizes[1]


def test_t152_an_equal_codec_is_stored_as_it_came(make_log: MakeLog) -> None:
    log = make_log(compression_type="zstd")
    data = batch(b"a" * 300, codec=Codec.ZSTD)
    log.log.append(data, now_ms=NOW_MS)
    assert log.log.read(0, 1000, upper_offset=1).read()[16:] == data[16:]


def test_t153_log_append_time(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_type="LogAppendTime")
    data = batch(b"a", b"b", timestamp=5, codec=Codec.GZIP)
    appended = log.log.append(data, now_ms=NOW_MS)
    assert appended.log_append_time_ms == NOW_MS
    stored = log.log.read(0, 1000, upper_offset=2).read()
    assert parse_header(stored).timestamp_type == 1
    assert parse_header(stored).max_timestamp == NOW_MS
    assert stored[HEADER_BYTES:] == data[HEADER_BYTES:]
    assert [record.timestamp for record in decode_batch(stored)] == [NOW_MS, NOW_MS]


def test_log_append_time_from_a_client_of_a_create_time_topic(log: LogBuilder) -> None:
    data = encode_batch([(NOW_MS, b"k", b"v", ())], log_append_time_ms=NOW_MS)
    assert refused(log, data).code is ErrorCode.INVALID_TIMESTAMP


def test_t143_timestamps_too_far_in_the_future(log: LogBuilder) -> None:
    limit = NOW_MS + log.config.message_timestamp_after_max_ms
    error = refused(log, encode_batch([(NOW_MS, b"k", b"v", ()), (limit + 1, b"k", b"v", ())]))
    assert isinstance(error, InvalidRecords)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]
    log.append(timestamp=limit)


def test_timestamps_too_far_in_the_past(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_before_max_ms=1000)
    assert refused(log, batch(timestamp=NOW_MS - 1001)).code is ErrorCode.INVALID_TIMESTAMP
    log.append(timestamp=NOW_MS - 1000)
    log.append(timestamp=-1)


def test_a_wrong_max_timestamp_is_corrected(log: LogBuilder) -> None:
    data = encode_batch(
        [(NOW_MS - 9, b"k", b"v", ()), (NOW_MS - 1, b"k", b"v", ()), (NOW_MS - 4, b"k", b"v", ())]
    )
    log.log.append(changed(data, max_timestamp=NOW_MS + 77), now_ms=NOW_MS)
    assert parse_header(log.log.read(0, 1000, upper_offset=3).read()).max_timestamp == NOW_MS - 1


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))])
def test_timestamps_beyond_64_bits_are_refused(log: LogBuilder, base: int, delta: int) -> None:
    data = encode_batch([(0, b"k", b"v", ())])
    record = encode_record(0, delta, b"k", b"v")
    header = parse_header(data)._replace(base_timestamp=base)
    assert refused(log, seal_header(header, record) + record).code is ErrorCode.INVALID_TIMESTAMP


def with_section(section: bytes) -> bytes:
    """A batch of one record whose lz4 data are these."""
    header = parse_header(batch(b"v" * 200_000, codec=Codec.LZ4))
    return seal_header(header, section) + section


def lz4_sections() -> tuple[bytes, bytes]:
    """The records of such a batch, as they are and in two blocks and more each of which stands for itself."""
    plain = batch(b"v" * 200_000)[HEADER_BYTES:]
    return plain, lz4.frame.compress(plain, block_linked=False, store_size=True, content_checksum=True)


def test_lz4_that_java_reads_is_taken(log: LogBuilder) -> None:
    plain, independent = lz4_sections()
    one_block = lz4.frame.compress(plain, block_size=7, block_linked=True)
    checked = lz4.frame.compress(plain, block_linked=False, block_checksum=True)
    for section in (independent, one_block, checked, compress(Codec.LZ4, plain)):
        assert why_unreadable(section) is None
        log.log.append(with_section(section), now_ms=NOW_MS)
    assert log.log.log_end_offset == 4


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda plain, _: lz4.frame.compress(plain, block_linked=True), "linked ones"),
        (lambda _, whole: whole + whole, "behind its first frame"),
        (lambda _, whole: lz4.frame.compress(b"") + whole, "behind its first frame"),
        (lambda _, whole: b"\x50\x2a\x4d\x18\x01\0\0\0x" + whole, "does not begin with a frame"),
    ],
)
def test_lz4_that_java_cannot_read_is_refused(
    log: LogBuilder, make: Callable[[bytes, bytes], bytes], reason: str
) -> None:
    """As by Apache Kafka (tests/kafka/questions.py): its consumers would stop at such a batch for good."""
    error = refused(log, with_section(make(*lz4_sections())))
    assert error.code is ErrorCode.INVALID_RECORD
    assert reason in error.message or "Record" in error.message


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_cannot_be_unpacked_is_refused_for_good(log: LogBuilder, codec: Codec) -> None:
    """CORRUPT_MESSAGE would have Java's producer send it again until its time is over."""
    data = bytearray(batch(b"value" * 100, codec=codec))
    data[HEADER_BYTES:] = b"\x07" * (len(data) - HEADER_BYTES)
    error = refused(log, changed(bytes(data)))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "cannot be read" in error.message


def test_a_decompression_bomb_is_refused_before_it_is_written(log: LogBuilder) -> None:
    log.log._rules.max_decompressed_bytes = 1 << 20
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        data = batch(b"\0" * (8 << 20), codec=codec)
        assert len(data) < 40_000
        assert refused(log, data).code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_need_not_be_unpacked_may_be_as_large_as_messages_may_be() -> None:
    config = TopicConfig.resolve({"max.message.bytes": str(1 << 30)}, BrokerConfig())
    rules = AppendRules(config, "t-0", 1 << 20)
    assert rules.max_decompressed_bytes == 1 << 30


def test_what_may_be_let_in_can_be_read_and_cleaned() -> None:
    row = broker_rows()["max.decompressed.batch.bytes"]
    assert row.default <= row.at_most == DEFAULT_LIMIT_BYTES


def test_the_coordinator_may_write_what_a_client_may_not(log: LogBuilder) -> None:
    log.end_transaction(7, is_commit=True)
    data = struct.pack(">q", 0) + batch(key=None)[8:]
    assert log.log.append(data, now_ms=NOW_MS, origin=Origin.COORDINATOR).base_offset == 1
