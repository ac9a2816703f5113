"""Goal: `kompakt get` finds what a consumer would have seen last of a key, in the partition that clients
chose, and reads no segment that cannot hold it.

Method: librdkafka writes with each of its partitioners to a real broker process, and what it reports of each
record is compared; in the process, logs of random keys, codecs, transactions and cleanings are asked for
every key and compared with what a reader collects.
"""

from __future__ import annotations

import asyncio
import json
import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.cli import app
from broker.questions.keys import BadKey, decode_key, fnv1a, murmur2, partitions_for
from cleaner.cleaner import Cleaner
from cleaner.results import Range
from protocol.compression import Codec
from protocol.records import encode_batch
from storage import layout, sidecar, statistics
from storage.key_search import find_key
from storage.layout import TopicPartition
from tests.broker.test_questions import Asker, MakeWorld
from tests.process import BrokerProcess
from tests.storage.builders import NOW_MS, LogBuilder
from tests.thoroughness import slow
from tests.waiting import wait_for

runner = CliRunner()
START_MS = 1_700_000_000_000
PARTITIONERS = {"murmur2": "murmur2", "crc32": "consistent", "fnv1a": "fnv1a"}
PARTITIONS = 7


# The partition


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_own_test(key: bytes, value: int) -> None:
    assert murmur2(key) == value & 0x7FFFFFFF


def test_fnv1a_is_the_published_one() -> None:
    """0xe40c292c is negative as 32 bits, and 0x811c9dc5 (of nothing) as well: sarama takes what is left."""
    assert fnv1a(b"a") == 0x100000000 - 0xE40C292C
    assert fnv1a(b"") == 0x100000000 - 0x811C9DC5


def test_how_keys_may_be_written() -> None:
    assert decode_key("käse".encode(), "text") == "käse".encode()
    assert decode_key(b"\x00\xff", "text") == b"\x00\xff"
    assert decode_key(b"00ff", "hex") == b"\x00\xff"
    assert decode_key(b"AP8=", "base64") == b"\x00\xff"
    for text, encoding in (
        (b"0g", "hex"), (b"\xff", "hex"), (b"AP8", "base64"), (b"A P 8 =", "base64"), (b"\xff", "base64")
    ):  # fmt: skip
        with pytest.raises(BadKey):
            decode_key(text, encoding)


async def test_a_key_in_a_url_is_the_bytes_that_it_stands_for(make_world: MakeWorld) -> None:
    """Also where they are no UTF-8; `+` is a blank, as forms write it, and everything may be escaped."""
    asker = Asker(await make_world(http_port="0"))
    asker.world.topic("t")
    keys = (b"\x00\xff\x80bin", "käse".encode(), b"a b+c&d=e%41", b"")
    partition = asker.world.broker.partitions[TopicPartition("t", 0)]
    for number, key in enumerate(keys):
        partition.append(asker.world.batch((key, b"%d" % number)), asker.world.clock.now_ms())
    waited = partition.when_flushed(len(keys))
    if waited is not None:
        await waited
    for number, written in enumerate(
        ("key=%00%FF%80bin", "key=k%C3%A4se", "key=a+b%2Bc%26d%3De%2541", "history=0&%6bey=")
    ):
        url = f"http://127.0.0.1:{asker.world.broker.http.port}/api/topics/t/get?{written}"
        with await asyncio.to_thread(urllib.request.urlopen, url) as answer:  # which sends it as it is
            (version,) = json.loads(answer.read())["partitions"][0]["versions"]
        assert version["value"] == f"{number}"
    assert "?key=KEY" in (await asker.get("t/get", 400))["error"]


# The engine


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogBuilder]:
    builder = LogBuilder(
        tmp_path / "orders-2", segment_bytes=6000, cleanup_policy="compact", delete_retention_ms=1
    )
    yield builder
    builder.log.abandon()


