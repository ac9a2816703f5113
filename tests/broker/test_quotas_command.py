"""Goal: `kompakt quotas` sets, lists, explains and removes quotas, in Kafka's words, and says who is held
back.

Method: one real broker process; the commands are run as a user runs them, what they say is compared with
what they were told, and with what an unmodified producer has to go through.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from broker.cli import app
from tests.process import BrokerProcess
from tests.waiting import wait_for

runner = CliRunner()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("quotas") / "data", {}).start()
    process.wait_until_ready()
    yield process
    process.close()


@pytest.fixture(autouse=True)
def no_quotas(served: BrokerProcess) -> Iterator[None]:
    yield
    options = {"user": "--user", "client-id": "--client", "ip": "--ip"}
    for one in json.loads(run(served, "list", "--json")[1])["quotas"]:
        names = one["entity"].items()
        said = [
            word
            for kind, name in names
            for word in ([f"{options[kind]}-defaults"] if name is None else [options[kind], name])
        ]
        assert run(served, "remove", *said)[0] == 0


def run(served: BrokerProcess, *arguments: str) -> tuple[int, str, str]:
    result = runner.invoke(app, ["quotas", *arguments, "--http", f"127.0.0.1:{served.http_port}"])
    return result.exit_code, result.stdout, result.stderr


def lines(served: BrokerProcess, *arguments: str) -> list[str]:
    status, output, errors = run(served, *arguments)
    assert (status, errors) == (0, "")
    return [" ".join(line.split()) for line in output.splitlines()]


def listed(served: BrokerProcess) -> list[str]:
    """The quotas, without who had to wait."""
    told = lines(served, "list")
    if told[0] == "There are no quotas.":
        return []
    return list(itertools.takewhile(lambda line: not line.startswith("told to wait"), told[2:]))


def test_what_is_set_is_listed_until_it_is_removed(served: BrokerProcess) -> None:
    assert listed(served) == []
    assert lines(
        served, "set", "--client", "backfill", "producer_byte_rate=5242880", "request_percentage=12.5"
    ) == ["client-id 'backfill': producer_byte_rate 5 242 880 bytes/s, request_percentage 12.5 %"]
    lines(served, "set", "--user", "alice", "--client-defaults", "controller_mutation_rate=2")
    lines(served, "set", "--user-defaults", "consumer_byte_rate=1e6")
    lines(served, "set", "--ip-defaults", "connection_creation_rate=10")
    assert listed(served) == [
        "client-id 'backfill' producer_byte_rate 5 242 880 bytes/s",
        "client-id 'backfill' request_percentage 12.5 %",
        "the default ip connection_creation_rate 10 connections/s",
        "the default user-principal consumer_byte_rate 1 000 000 bytes/s",
        "user-principal 'alice', the default client-id controller_mutation_rate 2 partitions/s",
    ]
    assert lines(served, "remove", "--client", "backfill", "request_percentage") == [
        "client-id 'backfill': producer_byte_rate 5 242 880 bytes/s"
    ]
    assert lines(served, "remove", "--client", "backfill") == ["client-id 'backfill': no quotas"]
    assert len(listed(served)) == 3


def test_why_a_quota_holds(served: BrokerProcess) -> None:
    assert lines(served, "explain", "--user", "alice", "--ip", "10.0.0.7") == [
        f"{quota}: No quota holds: as much as it likes."
        for quota in (
            "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
            "connection_creation_rate",
        )
    ]  # fmt: skip
    lines(served, "set", "--client-defaults", "producer_byte_rate=1000")
    lines(served, "set", "--user", "alice", "producer_byte_rate=2000")
    lines(served, "set", "--ip", "10.0.0.7", "connection_creation_rate=3")
    told = lines(served, "explain", "--user", "alice", "--client", "backfill", "--ip", "10.0.0.7")
    assert told[0] == "producer_byte_rate: 2 000 bytes/s, of user-principal 'alice'."
    assert told[4] == "connection_creation_rate: 3 connections/s, of ip '10.0.0.7'."
    assert "3. user-principal 'alice' 2 000 bytes/s, holds – – –" in told
    assert "7. client-id 'backfill' – – – –" in told
    assert "8. the default client-id 1 000 bytes/s – – –" in told
    assert "1. ip '10.0.0.7' 3 connections/s, holds" in told
    told = lines(served, "explain", "--client", "backfill")
    assert told[0] == (
        "producer_byte_rate: 1 000 bytes/s, of the default client-id; counted for client-id 'backfill'."
    )
    assert any(line.startswith("1. user-principal 'ANONYMOUS', client-id 'backfill'") for line in told)


def test_an_unmodified_producer_is_held_back_and_seen(served: BrokerProcess) -> None:
    lines(served, "set", "--client", "greedy", "producer_byte_rate=10000")
    producer = Producer({"bootstrap.servers": served.bootstrap, "client.id": "greedy"})
    for _ in range(300):
        producer.produce("t", bytes(1000))
    assert producer.flush(60) == 0
    told = wait_for(lambda: _waiting(served), "somebody who waits")
    assert told.startswith("client-id 'greedy' producer_byte_rate 10 000 bytes/s ")
    assert " bytes/s now; held back for " in lines(served, "explain", "--client", "greedy")[0]
    assert "held back" not in lines(served, "explain", "--client", "other")[0]


def _waiting(served: BrokerProcess) -> str | None:
    told = lines(served, "list")
    heading = [number for number, line in enumerate(told) if line.startswith("told to wait quota value now")]
    return told[heading[0] + 2] if heading else None


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("set", "producer_byte_rate=1"), 2, "say whose quotas: --user or --user-defaults or --client or"),
        (("set", "--user", "a", "--user-defaults", "producer_byte_rate=1"), 2, "say either --user or"),
        (("set", "--user", "a", "producer_byte_rate"), 2, "written as KEY=NUMBER, not producer_byte_rate"),
        (("set", "--user", "a", "producer_byte_rate=x"), 2, "KEY=NUMBER, not producer_byte_rate=x"),
        (("set", "--user", "a", "producer_byte_rate=inf"), 2, "KEY=NUMBER, not producer_byte_rate=inf"),
        (("set", "--user", "a", "bytes=1"), 2, "'bytes' is no quota of a user or a client id; there are"),
        (("set", "--user", "", "producer_byte_rate=1"), 2, "Empty user not supported"),
        (("set", "--ip", "1.2.3.4", "--user", "a", "connection_creation_rate=1"), 2, "Invalid quota entity"),
        (("remove", "--user", "a"), 1, "user-principal 'a' has no quotas"),
        (("explain",), 2, "say who: --user, --client, --ip"),
        (("explain", "--ip", "x"), 2, "'x' is no address"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    served: BrokerProcess, arguments: tuple[str, ...], status: int, words: str
) -> None:
    got, output, errors = run(served, *arguments)
    assert (got, output, len(errors.splitlines())) == (status, "", 1)
    assert errors.startswith("kompakt: ")
    assert words in errors
    assert listed(served) == []


def test_a_name_that_is_odd_moves_no_cursor(served: BrokerProcess) -> None:
    odd = "a\x1b[2J\nb"
    (told,) = lines(served, "set", "--client", odd, "producer_byte_rate=1")
    assert told == r"client-id 'a\x1b[2J\nb': producer_byte_rate 1 bytes/s"
    assert listed(served)[0] == r"client-id 'a\x1b[2J\nb' producer_byte_rate 1 bytes/s"
    assert lines(served, "explain", "--client", odd)[0].startswith(
        r"producer_byte_rate: 1 bytes/s, of client-id 'a\x1b[2J\nb'"
    )
