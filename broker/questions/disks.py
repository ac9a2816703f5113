"""The log directories: what they hold, what is free, and when they will be full. On an I/O thread."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
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
    """Each directory; `forecast` is None while no log of it has been watched, and none of another one on its
    file system is known to grow, or where its disk cannot be asked.
    """
    rows, growing, on = list[dict[str, Any]](), dict[str, list[Growing]](), dict[object, list[str]]()
    for path, is_offline in offline_directories(broker).items():
        own = [log for log in logs if str(log.directory.parent) == path]
        rows.append(_row(path, bool(is_offline), own))
        growing[path] = list(growing_logs(broker, own, stats))
        if rows[-1]["problem"] is None:
            on.setdefault(file_system_of(path), []).append(path)
    observed_ms = broker.growth.observed_ms(broker.clock.passed_ms())
    beside_each = {path: [one for one in paths if one != path] for paths in on.values() for path in paths}
    for row in rows:
        path = row["path"]
        if path not in beside_each:
            continue
        beside = {one: growing[one] for one in beside_each[path]}
        if growing[path] or any(log.is_growing for found in beside.values() for log in found):
            row["forecast"] = forecast(row["free_bytes"], growing[path], observed_ms, beside)
    return rows


def file_system_of(path: str) -> object:
    """What directories have in common that fill the same disk; the path itself where that cannot be asked."""
    try:
        return Path(path).stat().st_dev
    except OSError:
        return path


def _row(path: str, is_offline: bool, logs: Sequence[Log]) -> dict[str, Any]:
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
    return row | {"total_bytes": usage.total, "free_bytes": usage.free}


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
        bound = levels_off_bytes(log.config, size_bytes, rate, live_bytes, log.segments[-1].size_bytes)
        yield Growing(log.topic_partition.topic, size_bytes, rate, bound)


def _live_bytes(log: Log, found: PartitionCleanStats | None, size_bytes: int) -> int | None:
    """What the last cleaning left; before the first one all may be live. None where none will come."""
    if found is None or found.uncleanable_error is not None:
        return None
    return found.clean_bytes if found.first_dirty_offset > log.log_start_offset else size_bytes
