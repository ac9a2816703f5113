"""Goal: a header is read as it was written, and nothing announced in one is believed.

Method: headers are written by one side and read by the other, in each header version; lengths, strings and
varints that lie are refused at once. How a stream is cut into frames: `tests/broker/test_connection.py`.
"""

from __future__ import annotations

import pytest

import protocol.messages.every  # noqa: F401  # fills the registry
from protocol.errors import MalformedFrame
from protocol.framing import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from protocol.schema import registry
from protocol.varint import read_unsigned, write_unsigned

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (3, "0000001a 000c 0003 00000007 0001 63 0001 67 00000001 0001 6d ffff"),
        (4, "00000018 000c 0004 00000007 0001 63 00 02 67 00000001 02 6d 00 00"),
    ],
)
def test_request_headers_follow_the_version(version: int, wire: str) -> None:
    """G5: a flexible request has header version 2, with tags; the client id is never compact."""
    expected = bytes.fromhex(wire)
    written = b"".join(encode_request(HEARTBEAT, version, correlation_id=7, client_id="c"))
    assert written[4:] == expected[4:]
    assert int.from_bytes(written[:4], "big") == len(written) - 4
    header, position = decode_request_header(written[4:])
    assert header == RequestHeader(12, version, 7, "c")
    assert written[4:][position:].endswith(bytes.fromhex("0000") if version == 4 else b"\xff\xff")


@pytest.mark.parametrize("client_id", [None, "", "größe"])
def test_client_ids(client_id: str | None) -> None:
    frame = b"".join(encode_request(HEARTBEAT, 4, 1, client_id))[4:]
    assert decode_request_header(frame)[0].client_id == client_id


def test_a_client_id_need_not_be_utf_8() -> None:
    """Kafka takes it too: one in ISO-8859-1 would never get an answer. It is no longer than it came: it goes
    into the metadata of groups.
    """
    frame = bytes.fromhex("000c 0004 00000007 0004 636166e9 00") + b"body"
    header, position = decode_request_header(frame)
    assert header.client_id == "caf?"
    assert frame[position:] == b"body"
    assert decode_request_header(bytes.fromhex("000c 0004 00000007 0001 ff 00"))[0].client_id == "?"


def test_unknown_tags_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("000c 0004 00000007 ffff 02 05 03 616263 8001 00") + b"body"
    header, position = decode_request_header(frame)
    assert header.client_id is None
    assert frame[position:] == b"body"


def test_an_unknown_api_still_has_a_name_to_log() -> None:
    header, position = decode_request_header(bytes.fromhex("7fff 0063 00000001 0001 63") + b"rest")
    assert header == RequestHeader(0x7FFF, 99, 1, "c")
    assert position == 11
    assert header.api_key not in registry


@pytest.mark.parametrize(
    "wire",
    [
        "",
        "000c 0004 000000",
        "000c 0004 00000007 0005 63",
        "000c 0004 00000007 fffe",
        "000c 0004 00000007 fffe 00",
        "000c 0003 00000007 8000",
        "000c 0004 00000007 ffff",
        "000c 0004 00000007 ffff 01 00 05 61",
        "000c 0004 00000007 ffff ffffffffff",
    ],
)
def test_broken_request_headers_are_refused(wire: str) -> None:
    with pytest.raises(MalformedFrame):
        decode_request_header(bytes.fromhex(wire))


def test_response_headers_follow_the_version() -> None:
    """G5: a flexible response has header version 1, whose tags are one zero byte."""
    response = HeartbeatResponse(error_code=27)
    assert b"".join(encode_response(response, 3, 7)).hex(" ", -4) == "0000000a 00000007 00000000 001b"
    assert b"".join(encode_response(response, 4, 7)).hex(" ", -4) == "0000000c 00000007 00000000 00001b00"
    for version in (3, 4):
        frame = b"".join(encode_response(response, version, 7))[4:]
        assert decode_response(HeartbeatResponse, version, frame) == (7, response)


@pytest.mark.parametrize("version", range(5))
def test_the_answer_to_api_versions_has_no_tags_in_its_header(version: int) -> None:
    """G1: a client that does not know the broker yet reads header version 0, flexible or not."""
    response = ApiVersionsResponse(error_code=0)
    frame = b"".join(encode_response(response, version, 7))[4:]
    assert frame[:6] == bytes.fromhex("00000007 0000")
    assert decode_response(ApiVersionsResponse, version, frame) == (7, response)
    request = b"".join(encode_request(ApiVersionsRequest(), version, 7, None))[4:]
    assert request[8:].startswith(b"\xff\xff\x00" if version >= 3 else b"\xff\xff")


def test_an_unknown_version_of_api_versions_can_be_answered_in_version_0() -> None:
    """G1: its header is read as a flexible one, and the error stands in a body of version 0."""
    header, _ = decode_request_header(bytes.fromhex("0012 0063 00000001 0001 63 00") + b"whatever it is")
    assert (header.api_key, header.api_version) == (18, 99)
    api = ApiVersionsResponse.ApiVersion(api_key=18, max_version=4)
    answer = b"".join(encode_response(ApiVersionsResponse(error_code=35, api_keys=[api]), 0, 1))
    assert answer == bytes.fromhex("00000010 00000001 0023 00000001 0012 0000 0004")


@pytest.mark.parametrize("wire", ["", "000000", "00000007", "00000007 01", "00000007 00"])
def test_broken_response_frames_are_refused(wire: str) -> None:
    with pytest.raises(MalformedFrame):
        decode_response(HeartbeatResponse, 4, bytes.fromhex(wire))


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (2**14 - 1, "ff7f"),
        (2**14, "808001"),
        (2**21 - 1, "ffff7f"),
        (2**21, "80808001"),
        (127 << 21, "8080807f"),
        (2**28 - 1, "ffffff7f"),
        (2**28, "8080808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_varints_are_as_long_as_they_have_to_be(value: int, wire: str) -> None:
    assert write_unsigned(value).hex() == wire
    assert read_unsigned(bytes.fromhex("ff" + wire + "ff"), 1) == (value, 1 + len(wire) // 2)


@pytest.mark.parametrize("wire", ["8000", "80808000", "8080808010", "818080808000", "ffffffffff0f"])
def test_varints_that_lie_are_refused(wire: str) -> None:
    """Zero in more than one byte, what does not fit 32 bits, what is longer than five bytes."""
    with pytest.raises(MalformedFrame):
        read_unsigned(bytes.fromhex(wire), 0)
