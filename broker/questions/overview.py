"""The broker and its topics at a glance: what is served, how much, how far compaction is, what is wrong.

`..._head` is taken on the event loop, the rest is read on an I/O thread.
"""

from __future__ import annotations

import heapq
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.build import installed_version
from broker.cleaning_history import Run
from broker.groups.commits import Committed
from broker.handlers.config_entries import Source, topic_entries
from broker.policy_lint import policy_warning
from broker.questions.disks import directory_rows
from config.listeners import address_text
from config.topic import TopicConfig
from storage.layout import TopicPartition
from storage.log import Log

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topic import Topic
    from cleaner.statistics import PartitionCleanStats

RECENT_RUNS = 50
OPEN_FILES = Path("/proc/self/fd")
ELIGIBLE = "eligible"
OFFLINE = "offline"


# The broker


def broker_head(broker: Broker) -> dict[str, Any]:
    """On the event loop."""
    every = broker.topics.all()
    topics = [topic for topic in every if not topic.is_internal]
    return {
        "version": installed_version(),
        "cluster_id": broker.cluster_id,
        "node_id": broker.node_id,
        "started_ms": broker.started_ms,
        "listeners": [
            {
                "name": listener.name,
                "security_protocol": listener.security.protocol,
                "address": address_text(listener.host, listener.port),
                "advertised": address_text(listener.advertised_host, listener.advertised_port),
            }
            for listener in broker.listeners
        ],
        "topics": len(topics),
        "partitions": sum(topic.partition_count for topic in topics),
        "internal_partitions": sum(topic.partition_count for topic in every if topic.is_internal),
        "groups": len(broker.groups.groups),
        "transactional_ids": len(broker.transactions.states),
        "connections": broker.metrics_state.connections_open,
        "moves": list(_moves(broker)),
    }


def _moves(broker: Broker) -> Iterator[dict[str, Any]]:
    """Partitions on their way to another directory."""
    for move in broker.moves.all():
        partition = broker.partitions.get(move.topic_partition)
        if partition is not None:
            yield {
                "topic": move.topic_partition.topic,
                "partition": move.topic_partition.partition,
                "directory": str(move.directory.path),
                "copied_bytes": move.copy.copied_bytes if move.copy else 0,
                "size_bytes": partition.log.size_bytes,
            }


def cleanings_of(broker: Broker) -> list[tuple[TopicPartition, Sequence[Run]]]:
    """On the event loop: what the cleaner did, by partition."""
    runs_of = broker.cleanings.runs
    return [(place, runs_of(place, partition.topic_id)) for place, partition in broker.partitions.items()]


def _latest(cleanings: Iterable[tuple[TopicPartition, Sequence[Run]]]) -> list[dict[str, Any]]:
    """The last ones of all partitions, the latest first."""
    runs = ((place, run) for place, found in cleanings for run in found)
    latest = heapq.nlargest(RECENT_RUNS, runs, key=lambda item: _ended_ms(item[1]))
    return [{"topic": place.topic, "partition": place.partition, **run} for place, run in latest]


def _ended_ms(run: Run) -> int:
    ended_ms: int = run["last_ms"] if "last_ms" in run else run["started_ms"]
    return ended_ms


def broker_rest(
    broker: Broker, logs: Sequence[Log], cleanings: Sequence[tuple[TopicPartition, Sequence[Run]]]
) -> dict[str, Any]:
    """On an I/O thread."""
    statistics, config = broker.cleaner.statistics, broker.cleaner.config
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    stats = broker.cleaner.partition_stats()
    offline = [log for log in logs if log.offline_reason is not None]
    return {
        "recent_cleanings": _latest(cleanings),
        "directories": directory_rows(broker, logs, stats),
        "open_files": sum(1 for _ in OPEN_FILES.iterdir()),
        "open_files_limit": None if most_files == resource.RLIM_INFINITY else most_files,
        "offline_partitions": [
            {"topic": one.topic_partition.topic, "partition": one.topic_partition.partition,
             "reason": one.offline_reason}
            for one in offline
        ],
        "cleaner": {
            "is_running": broker.cleaner_pool.is_running,
            "off_by": broker.cleaner_pool.off_by,
            "problem": broker.cleaner.problem,
            "threads": config.log_cleaner_threads,
            "dead_threads": statistics.dead_threads,
            "bytes_per_second_at_most": _finite(config.log_cleaner_io_max_bytes_per_second),
            "cleanable_bytes": sum(one.cleanable_bytes for one in stats.values()),
            "eligible_partitions": sum(one.why_not is None for one in stats.values()),
            "uncleanable": [
                {"topic": place.topic, "partition": place.partition, "error": one.uncleanable_error}
                for place, one in sorted(stats.items())
                if one.uncleanable_error is not None
            ],
        },
    }  # fmt: skip


