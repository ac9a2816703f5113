"""Goal: what is written is what is read, for every message in every version, down to the byte.

Method: one table of (message, version, hex), written out by hand from the protocol's grammar, is read and
written; each row is also fed in single bytes, cut short and given a tail. Beside it hypothesis fills every
message of every version. Bytes of other programs are in `test_captured.py` and `tests/oracle`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import protocol.messages.every  # noqa: F401  # fills the registry
from protocol.codegen import decode, encode
from protocol.errors import MalformedFrame, UnsupportedVersion
from protocol.framing import decode_response, encode_response
from protocol.messages.delegation_tokens import CreateDelegationTokenRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.group_offsets import OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.internal import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import registry, schema_of
from tests.protocol.messages import all_messages, all_versions, filled, messages, versions_of

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
ProducedTopic = ProduceRequest.TopicProduceData
AnsweredTopic = ProduceResponse.TopicProduceResponse
FetchedTopic = FetchResponse.FetchableTopicResponse

CASES: list[tuple[Any, int, str]] = [
    (ApiVersionsRequest(), 0, ""),
    (
        ApiVersionsRequest(client_software_name="confluent-kafka-python", client_software_version="2.15.0"),
        3,
        "17 636f6e666c75656e742d6b61666b612d707974686f6e 07 322e31352e30 00",
    ),
    (
        ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
        0,
        "0023 00000001 0012 0000 0004",
    ),
    (
        ApiVersionsResponse(
            api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, max_version=4)], finalized_features_epoch=7
        ),
        3,
        "0000 02 0012 0000 0004 00 00000000 01 01 08 0000000000000007",
    ),
    # Null asks for all topics, an empty array for none (G31); version 0 knows no null and means all by empty.
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (MetadataRequest(topics=[]), 1, "00000000"),
    (MetadataRequest(topics=None), 9, "00 01 00 00 00"),
    (MetadataRequest(topics=[]), 9, "01 01 00 00 00"),
    # Version 12 asks by id and leaves the name null (G6).
    (
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=TOPIC_ID, name=None)]),
        12,
        "02 00112233445566778899aabbccddeeff 00 00 01 00 00",
    ),
    (
        MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="localhost", port=9092)],
            cluster_id="k",
            controller_id=1,
        ),
        9,
        "00000000 02 00000001 0a 6c6f63616c686f7374 00002384 00 00 02 6b 00000001 01 80000000 00",
    ),
    (
        ProduceRequest(
            acks=-1,
            timeout_ms=30000,
            topic_data=[
                ProducedTopic(
                    name="t",
                    partition_data=[ProducedTopic.PartitionProduceData(index=3, records=b"\x01\x02\x03")],
                )
            ],
        ),
        9,
        "00 ffff 00007530 02 02 74 02 00000003 04 010203 00 00 00",
    ),
    (
        ProduceRequest(
            acks=1,
            topic_data=[ProducedTopic(name="t", partition_data=[ProducedTopic.PartitionProduceData()])],
        ),
        3,
        "ffff 0001 00000000 00000001 0001 74 00000001 00000000 ffffffff",
    ),
    (
        ProduceResponse(
            responses=[
                AnsweredTopic(
                    name="t",
                    partition_responses=[
                        AnsweredTopic.PartitionProduceResponse(index=3, base_offset=42, log_start_offset=0)
                    ],
                )
            ]
        ),
        9,
        "02 02 74 02 00000003 0000 000000000000002a ffffffffffffffff 000000000000000001 00 00 00 00000000 00",
    ),
    (
        ProduceResponse(
            responses=[
                AnsweredTopic(
                    name="t",
                    partition_responses=[
                        AnsweredTopic.PartitionProduceResponse(
                            error_code=87,
                            base_offset=-1,
                            record_errors=[
                                AnsweredTopic.PartitionProduceResponse.BatchIndexAndErrorMessage(
                                    batch_index=2, batch_index_error_message="no key"
                                )
                            ],
                            error_message="bad",
                            current_leader=AnsweredTopic.PartitionProduceResponse.LeaderIdAndEpoch(
                                leader_id=1, leader_epoch=5
                            ),
                        )
                    ],
                )
            ]
        ),
        10,
        "02 02 74 02 00000000 0057 ffffffffffffffff ffffffffffffffff ffffffffffffffff"
        "02 00000002 07 6e6f206b6579 00 04 626164 01 00 09 00000001 00000005 00 00 00000000 00",
    ),
    (
        FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1024, session_id=9, session_epoch=4),
        12,
        "ffffffff 000001f4 00000001 00000400 00 00000009 00000004 01 01 01 00",
    ),
    (
        FetchResponse(
            session_id=9,
            responses=[
                FetchedTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        FetchedTopic.PartitionData(
                            partition_index=1, high_watermark=5, last_stable_offset=5, log_start_offset=0
                        )
                    ],
                )
            ],
        ),
        13,
        "00000000 0000 00000009 02 00112233445566778899aabbccddeeff 02 00000001 0000 0000000000000005"
        "0000000000000005 0000000000000000 01 ffffffff 00 00 00 00",
    ),
    # Version 4 turns one key into a list of keys (G12), version 8 one group into a list of groups (G13).
    (FindCoordinatorRequest(key="g"), 3, "02 67 00 00"),
    (FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4, "00 03 02 67 02 68 00"),
    (
        FindCoordinatorResponse(
            coordinators=[FindCoordinatorResponse.Coordinator(key="g", node_id=1, port=1)]
        ),
        4,
        "00000000 02 02 67 00000001 01 00000001 0000 01 00 00",
    ),
    (OffsetFetchRequest(group_id="g", topics=None), 7, "02 67 00 00 00"),
    (
        OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]),
        8,
        "02 02 67 00 00 00 00",
    ),
    (DescribeTopicPartitionsRequest(cursor=None), 0, "01 000007d0 ff 00"),
    (
        DescribeTopicPartitionsRequest(
            cursor=DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=2)
        ),
        0,
        "01 000007d0 01 02 74 00000002 00 00",
    ),
    (CreateDelegationTokenRequest(max_lifetime_ms=-1), 1, "00000000 ffffffffffffffff"),
    (
        CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name="bob", renewers=[], max_lifetime_ms=-1
        ),
        3,
        "00 04 626f62 01 ffffffffffffffff 00",
    ),
    (OffsetCommitKey(group="g", topic="t", partition=1), 1, "0001 67 0001 74 00000001"),
    (
        OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9),
        3,
        "0000000000000007 00000002 0001 6d 0000000000000009",
    ),
    (
        OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9, topic_id=UUID(int=5)),
        4,
        "0000000000000007 00000002 02 6d 0000000000000009 01 00 10 00000000000000000000000000000005",
    ),
    (
        OffsetCommitValue(offset=7, metadata="", commit_timestamp=9, expire_timestamp=11),
        1,
        "0000000000000007 0000 0000000000000009 000000000000000b",
    ),
    (
        GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None),
        3,
        "0008 636f6e73756d6572 00000003 ffff ffff ffffffffffffffff 00000000",
    ),
]


def case_name(case: tuple[Any, int, str]) -> str:
    return f"{type(case[0]).__name__}-v{case[1]}"


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_known_bytes_are_read_and_written(case: tuple[Any, int, str]) -> None:
    """Names G1, G6, G12, G13, G31 by the rows that show them."""
    message, version, text = case
    wire = bytes.fromhex(text)
    assert b"".join(encode(message, version)) == wire
    assert decode(type(message), version, wire) == message


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_known_bytes_with_a_tail(case: tuple[Any, int, str]) -> None:
    """A frame may be longer than declared, as in Kafka: its sender may be newer, or librdkafka."""
    message, version, text = case
    wire = bytes.fromhex(text) + b"\x00"
    if schema_of(type(message)).kind != "data":
        assert decode(type(message), version, wire) == message
    else:
        with pytest.raises(MalformedFrame):
            decode(type(message), version, wire)


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_known_bytes_cut_short(case: tuple[Any, int, str]) -> None:
    message, version, text = case
    wire = bytes.fromhex(text)
    for size in range(len(wire)):
        with pytest.raises(MalformedFrame):
            decode(type(message), version, wire[:size])


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read(cls: type[Any], data: st.DataObject) -> None:
    for version in versions_of(cls):
        message = data.draw(messages(cls, version))
        wire = b"".join(encode(message, version))
        assert decode(cls, version, wire) == message
        assert decode(cls, version, b"before" + wire, 6) == message


def test_seeded_messages_are_read_in_every_version() -> None:
    for cls, version in all_versions():
        for seed in range(3):
            message = filled(cls, version, seed)
            assert decode(cls, version, b"".join(encode(message, version))) == message


def test_every_request_has_its_response() -> None:
    """Nothing is declared by halves, and Produce alone shows versions that it refuses (G2)."""
    for key, spec in registry.items():
        assert (schema_of(spec.request).key, schema_of(spec.response).key) == (key, key)
        assert spec.advertised_min_version == (0 if spec.name == "Produce" else spec.min_version)
    assert (registry[0].min_version, registry[0].max_version) == (3, 13)


@pytest.mark.parametrize("spec", registry.values(), ids=lambda spec: spec.name)
def test_other_versions_are_refused(spec: Any) -> None:
    for version in (-1, spec.min_version - 1, spec.max_version + 1):
        with pytest.raises(UnsupportedVersion):
            decode(spec.request, version, b"")
        with pytest.raises(UnsupportedVersion):
            encode(spec.response(), version)


def test_records_travel_by_reference() -> None:
    """Bytes of records are never copied: the parts hold the very objects, and lengths count all of them."""
    first, second = memoryview(b"first"), b"second" * 100
    partition = FetchedTopic.PartitionData(records=[first, second])
    response = FetchResponse(responses=[FetchedTopic(partitions=[partition])])
    for version in versions_of(FetchResponse):
        parts = encode_response(response, version, correlation_id=5)
        assert any(part is first for part in parts)
        assert any(part is second for part in parts)
        correlation_id, read = decode_response(FetchResponse, version, b"".join(parts)[4:])
        assert correlation_id == 5
        assert read.responses[0].partitions[0].records == b"first" + second


def test_no_records_and_null_records_differ() -> None:
    for version in versions_of(FetchResponse):
        for value in (None, b"", []):
            partition = FetchedTopic.PartitionData(records=value)
            response = FetchResponse(responses=[FetchedTopic(partitions=[partition])])
            read = decode(FetchResponse, version, b"".join(encode(response, version)))
            found = read.responses[0].partitions[0].records
            assert found is None if value is None else found == b""
