"""What rows of `metric_tables.py` read of the broker where it takes more than a name; on any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker.policy_lint import policy_warning
from broker.transactions.state import Status

if TYPE_CHECKING:
    from broker.broker import Broker


def offline_partitions(broker: Broker) -> int:
    """Partitions whose log is offline, because its disk failed or it could not be opened."""
    partitions = tuple(broker.partitions.values())
    return sum(partition.log.offline_reason is not None for partition in partitions)


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


def segments_to_recover(broker: Broker) -> int:
    return broker.logs.segments_to_recover


def segments_recovered(broker: Broker) -> int:
    return broker.logs.segments_recovered


def key_hash_bytes(broker: Broker) -> int:
    return broker.logs.key_hashes.used_bytes


def policy_warnings(broker: Broker) -> dict[str, int]:
    """For each topic whose policy loses data of a known system, 1."""
    return {topic.name: 1 for topic in broker.topics.all() if policy_warning(topic.name, topic.config)}


def transactional_ids(broker: Broker) -> dict[str, int]:
    """How many there are in each state."""
    found = Counter(state.status for state in tuple(broker.transactions.states.values()))
    return {status.label: found[status] for status in Status if found[status] or status is Status.ONGOING}


def oldest_transaction_seconds(broker: Broker) -> float:
    """The age of the transaction that has been going on for the longest time."""
    now_ms = broker.clock.now_ms()
    states = tuple(broker.transactions.states.values())
    started_ms = (state.started_ms for state in states if state.status is Status.ONGOING)
    return max(0, now_ms - min(started_ms, default=now_ms)) / 1000


def full_in_seconds(row: Mapping[str, Any]) -> float | None:
    """Of a row of `directory_rows`."""
    full_in_ms = row["forecast"] and row["forecast"]["full_in_ms"]
    return None if full_in_ms is None else full_in_ms / 1000
