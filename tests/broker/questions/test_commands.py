"""Goal: what is in a topic, who reads it and how the broker is can be asked from a shell, all of it, and
nothing that a client wrote reaches the terminal as anything but text.

Method: a real broker process that librdkafka writes to and commits at; each command is run as a user runs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.cli import app
from tests.process import BrokerProcess

START_MS = 1_700_000_000_000
START = "2023-11-14 22:13:20"
RECORDS = 2300
EVIL = "\x1b[2Jevil\nline"
runner = CliRunner()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """many: 2,300 keys, of which one is deleted; odd: what is no text; payments: an aborted transaction."""
    # Retention would take records of such an age where the tests last longer than its first pause.
    settings = {"log.cleaner.backoff.ms": "100000000", "log.retention.ms": "-1"}
    process = BrokerProcess(tmp_path_factory.mktemp("commands") / "data", settings).start()
    try:
        process.wait_until_ready()
        fill(process)
        yield process
    finally:
        process.close()


def fill(process: BrokerProcess) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": process.bootstrap}
    admin = AdminClient(settings)
    new = [NewTopic(name, 1, config={"cleanup.policy": "compact"}) for name in ("many", "people", "others")]
    new += [NewTopic("odd", 1), NewTopic("payments", 1), NewTopic("_schemas", 1)]
    for made in admin.create_topics(new).values():
        made.result(60)
    producer = Producer(settings)
    for number in range(RECORDS):
        producer.produce("many", f"v{number}", f"k{number:04}", timestamp=START_MS + number)
    producer.produce("many", None, "k0007", timestamp=START_MS + RECORDS)
    for number, key in enumerate(("alice", "bob", "alice")):
        producer.produce("people", f"secret {number}", key, timestamp=START_MS)
    producer.produce("odd", b"\xff\x00", EVIL, timestamp=START_MS, headers=[(EVIL, EVIL)])
    producer.produce("odd", "long" * 100, None, timestamp=START_MS)
    assert producer.flush(60) == 0
    paying = Producer({**settings, "transactional.id": EVIL})
    paying.init_transactions(60)
    for end in (paying.commit_transaction, paying.abort_transaction):
        paying.begin_transaction()
        paying.produce("payments", "paid", "k", timestamp=START_MS)
        assert paying.flush(60) == 0
        end(60)
    for group in ("readers", EVIL):
        consumer = Consumer({**settings, "group.id": group})
        consumer.commit(offsets=[TopicPartition("many", 0, 300)], asynchronous=False)
        consumer.close()


def run(served: BrokerProcess, *arguments: str, status: int = 0) -> str:
    result = runner.invoke(app, [*arguments, "--http", f"127.0.0.1:{served.http_port}"])
    assert result.exit_code == status, result.output
    assert "\x1b" not in result.output
    return result.stdout if status == 0 else result.output


def cells(output: str) -> list[list[str]]:
    """The rows of a table, below its line."""
    lines = output.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("──")) + 1
    return [
        [one.strip() for one in line.split("   ") if one.strip()] for line in lines[begin:] if line.strip()
    ]


# The table


def test_a_table_in_part_and_whole(served: BrokerProcess) -> None:
    output = run(served, "topics", "table", "many", "--limit", "3")
    assert [row[:3] for row in cells(output)[:3]] == [[f"k000{n}", f"v{n}", "many-0"] for n in range(3)]
    assert "There are more" in output
    whole = cells(run(served, "topics", "table", "many", "--limit", "10000"))
    assert [row[0] for row in whole] == [f"k{n:04}" for n in range(RECORDS) if n != 7]
    assert len(cells(run(served, "topics", "table", "many", "--limit", "1500"))) == 1500 + 1
    assert [
        row[:2] for row in cells(run(served, "topics", "table", "many", "--prefix", "k0007", "--tombstones"))
    ] == [["k0007", "deleted"]]
    assert run(served, "topics", "table", "many", "--prefix", "k0007") == "No key is there.\n"
    as_of = json.loads(run(served, "topics", "table", "many", "--partition", "0", "--offset", "9", "--json"))
    assert [row["key"] for row in as_of["rows"]] == [f"k000{n}" for n in range(9)]


def test_the_limit_of_a_table_counts_keys(served: BrokerProcess) -> None:
    """As the pages of the broker do: no row of a key is left out between two of them."""
    run(served, "topics", "create", "grown", "--partitions", "2")
    producer = Producer({"bootstrap.servers": served.bootstrap})
    for number in range(6):
        producer.produce("grown", f"v{number}", f"k{number // 2}", number % 2, timestamp=START_MS)
    producer.produce("grown", None, "k1", 0, timestamp=START_MS)
    assert producer.flush(60) == 0
    rows = [["k0", "v0", "grown-0"], ["k0", "v1", "grown-1"], ["k1", "v3", "grown-1"],
            ["k2", "v4", "grown-0"], ["k2", "v5", "grown-1"]]  # fmt: skip
    for limit, shown in ((1, 2), (2, 3), (3, 5), (4, 5)):
        output = run(served, "topics", "table", "grown", "--limit", str(limit))
        assert [row[:3] for row in cells(output)][:shown] == rows[:shown]
        assert ("There are more" in output) == (limit < 3)
        told = json.loads(run(served, "topics", "table", "grown", "--limit", str(limit), "--json"))
        assert (told["keys"], len(told["rows"])) == (min(limit, 3), shown)
    run(served, "topics", "delete", "grown")


def test_what_is_no_text_and_what_would_move_the_cursor(served: BrokerProcess) -> None:
    ((key, value, place, *_),) = cells(run(served, "topics", "table", "odd"))
    assert (key, value, place) == ("\\x1b[2Jevil\\nline", "0xff00", "odd-0")
    first, second = cells(run(served, "topics", "records", "odd", "0"))
    assert first[1:] == [
        f"{START} UTC",
        "\\x1b[2Jevil\\nline",
        "0xff00",
        "\\x1b[2Jevil\\nline=\\x1b[2Jevil\\nline",
    ]
    assert second[2:] == ["–", "long" * 14 + "lon…", "–"]


# Records


def test_records_from_a_place_on_or_the_last(served: BrokerProcess) -> None:
    def offsets(*arguments: str) -> list[int]:
        rows = cells(run(served, "topics", "records", "many", "0", *arguments))
        return [int(row[0].replace(" ", "")) for row in rows]

    assert offsets("--limit", "2") == [RECORDS - 1, RECORDS]
    assert offsets("--offset", "5", "--limit", "2") == [5, 6]
    assert offsets("--offset", "700", "--limit", "1200") == list(range(700, 1900))
    assert offsets("--limit", "1700") == list(range(RECORDS - 1699, RECORDS + 1))
    assert offsets("--contains", "k0007") == [7, RECORDS]
    assert offsets("--limit", "0") == list(range(RECORDS + 1))
    assert offsets("--time", f"{START_MS + 2298}") == [2298, 2299, 2300]
    assert offsets("--time", "2023-11-14T22:13:22.299") == [2299, 2300]
    assert offsets("--offset", "0", "--contains", "k0007") == [7, RECORDS]
    assert "No record is there." in run(served, "topics", "records", "many", "0", "--offset", "99999")
    assert "either" in run(served, "topics", "records", "many", "0", "--offset", "1", "--time", "1", status=2)


def test_markers_and_what_was_aborted(served: BrokerProcess) -> None:
    assert len(cells(run(served, "topics", "records", "payments", "0"))) == 1
    rows = cells(run(served, "topics", "records", "payments", "0", "--hidden"))
    assert [row[-1] for row in rows] == ["–", "marker: commit", "aborted", "marker: abort"]


def test_arguments_that_are_no_text(served: BrokerProcess) -> None:
    """A shell takes any bytes, and so do keys; names are text."""
    odd = b"\xff\x00".decode(errors="surrogateescape")[:1]
    assert [row[2] for row in cells(run(served, "topics", "records", "odd", "0", "--contains", odd))] == [
        "\\x1b[2Jevil\\nline"
    ]
    assert "No key" in run(served, "topics", "table", "many", "--prefix", odd)
    assert "the group is no UTF-8" in run(served, "groups", "show", odd, status=2)
    assert "with --hex" in run(served, "topics", "erase", "people", odd, status=2)


# At a glance


def test_topics_in_one_line_each(served: BrokerProcess) -> None:
    rows = {row[0]: row for row in cells(run(served, "topics", "list"))}
    assert list(rows) == ["_schemas", "many", "odd", "others", "payments", "people"]
    assert rows["many"][1:4] == ["compact", "1", "2 301"]
    assert rows["many"][-1] == "all that is dirty is in the active segment"
    assert "loses data" in rows["_schemas"][-1]
    assert rows["odd"][-1] == "not compacted"
    assert "__kompakt_metadata" in run(served, "topics", "list", "--internal")


def test_how_the_broker_is(served: BrokerProcess) -> None:
    output = run(served, "status")
    assert f"PLAINTEXT on 127.0.0.1:{served.port}" in output
    assert f"disk {served.data}: " in output
    assert "1 of 1 threads at work" in output
    assert "6 topics" in output


def test_groups_where_they_stand_and_their_reset(served: BrokerProcess) -> None:
    rows = {row[0]: row for row in cells(run(served, "groups", "list"))}
    assert rows["readers"] == ["readers", "classic", "Empty", "0", "many", "2 001"]
    assert rows["\\x1b[2Jevil\\nline"][1] == "classic"
    output = run(served, "groups", "show", "readers")
    assert output.startswith("readers: Empty, classic protocol")
    assert cells(output)[0][:5] == ["many-0", "300", "2 301", "2 001", "2 001"]
    assert "\\x1b[2Jevil" in run(served, "groups", "show", EVIL)
    preview = run(served, "groups", "reset", "readers", "many", "--to", "2023-11-14T22:13:21", "--dry-run")
    assert cells(preview)[0] == ["many-0", "300", "1 000"]
    assert "nothing was changed" in preview
    for to, offset in (("earliest", "0"), ("latest", "2 301"), ("17", "17")):
        assert cells(run(served, "groups", "reset", "readers", "many", "--to", to))[0][2] == offset
        assert cells(run(served, "groups", "show", "readers"))[0][1] == offset
    run(served, "groups", "reset", "readers", "many", "--to", "300", "--partition", "0")
    assert "earliest, latest" in run(served, "groups", "reset", "readers", "many", "--to", "soon", status=2)
    assert "no group nosuch" in run(served, "groups", "reset", "nosuch", "many", "--to", "latest", status=1)
    assert "no group nosuch" in run(served, "groups", "show", "nosuch", status=1)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own: the topics of the other one are counted."""
    process = BrokerProcess(tmp_path / "data").start()
    try:
        process.wait_until_ready()
        yield process
    finally:
        process.close()


