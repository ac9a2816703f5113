"""Goal: a batch header is read and made exactly as Kafka lays it out, and damage is noticed.

Method: one header written out by hand as hex, round trips through every attribute, each single bit of a batch
flipped.
"""

from __future__ import annotations

import pytest

from protocol import batch
from protocol.batch import BatchHeader
from protocol.errors import ErrorCode, KafkaError
from protocol.records import decode_batch, encode_batch, encode_record

ONE_RECORD = encode_batch([(1_700_000_000_000, b"key", b"value", ())], base_offset=1573, leader_epoch=7)

# base offset, length, leader epoch, magic, crc | attributes, last offset delta, base and max timestamp,
# producer id, epoch, base sequence, count | length 14, attributes, deltas 0 0, 3 "key", 5 "value", no headers
ONE_RECORD_HEX = (
    "0000000000000625" "00000040" "00000007" "02" "{crc}"
    "0000" "00000000" "0000018bcfe56800" "0000018bcfe56800" "ffffffffffffffff" "ffff" "ffffffff" "00000001"
    "1c" "00" "00" "00" "06" "6b6579" "0a" "76616c7565" "00"
)  # fmt: skip


def bitwise_crc32c(data: bytes) -> int:
    """The definition, bit by bit: reflected Castagnoli polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_every_byte_of_a_batch_is_where_kafka_puts_it() -> None:
    crc = bitwise_crc32c(ONE_RECORD[21:])
    assert ONE_RECORD.hex() == ONE_RECORD_HEX.format(crc=f"{crc:08x}")


def test_header_fields_and_what_follows_from_them() -> None:
    header = batch.parse_header(b"xx" + ONE_RECORD, 2)
    assert header.size_bytes == len(ONE_RECORD) == header.batch_length + 12
    assert (header.base_offset, header.last_offset, header.next_offset) == (1573, 1573, 1574)
    assert (header.leader_epoch, header.magic, header.record_count) == (7, 2, 1)
    assert (header.codec, header.timestamp_type, header.is_control, header.is_transactional) == (
        0,
        0,
        False,
        False,
    )
    assert (header.has_delete_horizon, header.delete_horizon_ms) == (False, None)
    assert header.last_sequence == -1
    assert batch.checksum(b"xx" + ONE_RECORD, 2, header.size_bytes) == header.crc


@pytest.mark.parametrize("codec", range(5))
def test_attributes_are_told_apart(codec: int) -> None:
    made = encode_batch(
        [(5, b"k", b"v", ())],
        codec=codec,
        producer_id=9,
        producer_epoch=3,
        base_sequence=4,
        is_transactional=True,
        delete_horizon_ms=99,
    )
    header = batch.parse_header(made)
    assert (header.codec, header.is_transactional, header.is_control, header.timestamp_type) == (
        codec,
        True,
        False,
        0,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        9,
        3,
        4,
        4,
    )
    assert (header.delete_horizon_ms, header.base_timestamp, header.max_timestamp) == (99, 99, 5)


def test_sequences_wrap_to_zero() -> None:
    """T160: the sequence behind 2**31 - 1 is 0."""
    made = encode_batch([(1, None, b"", ())] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert batch.parse_header(made).last_sequence == 0


def test_any_flipped_bit_behind_the_checksum_is_noticed() -> None:
    """T148: whatever bit of checksum, attributes, header fields or records is wrong, the checksum tells."""
    for position in range(batch.CRC_POSITION, len(ONE_RECORD)):
        for bit in range(8):
            damaged = bytearray(ONE_RECORD)
            damaged[position] ^= 1 << bit
            assert not batch.is_intact(damaged, 0, batch.parse_header(damaged))
            with pytest.raises(KafkaError) as problem:
                decode_batch(damaged)
            assert problem.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_cut_batch_is_not_intact_and_a_cut_header_is_refused() -> None:
    header = batch.parse_header(ONE_RECORD)
    for size in range(len(ONE_RECORD)):
        assert not batch.is_intact(ONE_RECORD[:size], 0, header)
    for size in range(batch.HEADER_BYTES):
        with pytest.raises(KafkaError):
            batch.parse_header(ONE_RECORD[:size])


def test_iteration_stops_at_an_incomplete_tail() -> None:
    other = encode_batch([(1, b"a", None, ())] * 4, base_offset=1574)
    whole = ONE_RECORD + other
    assert [(at, header.base_offset) for at, header in batch.iterate_headers(whole)] == [
        (0, 1573),
        (len(ONE_RECORD), 1574),
    ]
    for cut in range(1, len(other) + 1):
        assert [at for at, _ in batch.iterate_headers(whole[:-cut])] == [0]
    assert list(batch.iterate_headers(b"")) == []


@pytest.mark.parametrize(
    ("magic", "code"),
    [(0, ErrorCode.INVALID_RECORD), (1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)],
)
def test_t151_other_magics_are_refused(magic: int, code: ErrorCode) -> None:
    damaged = bytearray(ONE_RECORD)
    damaged[batch.MAGIC_POSITION] = magic
    with pytest.raises(KafkaError) as problem:
        list(batch.iterate_headers(damaged))
    assert problem.value.code == code


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_that_no_batch_has_ends_the_iteration_with_an_error(length: int) -> None:
    damaged = ONE_RECORD[:8] + length.to_bytes(4, "big", signed=True) + ONE_RECORD[12:]
    with pytest.raises(KafkaError) as problem:
        list(batch.iterate_headers(damaged))
    assert problem.value.code == ErrorCode.CORRUPT_MESSAGE


def test_the_prefix_may_be_replaced_without_touching_the_checksum() -> None:
    header = batch.parse_header(ONE_RECORD)
    moved = batch.encode_prefix(9_000, header.batch_length, 12) + ONE_RECORD[16:]
    after = batch.parse_header(moved)
    assert (after.base_offset, after.leader_epoch, after.crc) == (9_000, 12, header.crc)
    assert batch.is_intact(moved, 0, after)
    assert [record.offset for record in decode_batch(moved)] == [9_000]


def test_an_empty_batch_has_a_header_alone() -> None:
    """T50: count 0, codec none, base timestamp -1, and the offsets it stands for."""
    made = encode_batch(
        [], base_offset=5, codec=4, producer_id=1, producer_epoch=0, base_sequence=3, last_offset_delta=6
    )
    header = batch.parse_header(made)
    assert (len(made), header.record_count, header.codec, header.base_timestamp) == (61, 0, 0, -1)
    assert (header.last_offset, header.last_sequence) == (11, 9)
    assert decode_batch(made) == []


def test_a_sealed_header_is_that_of_a_built_batch() -> None:
    payload = encode_record(0, 0, None, b"v")
    built = batch.build_batch(payload, record_count=1, last_offset_delta=0, base_timestamp=3, max_timestamp=3)
    header = BatchHeader(0, 0, 0, 0, 0, 0, 0, 3, 3, -1, -1, -1, 1)
    assert batch.seal_header(header, payload) + payload == built
