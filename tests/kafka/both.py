"""An Apache Kafka and a kompakt that are told the same, to be compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.kafka.broker import KafkaBroker
from tests.process import BrokerProcess

Start = Callable[..., KafkaBroker]


@contextlib.contextmanager
def both(
    start_kafka: Start, directory: Path, settings: Mapping[str, str], kafkas: Mapping[str, str] | None = None
) -> Iterator[tuple[KafkaBroker, BrokerProcess]]:
    """Apache Kafka first; it has the same settings if it is given none of its own. What kompakt logs has no
    traceback.
    """
    own = BrokerProcess(directory / "data", {"node.id": "1", **settings}).start()
    yield start_kafka(settings if kafkas is None else kafkas), own
    own.stop()
    log = own.log()
    own.close()
    assert "Traceback" not in log, log