def test_a_reset_tells_that_an_offset_is_not_there(fresh: BrokerProcess) -> None:
    """As Kafka's tool warns of it: the group then begins at the start or the end."""
    settings: dict[str, Any] = {"bootstrap.servers": fresh.bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("headless", 1)])["headless"].result(60)
    producer = Producer(settings)
    for _ in range(5):
        producer.produce("headless", b"v", partition=0)
    assert producer.flush(60) == 0
    deleted = admin.delete_records([TopicPartition("headless", 0, 2)])
    assert [one.result(60).low_watermark for one in deleted.values()] == [2]
    consumer = Consumer({**settings, "group.id": "strangers"})
    consumer.commit(offsets=[TopicPartition("headless", 0, 3)], asynchronous=False)
    consumer.close()
    for to, told in (
        ("0", ["2", "0 is deleted: the start"]), ("2", ["2"]), ("5", ["5"]), ("latest", ["5"]),
        ("6", ["5", "6 is beyond the end: the end"]), ("2001-01-01", ["2"]),
    ):  # fmt: skip
        output = run(fresh, "groups", "reset", "strangers", "headless", "--to", to, "--dry-run")
        assert cells(output)[0][2:] == told


def test_transactions(served: BrokerProcess) -> None:
    output = run(served, "transactions")
    assert "No transaction is open." in output
    assert ["\\x1b[2Jevil\\nline", "CompleteAbort"] in [row[:2] for row in cells(output)]


