"""The commands `kompakt spark ...`: the pipelines on a Spark of this machine, or of a master that is named.

`kompakt` finds them by an entry point (`kompakt.commands`), so that the broker needs no Spark. What goes
wrong is one line and an exit status: 1 when a pipeline fails, 2 when it cannot begin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console

from spark_connector.errors import ConnectorError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}
SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}

console = Console(stderr=True)
app = typer.Typer(
    name="spark",
    help="Pipelines between topics and Parquet.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Topic = Annotated[str, typer.Argument(help="The topic.")]
Path = Annotated[str, typer.Argument(help="The directory of the Parquet files.")]
Bootstrap = Annotated[str, typer.Option("--bootstrap-server", help="Brokers.", metavar="HOST:PORT,...")]
Given = Annotated[
    list[str] | None,
    typer.Option("--option", help="An option of the format; may be repeated.", metavar="NAME=VALUE"),
]
Master = Annotated[str, typer.Option("--master", help="Spark's master.")]
Checkpoint = Annotated[str | None, typer.Option("--checkpoint", help="Where it notes what is done.")]
Buckets = Annotated[
    int | None, typer.Option("--buckets", min=1, help="Parts that are rewritten by themselves (16).")
]
Full = Annotated[bool, typer.Option("--full", help="Build the table from the whole log.")]


@app.command()
def archive(
    topic: Topic,
    path: Path,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    option: Given = None,
    checkpoint: Checkpoint = None,
    master: Master = "local[*]",
) -> None:
    """Append to Parquet what a topic got since the last time (every record, exactly once)."""
    from spark_connector.pipelines.archive import archive_topic

    source = {**_options(bootstrap, option), "subscribe": topic}
    with _spark(master) as spark, _progress(f"archiving {topic}") as report:
        rows = archive_topic(spark, source, path, checkpoint=checkpoint, report=report)
    console.print(f"{rows:,} records of {topic} appended to {path}")


@app.command()
def restore(
    path: Path,
    topic: Topic,
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="Where it notes what is done.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    option: Given = None,
    keep_partitions: Annotated[
        bool, typer.Option(help="Each record into the partition that it came from, or where its key belongs.")
    ] = True,
    master: Master = "local[*]",
) -> None:
    """Write an archive back into a topic, with keys, headers and timestamps."""
    from spark_connector.pipelines.archive import restore_topic

    sink = {**_options(bootstrap, option), "topic": topic}
    with _spark(master) as spark, _progress(f"restoring {topic}") as report:
        rows = restore_topic(
            spark, path, sink, checkpoint=checkpoint, keep_partitions=keep_partitions, report=report
        )
    console.print(f"{rows:,} records written to {topic}")


@app.command()
def snapshot(
    topic: Topic,
    path: Path,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    option: Given = None,
    buckets: Buckets = None,
    full: Full = False,
    master: Master = "local[*]",
) -> None:
    """Keep a Parquet table of what a compacted topic holds: one row a key."""
    from spark_connector.pipelines.snapshot import refresh_snapshot

    with _spark(master) as spark:
        done = refresh_snapshot(
            spark, topic, _options(bootstrap, option), path, buckets=buckets, is_full=full, say=console.print
        )
    _tell(done, path)


@app.command()
def apply(
    topic: Topic,
    path: Path,
    schema: Annotated[str, typer.Option("--schema", help='The fields: "id long, name string".')],
    delete_when: Annotated[
        str, typer.Option("--delete-when", help="SQL: the change removes its row, as a tombstone does.")
    ] = "false",
    skip_malformed: Annotated[
        bool, typer.Option("--skip-malformed", help="Leave out values that do not parse.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    option: Given = None,
    buckets: Buckets = None,
    full: Full = False,
    master: Master = "local[*]",
) -> None:
    """Apply a log of JSON changes to a Parquet table: the last change of each key is its row."""
    from spark_connector.pipelines.change_log import apply_changes

    with _spark(master) as spark:
        done = apply_changes(
            spark,
            topic,
            _options(bootstrap, option),
            path,
            schema,
            delete_when=delete_when,
            skip_malformed=skip_malformed,
            buckets=buckets,
            is_full=full,
            say=console.print,
        )
    _tell(done, path)


def main(arguments: list[str]) -> None:
    """Run one of the commands; the entry point behind `kompakt spark`."""
    app(arguments, prog_name="kompakt spark")


def _tell(done: Any, path: str) -> None:
    how = f"built anew ({done.reason})" if done.was_full else "refreshed"
    console.print(f"{path}: version {done.version}, {how}, {done.rows:,} rows")


def _options(bootstrap: str, given: list[str] | None) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": bootstrap}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            console.print(f"kompakt: --option must be NAME=VALUE, not {text}", markup=False)
            raise typer.Exit(2)
        options[name] = value
    return options


@contextmanager
def _spark(master: str) -> Iterator[Any]:
    """A session with this interpreter in its workers; what fails in it is one line."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        console.print("kompakt: the pipelines need PySpark: pip install 'kompakt[spark]'", markup=False)
        raise typer.Exit(2) from None
    with console.status("starting Spark"):
        builder = SparkSession.builder.master(master).appName("kompakt spark")
        local = LOCAL if master.startswith("local") else {}
        for name, value in {**SETTINGS, **local}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    try:
        yield spark
    except (ConnectorError, PySparkException) as problem:
        console.print(f"kompakt: {_first_reason(problem)}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    finally:
        spark.stop()


def _first_reason(problem: Exception) -> str:
    """The connector's own words out of an error that went through Spark."""
    lines = [line.strip() for line in str(problem).splitlines()]
    ours = [line for line in lines if line.startswith("spark_connector.errors.")]
    return ours[-1].partition(": ")[2] if ours else (lines or [type(problem).__name__])[0]


@contextmanager
def _progress(what: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A line that tells of each finished micro-batch."""
    rows = 0
    with console.status(what) as status:

        def report(progress: Mapping[str, Any]) -> None:
            nonlocal rows
            rows += progress["numInputRows"]
            speed = progress["processedRowsPerSecond"]
            status.update(f"{what}: {rows:,} records, {speed:,.0f} a second")

        yield report