def _finite(rate: float) -> float | None:
    return rate if rate < float(2**53) else None


# Topics


def topic_rows(
    broker: Broker, topics: Sequence[Topic], logs: Mapping[TopicPartition, Log]
) -> list[dict[str, Any]]:
    """On an I/O thread: every topic in one line."""
    stats = broker.cleaner.partition_stats()
    return [_topic_row(topic, logs, stats) for topic in topics]


def _topic_row(
    topic: Topic, logs: Mapping[TopicPartition, Log], stats: Mapping[TopicPartition, PartitionCleanStats]
) -> dict[str, Any]:
    served = [logs[place] for place in topic.partitions() if place in logs]
    figures = [stats[place] for place in topic.partitions() if place in stats]
    keys = [one.live_keys for one in figures if one.live_keys is not None]
    last_ms = max((_last_ms(log) for log in served), default=-1)
    return {
        "topic": topic.name,
        "is_internal": topic.is_internal,
        "cleanup_policy": ",".join(sorted(topic.config.cleanup_policy)) or "none",
        "partitions": topic.partition_count,
        "offsets": sum(log.log_end_offset - log.log_start_offset for log in served),
        "size_bytes": sum(log.size_bytes for log in served),
        "segments": sum(len(log.segments) for log in served),
        "last_timestamp": last_ms if last_ms >= 0 else None,
        "dirty_ratio": max((one.dirty_ratio for one in figures), default=None),
        "cleanable_bytes": sum(one.cleanable_bytes for one in figures),
        "keys_at_last_cleaning": sum(keys) if keys else None,
        "reasons": _reasons(served, topic, stats),
        "warning": policy_warning(topic.name, topic.config),
    }


def _reasons(
    served: Sequence[Log], topic: Topic, stats: Mapping[TopicPartition, PartitionCleanStats]
) -> dict[str, int]:
    """Why its partitions are not being cleaned, and how many there are of each kind."""
    found: Counter[str] = Counter()
    for log in served:
        figures = stats.get(log.topic_partition)
        if log.offline_reason is not None:
            found[OFFLINE] += 1
        elif figures is not None:
            found[figures.why_not or ELIGIBLE] += 1
    missing = topic.partition_count - len(served)
    if missing:
        found["not_served"] += missing
    return dict(found)


def _last_ms(log: Log) -> int:
    """The timestamp of a young record: the largest of the last two segments."""
    if log.offline_reason is not None:
        return -1
    try:
        return max(segment.max_timestamp for segment in log.segments[-2:])
    except OSError:  # the files are just being removed
        return -1


# One topic


def topic_head(broker: Broker, topic: Topic) -> dict[str, Any]:
    """On the event loop: what a topic is, where its partitions stand, and its settings."""
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "is_internal": topic.is_internal,
        "is_compacted": topic.config.is_compacted,
        "warning": policy_warning(topic.name, topic.config),
        "partitions": [_partition_row(broker, place) for place in topic.partitions()],
        "configs": _configs(broker, topic),
    }


def _configs(broker: Broker, topic: Topic) -> list[dict[str, Any]]:
    """Every setting; `inherited` is what would hold if the topic did not set it itself."""
    plain = TopicConfig.resolve({}, broker.config, is_internal=topic.is_internal, is_stored=True)
    inherited = {entry.name: entry.value for entry in topic_entries({}, plain, broker.config)}
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": Source(entry.config_source).name.lower(),
            "inherited": inherited.get(entry.name),
            "synonyms": [
                {"name": one.name, "value": one.value, "source": Source(one.source).name.lower()}
                for one in entry.synonyms
            ],
            "documentation": entry.documentation,
        }
        for entry in topic_entries(topic.overrides, topic.config, broker.config)
    ]


def _partition_row(broker: Broker, place: TopicPartition) -> dict[str, Any]:
    partition = broker.partitions.get(place)
    if partition is None:
        return {"partition": place.partition, "is_served": False}
    log = partition.log
    return {
        "partition": place.partition,
        "is_served": True,
        "offline_reason": log.offline_reason,
        "directory": str(log.directory),
        "leader_epoch": log.leader_epoch,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "log_end_offset": log.log_end_offset,
        "recovery_point": log.recovery_point,
        "size_bytes": log.size_bytes,
        "segments": len(log.segments),
        "producers": len(log.producers.producers),
        "open_transactions": len(log.producers.open_transactions()),
    }


def commits_in(topic: str, committed: Committed) -> list[dict[str, Any]]:
    """On an I/O thread: which groups stand where in it."""
    return [
        {"group": group_id, "partition": place.partition, "offset": commit.offset}
        for group_id, commits in committed
        for place, commit in commits.items()
        if place.topic == topic
    ]
