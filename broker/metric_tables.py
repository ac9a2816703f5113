"""Every metric as a table row: name, kind, one line of help, and what to read. No metrics library here.

`kafka_…` names have Kafka's meanings, spelled as the JMX exporter's usual lower-case rules spell them, so
that common dashboards work; consumer groups are named as kafka_exporter names them. `kompakt_…` are our
own: first of all what Kafka lacks, the compaction of each partition. To add a metric, add a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker import metric_readings as readings
from broker.metric import Kind, Metric

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.counters import Counters, TopicCounters
    from cleaner.manager import CleanerManager
    from cleaner.statistics import PartitionCleanStats
    from storage.file import DescriptorPool
    from storage.log import Log

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
        "kompakt_corrupt_batches", Kind.COUNTER,
        "Damaged places found in the log since the start, each of one batch or several side by side: none is "
        "served",
        lambda log: log.health.damaged_places,
    ),
    Metric(
        "kompakt_segments", Kind.GAUGE, "Segments, the active one among them", lambda log: len(log.segments)
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
        "Topics, the internal ones among them", readings.topic_count,
    ),
    Metric(
        "kafka_controller_kafkacontroller_globalpartitioncount", Kind.GAUGE,
        "Partitions of all topics",
        readings.partition_count,
    ),
    Metric(
        "kafka_controller_kafkacontroller_offlinepartitionscount", Kind.GAUGE,
        "Partitions that are not served", readings.offline_partitions,
    ),
    Metric(
        "kafka_server_replicamanager_partitioncount", Kind.GAUGE,
        "Partitions, those that are offline among them", lambda broker: len(broker.partitions),
    ),
    Metric(
        "kafka_server_replicamanager_leadercount", Kind.GAUGE,
        "Partitions that this node leads: all that are not offline",
        lambda broker: len(broker.partitions) - readings.offline_partitions(broker),
    ),
    Metric(
        "kafka_server_replicamanager_underreplicatedpartitions", Kind.GAUGE,
        "0: a partition has one replica", lambda broker: 0,
    ),
    Metric(
        "kafka_log_logmanager_offlinelogdirectorycount", Kind.GAUGE,
        "Log directories of which no partition is served",
        readings.offline_directory_count,
    ),
    Metric(
        "kafka_log_logmanager_logdirectoryoffline", Kind.GAUGE,
        "1 where no partition of a log directory is served", readings.offline_directories,
        "logDirectory",
    ),
    Metric(
        "kafka_log_logmanager_remaininglogstorecover", Kind.GAUGE,
        "Logs that the start still has to open", readings.logs_to_recover,
    ),
    Metric(
        "kafka_log_logmanager_remainingsegmentstorecover", Kind.GAUGE,
        "Segments that the start still has to read through, of the logs that are being opened",
        readings.segments_to_recover,
    ),
    Metric(
        "kompakt_topic_policy_warning", Kind.GAUGE,
        "1 for a topic that looks like the table of a known system (_schemas, connect-*, *-changelog) and "
        "has a policy that loses data", readings.policy_warnings, "topic",
    ),
    Metric(
        "kompakt_segments_recovered", Kind.COUNTER,
        "Segments that were read through after an unclean stop", readings.segments_recovered,
    ),
    Metric(
        "kompakt_cleaner_key_hashes_bytes", Kind.GAUGE, "Memory of the keys that no cleaning has mapped yet; "
        "log.cleaner.key.hashes.bytes bounds it", readings.key_hash_bytes,
    ),
    Metric(
        "kompakt_transactional_ids", Kind.GAUGE, "Transactional ids by what they are doing",
        readings.transactional_ids, "state",
    ),
    Metric(
        "kompakt_oldest_transaction_seconds", Kind.GAUGE,
        "For how long the oldest transaction that is going on has been; 0 if there is none",
        readings.oldest_transaction_seconds,
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
        "kompakt_authentications", Kind.COUNTER,
        "Clients that proved who they are, by a password or a certificate, once for each session",
        lambda counters: counters.authentications,
    ),
    Metric(
        "kompakt_failed_authentications", Kind.COUNTER,
        "Clients that were refused for that, and handshakes of TLS that failed",
        lambda counters: counters.failed_authentications,
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
        "kompakt_unread_bytes", Kind.GAUGE,
        "Bytes of large answers that clients have not taken yet; fetch.max.unread.bytes bounds them",
        lambda counters: counters.unread_bytes,
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
        "Fetch sessions that were forgotten for newer ones", lambda counters: counters.fetch_sessions_evicted,
    ),
    Metric(
        "kompakt_delayed_fetches_expired", Kind.COUNTER,
        "Fetches answered because their time was up", lambda counters: counters.delayed_fetches_expired,
    ),
    Metric(
        "kompakt_throttled", Kind.COUNTER,
        "Answers, and connections, whose client had to wait because it was beyond its quota, or connections "
        "beyond max.connection.creation.rate",
        lambda counters: counters.throttled, label="quota",
    ),
    Metric(
        "kompakt_throttle_seconds", Kind.COUNTER,
        "How long these clients were told to wait, all together",
        lambda counters: {key: ms / 1000 for key, ms in counters.throttled_ms.items()}, label="quota",
    ),
    Metric(
        "kompakt_connections_throttled", Kind.GAUGE,
        "Connections that are not read because their client has to wait",
        lambda counters: counters.connections_throttled,
    ),
)  # fmt: skip

CLEANER: tuple[Metric[CleanerManager], ...] = (
    Metric(
        "kafka_log_logcleaner_max_buffer_utilization_percent", Kind.GAUGE,
        "How full the offset map was in the last cleaning",
        lambda cleaner: cleaner.statistics.max_buffer_utilization_percent,
    ),
    Metric(
        "kafka_log_logcleaner_cleaner_recopy_percent", Kind.GAUGE,
        "Bytes written for a hundred bytes read in the last cleaning",
        lambda cleaner: cleaner.statistics.cleaner_recopy_percent,
    ),
    Metric(
        "kafka_log_logcleaner_max_clean_time_secs", Kind.GAUGE,
        "How long the last cleaning took", lambda cleaner: cleaner.statistics.max_clean_time_secs,
    ),
    Metric(
        "kafka_log_logcleaner_max_compaction_delay_secs", Kind.GAUGE,
        "How long the most belated partition is due by max.compaction.lag.ms",
        lambda cleaner: cleaner.statistics.max_compaction_delay_secs,
    ),
    Metric(
        "kafka_log_logcleaner_deadthreadcount", Kind.GAUGE,
        "Cleaner threads that died and are not yet started anew",
        lambda cleaner: cleaner.statistics.dead_threads,
    ),
    Metric(
        "kafka_log_logcleanermanager_max_dirty_percent", Kind.GAUGE,
        "The dirty ratio of the dirtiest partition", lambda cleaner: cleaner.statistics.max_dirty_percent,
    ),
    Metric(
        "kafka_log_logcleanermanager_time_since_last_run_ms", Kind.GAUGE,
        "How long no cleaner thread has looked for work",
        lambda cleaner: cleaner.statistics.time_since_last_run_ms(cleaner.now_ms()),
    ),
    Metric(
        "kafka_log_logcleanermanager_uncleanable_partitions_count", Kind.GAUGE,
        "Partitions that are set aside because their cleaning failed",
        lambda cleaner: cleaner.statistics.uncleanable_partitions, "logDirectory",
    ),
    Metric(
        "kafka_log_logcleanermanager_uncleanable_bytes", Kind.GAUGE,
        "Dirty bytes that would be cleaned, were their partitions not set aside",
        lambda cleaner: cleaner.statistics.uncleanable_bytes,
        "logDirectory",
    ),
    Metric(
        "kompakt_cleaner_runs", Kind.COUNTER,
        "Cleanings that were finished", lambda cleaner: cleaner.statistics.runs,
    ),
    Metric(
        "kompakt_cleaner_runs_aborted", Kind.COUNTER,
        "Cleanings that somebody stopped", lambda cleaner: cleaner.statistics.aborted_runs,
    ),
    Metric(
        "kompakt_cleaner_runs_failed", Kind.COUNTER,
        "Cleanings that failed", lambda cleaner: cleaner.statistics.failed_runs,
    ),
    Metric(
        "kompakt_cleaner_threads_restarted", Kind.COUNTER,
        "Cleaner threads that died and were started anew",
        lambda cleaner: cleaner.statistics.worker_restarts,
    ),
)  # fmt: skip
"""the cleaner as a whole"""

DIRECTORY: tuple[Metric[Mapping[str, Any]], ...] = (
    Metric(
        "kompakt_log_directory_free_bytes",
        Kind.GAUGE,
        "What is free on the disk of a log directory",
        lambda row: row["free_bytes"],
    ),
    Metric(
        "kompakt_log_directory_growth_bytes_per_second",
        Kind.GAUGE,
        "How fast the logs of a directory grow that have not levelled off: what is written to them, on the "
        "mean of about a day",
        lambda row: row["forecast"] and row["forecast"]["bytes_per_second"],
    ),
    Metric(
        "kompakt_log_directory_full_seconds",
        Kind.GAUGE,
        "When the disk of a log directory will be full; none where it levels off before",
        readings.full_in_seconds,
    ),
)

PARTITION: tuple[Metric[PartitionCleanStats], ...] = (
    Metric("kompakt_clean_bytes", Kind.GAUGE, "Bytes of the clean part (tail)", lambda one: one.clean_bytes),
    Metric(
        "kompakt_cleanable_bytes", Kind.GAUGE,
        "Bytes of the dirty part (head) that may be cleaned", lambda one: one.cleanable_bytes,
    ),
    Metric(
        "kompakt_uncleanable_bytes", Kind.GAUGE,
        "Bytes that may not be cleaned yet: active segment, compaction lag, or above the last stable offset",
        lambda one: one.uncleanable_bytes, "reason",
    ),
    Metric(
        "kompakt_dirty_ratio", Kind.GAUGE,
        "Cleanable bytes as a share of clean and cleanable ones", lambda one: one.dirty_ratio,
    ),
    Metric(
        "kompakt_first_dirty_offset", Kind.GAUGE,
        "The offset where the dirty part begins", lambda one: one.first_dirty_offset,
    ),
    Metric(
        "kompakt_first_uncleanable_offset", Kind.GAUGE,
        "The offset up to which a cleaning would go", lambda one: one.first_uncleanable_offset,
    ),
    Metric(
        "kompakt_compaction_delay_seconds", Kind.GAUGE,
        "How long a cleaning is due by max.compaction.lag.ms", lambda one: one.compaction_delay_ms / 1000,
    ),
    Metric(
        "kompakt_next_eligible_timestamp", Kind.GAUGE,
        "When time alone will make it due to be cleaned, or it is tried again, in seconds since 1970",
        lambda one: None if one.next_eligible_ms is None else one.next_eligible_ms / 1000,
    ),
    Metric(
        "kompakt_not_cleaned", Kind.GAUGE,
        "1, labelled with the reason why it is not cleaned now",
        lambda one: {} if one.why_not is None else {one.why_not: 1}, "reason",
    ),
    Metric(
        "kompakt_tombstones", Kind.GAUGE,
        "Tombstones in closed segments: fresh until a cleaning meets them, armed until their delete horizon, "
        "expired after it",
        lambda one: one.tombstones, "state",
    ),
    Metric(
        "kompakt_empty_values", Kind.GAUGE,
        "Records in closed segments with a key and a value that is empty, not null: no tombstones",
        lambda one: one.empty_values,
    ),
    Metric(
        "kompakt_live_keys", Kind.GAUGE,
        "Keys with a value in the clean part, as the last cleaning left it", lambda one: one.live_keys,
    ),
    Metric(
        "kompakt_records_removed", Kind.COUNTER,
        "Records that cleanings removed", lambda one: one.records_removed, "reason",
    ),
    Metric(
        "kompakt_bytes_reclaimed", Kind.COUNTER,
        "Bytes that cleanings freed", lambda one: one.bytes_reclaimed,
    ),
    Metric(
        "kompakt_recopy_bytes", Kind.COUNTER,
        "Bytes that cleanings wrote anew", lambda one: one.recopied_bytes,
    ),
    Metric(
        "kompakt_clean_seconds", Kind.HISTOGRAM,
        "How long cleanings took", lambda one: one.seconds,
    ),
    Metric(
        "kompakt_cleaning_bytes", Kind.HISTOGRAM,
        "Bytes of the segments that a cleaning rewrote", lambda one: one.bytes_read,
    ),
    Metric(
        "kompakt_cleaning_records", Kind.HISTOGRAM,
        "Records of the segments that a cleaning rewrote", lambda one: one.records_read,
    ),
    Metric(
        "kompakt_cleaning_kept_ratio", Kind.HISTOGRAM,
        "Bytes that a cleaning left of those that it rewrote, 0 to 1", lambda one: one.kept_ratio,
    ),
    Metric(
        "kompakt_last_clean_timestamp", Kind.GAUGE,
        "When the last cleaning ended, in seconds since 1970",
        lambda one: one.last_clean_ms / 1000 if one.last_clean_ms else None,
    ),
    Metric(
        "kompakt_uncleanable", Kind.GAUGE,
        "1, labelled with the error that its cleaning met",
        lambda one: {} if one.uncleanable_error is None else {one.uncleanable_error: 1}, "error",
    ),
)  # fmt: skip
"""compaction of one partition, labelled by topic and partition"""

FILES: tuple[Metric[DescriptorPool], ...] = (
    Metric(
        "kompakt_open_files", Kind.GAUGE,
        "Data files kept open to be read; those being written or flushed come on top",
        lambda pool: pool.open_files,
    ),
    Metric(
        "kompakt_open_files_limit", Kind.GAUGE,
        "How many data files may be open before idle ones are closed", lambda pool: pool.capacity,
    ),
)  # fmt: skip

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
    "kafka_consumergroup_current_offset", Kind.GAUGE, "Where a group stands", lambda _: None
)
CLIENT_THROTTLE_SECONDS = Metric[None](
    "kompakt_client_throttle_seconds", Kind.COUNTER,
    "How long those who are counted together for a quota were told to wait, all together: by user, client_id "
    "and ip, as far as the quota is about them; of the last 100 of them",
    lambda _: None, "quota",
)  # fmt: skip
BUILD = Metric[None]("kompakt_build", Kind.GAUGE, "1, labelled with the version", lambda _: None, "version")
SINGLE: tuple[Metric[None], ...] = (
    REQUESTS, REQUEST_SECONDS, CLIENT_THROTTLE_SECONDS, GROUP_LAG, GROUP_OFFSET, BUILD,
)  # fmt: skip
"""with a reader of their own in `metrics.py`"""
