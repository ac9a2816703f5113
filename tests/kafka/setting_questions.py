"""What Apache Kafka and kompakt are both asked about settings: to tell them, and to change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

Question = tuple[str, Any, int]
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
CONFIGS: Sequence[tuple[str, str | None]] = (
    ("cleanup_policy", "compact"), ("cleanup_policy", "compact,delete"), ("cleanup_policy", "shrink"),
    ("cleanup_policy", ""), ("cleanup_policy", None), ("retention_ms", "-1"), ("retention_ms", "-2"),
    ("retention_ms", "x"), ("retention_ms", "9223372036854775808"), ("segment_bytes", "14"),
    ("segment_bytes", "1048575"), ("segment_bytes", "1048576"), ("segment_ms", "0"), ("segment_ms", "1"),
    ("min_cleanable_dirty_ratio", "1.1"), ("min_cleanable_dirty_ratio", "-0.1"),
    ("min_cleanable_dirty_ratio", "x"), ("compression_type", "lz5"), ("compression_type", "zstd"),
    ("compression_gzip_level", "10"), ("compression_gzip_level", "-1"), ("compression_zstd_level", "23"),
    ("message_timestamp_type", "createtime"), ("message_timestamp_type", "CreateTime"),
    ("min_compaction_lag_ms", "-1"), ("max_compaction_lag_ms", "0"), ("max_compaction_lag_ms", "1"),
    ("unclean_leader_election_enable", "maybe"), ("unclean_leader_election_enable", "TRUE"),
    ("min_insync_replicas", "0"), ("index_interval_bytes", "-1"), ("flush_messages", "0"),
    ("delete_retention_ms", "-1"), ("file_delete_delay_ms", "-1"), ("no_such_key", "1"),
    ("max_message_bytes", "-1"), ("segment_index_bytes", "3"), ("segment_jitter_ms", "-1"),
    ("message_timestamp_after_max_ms", "-1"), ("preallocate", "true"), ("retention_ms", None),
    ("retention_ms", " 5 "), ("log_cleaner_threads", "1"), ("remote_storage_enable", "true"),
    ("remote_log_copy_disable", "true"), ("remote_log_delete_on_disable", "true"),
    ("retention_bytes", "-2"), ("retention_bytes", "-9223372036854775808"),
    *(("leader_replication_throttled_replicas", text) for text in (",", "0:1,,0:1", "*,", "*,0:1", "*,*")),
)  # fmt: skip
APPENDED = ("", " ", ",", "compact,", ",compact", "compact,,delete")


def configs() -> Iterator[Question]:
    yield from _described()
    yield from _changed()
    yield from _changed_groups()
    yield from _changed_loggers()


def _described() -> Iterator[Question]:
    for kind, name in (
        (TOPIC, "none"),
        (TOPIC, ""),
        (TOPIC, "a b"),
        (BROKER, "9"),
        (BROKER, "x"),
        (99, "plain"),
        (GROUP, ""),
        (GROUP, "never"),
        (LOGGER, ""),
        (LOGGER, "9"),
        (LOGGER, "x"),
    ):
        asked = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        yield f"DescribeConfigs of {kind} {name!r}", DescribeConfigsRequest(resources=[asked]), 4
    root = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=LOGGER, resource_name="1", configuration_keys=["root"]
    )
    yield "DescribeConfigs of the root logger", DescribeConfigsRequest(resources=[root]), 4
    for version, types in ((0, []), (1, []), (1, [TOPIC]), (1, [BROKER, 8, 16, 32]), (1, [TOPIC, 3])):
        request = ListConfigResourcesRequest(resource_types=types)
        yield f"ListConfigResources {types}, v{version}", request, version


def altered(*changes: tuple[str, int, str | None], name: str = "plain", kind: int = TOPIC) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    given = [
        resource.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    one = resource(resource_type=kind, resource_name=name, configs=given)
    return IncrementalAlterConfigsRequest(resources=[one], validate_only=True)


def _changed() -> Iterator[Question]:
    for key, value in CONFIGS:
        request = altered((key.replace("_", "."), 0, value))
        yield f"IncrementalAlterConfigs {key}={value}", request, 1
    for label, request in (
        ("of no topic", altered(("retention.ms", 0, "1"), name="none")),
        ("of an empty name", altered(("retention.ms", 0, "1"), name="")),
        ("delete", altered(("retention.ms", 1, None))),
        ("delete an unknown key", altered(("no.such.key", 1, None))),
        ("append to a list", altered(("cleanup.policy", 2, "compact"))),
        ("append to a number", altered(("retention.ms", 2, "1"))),
        ("subtract from a list", altered(("cleanup.policy", 3, "delete"))),
        ("subtract what is not there", altered(("cleanup.policy", 3, "compact"))),
        ("operation 9", altered(("retention.ms", 9, "1"))),
        ("a key twice", altered(("retention.ms", 0, "1"), ("retention.ms", 0, "2"))),
        ("of another broker", altered(("log.cleaner.threads", 0, "1"), name="9", kind=BROKER)),
        ("of a broker without a number", altered(("log.cleaner.threads", 0, "1"), name="x", kind=BROKER)),
        ("of a fixed key", altered(("log.dirs", 0, "/x"), name="1", kind=BROKER)),
        ("of an unknown kind", altered(("retention.ms", 0, "1"), kind=99)),
        *((f"append {text!r}", altered(("cleanup.policy", 2, text))) for text in APPENDED),
        ("no number of a broker", altered(("log.cleaner.backoff.ms", 0, "x"), name="1", kind=BROKER)),
        ("a number too low for all brokers", altered(("log.roll.ms", 0, "0"), name="", kind=BROKER)),
        ("too many threads", altered(("log.cleaner.threads", 0, "9"), name="1", kind=BROKER)),
        ("append to a broker's number", altered(("log.roll.ms", 2, "1"), name="1", kind=BROKER)),
        ("a broker's retention below -1", altered(("log.retention.bytes", 0, "-2"), name="1", kind=BROKER)),
        ("a broker's segments too small", altered(("log.segment.bytes", 0, "1"), name="1", kind=BROKER)),
    ):
        yield f"IncrementalAlterConfigs {label}", request, 1


def _changed_groups() -> Iterator[Question]:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    for key, operation, value in (
        (session, 0, "50000"), (session, 0, "44999"), (session, 0, "60001"), (session, 0, "x"),
        (session, 0, "-1"), (session, 0, None), (session, 1, None), (session, 2, "1"), ("nope", 0, "1"),
        ("nope", 1, None), (heartbeat, 0, "6000"), (heartbeat, 0, "1"), (heartbeat, 0, "15001"),
        ("group.consumer.session.timeout.ms", 0, "50000"), ("retention.ms", 0, "1"),
    ):  # fmt: skip
        request = altered((key, operation, value), name="g", kind=GROUP)
        yield f"IncrementalAlterConfigs of a group {key} {operation} {value}", request, 1
    for name in ("", "a b/ä"):
        request = altered((session, 0, "50000"), name=name, kind=GROUP)
        yield f"IncrementalAlterConfigs of the group {name!r}", request, 1


def _changed_loggers() -> Iterator[Question]:
    for label, change, name in (
        ("set", ("root", 0, "DEBUG"), "1"), ("set to nothing", ("root", 0, ""), "1"),
        ("set to null", ("root", 0, None), "1"), ("set in small letters", ("root", 0, "debug"), "1"),
        ("set to no level", ("root", 0, "LOUD"), "1"), ("delete", ("root", 1, None), "1"),
        ("append", ("root", 2, "DEBUG"), "1"), ("subtract", ("root", 3, "DEBUG"), "1"),
        ("set an unknown one", ("no.such", 0, "LOUD"), "1"),
        ("delete an unknown one", ("no.such", 1, None), "1"),
        ("append to an unknown one", ("no.such", 2, "x"), "1"),
        ("of all brokers", ("root", 0, "INFO"), ""), ("of another", ("root", 0, "INFO"), "9"),
        ("of none", ("root", 0, "INFO"), "x"),
    ):  # fmt: skip
        yield f"IncrementalAlterConfigs of a logger, {label}", altered(change, name=name, kind=LOGGER), 1
    old = AlterConfigsRequest.AlterConfigsResource
    of_logger = old(
        resource_type=LOGGER, resource_name="1", configs=[old.AlterableConfig(name="root", value="INFO")]
    )
    yield "AlterConfigs of a logger", AlterConfigsRequest(resources=[of_logger], validate_only=True), 1
