"""Goal: a declaration means what it says, at run time and to a type checker.

Method: small messages are declared here and looked at; mypy is run over a snippet that uses real ones
wrongly.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from uuid import UUID

import pytest

from protocol.codegen import decode, encode
from protocol.errors import MalformedFrame
from protocol.schema import (
    NO_VERSIONS,
    ZERO_UUID,
    Versions,
    array,
    binary,
    boolean,
    data,
    int8,
    int16,
    int32,
    int64,
    optional,
    request,
    schema_of,
    string,
    struct,
    uuid,
)

ROOT = Path(__file__).resolve().parents[2]


@data(versions="0-3", flexible="2+")
class Everything:
    """One field of each kind."""

    @struct
    class Inner:
        number: int = int16()
        text: str | None = string("1+", nullable="1+", default=None)

    @struct
    class Hint:
        node_id: int = int32(default=-1)

    tiny: int = int8()
    flag: bool = boolean()
    large: int = int64("1+", default=-1)
    name: str = string()
    blob: bytes | None = binary(nullable="1+")
    topic_id: UUID = uuid("1+")
    numbers: list[int] = array(int32)
    names: list[str] | None = array(string, nullable="1+", default=None)
    inner: list[Inner] = array(Inner)
    ids: list[UUID] = array(uuid, "1+")
    cursor: Hint | None = optional(Hint, "3+", nullable="3+")
    epoch: int = int64("2+", tag=0, default=-1)
    hint: Hint | None = optional(Hint, "2+", tag=1)
    racks: list[str] = array(string, "3+", tag=2)


FULL = Everything(
    tiny=-1,
    flag=True,
    large=2**40,
    name="n",
    blob=b"b",
    topic_id=UUID(int=7),
    numbers=[1, -2],
    names=["x", ""],
    inner=[Everything.Inner(number=3, text="t"), Everything.Inner()],
    ids=[UUID(int=1), UUID(int=2)],
    cursor=Everything.Hint(node_id=4),
    epoch=9,
    hint=Everything.Hint(node_id=5),
    racks=["r"],
)


@pytest.mark.parametrize(
    ("text", "lowest", "highest"), [("3", 3, 3), ("3-5", 3, 5), ("3+", 3, 0x7FFF), ("0+", 0, 0x7FFF)]
)
def test_versions_are_kafkas_strings(text: str, lowest: int, highest: int) -> None:
    versions = Versions.parse(text)
    assert versions == (lowest, highest)
    assert str(versions) == text
    assert versions.has(lowest)
    assert versions.has(highest)
    assert not versions.has(lowest - 1)


def test_no_versions_hold_none() -> None:
    assert Versions.parse("none") == NO_VERSIONS
    assert str(NO_VERSIONS) == "none"
    assert not any(NO_VERSIONS.has(version) for version in range(0x8000))


def test_messages_are_equal_by_value_and_show_themselves() -> None:
    one, other = Everything.Inner(number=3, text="t"), Everything.Inner(number=3, text="t")
    assert one == other
    assert one != Everything.Inner(number=4, text="t")
    assert Everything.Hint() != Everything.Inner(), "of another class"
    assert repr(one) == "Everything.Inner(number=3, text='t')"
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_every_field_has_its_default() -> None:
    empty = Everything()
    assert (empty.tiny, empty.flag, empty.large, empty.name) == (0, False, -1, "")
    assert (empty.blob, empty.topic_id, empty.numbers, empty.names) == (b"", ZERO_UUID, [], None)
    assert (empty.cursor, empty.epoch, empty.hint, empty.racks) == (None, -1, None, [])
    assert Everything().numbers is not empty.numbers, "lists are not shared"
    assert not hasattr(empty, "__dict__")


def test_a_message_is_a_dataclass_whoever_asks_first() -> None:
    """Its class is completed by the first message, or by who asks for its fields."""

    @struct
    class Asked:
        names: list[str] = array(string)
        epoch: int = int32(default=-1)

    assert [one.name for one in dataclasses.fields(Asked)] == ["names", "epoch"]  # type: ignore[arg-type]
    one = Asked(epoch=1)
    assert dataclasses.replace(one, names=["a"]) == Asked(names=["a"], epoch=1)  # type: ignore[type-var]

    @struct
    class Made:
        """What it says."""

        epoch: int = int32(default=-1)

    with pytest.raises(TypeError, match=r"Made.__init__\(\) got an unexpected keyword argument 'other'"):
        Made(other=1)  # type: ignore[call-arg]
    assert dataclasses.asdict(Made(epoch=2)) == {"epoch": 2}  # type: ignore[call-overload]
    assert (Made.__doc__, Made.__module__) == ("What it says.", __name__)
    assert pickle.loads(pickle.dumps(Everything.Hint(node_id=1))) == Everything.Hint(node_id=1)
    assert copy.copy(Made(epoch=3)) == Made(epoch=3)


def test_fields_of_other_versions_are_left_out() -> None:
    read = [decode(Everything, version, b"".join(encode(FULL, version))) for version in range(4)]
    assert read[3] == FULL
    assert (read[2].cursor, read[2].racks, read[2].epoch, read[2].hint) == (None, [], 9, FULL.hint)
    assert (read[1].epoch, read[1].hint, read[1].large) == (-1, None, 2**40)
    assert (read[0].large, read[0].topic_id, read[0].ids) == (-1, ZERO_UUID, [])
    assert read[0].inner == [Everything.Inner(number=3), Everything.Inner()]


def test_null_and_empty_differ() -> None:
    """G31, where a version knows null; an older one refuses to write it."""
    for version in (1, 2, 3):
        for blob, names in ((None, []), (b"", None)):
            written = Everything(blob=blob, names=names)
            read = decode(Everything, version, b"".join(encode(written, version)))
            assert (read.blob, read.names) == (blob, names)
    with pytest.raises(TypeError):
        encode(Everything(blob=None, names=[]), 0)


def test_unknown_tags_are_skipped() -> None:
    """G31: between known tags, before and behind them."""
    wire = b"".join(encode(Everything(names=[]), 2))
    assert wire.endswith(b"\x00")
    tags = "05 00 08 0000000000000007 01 05 00000003 00 02 02 6869 7f 00 ffffffff0f 01 61"
    read = decode(Everything, 2, wire[:-1] + bytes.fromhex(tags))
    assert read == Everything(names=[], epoch=7, hint=Everything.Hint(node_id=3))


@pytest.mark.parametrize(
    "tags",
    [
        "01 00 07 00000000000007",
        "01 00 09 000000000000000700",
        "01 00 08 00000000000000",
        "01 05 05 61",
        "01",
        "7f",
        "01 05 ffffffffff",
        "ffffffff0f",
    ],
)
def test_broken_tags_are_refused(tags: str) -> None:
    wire = b"".join(encode(Everything(names=[]), 2))
    with pytest.raises(MalformedFrame):
        decode(Everything, 2, wire[:-1] + bytes.fromhex(tags))


def test_what_a_request_is() -> None:
    @request(key=9999, versions="1-2", flexible="2+", advertised="0-2")
    class LonelyRequest:
        """A request whose response nobody declared stays out of the registry."""

        acks: int = int16()

    schema = schema_of(LonelyRequest)
    assert (schema.key, schema.kind, str(schema.versions), str(schema.advertised)) == (
        9999,
        "request",
        "1-2",
        "0-2",
    )
    assert b"".join(encode(LonelyRequest(acks=1), 2)) == b"\x00\x01\x00"


SNIPPET = """
from protocol.codegen import decode
from protocol.messages.produce import ProduceRequest, ProduceResponse

Topic = ProduceRequest.TopicProduceData
good = ProduceRequest(acks=1, topic_data=[Topic(name="t", partition_data=[])])
part = Topic.PartitionProduceData(index=1, records=[b"one", memoryview(b"two")])
view: memoryview | None = part.records
read = decode(ProduceResponse, 9, b"")
time: int = read.responses[0].partition_responses[0].log_append_time_ms
ProduceRequest(acks="all")  # bad: a string
ProduceRequest(ack=1)  # bad: no such field
Topic.PartitionProduceData(records=7)  # bad: no bytes
good.topic_data = None  # bad: not nullable
text: str = read.throttle_time_ms  # bad: an integer
"""


@pytest.mark.slow
def test_a_type_checker_knows_every_field(tmp_path: Path) -> None:
    """mypy finds a fault in each line that says `bad`, and no other."""
    api = pytest.importorskip("mypy.api")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    output, _, _ = api.run(["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(snippet)])
    found = {
        int(line.split(":")[1])
        for line in output.splitlines()
        if "snippet.py:" in line and ": error:" in line
    }
    assert found == {number for number, line in enumerate(SNIPPET.splitlines(), 1) if "# bad" in line}, output
