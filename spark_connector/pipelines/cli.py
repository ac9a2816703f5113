"""The commands `kompakt spark ...`: the pipelines on a Spark of this machine, or of a master that is named.

`kompakt` finds them by an entry point (`kompakt.commands`), so that the broker needs no Spark. What goes
wrong is one line and an exit status: 1 when a pipeline fails, 2 when it cannot begin, 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit
from rich.console import Console

from spark_connector.errors import ConnectorError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}
INTERRUPTED = 128 + signal.SIGINT  # as shells count
SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    # In Spark 4.0 and 4.1 a run behind one that was killed would end with the batch that was left.
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
}

GONE = (
    "Spark's Java process has ended, killed or for want of memory; the same command goes on where it stopped"
)
SOURCE_GONE = (
    "the Python process of the stream's source has ended, killed or for want of memory; the same command goes"
    " on where it stopped"
)
_SOURCE_RUNNER = "PythonStreamingSourceRunner"
_SAID_BY_THE_MACHINE = re.compile(r"^Caused by: java\.io\.\w+: (.+)", re.MULTILINE)

console = Console(stderr=True)
Given = tuple[str, ...]

with_topic = click.argument("topic", help="The topic.")
with_path = click.argument("path", help="The directory of the Parquet files.")
with_bootstrap = click.option(
    "--bootstrap-server",
    "bootstrap",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    help="Brokers.",
    metavar="HOST:PORT,...",
)
with_options = click.option(
    "--option",
    "options",
    multiple=True,
    help="An option of the format; may be repeated.",
    metavar="NAME=VALUE",
)
with_master = click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
with_buckets = click.option(
    "--buckets", type=click.IntRange(min=1), help="Parts that are rewritten by themselves (16)."
)
with_full = click.option("--full", is_flag=True, help="Build the table from the whole log.")


@click.group("spark", context_settings={"help_option_names": ["-h", "--help"]})
def app() -> None:
    """Pipelines between topics and Parquet."""


@app.command()
@with_topic
@with_path
@with_bootstrap
@with_options
@click.option("--checkpoint", help="Where it notes what is done.")
@with_master
def archive(
    topic: str, path: str, bootstrap: str, options: Given, checkpoint: str | None, master: str
) -> None:
    """Append to Parquet what a topic got since the last time (every record, exactly once)."""
    from spark_connector.pipelines.archive import archive_topic

    source = {**_format_options(bootstrap, options), "subscribe": topic}
    with _spark(master) as spark, _progress(f"archiving {topic}") as report:
        rows = archive_topic(spark, source, path, checkpoint=checkpoint, report=report)
    _say(f"{rows:,} records of {topic} appended to {path}")


@app.command()
@with_path
@with_topic
@click.option("--checkpoint", required=True, help="Where it notes what is done.")
@with_bootstrap
@with_options
@click.option("--from-topic", help="Whose records, of an archive of several topics.", metavar="TOPIC")
@click.option(
    "--keep-partitions/--no-keep-partitions",
    default=True,
    show_default=True,
    help="Each record into the partition that it came from, or where its key belongs.",
)
@with_master
def restore(
    path: str,
    topic: str,
    checkpoint: str,
    bootstrap: str,
    options: Given,
    from_topic: str | None,
    keep_partitions: bool,
    master: str,
) -> None:
    """Write an archive back into a topic, with keys, headers and timestamps."""
    from spark_connector.pipelines.archive import restore_topic

    sink = {**_format_options(bootstrap, options), "topic": topic}
    with _spark(master) as spark, _progress(f"restoring {topic}") as report:
        rows = restore_topic(
            spark,
            path,
            sink,
            checkpoint=checkpoint,
            from_topic=from_topic,
            keep_partitions=keep_partitions,
            report=report,
        )
    _say(f"{rows:,} records written to {topic}")


@app.command()
@with_topic
@with_path
@with_bootstrap
@with_options
@with_buckets
@with_full
@with_master
def snapshot(
    topic: str, path: str, bootstrap: str, options: Given, buckets: int | None, full: bool, master: str
) -> None:
    """Keep a Parquet table of what a compacted topic holds: one row a key."""
    from spark_connector.pipelines.snapshot import refresh_snapshot

    with _spark(master) as spark:
        done = refresh_snapshot(
            spark,
            topic,
            _format_options(bootstrap, options),
            path,
            buckets=buckets,
            is_full=full,
            say=_say,
        )
    _tell(done, path)


@app.command()
@with_topic
@with_path
@click.option("--schema", required=True, help='The fields: "id long, name string".')
@click.option(
    "--delete-when",
    default="false",
    show_default=True,
    help="SQL: the change removes its row, as a tombstone does.",
)
@click.option("--skip-malformed", is_flag=True, help="Leave out values that do not parse.")
@with_bootstrap
@with_options
@with_buckets
@with_full
@with_master
def apply(
    topic: str,
    path: str,
    schema: str,
    delete_when: str,
    skip_malformed: bool,
    bootstrap: str,
    options: Given,
    buckets: int | None,
    full: bool,
    master: str,
) -> None:
    """Apply a log of JSON changes to a Parquet table: the last change of each key is its row."""
    from spark_connector.pipelines.change_log import apply_changes

    with _spark(master) as spark:
        done = apply_changes(
            spark,
            topic,
            _format_options(bootstrap, options),
            path,
            schema,
            delete_when=delete_when,
            skip_malformed=skip_malformed,
            buckets=buckets,
            is_full=full,
            say=_say,
        )
    _tell(done, path)


def main(arguments: list[str]) -> None:
    """Run one of the commands; the entry point behind `kompakt spark`."""
    _end_when_interrupted()
    app(arguments, prog_name="kompakt spark")


def _end_when_interrupted() -> None:
    """From now on Ctrl-C ends this process with one line, and with it Spark, whose input then ends.

    At once, as kill -9 does, after which pipelines go on too. An exception would leave a call of the JVM half
    done, and a JVM that is just starting without the directory where it says so: that one never ended.
    """

    def end(_number: int, _frame: Any) -> None:
        shown = b"\x1b[?25h" if console.is_terminal else b""  # the cursor, which a status hides
        os.write(2, shown + b"\nkompakt: interrupted; the same command goes on where it stopped\n")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, end)


def _say(text: str) -> None:
    """One line, however long: in a log file it is looked for by line."""
    console.print(text, markup=False, soft_wrap=True)


def _tell(done: Any, path: str) -> None:
    how = f"built anew ({done.reason})" if done.was_full else "refreshed"
    _say(f"{path}: version {done.version}, {how}, {done.rows:,} rows")


def _format_options(bootstrap: str, given: Given) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": bootstrap}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            console.print(f"kompakt: --option must be NAME=VALUE, not {text}", markup=False)
            raise Exit(2)
        options[name] = value
    return options


@contextmanager
def _spark(master: str) -> Iterator[Any]:
    """A session with this interpreter in its workers; what fails in it is one line."""
    missing = _missing_java()
    if missing:
        why = f"{missing} (it needs Java 17 or newer)"
        console.print(f"kompakt: Spark does not start: {why}", markup=False, soft_wrap=True)
        raise Exit(2)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with console.status("starting Spark"):
        builder = SparkSession.builder.master(master).appName("kompakt spark")
        local = LOCAL if master.startswith("local") else {}
        for name, value in {**SETTINGS, **local}.items():
            builder = builder.config(name, value)
        try:
            spark = builder.getOrCreate()
            _end_when_interrupted()  # again: Spark has its own way, with a call within a call
        except (PySparkException, Py4JError) as problem:
            needs = "it needs Java 17 or newer, on the PATH or in JAVA_HOME"
            why = f"{_first_reason(problem)} (master {master}; {needs})"
            console.print(f"kompakt: Spark does not start: {why}", markup=False, soft_wrap=True)
            raise Exit(2) from None
    try:
        yield spark
    except (ConnectorError, PySparkException, Py4JError, OSError) as problem:  # a path may not be writable
        # Of a JVM that is gone, whatever was asked last says no more than that nothing answered.
        reason = _first_reason(problem) if _stopped(spark) else GONE
        console.print(f"kompakt: {reason}", markup=False, soft_wrap=True)
        raise Exit(1) from None
    finally:
        _stopped(spark)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stopped(spark: Any) -> bool:
    """End Spark; False when its JVM has ended by itself."""
    from py4j.protocol import Py4JError

    try:
        with warnings.catch_warnings(action="ignore"):  # PySpark has its own of a JVM that does not answer
            spark.stop()
    except (Py4JError, OSError):
        return False
    return True


def _missing_java() -> str:
    """Why Spark's launch script, which says so in lines of its own, would find no Java; empty where it may:
    a `spark-env.sh` of one's own can name a place.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        is_there = os.access(Path(home, "bin", "java"), os.X_OK)
        return "" if is_there else f"JAVA_HOME is {home}, where there is no bin/java"
    if shutil.which("java") or {"SPARK_HOME", "SPARK_CONF_DIR"} & os.environ.keys():
        return ""
    return "there is no java on the PATH, and JAVA_HOME is not set"


def _first_reason(problem: Exception) -> str:
    """The connector's own words out of an error that went through Spark; else Spark's, and what the machine
    has said (of a full disk Spark says no more than that a task failed).
    """
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]  # Spark's begin with none
    lines = [line[2:] for line in lines if line.startswith(": ")] or lines  # py4j says first whom it called
    ours = [line for line in lines if line.startswith("spark_connector.errors.")]
    if ours:
        return ours[-1].partition(": ")[2]
    stack = getattr(problem, "_stackTrace", None) or str(problem)
    cause = stack.rpartition("Caused by: ")[2]
    if cause.startswith(("java.io.", "java.net.")) and _SOURCE_RUNNER in cause:
        return SOURCE_GONE  # Spark has no words of it
    reason = (lines or [type(problem).__name__])[0]
    said = _SAID_BY_THE_MACHINE.findall(stack)
    return f"{reason} ({said[-1]})" if said and said[-1] not in reason else reason


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
