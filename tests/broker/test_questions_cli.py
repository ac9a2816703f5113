"""Goal: `kompakt topics ...` and `kompakt read ...` ask a running broker and say readably what it answers.

Method: one real broker process with a topic whose records are known; the commands are run as a user runs
them, their words and their JSON compared with what was written. A table of all questions holds each command's
`--json` against its endpoint; the bar of a running compaction is read from a terminal.
"""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from aiohttp import web
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker.cli import app
from broker.cli.asking import DEFAULT_HTTP, default_http
from broker.cli.tables import cell, console, removed_words, table
from broker.http.server import Api
from broker.questions.words import duration, moment, size
from tests.process import BrokerProcess, free_port

runner = CliRunner()
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose own cleaner sleeps, and topic t: ten values for each of ten keys, one a second."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("questions") / "data", {"log.cleaner.backoff.ms": "100000000"}
    ).start()
    process.wait_until_ready()
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
    for bad in ([], ["1", "--time", "1"], ["--time", "soon"], ["--time", "9" * 20], ["9" * 20]):
        assert run(served, "read", "explain", "t", "0", *bad)[0] == 2


def test_refusals_are_one_line(served: BrokerProcess) -> None:
    for arguments, status, words in (
        (("topics", "explain", "none"), 1, "there is no topic none"),
        (("topics", "compact", "plain"), 1, "cleanup.policy is delete"),
        (("topics", "compact", "t", "--set", "a=b"), 2, "--dry-run"),
        (("topics", "compact", "t", "--dry-run", "--set", "a"), 2, "KEY=VALUE"),
        (("topics", "compact", "t", "--dry-run", "--set", "no.such=1"), 2, "no.such"),
        (("topics", "history", "t", "--partition", "5"), 1, "none is 5"),
    ):
        got, output, errors = run(served, *arguments)
        assert (got, output) == (status, ""), errors
        assert words in errors
        assert len(errors.splitlines()) == 1
        assert errors.startswith("kompakt: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("get", "t", b"\x80"), "the key is no UTF-8: write it in hex digits, with --hex"),
        (("topics", "explain", b"\x80"), r"'\udc80' is no name of a topic"),
        (("topics", "explain", ""), "'' is no name of a topic"),
        (("topics", "history", ".."), "'..' is no name of a topic"),
        (("get", "a b", "k"), "'a b' is no name of a topic"),
        (
            ("read", "explain", "t", "0", "--time", "9" * 5000),
            f"{'9' * 5000} is neither ms since 1970 nor a time as ISO 8601 has it",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_status_2(
    arguments: tuple[str | bytes, ...], words: str
) -> None:
    command = [os.fsencode(Path(sys.executable).with_name("kompakt")), *map(os.fsencode, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONUTF8": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"kompakt: {words}\n")


def test_no_broker_is_status_2() -> None:
    for where in (f"127.0.0.1:{free_port()}", "not a place:1"):
        result = runner.invoke(app, ["topics", "explain", "t", "--http", where])
        assert result.exit_code == 2
        assert result.stderr.startswith("kompakt: no broker answers at ")


@pytest.mark.parametrize("cut_by", [0, 3], ids=["between two lines", "within a line"])
def test_a_broker_that_ends_during_a_compaction_is_status_2(cut_by: int) -> None:
    """Where the last line was told whole, urllib takes the end of the connection for that of the answer."""
    line = b'{"partition": 0, "bytes_done": 5, "bytes_at_most": 10}\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(line), line)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head + chunk + chunk[: len(chunk) - cut_by])

        thread = threading.Thread(target=answer)
        thread.start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        result = runner.invoke(app, ["topics", "compact", "t", "--http", where])
        thread.join()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"kompakt: the broker at {where} stopped before it was done\n"


def test_the_place_of_the_broker_may_be_written_as_a_url(served: BrokerProcess) -> None:
    for where in (f"http://127.0.0.1:{served.http_port}/", f"http://127.0.0.1:{served.http_port}"):
        assert runner.invoke(app, ["topics", "explain", "t", "--http", where]).exit_code == 0
    bad = (
        "ftp://127.0.0.1:1",
        "https://127.0.0.1:1/api",
        "http://127.0.0.1:1/api",
        "localhost",
        "http://localhost",
        "[::1]",
        "a:",
    )
    for where in bad:
        result = runner.invoke(app, ["topics", "explain", "t", "--http", where])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("kompakt: --http takes HOST:PORT, not ")


def test_the_environment_says_where_the_broker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container whose broker was given another port its commands asked at 9644, in vain."""

    def asked(*arguments: str) -> str:
        result = runner.invoke(app, ["status", *arguments])
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr

    monkeypatch.setenv("KAFKA_HTTP_PORT", "1")
    assert "no broker answers at 127.0.0.1:1: " in asked()
    monkeypatch.setenv("KAFKA_HTTP_PORT", "tcp://10.0.0.1:80")  # of a service beside it, in Kubernetes
    assert default_http() == DEFAULT_HTTP
    monkeypatch.setenv("KOMPAKT_HTTP", "localhost:2")
    assert "no broker answers at localhost:2: " in asked()
    assert "no broker answers at 127.0.0.1:3: " in asked("--http", "127.0.0.1:3")
    monkeypatch.setenv("KOMPAKT_HTTP", "localhost")
    assert "--http takes HOST:PORT, not localhost" in asked()


def test_a_password_on_the_command_line_is_not_said_again() -> None:
    for where in ("http://alice:secret@127.0.0.1:1", "alice:secret@127.0.0.1:1/api"):
        result = runner.invoke(app, ["topics", "explain", "t", "--http", where])
        assert (result.exit_code, result.stdout) == (2, "")
        assert "KOMPAKT_HTTP_PASSWORD" in result.stderr
        assert "secret" not in result.stderr


@pytest.mark.parametrize("terminal", ["xterm-256color", "dumb"])  # as Emacs' shell calls itself
@pytest.mark.parametrize("columns", ["1", "20", "80", "0", "x"])
def test_a_narrow_terminal_cuts_no_number_in_two(
    columns: str, terminal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.delenv("LINES", raising=False)  # rich would have a height
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    row = ("prices-0", 1_000_001, 12_259_186, "2026-11-21 15:35:53 UTC", "0 armed until then", "clean")
    headings = ("partition", "base offset", "bytes", "first time", "tombstones", "state")
    console().print(table(headings, [row]))
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    for cells, line in ((headings, lines[0]), ((*row[:1], "1 000 001", "12 259 186", *row[3:]), lines[2])):
        assert all(str(each) in line for each in cells)


def test_words() -> None:
    assert [size(n) for n in (0, 999, 1500, 2_500_000)] == ["0 bytes", "999 bytes", "1.5 kB", "2.5 MB"]
    times = (5, 90_000, 7_200_000, 496_000, 106_617_600_000)
    assert [duration(n) for n in times] == ["5 ms", "90 s", "2 h", "8.27 min", "1230 days"]
    assert moment(START_MS) == "2023-11-14 22:13:20 UTC"
    assert moment(-315_619_200_000) == "1960-01-01 00:00:00 UTC", "a person may ask for it"
    assert moment(-(2**63)) == f"{-(2**63)} ms"
    assert moment(2**63 - 1) == f"{2**63 - 1} ms"
    assert (cell(1234567), cell(None), cell("a")) == ("1 234 567", "–", "a")
    assert removed_words({"superseded": 0}) == "nothing"


def test_a_partition_that_could_not_be_cleaned_is_status_1(served: BrokerProcess) -> None:
    """A damaged segment is named, and the topic explains itself with it afterwards. Once it is mended (T178),
    the command tries it again at once, long before the cleaner would.
    """
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
    explained = run_json(served, "topics", "explain", "bad")
    assert explained["partitions"][0]["uncleanable"]["retry_ms"] > explained["now_ms"]
    path.write_bytes(content)
    status, output, _ = run(served, "topics", "compact", "bad")
    assert (status, "was not cleaned" in output) == (0, False)
    assert run_json(served, "topics", "explain", "bad")["partitions"][0]["uncleanable"] is None


def make(served: BrokerProcess, topic: str, *pairs: tuple[str, str], **config: str) -> None:
    """A compacted topic with these records."""
    settings = {"bootstrap.servers": served.bootstrap}
    values = {"cleanup.policy": "compact", **{name.replace("_", "."): text for name, text in config.items()}}
    admin = AdminClient(settings)  # lives until its answer is here
    admin.create_topics([NewTopic(topic, 1, config=values)])[topic].result(60)
    producer = Producer(settings)
    for key, value in pairs:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def test_a_compaction_as_json(served: BrokerProcess) -> None:
    make(served, "json", ("a", "1"), ("b", "1"), ("a", "2"))
    dry = run_json(served, "topics", "compact", "json", "--dry-run")["partitions"][0]
    assert (dry["is_dry"], dry["records_before"]) == (True, 0)
    assert "active segment" in dry["held_back_by"]
    answer = run_json(served, "topics", "compact", "json", "--roll")
    assert answer["topic"] == "json"
    (done,) = answer["partitions"]
    assert (done["partition"], done["is_dry"], done["rounds"], done["is_complete"]) == (0, False, 1, True)
    assert (done["records_before"], done["records_after"], done["keys"]) == (3, 2, 2)
    assert done["removed"] == {"superseded": 1, "tombstone": 0, "aborted": 0, "keyless": 0, "marker": 0}
    assert done["now"]["reason"] == "nothing_dirty"
    run_of = run_json(served, "topics", "history", "json")["partitions"][0]["runs"][-1]
    assert {name: done[name] for name in run_of} == run_of
    status, output, _ = run(served, "topics", "compact", "json", "--dry-run", "--partition", "1", "--json")
    assert (status, output) == (1, "")


def test_w3_what_if_another_setting_held(served: BrokerProcess) -> None:
    make(served, "lag", ("a", "1"), ("a", "2"), min_compaction_lag_ms="3600000")
    run(served, "topics", "compact", "lag", "--roll")
    what_if = ("topics", "compact", "lag", "--dry-run")
    status, output, _ = run(served, *what_if)
    assert (status, "0 → 0" in output, "min.compaction.lag.ms" in output) == (0, True, True)
    status, output, _ = run(served, *what_if, "--set", "min.compaction.lag.ms=0")
    assert (status, "2 → 1" in output, "1 superseded" in output) == (0, True, True)
    assert "A dry run: nothing was written." in output
    assert "min.compaction.lag.ms" not in output
    answer = run_json(served, *what_if, "--set", "min.compaction.lag.ms=0", "--set", "segment.ms = 1000")
    assert (answer["partitions"][0]["records_after"], answer["partitions"][0]["held_back_by"]) == (1, None)
    assert run_json(served, "topics", "segments", "lag")["partitions"][0]["segments"][0]["records"] == 2


# The bar


def limit_rate(served: BrokerProcess, bytes_per_second: str) -> None:
    key = "log.cleaner.io.max.bytes.per.second"
    entry = ConfigEntry(key, bytes_per_second, incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    admin.incremental_alter_configs([broker])[broker].result(60)


def run_on_terminal(served: BrokerProcess, *arguments: str) -> tuple[int, str, str]:
    """As `run`, in a process whose standard error is a terminal."""
    command = [str(Path(sys.executable).with_name("kompakt")), *arguments]
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*command, "--http", f"127.0.0.1:{served.http_port}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=end,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(end)
    shown = b""
    try:
        while data := os.read(terminal, 1 << 16):
            shown += data
    except OSError:  # EIO: nobody has the other end any more
        pass
    os.close(terminal)
    output = process.communicate(timeout=60)[0]
    return process.returncode, output.decode(), shown.decode()


def test_w2_a_compaction_shows_a_bar_on_a_terminal(served: BrokerProcess) -> None:
    """It is slowed down to some seconds; what is shown meanwhile goes to the terminal and away, what is
    answered to standard output.
    """
    make(served, "slow", *((f"k{index}", os.urandom(500).hex()) for index in range(60)))
    limit_rate(served, "100000")
    try:
        status, output, shown = run_on_terminal(served, "topics", "compact", "slow", "--roll")
    finally:
        limit_rate(served, "1e15")
    assert status == 0
    assert "60 → 60" in output
    assert "\x1b" not in output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    done = [
        (float(done), float(most))
        for done, most in re.findall(r"slow-0 [^\r]* ([\d.]+)/([\d.]+) kB \d:", plain)
    ]
    assert done, plain
    assert any(0 < part < whole for part, whole in done)
    assert done == sorted(done)
    assert "\x1b[2K" in shown, "it is wiped out in the end"


# All questions


class Question(NamedTuple):
    """A command and the endpoint behind it: `body` is None for GET."""

    command: str
    arguments: tuple[str, ...]
    path: str
    body: dict[str, Any] | None = None


ALL, GROUP = "asked", "asking"
QUESTIONS = [
    Question("topics explain", (ALL,), f"topics/{ALL}/explain"),
    Question("topics explain", (ALL, "--partition", "0"), f"topics/{ALL}/explain?partition=0"),
    Question("topics explain", (ALL, "--dry-run"), f"topics/{ALL}/explain", {}),
    Question("topics compact", (ALL,), f"topics/{ALL}/compact", {}),
    Question("topics compact", (ALL, "--dry-run"), f"topics/{ALL}/compact", {"dry_run": True}),
    Question(
        "topics compact",
        (ALL, "--dry-run", "--set", "delete.retention.ms=0"),
        f"topics/{ALL}/compact",
        {"dry_run": True, "set": {"delete.retention.ms": "0"}},
    ),
    Question("topics segments", (ALL,), f"topics/{ALL}/segments"),
    Question("topics history", (ALL,), f"topics/{ALL}/history"),
    Question("topics abort", (ALL,), f"topics/{ALL}/abort", {}),
    Question("read explain", (ALL, "0", "1"), f"topics/{ALL}/partitions/0/seek?offset=1"),
    Question("read explain", (ALL, "0", "--time", "0"), f"topics/{ALL}/partitions/0/seek?time=0"),
    Question("get", (ALL, "a"), f"topics/{ALL}/get?key=a"),
    Question("get", (ALL, "a", "--history"), f"topics/{ALL}/get?key=a&history=1"),
    Question("topics table", (ALL,), f"topics/{ALL}/table?limit=100"),
    Question("topics table", (ALL, "--prefix", "a"), f"topics/{ALL}/table?limit=100&prefix=a"),
    Question("topics table", (ALL, "--tombstones"), f"topics/{ALL}/table?limit=100&tombstones=1"),
    Question("topics records", (ALL, "0"), f"topics/{ALL}/partitions/0/records?limit=100"),
    Question(
        "topics records",
        (ALL, "0", "--offset", "1", "--hidden", "--contains", "b"),
        f"topics/{ALL}/partitions/0/records?limit=100&offset=1&hidden=1&contains=b",
    ),
    Question("topics list", (), "topics"),
    Question("groups list", (), "groups"),
    *(Question("groups show", (GROUP,), path) for path in (f"groups/{GROUP}", f"group?group={GROUP}")),
    *(
        Question(
            "groups reset",
            (GROUP, ALL, "--to", "latest", "--dry-run"),
            path,
            {"topic": ALL, "to": "latest", "dry_run": True},
        )
        for path in (f"groups/{GROUP}/reset", f"group/reset?group={GROUP}")
    ),
    Question("quotas list", (), "quotas"),
    Question("quotas explain", ("--client", GROUP), f"quotas/explain?client-id={GROUP}"),
    Question("quotas explain", ("--ip", "127.0.0.1"), "quotas/explain?ip=127.0.0.1"),
    Question(
        "quotas set",
        ("--user", ALL, "--client-defaults", "producer_byte_rate=1000000"),
        "quotas/set",
        {"entity": {"user": ALL, "client-id": None}, "values": {"producer_byte_rate": 1000000}},
    ),
    Question("transactions", (), "transactions"),
    Question("status", (), "broker"),
]
ONLY_HTTP = {("GET", f"/api/topics/{ALL}")}
"""settings and partitions of a topic: any admin client tells"""
NO_QUESTIONS = {"reopen", "erase", "move", "remove", "create", "alter", "delete"}
"""orders: with `--json` as well, but asking twice is not the same"""
MOMENTARY = {
    "now_ms",
    "seconds",
    "started_ms",
    "runs",
    "open_files",
    "recent_cleanings",
    "free_bytes",
    "rate",
}
"""what two answers to one question may differ in; the runs, because a compaction is one more"""


@pytest.fixture(scope="module")
def asked(served: BrokerProcess) -> BrokerProcess:
    make(served, ALL, ("a", "1"), ("b", "1"), ("a", "2"))
    run(served, "topics", "compact", ALL, "--roll")
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[KafkaPartition(ALL, 0, 1)], asynchronous=False)
    consumer.close()
    return served


def lasting(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {name: lasting(value) for name, value in answer.items() if name not in MOMENTARY}
    return [lasting(value) for value in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: " ".join((one.command, *one.arguments[1:])))
def test_every_question_is_answered_alike_by_command_and_endpoint(
    asked: BrokerProcess, question: Question
) -> None:
    told = run_json(asked, *question.command.split(), *question.arguments)
    request = urllib.request.Request(
        f"http://127.0.0.1:{asked.http_port}/api/{question.path}",
        None if question.body is None else json.dumps(question.body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert lasting(told) == lasting(json.load(answer))
    if question.path.startswith("topics/"):
        assert told["topic"] == ALL
    status, output, _ = run(asked, *question.command.split(), *question.arguments)
    assert status == 0
    assert output.strip()
    assert not output.startswith("{")


def test_no_question_is_left_out() -> None:
    """Every command that can answer in JSON, and every endpoint."""
    commands = {one.command for one in QUESTIONS}
    found = set()
    for name, command in app.commands.items():
        parts = command.commands if isinstance(command, click.Group) else {"": command}
        for part, each in parts.items():
            options = {name for option in each.params for name in option.opts}
            if {"--json", "--http"} <= options and part not in NO_QUESTIONS:
                found.add(f"{name} {part}".strip())
    assert found == commands
    router = web.UrlDispatcher()
    Api(None).add_to(router)  # type: ignore[arg-type]
    routes = {(route.method, route.resource.canonical) for route in router.routes() if route.resource}
    asked_for = {
        ("GET" if one.body is None else "POST", f"/api/{one.path.partition('?')[0]}") for one in QUESTIONS
    }
    wanted = {
        (method, path.format(topic=ALL, partition="0", group=GROUP))
        for method, path in routes
        if method != "HEAD" and path.rpartition("/")[2] not in NO_QUESTIONS
    }
    assert wanted == asked_for | ONLY_HTTP