def write(log: LogBuilder, rng: random.Random, batches: int, keys: int) -> None:
    for _ in range(batches):
        rows = [
            (
                NOW_MS + rng.randrange(1000),
                b"key-%d" % rng.randrange(keys),
                None if rng.random() < 0.1 else b"%d" % rng.randrange(10**9),
                (("h", b"1"),) if rng.random() < 0.1 else (),
            )
            for _ in range(rng.randrange(1, 40))
        ]
        log.log.append(encode_batch(rows, codec=rng.choice(list(Codec))), now_ms=NOW_MS)
    log.log.flush()


def clean(log: LogBuilder, after_ms: int = 10_000) -> None:
    end = log.log.segments[-1].base_offset
    Cleaner(map_bytes=1 << 20, load_factor=0.9, run_on_owner=lambda function: function()).clean(
        log.log, Range(0, end), NOW_MS + after_ms
    )


@pytest.mark.parametrize("seed", [0, 1, *map(slow, range(2, 6))])
def test_every_key_is_answered_as_a_reader_sees_it(log: LogBuilder, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        write(log, rng, 60, 300)
        if rng.random() < 0.7:
            clean(log)
        records = log.records()
        for number in range(300):
            key = b"key-%d" % number
            expected = [record for record in reversed(records) if record.key == key]
            latest = find_key(log.log, key)
            assert latest.versions == expected[:1]
            assert find_key(log.log, key, history=True).versions == expected
            assert latest.problems == []


def test_only_segments_that_may_hold_the_key_are_read(log: LogBuilder) -> None:
    for number in range(3000):
        log.append(b"v", key=b"key-%d" % number)
    log.log.roll(NOW_MS)
    log.log.flush()
    log.append(b"v", key=b"last")
    log.log.flush()
    segments = len(log.log.segments)
    assert segments > 20
    found = find_key(log.log, b"key-5")
    assert [record.offset for record in found.versions] == [5]
    assert found.segments == segments
    assert found.ruled_out >= segments - 4
    never = find_key(log.log, b"never", history=True)
    assert (never.versions, never.ruled_out >= segments - 4) == ([], True)
    assert never.bytes_read < log.log.size_bytes / 4
    first = find_key(log.log, b"last")
    assert (first.segments, first.ruled_out) == (1, 0)


def test_what_is_undecided_or_aborted_is_not_there(log: LogBuilder) -> None:
    """A reader with read_committed sees the committed value only, and so does who asks."""
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    log.append(b"old", key=b"k")
    log.append(b"aborted", key=b"k", base_sequence=0, **producer)
    log.end_transaction(7, is_commit=False)
    log.append(b"committed", key=b"k", base_sequence=1, **producer)
    log.end_transaction(7, is_commit=True)
    log.append(b"open", key=b"k", base_sequence=2, **producer)
    log.log.flush()
    found = find_key(log.log, b"k", history=True)
    assert [record.value for record in found.versions] == [b"committed", b"old"]
    log.end_transaction(7, is_commit=True)
    log.log.flush()
    assert [record.value for record in find_key(log.log, b"k").versions] == [b"open"]


def test_records_before_the_log_start_are_not_there(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path / "orders-2", cleanup_policy="delete")
    log.append(b"one", key=b"k")
    log.append(b"two", key=b"other")
    log.log.flush()
    log.log.delete_records(1)
    assert find_key(log.log, b"k").versions == []
    log.log.abandon()


def test_a_damaged_filter_is_made_anew_and_denies_nothing(log: LogBuilder) -> None:
    log.append(b"v", key=b"k")
    log.log.roll(NOW_MS)
    log.log.flush()
    segment = log.log.segments[0]
    found, blocks = statistics.build(segment)
    path = sidecar.path_of(segment)
    path.write_bytes(found.encode_head() + bytes(len(blocks)))
    assert [record.value for record in find_key(log.log, b"k").versions] == [b"v"]
    assert path.read_bytes() == found.encode_head() + blocks


def test_a_damaged_segment_is_told_and_older_ones_are_still_read(log: LogBuilder) -> None:
    log.append(b"old", key=b"k")
    log.log.roll(NOW_MS)
    log.append(b"new", key=b"k")
    log.log.flush()
    with log.log.segments[-1].file.path.open("r+b") as file:
        file.seek(70)
        file.write(b"!")
    found = find_key(log.log, b"k")
    assert [record.value for record in found.versions] == [b"old"]
    assert "damaged at position 0" in found.problems[0]


def test_the_most_versions_are_the_newest(log: LogBuilder) -> None:
    for number in range(9):
        log.append(b"%d" % number, key=b"k")
    log.log.flush()
    found = find_key(log.log, b"k", history=True, most=3)
    assert ([record.value for record in found.versions], found.is_cut) == ([b"8", b"7", b"6"], True)
    assert not find_key(log.log, b"k", history=True, most=9).is_cut


def test_versions_end_before_they_are_too_large_for_memory(log: LogBuilder) -> None:
    """The newest is there, however large. Whoever erases needs all of them, and none of their values."""
    for number in range(9):
        log.append(bytes([number]) * 1000, key=b"k")
    log.append(None, key=b"k")
    log.log.flush()
    found = find_key(log.log, b"k", history=True, most_bytes=3999)
    assert ([record.offset for record in found.versions], found.is_cut) == ([9, 8, 7, 6], True)
    found = find_key(log.log, b"k", history=True, most_bytes=9000)
    assert (len(found.versions), found.is_cut) == (10, False)
    newest = find_key(log.log, b"k", history=True, most_bytes=0)
    assert ([record.offset for record in newest.versions], newest.is_cut) == ([9], True)
    bare = find_key(log.log, b"k", history=True, bare=True)
    assert [record.value for record in bare.versions] == [None, *[b""] * 9]


# The command


class Told:
    """Where librdkafka says that each record went."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, bytes], tuple[int, int]] = {}

    def __call__(self, error: object, message: Any) -> None:
        assert error is None
        self.places[message.topic(), message.key()] = (message.partition(), message.offset())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Told]]:
    """A broker; topics named after partitioners hold 40 keys twice, t and cleaned values of all kinds."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("keys") / "data", {"log.cleaner.backoff.ms": "100000000"}
    ).start()
    process.wait_until_ready()
    settings = {"bootstrap.servers": process.bootstrap}
    new = [NewTopic(name, PARTITIONS) for name in PARTITIONERS]
    new += [NewTopic(name, 1, config={"cleanup.policy": "compact"}) for name in ("t", "cleaned", "told")]
    admin = AdminClient(settings)
    for made in admin.create_topics(new).values():
        made.result(60)
    told = Told()
    for topic, partitioner in PARTITIONERS.items():
        producer = Producer({**settings, "partitioner": partitioner})
        for turn in range(2):
            for number in range(40):
                producer.produce(topic, f"{turn}", f"key-{number}", on_delivery=told)
        assert producer.flush(60) == 0
    producer = Producer(settings)
    for key, value in (
        ("k", "one"), ("k", "two"), ("gone", "x"), ("gone", None), (b"\x00\xff", b"\xfe\x00"), ("", "empty")
    ):  # fmt: skip
        for name in ("t", "cleaned"):
            producer.produce(name, value, key, timestamp=START_MS, headers=[("trace", b"7")])
    producer.produce("told", "v", "k", timestamp=START_MS, headers=[("a\x1b[2J\n\x9bb", b"\x1b[31m\nc")])
    assert producer.flush(60) == 0
    yield process, told
    process.close()


