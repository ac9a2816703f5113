"""The option strings of a reader as one frozen value: the names and rules of Spark's own Kafka source.

Spark hands option names over in lower case. What cannot be honoured is refused with a message, or, where no
row depends on it (Spark's consumer cache, most of `kafka.*`), ignored with a warning; never silently.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from spark_connector.errors import ConnectorError
from spark_connector.formats import AS_THEY_ARE, Formats, parse_formats
from spark_connector.kafka_names import judge_kafka_names, warn_once
from spark_connector.kafka_option_table import READ_ROWS
from spark_connector.offsets import EARLIEST, LATEST, TopicPartition, parse_assignment, parse_offsets
from spark_connector.option_table import NAMES
from spark_connector.patterns import check_pattern
from spark_connector.security import PLAINTEXT, Security, parse_security
from spark_connector.write_option_table import NAMES as WRITE_NAMES
from spark_connector.wrong_place import BATCH_ONLY, Misplaced

KAFKA_NAMES = frozenset(row.name for row in READ_ROWS)

COLUMN_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
PLAIN_COLUMNS = tuple(name for name in COLUMN_TYPES if name != "headers")

SUBSCRIPTIONS = {name.lower(): name for name in ("assign", "subscribe", "subscribePattern")}

REJECTED = {
    "kafka.auto.offset.reset": "use startingOffsets: where a query begins is the query's own business",
    "kafka.key.deserializer": "keys are binary; cast them in the query",
    "kafka.value.deserializer": "values are binary; cast them in the query",
    "kafka.enable.auto.commit": "batches are committed when they are finished: commitOffsets",
    "kafka.interceptor.classes": "interceptors are Java classes, and no Java consumer runs here",
}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

_SIZES = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LISTENER = re.compile(r"^[A-Za-z0-9_]+://")  # which Kafka's clients pass over before an address
_DURATION = re.compile(r"(-?\d+)\s*([a-z]*)")


@dataclass(frozen=True)
class ClientSettings:
    """What `kafka.*` says about the connections. Equal settings share connections within a Python worker."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "kompakt-spark"
    read_committed: bool = False
    check_crcs: bool = True
    request_timeout_ms: int = 30_000
    setup_timeout_ms: int = 10_000
    setup_timeout_max_ms: int = 30_000
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    fetch_bytes: int = 2 * 1024 * 1024
    receive_buffer_bytes: int = -1
    look_up_tries: int = 1
    look_up_pause_ms: int = 10
    security: Security = PLAINTEXT


