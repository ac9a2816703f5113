"""Settings of topics, groups and brokers for requests that dice fill in: texts that each may have, or not.

Left out is what both refuse in words of their own, and what only one of the two has.
"""

from __future__ import annotations

Texts = dict[str, tuple[str | None, ...]]

TOPIC_SETTINGS: Texts = {
    "cleanup.policy": (
        "compact", "delete", "compact,delete", "delete,compact", "junk", "delete,delete", " compact , delete",
        None, "COMPACT",
    ),
    "retention.ms": (
        "-1", "1000000000000", "0", "-2", "abc", "", None, "9223372036854775807", "9223372036854775808",
    ),
    "retention.bytes": ("-1", "0", "1000000", "-5", None),
    "segment.bytes": ("1048576", "14", "13", "1", "2147483647", "2147483648", "0", None, "1e6"),
    "segment.ms": ("1", "0", "-1", "1000000", "9223372036854775807"),
    "segment.jitter.ms": ("0", "5", "-1"),
    "min.cleanable.dirty.ratio": ("0.5", "1", "1.0", "1.1", "-0.1", "x", "0", ".5", "1e-3", "2"),
    "min.compaction.lag.ms": ("0", "5", "-1", "100000000000"),
    "max.compaction.lag.ms": ("1", "0", "5", "9223372036854775807"),
    "delete.retention.ms": ("0", "100", "-1"),
    "compression.type": (
        "producer", "lz4", "zstd", "none", "uncompressed", "gzip", "snappy", "LZ4", "x", "", None,
    ),
    "compression.gzip.level": ("-1", "1", "9", "10", "0"),
    "compression.lz4.level": ("1", "17", "18", "0"),
    "compression.zstd.level": ("-131072", "22", "23", "-131073", "0"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", None),
    "message.timestamp.before.max.ms": ("0", "-1", "9223372036854775807"),
    "message.timestamp.after.max.ms": ("0", "3600000", "-1"),
    "max.message.bytes": ("0", "1000", "-1", "1048588", "10000000"),
    "min.insync.replicas": ("1", "2", "0", "-1"),
    "unclean.leader.election.enable": ("true", "false", "TRUE", "yes", "", None),
    "preallocate": ("true", "false", "x"),
    "index.interval.bytes": ("0", "4096", "-1"),
    "segment.index.bytes": ("4", "3", "1048576"),
    "file.delete.delay.ms": ("0", "60000", "-1"),
    "flush.messages": ("1", "0", "9223372036854775807"),
    "flush.ms": ("0", "1000", "-1"),
    "remote.storage.enable": ("false",),
    "local.retention.ms": ("-2", "-1", "5", "-3"),
    "local.retention.bytes": ("-2", "100"),
    "leader.replication.throttled.replicas": ("*", "0:1", "0:1,1:1", ""),
    "follower.replication.throttled.replicas": ("*", "0:1", "", None),
    "message.format.version": ("3.0",),
    "message.downconversion.enable": ("true",),
    "no.such.thing": ("1", "", None),
    "": ("1",),
}  # fmt: skip
GROUP_SETTINGS: Texts = {
    "consumer.session.timeout.ms": ("45000", "50000", "1", "x", "10000000", None),
    "consumer.heartbeat.interval.ms": ("5000", "6000", "1", "100000"),
    "share.session.timeout.ms": ("45000", "1"),
    "share.heartbeat.interval.ms": ("5000",),
    "share.record.lock.duration.ms": ("30000", "1", "15000"),
    "share.auto.offset.reset": (
        "earliest", "latest", "none", "by_duration:PT1H", "by_duration:x", "EARLIEST",
    ),
    "share.isolation.level": ("read_committed", "read_uncommitted", "x"),
    "streams.num.standby.replicas": ("0", "1", "2", "5", "-1"),
    "streams.session.timeout.ms": ("45000",),
    "no.such": ("x",),
}  # fmt: skip
BROKER_SETTINGS: Texts = {
    "log.retention.ms": ("-1", "100000000000", "x"),
    "log.cleaner.threads": ("1", "2"),
    "message.max.bytes": ("1048588", "2000000"),
    "log.segment.bytes": ("1073741824", "2000000"),
    "max.connections.per.ip": ("100", "2147483647"),
    "max.connections.per.ip.overrides": ("", "10.0.0.1:5", "10.0.0.2:0,10.0.0.1:7"),
    "producer.id.expiration.ms": ("86400000", "100000", "0", "x"),
    "log.cleaner.min.cleanable.ratio": ("0.5", "0.3", "2"),
    "compression.type": ("producer", "lz4"),
    "log.cleanup.policy": ("delete", "compact"),
}
