"""Goal: generated code is made once, when first used, and can be looked at.

Method: the caches, the line cache and the printed source are inspected; a traceback is asked for its line.
"""

from __future__ import annotations

import ast
import linecache
import subprocess
import sys
import traceback

import pytest

from protocol import codegen
from protocol.errors import MalformedFrame, NotText, UnsupportedVersion
from protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from protocol.messages.internal import OffsetCommitKey
from protocol.messages.produce import ProduceRequest
from protocol.schema import data, int32, schema_of
from tests.protocol.messages import all_messages, all_versions


def test_a_codec_is_compiled_on_first_use_and_kept() -> None:
    @data(versions="0-1")
    class Fresh:
        number: int = int32()

    schema = schema_of(Fresh)
    assert (schema.decoders, schema.encoders) == ({}, {})
    assert codegen.decode(Fresh, 1, b"\x00\x00\x00\x05") == Fresh(number=5)
    decoder = schema.decoders[1]
    assert codegen.decode(Fresh, 1, b"\x00\x00\x00\x06") == Fresh(number=6)
    assert schema.decoders == {1: decoder}
    assert schema.encoders == {}
    assert codegen.encode(Fresh(number=5), 0) == [b"\x00\x00\x00\x05"]
    assert set(schema.encoders) == {0}


def test_an_unsupported_version_leaves_nothing_behind() -> None:
    for version in (-1, 5, 0x7FFF):
        with pytest.raises(UnsupportedVersion, match=r"HeartbeatRequest has versions 0-4, not"):
            codegen.decode(HeartbeatRequest, version, b"")
        with pytest.raises(UnsupportedVersion):
            codegen.encode(HeartbeatResponse(), version)
        assert version not in schema_of(HeartbeatRequest).decoders


def test_strings_of_requests_need_not_be_text() -> None:
    """As in Kafka, where Java puts U+FFFD for what it cannot read; other messages are malformed by it."""
    body = codegen.encode(HeartbeatRequest(group_id="Q?Q", generation_id=3, member_id="m"), 0)
    for _ in range(2):
        found = codegen.decode(HeartbeatRequest, 0, b"".join(body).replace(b"?", b"\xe9"))
        assert found == HeartbeatRequest(
            group_id="Q\N{REPLACEMENT CHARACTER}Q", generation_id=3, member_id="m"
        )
    with pytest.raises(MalformedFrame, match="HeartbeatRequest v0 takes 12 bytes of 11"):
        codegen.decode(HeartbeatRequest, 0, b"".join(body).replace(b"?", b"\xe9")[:-1])
    key = b"".join(codegen.encode(OffsetCommitKey(group="Q?Q", topic="t", partition=0), 1))
    with pytest.raises(NotText, match="OffsetCommitKey v1 has a string that is not UTF-8"):
        codegen.decode(OffsetCommitKey, 1, key.replace(b"?", b"\xe9"))


def test_a_traceback_shows_the_generated_line() -> None:
    with pytest.raises(MalformedFrame) as caught:
        codegen.decode(ProduceRequest, 9, b"\x00\x00")
    frames = traceback.extract_tb(caught.tb)
    assert frames[-1].filename == "<ProduceRequest v9 decode>"
    assert frames[-1].line == 'raise MalformedFrame("ProduceRequest v9 ends too early") from None'
    assert linecache.getline("<ProduceRequest v9 decode>", 1) == "def decode(data, position, elements):\n"


def test_fixed_width_neighbours_are_one_struct() -> None:
    source = codegen.encoder_source(HeartbeatResponse, 1).text()
    assert "pack_ih(message.throttle_time_ms, message.error_code)" in source
    decoder = codegen.decoder_source(ProduceRequest, 9).text()
    assert "acks, timeout_ms, topic_data_count = unpack_hiB(data, position)" in decoder


def test_generated_sources_name_only_what_they_are_given() -> None:
    """Every global name a generated function reads is in its namespace: no field can hide or miss one."""
    builtins = {"len", "list", "range", "memoryview", "sum", "map", "isinstance", "tuple"}
    for cls, version in all_versions():
        for make in (codegen.decoder_source, codegen.encoder_source):
            source = make(cls, version)
            tree = ast.parse(source.text())
            names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
            stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
            arguments = {argument.arg for argument in ast.walk(tree) if isinstance(argument, ast.arg)}
            loaded = {name.id for name in names if isinstance(name.ctx, ast.Load)}
            assert not stored & builtins, (cls, version)
            assert loaded <= stored | arguments | builtins | set(source.namespace), (cls, version)


def test_messages_are_found_by_name() -> None:
    for cls in all_messages():
        assert codegen.message_class(cls.__name__) is cls
    with pytest.raises(LookupError):
        codegen.message_class("Nothing")


def test_the_command_prints_a_codec() -> None:
    command = [sys.executable, "-m", "protocol.codegen"]
    printed = subprocess.run([*command, "OffsetCommitKey", "1", "decode"], capture_output=True, text=True)
    assert printed.returncode == 0
    assert printed.stdout == codegen.decoder_source(OffsetCommitKey, 1).text()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["ProduceRequest", "9", "encode"], 0),
        ([], 2),
        (["ProduceRequest", "9", "sideways"], 2),
        (["ProduceRequest", "2", "decode"], 1),
        (["ProduceRequest", "nine", "decode"], 1),
        (["Nothing", "1", "decode"], 1),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert codegen.main(arguments) == status
    captured = capsys.readouterr()
    assert bool(captured.err) == (status != 0)
    assert bool(captured.out) == (status == 0)
