"""Goal: kompakt's own metrics see a stream, as lag tools do.

Method: an AvailableNow stream with `commitOffsets=true` runs against a kompakt process, whose /metrics are
read before and after more records arrive.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.spark.test_spark import create_topic, produce, run_stream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("queries"),
]
LAG, COMMITTED = "kafka_consumergroup_lag", "kafka_consumergroup_current_offset"
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def by_partition(text: str, metric: str, group: str, topic: str) -> dict[int, float]:
    """The values that a metric has for the partitions of a topic in a group."""
    found = {}
    for line in text.splitlines():
        if line.startswith(f"{metric}{{"):
            labels = dict(_LABEL.findall(line))
            if (labels["consumergroup"], labels["topic"]) == (group, topic):
                found[int(labels["partition"])] = float(line.rpartition(" ")[2])
    return found


def test_the_metrics_of_a_streams_group(spark: Any, kompakt_broker: Any, tmp_path: Path) -> None:
    """The last batch of AvailableNow included; what arrives then is lag, until the next run."""
    bootstrap, group = kompakt_broker.bootstrap, f"g-{uuid.uuid4().hex}"
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 90)

    def seen(metric: str) -> dict[int, float]:
        return by_partition(kompakt_broker.http("/metrics"), metric, group, topic)

    assert seen(LAG) == {}
    run_stream(spark, bootstrap, topic, tmp_path, groupId=group, commitOffsets="true")
    assert seen(LAG) == {0: 0, 1: 0, 2: 0}
    assert seen(COMMITTED) == {0: 30, 1: 30, 2: 30}
    produce(bootstrap, topic, 6, first=90)
    assert seen(LAG) == {0: 2, 1: 2, 2: 2}
    run_stream(spark, bootstrap, topic, tmp_path, groupId=group, commitOffsets="true")
    assert seen(LAG) == {0: 0, 1: 0, 2: 0}
