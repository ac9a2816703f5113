"""Goal: who has no JVM and no admin client makes, alters and deletes topics by `kompakt topics`, and clients
see what was done.

Method: the commands on a broker process; librdkafka's admin looks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from broker.cli import app
from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("topics") / "data").start()
    broker.wait_until_ready()
    yield broker
    broker.stop()
    broker.close()


def run(served: BrokerProcess, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(
        app, ["topics", *arguments, "--http", f"127.0.0.1:{served.http_port}"], catch_exceptions=False
    )
    return result.exit_code, result.stdout, result.stderr


def own_settings(admin: AdminClient, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    rows = admin.describe_configs([resource])[resource].result(30)
    return {name: row.value for name, row in rows.items() if row.source == 1}


def test_a_topic_from_its_making_to_its_end(served: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    made = run(
        served, "create", "orders", "--partitions", "3",
        "--config", "cleanup.policy=compact", "--config", "min.compaction.lag.ms = 0",
    )  # fmt: skip
    settings = "cleanup.policy=compact, min.compaction.lag.ms=0"
    assert made == (0, f"orders is made: 3 partitions, {settings}\n", "")
    assert len(admin.list_topics("orders", 30).topics["orders"].partitions) == 3
    assert own_settings(admin, "orders") == {"cleanup.policy": "compact", "min.compaction.lag.ms": "0"}
    altered = run(
        served, "alter", "orders", "--partitions", "4",
        "--config", "cleanup.policy=compact,delete", "--delete-config", "min.compaction.lag.ms",
    )  # fmt: skip
    assert altered == (0, "orders has: 4 partitions, cleanup.policy=compact,delete\n", "")
    assert len(admin.list_topics("orders", 30).topics["orders"].partitions) == 4
    assert own_settings(admin, "orders") == {"cleanup.policy": "compact,delete"}
    assert run(served, "delete", "orders") == (0, "orders is deleted: 4 partitions\n", "")
    assert "orders" not in admin.list_topics(timeout=30).topics


def test_a_setting_that_no_topic_has_cannot_be_deleted(served: BrokerProcess) -> None:
    """A typing error would be a success else, and the setting stay."""
    run(served, "create", "odd", "--config", "min.compaction.lag.ms=1")
    refused = run(served, "alter", "odd", "--delete-config", "min.compaction.lags.ms")
    words = "Unknown topic config name: min.compaction.lags.ms: did you mean min.compaction.lag.ms?"
    assert refused == (2, "", f"kompakt: {words}\n")
    run(served, "delete", "odd")


def test_a_dry_run(served: BrokerProcess) -> None:
    assert run(served, "create", "dry", "--dry-run") == (0, "dry would be made: 1 partition\n", "")
    assert run(served, "delete", "dry") == (1, "", "kompakt: there is no topic dry\n")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ("create", "x", "--config", "retention.mss=1"),
            2,
            "Unknown topic config name: retention.mss: did you mean retention.ms?",
        ),
        (("create", "x", "--config", "retention.ms"), 2, "kompakt: retention.ms is no KEY=VALUE"),
        (("create", "x", "--partitions", "0"), 2, "0 is not in the range x>=1"),
        (("alter", "x"), 2, "kompakt: say what: --config, --delete-config, --partitions"),
        (("alter", "x", "--partitions", "2"), 1, "kompakt: there is no topic x"),
    ],
)
def test_refusals_are_one_line(
    served: BrokerProcess, arguments: tuple[str, ...], status: int, words: str
) -> None:
    got, _, errors = run(served, *arguments)
    assert got == status
    assert words in errors
    assert len(errors.splitlines()) == 1 or status == 2
