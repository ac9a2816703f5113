"""Goal: connections that come faster than `max.connection.creation.rate` allows wait as in Apache Kafka, and
the rate is set and told as there.

Method: the same steps are taken on both brokers, and what each was told is compared. So many connections come
before there is a rate that each one behind waits for a whole window, which is long: whether somebody had to
wait does not depend on how busy the machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.quota_player import WINDOW_SECONDS
from tests.kafka.test_quotas import Step, play
from tests.kafka.tools import Tools
from tests.process import BrokerProcess

Start = Callable[..., KafkaBroker]
RATE = "max.connection.creation.rate"
OF_LISTENER = f"listener.name.plaintext.{RATE}"
WINDOWS = {"quota.window.size.seconds": str(WINDOW_SECONDS)}
MANY = 70
"""more by a window than come in ten windows at one a second"""


def rates() -> Iterator[Step]:
    yield "nothing is set", lambda it: it.set_broker("1")
    yield "many", lambda it: it.held_up(MANY)
    yield "a rate of all brokers", lambda it: it.set_broker("", max_connection_creation_rate="1")
    yield "who comes then waits", lambda it: it.held_up(1)
    yield "one behind the other", lambda it: it.held_up(2, at_once=True)
    yield "a listener's own", lambda it: it.set_broker("1", **{OF_LISTENER: "1000"})
    yield "which is not all", lambda it: it.held_up(1)
    yield "the other way round", lambda it: it.set_broker("1", **{RATE: "1000", OF_LISTENER: "1"})
    yield "that holds too", lambda it: it.held_up(1)
    yield "the listener has none", lambda it: it.set_broker("1", **{OF_LISTENER: None})
    yield "nobody waits", lambda it: it.held_up(5)
    yield "none at all", lambda it: it.set_broker("1", **{RATE: "0"})
    yield "less than that", lambda it: it.set_broker("", **{RATE: "-1"})
    yield "none for the listener", lambda it: it.set_broker("1", **{OF_LISTENER: "0"})
    yield "no number", lambda it: it.set_broker("", **{OF_LISTENER: "x"})
    yield "of all, for the listener", lambda it: it.set_broker("", **{OF_LISTENER: "500", RATE: "600"})
    yield "nobody waits still", lambda it: it.held_up(5)
    yield "all are gone", lambda it: it.set_broker("1", **{RATE: None})
    yield "and the others", lambda it: it.set_broker("", **{OF_LISTENER: None, RATE: None})


def of_files() -> Iterator[Step]:
    yield "it is told", lambda it: it.set_broker("1")
    yield "another one beside it", lambda it: it.set_broker("1", **{OF_LISTENER: "888"})
    yield "it is as it was", lambda it: it.set_broker("1", **{OF_LISTENER: None})


@pytest.mark.java
def test_who_connects_too_fast_waits_as_in_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, rates(), WINDOWS)


@pytest.mark.java
def test_a_rate_of_a_file_is_told_as_by_kafka(start_kafka: Start, tmp_path: Path) -> None:
    play(start_kafka, tmp_path, of_files(), {RATE: "1000", OF_LISTENER: "777"})


@pytest.mark.java
def test_kafkas_tool_sets_it(kafka_tools: Tools, tmp_path: Path) -> None:
    own = BrokerProcess(tmp_path / "data", {}).start()

    def configs(*arguments: str) -> str:
        return kafka_tools.run(
            "kafka-configs", "--bootstrap-server", own.bootstrap, "--entity-type", "brokers", *arguments
        )

    try:
        configs("--entity-default", "--alter", "--add-config", f"{RATE}=1000")
        configs("--entity-name", "1", "--alter", "--add-config", f"{OF_LISTENER}=500")
        told = configs("--entity-name", "1", "--describe")
        assert f"{OF_LISTENER}=500 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{OF_LISTENER}=500" in told
        assert f"{RATE}=1000 sensitive=false" in configs("--entity-default", "--describe")
        configs("--entity-name", "1", "--alter", "--delete-config", OF_LISTENER)
        assert OF_LISTENER not in configs("--entity-name", "1", "--describe")
    finally:
        own.close()
