"""The options and columns of a writer as one frozen value: the names and rules of Spark's own sink.

What cannot be honoured is refused with a message when the query is planned, before a row is sent.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructType

from protocol.compression import CODEC_NAMES
from spark_connector import options
from spark_connector.errors import ConnectorError
from spark_connector.kafka_names import judge_kafka_names, say_once
from spark_connector.options import ClientSettings
from spark_connector.write_option_table import KAFKA_ROWS, NAMES

logger = logging.getLogger("kompakt.spark")

WRITABLE = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
REJECTED = {
    "kafka.key.serializer": "keys are binary or string columns; cast them in the query",
    "kafka.value.serializer": "values are binary or string columns; cast them in the query",
    "kafka.interceptor.classes": "interceptors are Java classes, and no Java producer runs here",
    "kafka.partitioner.class": "partitioners are Java classes; use the option partitioner (murmur2 or crc32)",
    "kafka.transactional.id": "the sink writes no transactions; it is idempotent within a task",
}
KAFKA_NAMES = frozenset(row.name for row in KAFKA_ROWS)
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
PARTITIONERS = ("murmur2", "crc32")
# As Kafka's ProducerConfig has them, whichever codec is used.
LEVELS = {"gzip": range(1, 10), "lz4": range(1, 18), "zstd": range(-131_072, 23)}
GZIP_DEFAULT = -1  # the codec's own
MAX_IN_FLIGHT = 5  # a broker remembers as many batches of an idempotent producer


@dataclass(frozen=True)
class WriteOptions:
    """All that a writer is told. Picklable: it travels to the executors; equal ones share producer ids."""

    client: ClientSettings
    topic: str | None = None
    partitioner: str = "murmur2"
    codec: int = 0
    compression_level: int | None = None
    acks: int = -1
    is_idempotent: bool = True
    batch_bytes: int = 512 * 1024
    max_request_bytes: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    max_in_flight: int = MAX_IN_FLIGHT
    delivery_timeout_ms: int = 120_000


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """`given` in any case of its names; ConnectorError names the option that is wrong."""
    values = {name.lower(): value for name, value in given.items()}
    _refuse_typing_mistakes(values)
    for name, reason in REJECTED.items():
        if name in values:
            raise ConnectorError(f"option {name} is not supported: {reason}")
    judge_kafka_names(values, KAFKA_NAMES, "write")
    return _write_options(values)


def _write_options(values: Mapping[str, str]) -> WriteOptions:
    defaults = WriteOptions(options.parse_client_settings(values))
    codec = values.get("kafka.compression.type", "none").strip().lower()
    if codec not in CODEC_NAMES:
        raise ConnectorError(f"kafka.compression.type must be none, gzip, snappy, lz4 or zstd, not {codec}")
    acks = values.get("kafka.acks", "all").strip().lower()
    if acks not in ACKS:
        raise ConnectorError(f"kafka.acks must be all, 1 or 0, not {acks}")
    is_idempotent = _idempotence(values, ACKS[acks])
    max_request_bytes = options.positive(values, "kafka.max.request.size") or defaults.max_request_bytes
    batch_bytes = options.at_least_one(values, "kafka.batch.size", defaults.batch_bytes)
    return WriteOptions(
        client=defaults.client,
        topic=values.get("topic"),
        partitioner=_partitioner(values),
        codec=int(CODEC_NAMES[codec]),
        compression_level=_levels(values).get(codec),
        acks=ACKS[acks],
        is_idempotent=is_idempotent,
        batch_bytes=min(batch_bytes, max_request_bytes),
        max_request_bytes=max_request_bytes,
        buffer_bytes=options.positive(values, "kafka.buffer.memory") or defaults.buffer_bytes,
        max_in_flight=_in_flight(values, is_idempotent=is_idempotent),
        delivery_timeout_ms=options.positive(values, "kafka.delivery.timeout.ms")
        or defaults.delivery_timeout_ms,
    )


def check_columns(schema: StructType, topic: str | None) -> None:
    """ConnectorError for a column of the wrong type, there twice, or missing; a warning, once, of those that
    have no place in a record and are passed over, as by Spark's own sink. `topic` is the option of that name.
    """
    unknown = [field.name for field in schema.fields if field.name.lower() not in WRITABLE]
    if unknown:
        say_once(
            f"the write ignores columns that have no place in a record: {', '.join(unknown)}; "
            f"a record is made of {', '.join(WRITABLE)}"
        )
    taken = WRITABLE.keys() - ({"topic"} if topic is not None else set())
    fields = [field for field in schema.fields if field.name.lower() in taken]
    names = [field.name.lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConnectorError(f"column {name} is there {names.count(name)} times")
    for field in fields:
        expected = WRITABLE[field.name.lower()]
        found = field.dataType.simpleString()
        if field.name.lower() == "headers":
            found = found.lower()
        if found not in expected:
            raise ConnectorError(f"column {field.name} must be {' or '.join(expected)}, not {found}")
    if "value" not in names:
        raise ConnectorError("column value is needed: binary or string, null for a tombstone")
    if topic is None and "topic" not in names:
        raise ConnectorError("there is neither a column topic nor an option topic to say where records go")


def _refuse_typing_mistakes(values: Mapping[str, str]) -> None:
    for name in values:
        if name in NAMES or name.startswith("kafka."):
            continue
        close = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.8)
        if close:
            raise ConnectorError(f"unknown option {name}; did you mean {NAMES[close[0]]}?")


def _partitioner(values: Mapping[str, str]) -> str:
    name = values.get("partitioner", "murmur2").strip().lower()
    if name not in PARTITIONERS:
        raise ConnectorError(f"partitioner must be {' or '.join(PARTITIONERS)}, not {name}")
    return name


def _levels(values: Mapping[str, str]) -> dict[str, int | None]:
    """The level of each codec that has any; None is its own default."""
    found: dict[str, int | None] = {}
    for codec, levels in LEVELS.items():
        name = f"kafka.compression.{codec}.level"
        found[codec] = _level(name, values[name], codec, levels) if name in values else None
    return found


def _level(name: str, text: str, codec: str, levels: range) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ConnectorError(f"{name} must be a number, not {text}")
    level = int(text)
    if codec == "gzip" and level == GZIP_DEFAULT:
        return None
    if level not in levels:
        default = f" or {GZIP_DEFAULT}" if codec == "gzip" else ""
        raise ConnectorError(f"{name} must be {levels.start} to {levels.stop - 1}{default}, not {level}")
    return level


def _idempotence(values: Mapping[str, str], acks: int) -> bool:
    """On unless switched off, or ruled out by acks; asked for together with such acks it is a mistake."""
    wanted = options.boolean(values, "kafka.enable.idempotence", acks == -1)
    if wanted and acks != -1:
        raise ConnectorError("kafka.enable.idempotence=true needs kafka.acks=all")
    return wanted


def _in_flight(values: Mapping[str, str], *, is_idempotent: bool) -> int:
    """Fewer acks leave no idempotence that more requests could break. Kafka's producer sees it so up to 3.9,
    which Spark's own sink has; from 4.0 on only where idempotence is switched off by its name."""
    name = "kafka.max.in.flight.requests.per.connection"
    number = options.positive(values, name) or MAX_IN_FLIGHT
    if number > MAX_IN_FLIGHT and is_idempotent:
        raise ConnectorError(
            f"{name} must be at most {MAX_IN_FLIGHT} for an idempotent producer; "
            f"kafka.enable.idempotence=false allows more"
        )
    return number
