"""Goal: `kompakt topics ...` and `kompakt read ...` ask a running broker and say readably what it answers.

Method: one real broker process with a topic whose records are known; the commands are run as a user runs
them, their words and their JSON compared with what was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.cli import app
from broker.cli.tables import cell, removed_words
from broker.questions.words import duration, moment, size
from tests.process import BrokerProcess, free_port
from tests.waiting import wait_for

runner = CliRunner()
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose own cleaner sleeps, and topic t: ten values for each of ten keys, one a second."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("questions") / "data", {"log.cleaner.backoff.ms": "100000000"}
    ).start()
    wait_for(lambda: "kompakt is ready" in process.log(), "its HTTP listener")
    settings = {"bootstrap.servers": process.bootstrap}
    admin = AdminClient(settings)
    for made in admin.create_topics(
        [NewTopic("t", 1, config={"cleanup.policy": "compact"}), NewTopic("plain", 1)]
    ).values():
        made.result(60)
    producer = Producer(settings)
    for index in range(100):
        producer.produce("t", f"v{index}", f"k{index % 10}", timestamp=START_MS + index * 1000)
    assert producer.flush(60) == 0
    yield process
    process.close()


def run(served: BrokerProcess, *arguments: str) -> tuple[int, str, str]:
    result = runner.invoke(app, [*arguments, "--http", f"127.0.0.1:{served.http_port}"])
    return result.exit_code, result.stdout, result.stderr


def run_json(served: BrokerProcess, *arguments: str) -> dict[str, Any]:
    status, output, errors = run(served, *arguments, "--json")
    assert status == 0, errors
    answer: dict[str, Any] = json.loads(output)
    return answer


def test_the_way_from_the_question_to_the_history(served: BrokerProcess) -> None:
    status, output, _ = run(served, "topics", "explain", "t")
    assert status == 0
    assert output.startswith("t-0: All that is dirty is in the active segment")
    assert "clean / cleanable / active" in output

    status, output, _ = run(served, "topics", "compact", "t", "--dry-run")
    assert status == 0
    assert "nothing was written" in output
    assert "active segment" in output

    status, output, _ = run(served, "topics", "compact", "t", "--roll", "--partition", "0")
    assert status == 0
    assert "100 → 10" in output
    assert "90 superseded" in output

    status, output, _ = run(served, "topics", "history", "t")
    assert status == 0
    assert "0 to 100" in output
    assert "asked for" in output

    status, output, _ = run(served, "topics", "segments", "t")
    assert status == 0
    assert "clean" in output
    assert "active" in output

    run_of = run_json(served, "topics", "history", "t")["partitions"][0]["runs"][-1]
    assert (run_of["records_before"], run_of["records_after"]) == (100, 10)
    rows = run_json(served, "topics", "segments", "t", "--partition", "0")["partitions"][0]["segments"]
    assert (rows[0]["records"], rows[0]["holes"]) == (10, 90)
    explained = run_json(served, "topics", "explain", "t", "--dry-run")["partitions"][0]
    assert explained["reason"] == "nothing_dirty"
    assert explained["dry_run"]["records_after"] == 10


def test_how_a_read_finds_its_place(served: BrokerProcess) -> None:
    status, output, _ = run(served, "read", "explain", "t", "0", "95")
    assert status == 0
    assert [line[:2] for line in output.splitlines()[:5]] == ["1.", "2.", "3.", "4.", "5."]
    status, output, _ = run(served, "read", "explain", "t", "0", "--time", "2023-11-14T22:14:59")
    assert status == 0
    assert "the first record at or after it has offset 99" in output
    assert run_json(served, "read", "explain", "t", "0", "--time", str(START_MS + 99_000))["offset"] == 99
    status, _, errors = run(served, "read", "explain", "t", "0", "1000")
    assert (status, "ends at 100" in errors) == (1, True)
    for bad in ([], ["1", "--time", "1"], ["--time", "soon"]):
        assert run(served, "read", "explain", "t", "0", *bad)[0] == 2


def test_refusals_are_one_line(served: BrokerProcess) -> None:
    for arguments, status, words in (
        (("topics", "explain", "none"), 1, "there is no topic none"),
        (("topics", "compact", "plain"), 1, "cleanup.policy is delete"),
        (("topics", "compact", "t", "--set", "a=b"), 2, "--dry-run"),
        (("topics", "compact", "t", "--dry-run", "--set", "a"), 2, "KEY=VALUE"),
        (("topics", "compact", "t", "--dry-run", "--set", "no.such=1"), 1, "no.such"),
        (("topics", "history", "t", "--partition", "5"), 1, "none is 5"),
    ):
        got, output, errors = run(served, *arguments)
        assert (got, output) == (status, ""), errors
        assert words in errors
        assert len(errors.splitlines()) == 1
        assert errors.startswith("kompakt: ")


def test_no_broker_is_status_2() -> None:
    for where in (f"127.0.0.1:{free_port()}", "not a place"):
        result = runner.invoke(app, ["topics", "explain", "t", "--http", where])
        assert result.exit_code == 2
        assert result.stderr.startswith("kompakt: no broker answers at ")


def test_words() -> None:
    assert [size(n) for n in (0, 999, 1500, 2_500_000)] == ["0 bytes", "999 bytes", "1.5 kB", "2.5 MB"]
    assert [duration(n) for n in (5, 90_000, 7_200_000)] == ["5 ms", "90 s", "2 h"]
    assert moment(START_MS) == "2023-11-14 22:13:20 UTC"
    assert moment(2**63 - 1) == f"{2**63 - 1} ms"
    assert (cell(1234567), cell(None), cell("a")) == ("1 234 567", "–", "a")
    assert removed_words({"superseded": 0}) == "nothing"


def test_a_partition_that_could_not_be_cleaned_is_status_1(served: BrokerProcess) -> None:
    """A damaged segment is named, and the topic explains itself with it afterwards."""
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    admin.create_topics([NewTopic("bad", 1, config={"cleanup.policy": "compact"})])["bad"].result(60)
    producer = Producer({"bootstrap.servers": served.bootstrap})
    producer.produce("bad", "v", "k")
    assert producer.flush(60) == 0
    path = served.data / "bad-0" / "00000000000000000000.log"
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(content) - 1)
        file.write(bytes([content[-1] ^ 1]))
    status, output, _ = run(served, "topics", "compact", "bad", "--roll")
    assert status == 1
    assert "bad-0 was not cleaned" in output
    assert "It cannot be cleaned since" in run(served, "topics", "explain", "bad")[1]