def test_times_before_1970(served: BrokerProcess) -> None:
    """All that is there came later."""
    asked = ("many", "0", "--time", "1960-01-01")
    first = json.loads(run(served, "topics", "records", *asked, "--limit", "1", "--json"))
    assert [row["offset"] for row in first["records"]] == [0]
    assert "offset 0" in run(served, "read", "explain", *asked)


# Erasing


def test_w11_a_key_is_erased_and_a_receipt_says_so(served: BrokerProcess) -> None:
    output = run(served, "topics", "erase", "people", "alice")
    lines = output.splitlines()
    assert lines[0] == "people-0: no file holds a value of the key; the last of 2 stood at offset 2."
    assert re.fullmatch(r"    files that were replaced are removed at \d{4}-.* UTC", lines[1])
    assert re.fullmatch(
        r"    its tombstone, offset 3, is left: a cleaning from .* UTC on removes it", lines[2]
    )
    assert [row[:2] for row in cells(run(served, "topics", "table", "people"))] == [["bob", "secret 1"]]
    again = json.loads(run(served, "topics", "erase", "people", "616c696365", "--hex", "--json"))
    assert (again["partitions"][0]["is_erased"], again["partitions"][0]["values"]) == (True, 0)
    assert "no file holds" in run(served, "topics", "erase", "people", "YWxpY2U=", "--base64")
    assert run(served, "topics", "erase", "people", EVIL) == (
        "people has no record of the key \\x1b[2Jevil\\nline.\n"
    )
    assert "is delete" in run(served, "topics", "erase", "payments", "k", status=1)
    assert "no hex" in run(served, "topics", "erase", "people", "x", "--hex", status=2)
    assert "either" in run(served, "topics", "erase", "people", "00", "--hex", "--base64", status=2)


def test_w11_what_is_not_erased_is_an_exit_status(served: BrokerProcess) -> None:
    """An open transaction behind the value keeps it where it is."""
    settings = {"bootstrap.servers": served.bootstrap}
    producer = Producer(settings)
    producer.produce("others", "decided", "bob")
    assert producer.flush(60) == 0
    open_one = Producer({**settings, "transactional.id": "open"})
    open_one.init_transactions(60)
    open_one.begin_transaction()
    open_one.produce("others", "undecided", "bob")
    assert open_one.flush(60) == 0
    output = run(served, "topics", "erase", "others", "bob", status=1)
    first, second, *_ = output.splitlines()
    assert first.startswith("others-0: not erased: Held back by the open transaction of producer ")
    assert "aborted at" in first
    assert second == "    values at offsets 0, 1 are left"
    open_one.abort_transaction(60)
    assert "no file holds a value" in run(served, "topics", "erase", "others", "bob")
