"""The log directories: what they hold, what is free, and when they will be full. On an I/O thread."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from broker.metric_readings import offline_directories
from broker.questions.forecast import Growing, forecast, levels_off_bytes
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from cleaner.statistics import PartitionCleanStats
    from storage.log import Log


def directory_rows(
    broker: Broker, logs: Sequence[Log], stats: Mapping[TopicPartition, PartitionCleanStats]
) -> list[dict[str, Any]]:
    """Each directory; `forecast` is None while no log of it has been watched, or its disk cannot be asked."""
    return [
        _row(
            broker, path, bool(is_offline), [log for log in logs if str(log.directory.parent) == path], stats
        )
        for path, is_offline in offline_directories(broker).items()
    ]


def _row(
    broker: Broker,
    path: str,
    is_offline: bool,
    logs: Sequence[Log],
    stats: Mapping[TopicPartition, PartitionCleanStats],
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "path": path,
        "is_offline": is_offline,
        "log_bytes": sum(log.size_bytes for log in logs),
        "total_bytes": None,
        "free_bytes": None,
        "problem": None,
        "forecast": None,
    }
    try:
        usage = shutil.disk_usage(path)
    except OSError as error:
        return row | {"problem": str(error)}
    row |= {"total_bytes": usage.total, "free_bytes": usage.free}
    growing = list(growing_logs(broker, logs, stats))
    if growing:
        observed_ms = broker.growth.observed_ms(broker.clock.passed_ms())
        row["forecast"] = forecast(usage.free, growing, observed_ms)
    return row


def growing_logs(
    broker: Broker, logs: Sequence[Log], stats: Mapping[TopicPartition, PartitionCleanStats]
) -> Iterator[Growing]:
    """Those logs that have been watched for long enough."""
    growth = broker.growth
    is_cleaned = broker.cleaner_pool.is_running and broker.cleaner.problem is None
    for log in logs:
        rate = growth.bytes_per_second(log)
        if rate is None or log.offline_reason is not None:
            continue
        size_bytes = log.size_bytes
        live_bytes = _live_bytes(log, stats.get(log.topic_partition), size_bytes) if is_cleaned else None
        bound = levels_off_bytes(log.config, size_bytes, rate, live_bytes)
        yield Growing(log.topic_partition.topic, size_bytes, rate, bound)


def _live_bytes(log: Log, found: PartitionCleanStats | None, size_bytes: int) -> int | None:
    """What the last cleaning left; before the first one all may be live. None where none will come."""
    if found is None or found.uncleanable_error is not None:
        return None
    return found.clean_bytes if found.first_dirty_offset > log.log_start_offset else size_bytes
