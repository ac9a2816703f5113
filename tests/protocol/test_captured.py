"""Goal: what real clients send is read, and written again to the very same bytes.

Method: frames captured from unmodified clients (confluent-kafka 2.16.1 with librdkafka 2.16.0, kafka-python
3.0.12, aiokafka 0.14.0), header included, each named after its message, version and sender. Every frame is
read whole, in single bytes and with a tail.
"""

from __future__ import annotations

from typing import Any

import pytest

import protocol.messages.every  # noqa: F401  # fills the registry
from protocol.codegen import decode
from protocol.errors import MalformedFrame
from protocol.framing import RequestHeader, decode_request_header, encode_request
from protocol.schema import registry

FRAMES = {
    "api_versions_request_v3_librdkafka": (
        "0012000300000001000372646b0017636f6e666c75656e742d6b61666b612d70"
        "7974686f6e16322e31362e312d72646b61666b612d322e31362e3000"
    ),
    "metadata_request_v13_librdkafka": (
        "0003000d00000002000372646b00020000000000000000000000000000000008666c696768747300010000"
    ),
    "init_producer_id_request_v4_librdkafka": (
        "0016000400000002000372646b0000ffffffffffffffffffffffffffff00"
    ),
    "produce_request_v10_librdkafka": (
        "0000000a00000003000372646b0000ffff000075300208666c69676874730200"
        "0000004700000000000000000000003a0000000002daf8dc2800000000000000"
        "0001a1fe250398000001a1fe2503980000000000000007000000000000000000"
        "0110000000026b027600000000"
    ),
    "find_coordinator_request_v2_librdkafka": "000a000200000003000372646b00016700",
    "join_group_request_v5_librdkafka": (
        "000b000500000003000372646b0001670000afc8000493e00000ffff0008636f"
        "6e73756d657200000002000572616e67650000001d0003000000010007666c69"
        "676874730000000000000000ffffffff0000000a726f756e64726f62696e0000"
        "001d0003000000010007666c69676874730000000000000000ffffffff0000"
    ),
    "fetch_request_v16_librdkafka": (
        "0001001000000002000372646b00000001f400000001032000000100000000ff"
        "ffffff020000000000000000000000000000004d020000000000000000000000"
        "0000000000ffffffffffffffffffffffff001000000000010100"
    ),
    "api_versions_request_v4_kafka_python": (
        "001200040000000100036b7079000d6b61666b612d707974686f6e07332e302e313200"
    ),
    "metadata_request_v13_kafka_python": "0003000d0000000200036b70790001010000",
    "init_producer_id_request_v4_kafka_python": (
        "001600040000000200036b7079000000000000ffffffffffffffffffff00"
    ),
    "produce_request_v9_kafka_python": (
        "000000090000000300036b70790000ffff000075300208666c69676874730200"
        "0000004700000000000000000000003a0000000002c404234700000000000000"
        "0001a1fe250b22000001a1fe250b220000000000000007000000000000000000"
        "0110000000026b027600000000"
    ),
    "list_offsets_request_v10_kafka_python": (
        "0002000a0000000300036b707900ffffffff000208666c696768747302000000"
        "00ffffffffffffffffffffffff00000000000000"
    ),
    "api_versions_request_v0_aiokafka": "0012000000000001000361696f",
    "metadata_request_v5_aiokafka": "0003000500000002000361696f0000000001",
    "produce_request_v7_aiokafka": (
        "0000000700000002000361696fffff000100009c40000000010007666c696768"
        "747300000001000000000000004600000000000000000000003affffffff0289"
        "921c07000000000000000001a1fe250f9c000001a1fe250f9cffffffffffffff"
        "ffffff000000000000000110000000026b027600"
    ),
    "list_offsets_request_v3_aiokafka": (
        "0002000300000003000361696fffffffff00000000010007666c69676874730000000100000000ffffffffffffffff"
    ),
}
CLIENT_IDS = {"librdkafka": "rdk", "kafka_python": "kpy", "aiokafka": "aio"}


def read(frame: bytes) -> tuple[RequestHeader, Any]:
    header, position = decode_request_header(frame)
    return header, decode(registry[header.api_key].request, header.api_version, frame, position)


@pytest.mark.parametrize("name", FRAMES)
def test_a_captured_frame_is_read_and_written_again(name: str) -> None:
    frame = bytes.fromhex(FRAMES[name])
    header, message = read(frame)
    api_name, _, sender = name.partition("_request_v")
    version, _, client = sender.partition("_")
    assert type(message).__name__ == "".join(part.title() for part in api_name.split("_")) + "Request"
    assert (header.api_version, header.client_id) == (int(version), CLIENT_IDS[client])
    again = encode_request(message, header.api_version, header.correlation_id, header.client_id)
    assert b"".join(again) == len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("name", FRAMES)
def test_a_tail_is_overlooked_and_a_missing_end_is_not(name: str) -> None:
    frame = bytes.fromhex(FRAMES[name])
    for longer in (frame + b"\x00", frame + b"\x02\x00\x01a"):
        assert read(longer) == read(frame)
    _, body = decode_request_header(frame)
    for size in range(body, len(frame)):
        with pytest.raises(MalformedFrame):
            read(frame[:size])


def message_of(name: str) -> Any:
    return read(bytes.fromhex(FRAMES[name]))[1]


def test_all_topics_as_librdkafka_asks_for_them() -> None:
    """librdkafka 2.16 (`list_topics`) writes the null array in four bytes, where one is declared."""
    frame = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    header, request = read(frame)
    assert (header.api_version, header.client_id, request.topics) == (13, "rdkafka", None)


def test_a_client_names_its_software() -> None:
    request = message_of("api_versions_request_v3_librdkafka")
    assert request.client_software_name == "confluent-kafka-python"
    assert request.client_software_version == "2.16.1-rdkafka-2.16.0"


@pytest.mark.parametrize(
    ("name", "acks", "timeout_ms", "batch_bytes"),
    [
        ("produce_request_v10_librdkafka", -1, 30_000, 70),
        ("produce_request_v9_kafka_python", -1, 30_000, 70),
        ("produce_request_v7_aiokafka", 1, 40_000, 70),
    ],
)
def test_produced_records_are_a_view_of_the_frame(
    name: str, acks: int, timeout_ms: int, batch_bytes: int
) -> None:
    request = message_of(name)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (acks, timeout_ms, None)
    assert [topic.name for topic in request.topic_data] == ["flights"]
    (partition,) = request.topic_data[0].partition_data
    assert partition.index == 0
    assert isinstance(partition.records, memoryview)
    assert len(partition.records) == batch_bytes
    assert partition.records.obj == bytes.fromhex(FRAMES[name])


def test_a_fetch_by_topic_id() -> None:
    """G6: from version 13 on a client that was told a topic's id names it by nothing else."""
    request = message_of("fetch_request_v16_librdkafka")
    (topic,) = request.topics
    assert (topic.topic, topic.topic_id.int) == ("", 77)
    assert (topic.partitions[0].fetch_offset, topic.partitions[0].current_leader_epoch) == (0, 0)
    assert (request.max_wait_ms, request.session_epoch, request.rack_id) == (500, -1, "")


def test_what_a_new_member_offers() -> None:
    request = message_of("join_group_request_v5_librdkafka")
    assert (request.group_id, request.member_id, request.group_instance_id) == ("g", "", None)
    assert [protocol.name for protocol in request.protocols] == ["range", "roundrobin"]
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