@dataclass(frozen=True)
class Subscription:
    """Which partitions are read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class Position:
    """Where reading begins or ends: `offset` (EARLIEST or LATEST) unless offsets or times are given."""

    option: str
    offset: int = LATEST
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp_ms: int | None = None
    timestamps: tuple[tuple[TopicPartition, int], ...] = ()


@dataclass(frozen=True)
class Options:
    """All that a reader is told. Picklable: it travels to the executors."""

    client: ClientSettings
    subscription: Subscription
    starting: Position | None
    ending: Position | None
    fail_on_missing_time: bool = True
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    poll_timeout_ms: int = 120_000
    columns: tuple[str, ...] = PLAIN_COLUMNS
    are_columns_given: bool = False
    formats: Formats = AS_THEY_ARE
    max_bytes_per_trigger: int | None = None
    pack_offsets: int = 50_000
    is_view: bool = False
    view_memory_bytes: int = 4 * 1024 * 1024
    fail_on_keyless: bool = True
    is_pushdown: bool = False
    commit_group: str | None = None
    has_headers: bool = False
    misplaced: Misplaced = field(default_factory=Misplaced)


def parse_options(given: Mapping[str, str]) -> Options:
    """`given` in any case of its names; ConnectorError names the option that is wrong."""
    values = {name.lower(): value for name, value in given.items()}
    _refuse_typing_mistakes(values)
    for name, reason in REJECTED.items():
        if name in values:
            raise ConnectorError(f"option {name} is not supported: {reason}")
    judge_kafka_names(values, KAFKA_NAMES, "read")
    minimum = _min_offsets_per_trigger(values)
    maximum = positive(values, "maxoffsetspertrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ConnectorError(
            f"minOffsetsPerTrigger ({minimum}) must not be above maxOffsetsPerTrigger ({maximum})"
        )
    strategy = _word(values, "startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    starting, ending = _position(values, "starting"), _position(values, "ending")
    _refuse_times_in_disorder(starting, ending)
    is_view = _word(values, "view", "", ("", "latest")) == "latest"
    if is_view and starting is not None and starting != Position("startingOffsets", EARLIEST):
        raise ConnectorError(f"view=latest is made of whole logs; {starting.option} cannot go with it")
    return Options(
        client=_with_look_ups(parse_client_settings(values, is_view=is_view), values),
        subscription=_subscription(values),
        starting=starting,
        ending=_as_of(values) or ending,
        fail_on_missing_time=strategy == "error",
        fail_on_data_loss=boolean(values, "failondataloss", True),
        min_partitions=positive(values, "minpartitions"),
        max_records_per_partition=positive(values, "maxrecordsperpartition"),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=_max_trigger_delay_ms(values),
        poll_timeout_ms=positive(values, "kafkaconsumer.polltimeoutms") or Options.poll_timeout_ms,
        columns=_columns(values),
        are_columns_given="columns" in values,
        formats=parse_formats(values),
        max_bytes_per_trigger=positive(values, "maxbytespertrigger"),
        pack_offsets=_not_negative(values, "packoffsets", Options.pack_offsets),
        is_view=is_view,
        view_memory_bytes=positive(values, "viewmemorybytes") or Options.view_memory_bytes,
        fail_on_keyless=_word(values, "keylessRecords", "error", ("error", "absent")) == "error",
        is_pushdown=boolean(values, "pushdown", False),
        commit_group=_commit_group(values),
        has_headers=boolean(values, "includeheaders", False),
        misplaced=Misplaced.among(values),
    )


def _max_trigger_delay_ms(values: Mapping[str, str]) -> int:
    """Spark's durations: `500ms`, `90s`, `15m`, a bare number being milliseconds. One below 0 is no wait."""
    text = values.get("maxtriggerdelay")
    if text is None:
        return Options.max_trigger_delay_ms
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or (match[2] or "ms") not in _SIZES:
        raise ConnectorError(f"maxTriggerDelay must be a duration such as 90s or 15m, not {text}")
    return int(int(match[1]) * _SIZES[match[2] or "ms"])


def _refuse_typing_mistakes(values: Mapping[str, str]) -> None:
    """A misspelt `startingOffset` must not read a whole topic; names unlike ours are Spark's own affair.

    A view may have the options of an INSERT beside its own.
    """
    known = {**NAMES, **WRITE_NAMES} if any(name in values for name in SUBSCRIPTIONS) else NAMES
    for name in values:
        if name in known or name.startswith("kafka."):
            continue
        close = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.85)
        if close:
            raise ConnectorError(f"unknown option {name}; did you mean {NAMES[close[0]]}?")
        warn_once(name, "means nothing to format kompakt and is ignored")


def _commit_group(values: Mapping[str, str]) -> str | None:
    """The group that a stream commits to; None for none."""
    if not boolean(values, "commitoffsets", False):
        return None
    group_id = values.get("groupid", "").strip()
    if not group_id:
        raise ConnectorError("commitOffsets=true needs the option groupId: the group to commit to")
    return group_id


def _subscription(values: Mapping[str, str]) -> Subscription:
    given = [name for name in SUBSCRIPTIONS if values.get(name, "").strip()]
    if len(given) != 1:
        said = " and ".join(SUBSCRIPTIONS[name] for name in given) or "none of them"
        raise ConnectorError(
            f"exactly one of assign, subscribe and subscribePattern is needed, {said} was given"
        )
    text = values[given[0]].strip()
    if given[0] == "assign":
        return Subscription(partitions=parse_assignment(text))
    if given[0] == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in text.split(",") if topic.strip()}))
        if not topics:
            raise ConnectorError("subscribe names no topic")
        return Subscription(topics=topics)
    check_pattern(text)
    return Subscription(pattern=text)


