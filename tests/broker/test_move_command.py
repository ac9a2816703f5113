"""Goal: without a JVM too somebody moves a partition to another disk, sees how far it is, and why it is not
compacted meanwhile.

Method: `kompakt topics move` and `kompakt status` against a broker process on two data directories, whose
copying a limit of one byte a second holds up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.process import BrokerProcess
from tests.waiting import wait_for

LIMIT = "replica.alter.log.dirs.io.max.bytes.per.second"


class Told:
    """A broker with topic t in one of two directories, and its commands."""

    def __init__(self, broker: BrokerProcess, directories: list[Path]) -> None:
        self.broker = broker
        self.directories = directories

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("kompakt")), *arguments]
        http = ("--http", f"127.0.0.1:{self.broker.http_port}")
        return subprocess.run([*command, *http], capture_output=True, text=True, timeout=60, check=False)

    @property
    def place(self) -> Path:
        (place,) = (path for path in self.directories if (path / "t-0").is_dir())
        return place

    @property
    def other(self) -> Path:
        return next(path for path in self.directories if path != self.place)

    def limit(self, bytes_per_second: int) -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.broker.bootstrap})
        entry = confluent_kafka.admin.ConfigEntry(
            LIMIT, str(bytes_per_second), incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
        )
        resource = confluent_kafka.admin.ConfigResource(
            confluent_kafka.admin.ResourceType.BROKER, "1", incremental_configs=[entry]
        )
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    directories = [tmp_path / "a", tmp_path / "b"]
    broker = BrokerProcess(directories[0], {"node.id": "1"}, more_data=directories[1:]).start()
    broker.wait_until_ready()
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics(
        [confluent_kafka.admin.NewTopic("t", 1, 1, config={"cleanup.policy": "compact"})]
    ).values():
        future.result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(8):
        producer.produce("t", b"v" * 900_000, b"k")
    assert producer.flush(60) == 0
    yield Told(broker, directories)
    broker.close()


def test_a_partition_is_moved_and_watched(told: Told) -> None:
    source, target = told.place, told.other
    told.limit(1)
    begun = told.run("topics", "move", "t", "--to", str(target))
    assert (begun.returncode, begun.stdout) == (0, f"t-0 moves to {target}.\n")
    wait_for(lambda: "MB of" in told.run("status").stdout, "some of it has come")
    assert f"moving t-0 to {target}: " in told.run("status").stdout
    explained = told.run("topics", "explain", "t").stdout
    assert f"It is not cleaned while it moves to {target}." in " ".join(explained.split())
    why = "its cleaning is paused while it moves to another directory"
    listed = json.loads(told.run("topics", "list", "--json").stdout)["topics"]
    assert [row["reasons"] for row in listed if row["topic"] == "t"] == [{why: 1}]
    refused = told.run("topics", "compact", "t")
    assert (refused.returncode, refused.stdout) == (1, f"t-0 was not cleaned: {why}\n")
    told.limit(0)
    wait_for(lambda: "moving" not in told.run("status").stdout, "the move is over")
    assert told.place == target
    again = told.run("topics", "move", "t", "--partition", "0", "--to", f"{target}/", "--json")
    assert json.loads(again.stdout)["partitions"] == [
        {"partition": 0, "directory": str(target), "is_moving": False}
    ]
    assert f"t-0 is in {target}." in told.run("topics", "move", "t", "--to", str(target)).stdout
    wait_for(lambda: not list(source.glob("t-0*")), "its files are gone")


def test_what_cannot_be_is_said(told: Told) -> None:
    nowhere = told.run("topics", "move", "t", "--to", "/nowhere")
    assert nowhere.returncode == 1
    a, b = told.directories
    assert nowhere.stdout == f"t-0 does not move: /nowhere is none of log.dirs: {a}, {b}\n"
    unknown = told.run("topics", "move", "none", "--to", str(a))
    assert unknown.returncode != 0
    assert "none" in unknown.stderr
