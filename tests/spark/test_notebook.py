"""Goal: the notebook of the README runs as it stands, and what it prints is what the input file says.

Method: its cells run in the tests' Spark session against a real broker; the tables that they leave are
compared with those that pandas makes of the same flights.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NOTEBOOK = Path(__file__).resolve().parent.parent.parent / "demo" / "flights_notebook.py"


@pytest.mark.usefixtures("spark")
def test_the_notebook_tells_the_truth(kompakt_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOMPAKT_BOOTSTRAP", kompakt_broker.bootstrap)
    cells = runpy.run_path(str(NOTEBOOK))
    january = cells["january"]
    assert cells["flights_read"] == cells["streamed"] == len(january)
    assert cells["miles_by_carrier"] == january.groupby("carrier").distance.sum().to_dict()

    def possible(flights: Any) -> dict[str, set[str]]:
        """Where each plane may be: flights of one plane in its last hour are in no order."""
        last = flights[flights.time_hour == flights.groupby("tailnum").time_hour.transform("max")]
        return {plane: set(rows.dest) for plane, rows in last.groupby("tailnum")}

    for table, wanted in (
        (cells["planes_now"], possible(january)),
        (cells["planes_then"], possible(january[january.time_hour <= "2013-01-02T00:00:00Z"])),
    ):
        assert table.keys() == wanted.keys()
        assert all(table[plane] in wanted[plane] for plane in table)
    left = {plane: dest for plane, dest in cells["planes_now"].items() if plane not in cells["retired"]}
    assert cells["planes_left"] == left
    assert cells["first"].rows == len(left)
    assert (cells["again"].offsets_read, cells["again"].rows) == (0, len(left))

    group = confluent_kafka.Consumer({"bootstrap.servers": kompakt_broker.bootstrap, "group.id": "notebook"})
    places = [confluent_kafka.TopicPartition(cells["topic"], number) for number in range(2)]
    committed = group.committed(places, timeout=30)
    group.close()
    assert sum(place.offset for place in committed) == len(january)