def _position(values: Mapping[str, str], side: str) -> Position | None:
    """One time for all beats times by partition, and these beat offsets, as in Spark's own source."""
    everywhere, by_partition, by_offset = f"{side}timestamp", f"{side}offsetsbytimestamp", f"{side}offsets"
    if everywhere in values:
        name = NAMES[everywhere]
        return Position(name, timestamp_ms=_timestamp(name, values[everywhere]))
    if by_partition in values:
        name = NAMES[by_partition]
        given = parse_offsets(values[by_partition], name)
        timestamps = sorted((partition, _timestamp(name, time)) for partition, time in given.items())
        return Position(name, timestamps=tuple(timestamps))
    if by_offset not in values:
        return None
    name, text = NAMES[by_offset], values[by_offset].strip()
    if text.lower() in ("earliest", "latest"):
        return Position(name, offset=EARLIEST if text.lower() == "earliest" else LATEST)
    offsets = parse_offsets(text, name)
    if any(offset < EARLIEST for offset in offsets.values()):
        raise ConnectorError(f"{name} has an offset below -2 (earliest): {text}")
    return Position(name, offsets=tuple(sorted(offsets.items())))


def _refuse_times_in_disorder(starting: Position | None, ending: Position | None) -> None:
    """Times of a partition that end before they begin, whatever records there are, as Spark's own source
    does; -1 and -2 stand in no order. One time for all is looked up first, there and here.
    """
    if starting is None or ending is None:
        return
    ends = dict(ending.timestamps)
    for partition, start in starting.timestamps:
        if start > ends.get(partition, start) >= 0:
            where = f"{starting.option} {start} is behind {ending.option} {ends[partition]}"
            raise ConnectorError(f"{partition}: {where}")


def _timestamp(name: str, given: str | int) -> int:
    """As ListOffsets takes it, and so Spark's own source: ms, or -1 (latest) and -2 (earliest)."""
    text = str(given).strip()
    if not text.removeprefix("-").isdecimal() or int(text) < EARLIEST:
        raise ConnectorError(f"{name} must be ms since 1970, -1 (latest) or -2 (earliest), not {text}")
    return int(text)