def run(served: tuple[BrokerProcess, Told], *arguments: str) -> tuple[int, bytes, str]:
    result = runner.invoke(app, ["get", *arguments, "--http", f"127.0.0.1:{served[0].http_port}"])
    return result.exit_code, result.stdout_bytes, result.stderr


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_s16_the_partition_is_the_one_that_the_client_chose(
    served: tuple[BrokerProcess, Told], partitioner: str
) -> None:
    """librdkafka's own choice of all three, for each of 40 keys; one of them asked for."""
    for number in range(40):
        key = b"key-%d" % number
        partition, offset = served[1].places[partitioner, key]
        assert partitions_for(key, partitioner, PARTITIONS) == [partition]
    status, value, where = run(served, partitioner, "key-39", "--partitioner", partitioner)
    assert (status, value) == (0, b"1")
    assert where.startswith(f"{partitioner}-{partition} offset {offset}, ")
    assert run(served, partitioner, "key-39")[1] == b"1"


def test_the_latest_value_byte_for_byte(served: tuple[BrokerProcess, Told]) -> None:
    status, value, where = run(served, "t", "k")
    assert (status, value) == (0, b"two")
    assert where == "t-0 offset 1, 2023-11-14 22:13:20 UTC, trace=7\n"
    for arguments in (("00ff", "--hex"), ("AP8=", "--base64")):
        assert run(served, "t", *arguments)[:2] == (0, b"\xfe\x00")
    assert run(served, "t", "")[1] == b"empty"


