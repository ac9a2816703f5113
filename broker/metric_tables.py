"""Every metric as a table row: name, kind, one line of help, and what to read. No metrics library here.

`kafka_…` names have Kafka's meanings, spelled as the JMX exporter's usual lower-case rules spell them, so
that common dashboards work; consumer groups are named as kafka_exporter names them. `kompakt_…` are our
own: first of all what Kafka lacks, the compaction of each partition. To add a metric, add a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.counters import Counters, TopicCounters
    from cleaner.statistics import CleanerStatistics, PartitionCleanStats
    from storage.log import Log

S = TypeVar("S")
Number = int | float


class Kind(Enum):
    """COUNTER only grows while the process lives; its exposed name ends in `_total`."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Metric(NamedTuple, Generic[S]):
    """One metric read from a subject S. `read` gives a number, None for no sample, or with `label` a
    mapping of label values to numbers.
    """

    name: str
    kind: Kind
    words: str
    read: Callable[[S], Number | Mapping[str, Number] | None]
    label: str = ""


def offline_partitions(broker: Broker) -> int:
    """Partitions whose log is offline or could not be opened."""
    partitions = tuple(broker.partitions.values())
    failed = sum(partition.log.offline_reason is not None for partition in partitions)
    return failed + len(broker.logs.failures)


def offline_directories(broker: Broker) -> dict[str, int]:
    """For each log directory, 1 when it has logs and none of them is served."""
    served: dict[str, list[bool]] = {str(directory.path): [] for directory in broker.logs.directories}
    for partition in tuple(broker.partitions.values()):
        served[str(partition.log.directory.parent)].append(partition.log.offline_reason is None)
    return {path: int(bool(states) and not any(states)) for path, states in served.items()}


def offline_directory_count(broker: Broker) -> int:
    return sum(offline_directories(broker).values())


def topic_count(broker: Broker) -> int:
    return len(broker.topics.all())


def partition_count(broker: Broker) -> int:
    return sum(topic.partition_count for topic in broker.topics.all())


def logs_to_recover(broker: Broker) -> int:
    return broker.logs.logs_to_recover


def segments_recovered(broker: Broker) -> int:
    return broker.logs.segments_recovered


TOPIC: tuple[Metric[TopicCounters], ...] = (
    Metric(
        "kafka_server_brokertopicmetrics_messagesin", Kind.COUNTER,
        "Records that producers wrote", lambda topic: topic.messages_in,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesin", Kind.COUNTER,
        "Bytes of record batches that producers wrote", lambda topic: topic.bytes_in,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesout", Kind.COUNTER,
        "Bytes of record batches that consumers fetched", lambda topic: topic.bytes_out,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesrejected", Kind.COUNTER,
        "Bytes of record batches that were refused", lambda topic: topic.bytes_rejected,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_totalproducerequests", Kind.COUNTER,
        "Batches that producers sent", lambda topic: topic.produce_requests,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_totalfetchrequests", Kind.COUNTER,
        "Times that a partition was fetched", lambda topic: topic.fetch_requests,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_failedproducerequests", Kind.COUNTER,
        "Batches that were answered with an error", lambda topic: topic.failed_produce_requests,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_failedfetchrequests", Kind.COUNTER,
        "Fetches of a partition that were answered with an error", lambda topic: topic.failed_fetch_requests,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords", Kind.COUNTER,
        "Batches refused because a compacted topic takes no record without a key",
        lambda topic: topic.no_key_compacted_topic_records,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_invalidmagicnumberrecords", Kind.COUNTER,
        "Batches refused for their format version", lambda topic: topic.invalid_magic_number_records,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_invalidmessagecrcrecords", Kind.COUNTER,
        "Batches refused for a wrong checksum", lambda topic: topic.invalid_message_crc_records,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_invalidoffsetorsequencerecords", Kind.COUNTER,
        "Batches refused for their offsets or sequence numbers",
        lambda topic: topic.invalid_offset_or_sequence_records,
    ),
)  # fmt: skip
"""labelled by topic"""

LOG: tuple[Metric[Log], ...] = (
    Metric("kafka_log_log_size", Kind.GAUGE, "Bytes of the partition's segments", lambda log: log.size_bytes),
    Metric("kafka_log_log_numlogsegments", Kind.GAUGE, "Segments", lambda log: len(log.segments)),
    Metric(
        "kafka_log_log_logstartoffset", Kind.GAUGE,
        "The first offset that may be read", lambda log: log.log_start_offset,
    ),
    Metric(
        "kafka_log_log_logendoffset", Kind.GAUGE,
        "The offset that the next record gets", lambda log: log.log_end_offset,
    ),
    Metric(
        "kompakt_high_watermark", Kind.GAUGE,
        "The offset up to which consumers may read: on disk, with flush.messages 1",
        lambda log: log.high_watermark,
    ),
    Metric(
        "kompakt_last_stable_offset", Kind.GAUGE,
        "The offset up to which read_committed consumers may read", lambda log: log.last_stable_offset,
    ),
    Metric(
        "kompakt_recovery_point", Kind.GAUGE,
        "The offset up to which the log is flushed", lambda log: log.recovery_point,
    ),
    Metric(
        "kompakt_log_offline", Kind.GAUGE,
        "1 where a failure of the disk took the partition offline",
        lambda log: int(log.offline_reason is not None),
    ),
)  # fmt: skip
"""labelled by topic and partition"""