def _as_of(values: Mapping[str, str]) -> Position | None:
    """The first record younger than the time ends the read, so all that is read is as old or older."""
    if "asof" not in values:
        return None
    both = [NAMES[name] for name in BATCH_ONLY if name.startswith("ending") and name in values]
    if both:
        raise ConnectorError(f"asOf and {both[0]} both say where to end; give one of them")
    text = values["asof"].strip()
    if text.isdecimal():
        return Position("asOf", timestamp_ms=int(text) + 1)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConnectorError(f"asOf must be ms or a time such as 2026-02-01T12:00:00Z, not {text}") from None
    if moment.tzinfo is None:
        raise ConnectorError(f"asOf needs a time zone: {text}Z, or {text}+01:00")
    # No record is from before 1970; -1 and -2 are words.
    return Position("asOf", timestamp_ms=max((moment - EPOCH) // MILLISECOND + 1, 0))


def _columns(values: Mapping[str, str]) -> tuple[str, ...]:
    headers = ("headers",) if boolean(values, "includeheaders", False) else ()
    if "columns" not in values:
        return PLAIN_COLUMNS + headers
    known = {name.lower(): name for name in COLUMN_TYPES}
    names = [name.strip() for name in values["columns"].split(",") if name.strip()]
    for name in names:
        if name.lower() not in known:
            raise ConnectorError(f"columns: there is no column {name}; there are {', '.join(COLUMN_TYPES)}")
    if not names or len({name.lower() for name in names}) != len(names):
        raise ConnectorError(f"columns must name each column once, not {values['columns']}")
    return tuple(known[name.lower()] for name in names)


def parse_client_settings(values: Mapping[str, str], *, is_view: bool = False) -> ClientSettings:
    """Of a view committed records are read unless told otherwise: an aborted one would stand in the place of
    the one that compaction leaves.
    """
    usual = "read_committed" if is_view else "read_uncommitted"
    isolation = values.get("kafka.isolation.level", usual).strip().lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ConnectorError(
            f"kafka.isolation.level must be read_committed or read_uncommitted, not {isolation}"
        )
    defaults = ClientSettings(())
    fetch_bytes = at_least_one(values, "kafka.max.partition.fetch.bytes", defaults.fetch_bytes)
    return ClientSettings(
        bootstrap_servers=parse_servers(values.get("kafka.bootstrap.servers", "")),
        client_id=values.get("kafka.client.id", values.get("kafka.group.id", defaults.client_id)),
        read_committed=isolation == "read_committed",
        check_crcs=boolean(values, "kafka.check.crcs", True),
        request_timeout_ms=positive(values, "kafka.request.timeout.ms") or defaults.request_timeout_ms,
        setup_timeout_ms=positive(values, "kafka.socket.connection.setup.timeout.ms")
        or defaults.setup_timeout_ms,
        setup_timeout_max_ms=positive(values, "kafka.socket.connection.setup.timeout.max.ms")
        or defaults.setup_timeout_max_ms,
        api_timeout_ms=positive(values, "kafka.default.api.timeout.ms") or defaults.api_timeout_ms,
        retry_backoff_ms=at_least_one(values, "kafka.retry.backoff.ms", defaults.retry_backoff_ms),
        retry_backoff_max_ms=at_least_one(
            values, "kafka.retry.backoff.max.ms", defaults.retry_backoff_max_ms
        ),
        fetch_bytes=min(fetch_bytes, at_least_one(values, "kafka.fetch.max.bytes", fetch_bytes)),
        receive_buffer_bytes=_receive_buffer_bytes(values),
        security=parse_security(values),
    )


def _receive_buffer_bytes(values: Mapping[str, str]) -> int:
    """-1, as Kafka's clients have it, leaves the size to the system."""
    name = "kafka.receive.buffer.bytes"
    if values.get(name, "-1").strip() == "-1":
        return -1
    return positive(values, name) or -1


def _with_look_ups(settings: ClientSettings, values: Mapping[str, str]) -> ClientSettings:
    tries, pause = "fetchoffset.numretries", "fetchoffset.retryintervalms"
    return replace(
        settings,
        look_up_tries=positive(values, tries) or settings.look_up_tries,
        look_up_pause_ms=_not_negative(values, pause, settings.look_up_pause_ms),
    )


def parse_servers(text: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host:port`; an IPv6 address stands in brackets, `PLAINTEXT://` may stand before any."""
    servers = []
    for server in (part.strip() for part in text.split(",")):
        if not server:
            continue
        host, colon, port = _LISTENER.sub("", server).rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConnectorError(f"kafka.bootstrap.servers must be host:port,..., not {server}")
        servers.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not servers:
        raise ConnectorError("option kafka.bootstrap.servers is needed: the addresses of one or more brokers")
    return tuple(servers)


def boolean(values: Mapping[str, str], name: str, default: bool) -> bool:
    text = values.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConnectorError(f"{NAMES.get(name, name)} must be true or false, not {values[name]}")
    return text == "true"


def _word(values: Mapping[str, str], name: str, default: str, known: tuple[str, ...]) -> str:
    text = values.get(name.lower(), default).strip().lower()
    if text not in known:
        raise ConnectorError(f"{name} must be {' or '.join(filter(None, known))}, not {text}")
    return text


def _not_negative(values: Mapping[str, str], name: str, default: int) -> int:
    if name not in values:
        return default
    text = values[name].strip()
    if not text.isdecimal():
        raise ConnectorError(f"{NAMES.get(name, name)} must be a number that is not negative, not {text}")
    return int(text)


def _min_offsets_per_trigger(values: Mapping[str, str]) -> int | None:
    """None, which waits for nothing, for 0 and less too: Spark's own source takes them so."""
    name = "minoffsetspertrigger"
    text = values.get(name, "").strip()
    if text.removeprefix("-").isdecimal() and int(text) <= 0:
        return None
    return positive(values, name)


def at_least_one(values: Mapping[str, str], name: str, default: int) -> int:
    """A setting that Kafka takes a 0 for: no pause, or one batch at a time; 1 does the same."""
    return max(_not_negative(values, name, default), 1)


def positive(values: Mapping[str, str], name: str) -> int | None:
    if name not in values:
        return None
    number = _not_negative(values, name, 0)
    if number == 0:
        raise ConnectorError(f"{NAMES.get(name, name)} must be positive")
    return number