def test_nothing_that_a_client_wrote_moves_the_cursor(served: tuple[BrokerProcess, Told]) -> None:
    """Names of headers are a client's words, as their values are."""
    told = "a\\x1b[2J\\n\\x9bb=\\x1b[31m\\nc"
    assert run(served, "told", "k")[2] == f"told-0 offset 0, 2023-11-14 22:13:20 UTC, {told}\n"
    assert run(served, "told", "k", "--history")[1].decode().rstrip().endswith(told)


def test_a_deleted_key_and_one_never_seen(served: tuple[BrokerProcess, Told]) -> None:
    status, value, where = run(served, "t", "gone")
    assert (status, value) == (0, b"")
    assert "t-0 offset 3" in where
    assert "deleted, by a tombstone" in where
    status, value, where = run(served, "t", "never")
    assert (status, value) == (1, b"")
    assert "no record of t has the key never" in where


def test_the_history_and_its_json(served: tuple[BrokerProcess, Told]) -> None:
    status, output, _ = run(served, "t", "gone", "--history")
    lines = output.decode().splitlines()[2:]
    assert status == 0
    assert ["deleted" in line for line in lines] == [True, False]
    assert all("trace=7" in line for line in lines)
    answer = json.loads(run(served, "t", "00ff", "--hex", "--history", "--json")[1])["partitions"][0]
    assert answer["versions"] == [
        {
            "offset": 4, "timestamp": START_MS, "is_tombstone": False, "value": None, "value_base64": "/gA=",
            "headers": [{"key": "trace", "value": "7", "value_base64": "Nw=="}],
        }
    ]  # fmt: skip
    assert (answer["segments"], answer["problems"]) == (1, [])


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("none", "k"), 2, "there is no topic none"),
        (("t", "zz", "--hex"), 2, "no hex"),
        (("t", "***", "--base64"), 2, "no base64"),
        (("t", "k", "--partitioner", "md5"), 2, "no partitioner"),
        (("t", "k", "--hex", "--base64"), 2, "either"),
    ],
)
def test_bad_questions_are_one_line(
    served: tuple[BrokerProcess, Told], arguments: tuple[str, ...], status: int, words: str
) -> None:
    got, output, errors = run(served, *arguments)
    assert (got, output) == (status, b"")
    assert words in errors
    assert len(errors.splitlines()) == 1


def test_statistics_follow_a_cleaning(served: tuple[BrokerProcess, Told]) -> None:
    """They are written soon after the roll without being asked for, and belong to the cleaned segment."""
    process = served[0]
    directory = process.data / "cleaned-0"
    where = ("--http", f"127.0.0.1:{process.http_port}")
    assert runner.invoke(app, ["topics", "compact", "cleaned", "--roll", *where]).exit_code == 0
    path = directory / layout.segment_file_name(0, layout.STATISTICS_SUFFIX)
    wait_for(lambda: path.exists() and sidecar.decode(path.read_bytes())[0].records == 4, "the statistics")
    told = json.loads(runner.invoke(app, ["topics", "segments", "cleaned", "--json", *where]).stdout)
    row = told["partitions"][0]["segments"][0]
    assert (row["records"], row["live_keys"], row["holes"]) == (4, 4, 2)
    assert row["tombstones"]["armed"] == 1
    assert row["tombstones"]["armed_until_ms"] > START_MS
    shown = runner.invoke(app, ["topics", "segments", "cleaned", *where]).stdout
    assert "1 armed until" in shown