BROKER: tuple[Metric[Broker], ...] = (
    Metric(
        "kafka_controller_kafkacontroller_activecontrollercount", Kind.GAUGE,
        "1: the one node is the controller", lambda broker: 1,
    ),
    Metric(
        "kafka_controller_kafkacontroller_globaltopiccount", Kind.GAUGE,
        "Topics, the internal ones among them", topic_count,
    ),
    Metric(
        "kafka_controller_kafkacontroller_globalpartitioncount", Kind.GAUGE,
        "Partitions of all topics",
        partition_count,
    ),
    Metric(
        "kafka_controller_kafkacontroller_offlinepartitionscount", Kind.GAUGE,
        "Partitions that are not served", offline_partitions,
    ),
    Metric(
        "kafka_server_replicamanager_partitioncount", Kind.GAUGE,
        "Partitions that are served", lambda broker: len(broker.partitions),
    ),
    Metric(
        "kafka_server_replicamanager_leadercount", Kind.GAUGE,
        "Partitions that this node leads: all of them", lambda broker: len(broker.partitions),
    ),
    Metric(
        "kafka_server_replicamanager_underreplicatedpartitions", Kind.GAUGE,
        "0: a partition has one replica", lambda broker: 0,
    ),
    Metric(
        "kafka_log_logmanager_offlinelogdirectorycount", Kind.GAUGE,
        "Log directories of which no partition is served",
        offline_directory_count,
    ),
    Metric(
        "kafka_log_logmanager_logdirectoryoffline", Kind.GAUGE,
        "1 where no partition of a log directory is served", offline_directories,
        "logDirectory",
    ),
    Metric(
        "kafka_log_logmanager_remaininglogstorecover", Kind.GAUGE,
        "Logs that the start still has to open", logs_to_recover,
    ),
    Metric(
        "kompakt_segments_recovered", Kind.COUNTER,
        "Segments that were read through after an unclean stop",
        segments_recovered,
    ),
)  # fmt: skip

COUNTERS: tuple[Metric[Counters], ...] = (
    Metric(
        "kompakt_connections_open", Kind.GAUGE,
        "Connections", lambda counters: counters.connections_open,
    ),
    Metric(
        "kompakt_connections_opened", Kind.COUNTER,
        "Connections that were taken", lambda counters: counters.connections_opened,
    ),
    Metric(
        "kompakt_connections_refused", Kind.COUNTER,
        "Connections that were refused for a limit", lambda counters: counters.connections_refused,
    ),
    Metric(
        "kompakt_bytes_received", Kind.COUNTER,
        "Bytes that came in from clients", lambda counters: counters.bytes_received,
    ),
    Metric(
        "kompakt_bytes_sent", Kind.COUNTER,
        "Bytes that went out to clients", lambda counters: counters.bytes_sent,
    ),
    Metric(
        "kompakt_malformed_requests", Kind.COUNTER,
        "Broken, oversized or unsupported requests; each closed its connection",
        lambda counters: counters.malformed_requests,
    ),
    Metric(
        "kompakt_internal_errors", Kind.COUNTER,
        "Bugs of ours that were met: answered UNKNOWN_SERVER_ERROR, with a traceback in the log",
        lambda counters: counters.internal_errors,
    ),
    Metric(
        "kompakt_flushes", Kind.COUNTER,
        "Flushes of logs to disk; one serves all who wait", lambda counters: counters.flushes,
    ),
    Metric(
        "kompakt_flush_errors", Kind.COUNTER,
        "Flushes that failed; each took its log offline", lambda counters: counters.flush_errors,
    ),
    Metric(
        "kompakt_flush_seconds", Kind.COUNTER,
        "Time that flushes took", lambda counters: counters.flush_nanoseconds / 1e9,
    ),
    Metric(
        "kompakt_fetch_sessions_evicted", Kind.COUNTER,
        "Fetch sessions that were forgotten for newer ones",
        lambda counters: counters.fetch_sessions_evicted,
    ),
    Metric(
        "kompakt_delayed_fetches_expired", Kind.COUNTER,
        "Fetches answered because their time was up",
        lambda counters: counters.delayed_fetches_expired,
    ),
)  # fmt: skip

CLEANER: tuple[Metric[CleanerStatistics], ...] = ()
"""of the cleaner as a whole"""

PARTITION: tuple[Metric[PartitionCleanStats], ...] = ()
"""compaction of one partition, labelled by topic and partition"""

REQUESTS = Metric[None](
    "kafka_network_requestmetrics_requests", Kind.COUNTER, "Requests by API", lambda _: None, "request"
)
REQUEST_SECONDS = Metric[None](
    "kompakt_request_seconds",
    Kind.HISTOGRAM,
    "From the last byte of a request to its answer",
    lambda _: None,
    "request",
)
GROUP_LAG = Metric[None](
    "kafka_consumergroup_lag", Kind.GAUGE,
    "Records between a group's committed offset (or the log start) and the high watermark", lambda _: None,
)  # fmt: skip
GROUP_OFFSET = Metric[None](
    "kafka_consumergroup_current_offset", Kind.GAUGE, "A group's committed offset", lambda _: None
)
BUILD = Metric[None]("kompakt_build", Kind.GAUGE, "1, labelled with the version", lambda _: None, "version")
