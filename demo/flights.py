"""`make demo`: the main job on real input, the 336,776 flights that left New York's airports in 2013.

An unmodified confluent-kafka producer writes them in order of departure, as JSON keyed by tail number, into
a compacted topic of three partitions; a consumer group reads along, is stopped in the middle and resumed;
the cleaner compacts while both run; then the client, a Spark batch and a Spark stream each build the table
"last flight of each plane", and all three must equal the one computed from the input file. Every figure
printed is measured in this run.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demo.flights_broker import CompactionReport, DemoBroker
from demo.flights_clients import Produced, consume_as_group, produce_flights, read_table
from demo.flights_input import Flights, last_flights, load_flights
from demo.flights_spark import spark_tables

TOPIC = "flights"
PARTITIONS = 3
GROUP = "dashboard"
STOP_AFTER_RECORDS = 100_000
console = Console()


class Failed(Exception):
    """A comparison did not hold; the text says which."""


def check(holds: bool, text: str) -> None:
    """Print `text` as shown, or fail."""
    if not holds:
        raise Failed(text)
    console.print(f"  [green]✓[/] {text}")


def produce_and_consume(broker: DemoBroker, flights: Flights) -> Produced:
    """Produce everything while a group reads; stop the group's member in the middle and let another one
    resume.
    """
    sent = threading.Thread(
        target=lambda: results.append(produce_flights(broker.bootstrap, TOPIC, flights, console))
    )
    results: list[Produced] = []
    sent.start()
    first = consume_as_group(
        broker.bootstrap, TOPIC, GROUP, lambda seen: len(seen.records) >= STOP_AFTER_RECORDS
    )
    console.print(
        f"  group [b]{GROUP}[/]: first member stopped after {len(first.records):,} records, all committed"
    )
    second = consume_as_group(
        broker.bootstrap, TOPIC, GROUP, lambda seen: seen.at_end and not sent.is_alive()
    )
    sent.join()
    (produced,) = results
    acknowledged = produced.key_at
    console.print(
        f"  group [b]{GROUP}[/]: second member resumed and read {len(second.records):,} records to the end"
    )
    twice = first.records.keys() & second.records.keys()
    check(not twice, "no record came twice")
    consumed = first.merged(second)
    latest: dict[bytes, tuple[int, int]] = {key: place for place, key in sorted(acknowledged.items())}
    missing = [place for place, key in acknowledged.items() if place not in consumed.records]
    superseded = [place for place in missing if latest[acknowledged[place]] > place]
    check(
        len(superseded) == len(missing),
        f"no record was lost: {len(consumed.records):,} of {len(acknowledged):,} read, the other "
        f"{len(missing):,} had been compacted away behind a newer flight of the same plane",
    )
    return produced


def show_compaction(produced: Produced, after: CompactionReport) -> None:
    table = Table(title="what was produced, and what compaction keeps of it", title_justify="left")
    for heading in ("partition", "records", "→", "bytes", "→ on disk", "planes", "segments"):
        table.add_column(heading, justify="right")
    for kept in after.partitions:
        table.add_row(
            str(kept.partition),
            f"{produced.records(kept.partition):,}",
            f"{kept.records:,}",
            f"{produced.bytes_of_partition[kept.partition]:,}",
            f"{kept.size_bytes:,}",
            f"{kept.keys:,}",
            str(kept.segments),
        )
    console.print(table)


def run(directory: Path) -> None:
    started = time.monotonic()
    flights = load_flights()
    console.print(
        f"[b]1[/] input: {len(flights.rows):,} flights, {flights.planes:,} planes; "
        f"{len(flights.without_plane):,} flights name no plane"
    )
    expected = last_flights(flights)
    with DemoBroker(directory) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        console.print(f"[b]2[/] kompakt on {broker.bootstrap}; producing, consuming and compacting at once")
        produced = produce_and_consume(broker, flights)
        console.print(f"  the cleaner ran {broker.cleanings(TOPIC):,} times meanwhile")
        refused = broker.refusals(TOPIC, flights.without_plane)
        check(
            refused == len(flights.without_plane),
            f"{refused:,} flights without a plane were refused: a compacted topic takes no keyless record",
        )
        console.print("[b]3[/] compaction")
        after = broker.compact_fully(TOPIC, PARTITIONS)
        show_compaction(produced, after)
        gone = len(produced.key_at) - after.records
        check(gone > 0 and after.keys == flights.planes, f"{gone:,} superseded records are gone, no plane is")
        console.print("[b]4[/] the same table three ways: each plane's last flight")
        check(read_table(broker.bootstrap, TOPIC, PARTITIONS) == expected, "client = input file")
        for name, table in spark_tables(broker.bootstrap, TOPIC, directory, console):
            check(table == expected, f"{name} = input file")
        console.print(
            f"[b]done[/] in {time.monotonic() - started:.0f} s: {len(expected):,} planes, their last flights"
        )


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kompakt-demo-") as directory:
        try:
            run(Path(directory))
        except Failed as failure:
            console.print(f"[red]✗ {failure}[/]")
            return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # its broker ends with it
    sys.exit(main())
