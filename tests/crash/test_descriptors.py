"""Goal: a thousand segments are served by a process that may open 256 files.

Method: the real process under a lower limit, a topic of tiny segments; then records are read from all of
them, written, and compacted. (Kafka keeps the files of every segment open and needs the limit raised.)
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import pytest

from storage.segments import MAX_PINNED
from storage.verify import verify_data_directory
from tests.clients.adaptors import Confluent, Sent
from tests.process import BrokerProcess
from tests.waiting import wait_for

DESCRIPTORS = 256
SEGMENTS = 1000
PLAIN, COMPACTED = "plain", "compacted"
SETTINGS = {
    "log.segment.bytes": "2048",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.enable": "false",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.flush.interval.messages": "1000",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "10",
}
KEYS = 7


class FewFiles(BrokerProcess):
    """A broker with the hard limit lowered, so that it cannot raise it again."""

    def start(self) -> FewFiles:
        self.prefix = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"]
        super().start()
        assert self.process is not None
        limits = resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE)
        assert limits == (DESCRIPTORS, DESCRIPTORS)
        return self

    def segments(self, topic: str) -> int:
        return len(list((self.data / f"{topic}-0").glob("*.log")))

    def bytes_of(self, topic: str) -> int:
        total = 0
        for path in (self.data / f"{topic}-0").glob("*.log"):
            with contextlib.suppress(FileNotFoundError):  # just replaced
                total += path.stat().st_size
        return total

    def open_files(self) -> int:
        assert self.process is not None
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def open_segments(self) -> int:
        """Descriptors on `.log` files, as the kernel knows them."""
        assert self.process is not None
        targets = []
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # just closed
                targets.append(str(link.readlink()))
        return sum(".log" in Path(target).name for target in targets)

    def gauge(self, name: str) -> int:
        lines = [line for line in self.http("/metrics").splitlines() if line.startswith(f"{name} ")]
        assert len(lines) == 1, name
        return int(float(lines[0].split()[1]))


def check_gauge(broker: FewFiles) -> None:
    """The gauge shows the pool, full to its limit: what the kernel counts, but for the segments that are
    being written or flushed, which the pool may not close.
    """
    limit = broker.gauge("kompakt_open_files_limit")
    assert 0 < limit < DESCRIPTORS
    written = len({path.parent for path in broker.data.glob("*/*.log")}) + 2 * MAX_PINNED

    def is_agreed() -> bool:
        shown = broker.gauge("kompakt_open_files")
        return limit // 2 < shown <= limit and 0 < broker.open_segments() - shown <= written

    wait_for(is_agreed, "a gauge that shows what the kernel counts")


@pytest.mark.crash
def test_a_thousand_segments_are_served_with_256_descriptors(tmp_path: Path) -> None:
    broker = FewFiles(tmp_path / "data", SETTINGS).start()
    try:
        client = Confluent(broker.bootstrap, {"batch.num.messages": 1})
        client.create_topic(PLAIN)
        client.create_topic(COMPACTED, 1, {"cleanup.policy": "compact"})
        sent = [
            Sent(b"%d" % (number % KEYS), b"%d " % number + bytes(1000), 0) for number in range(2 * SEGMENTS)
        ]
        for topic in (PLAIN, COMPACTED):
            client.produce(topic, sent)
        assert broker.segments(PLAIN) >= SEGMENTS
        _check(client, PLAIN, sent)
        check_gauge(broker)
        broker.kill()
        broker.start()
        _check(client, PLAIN, sent)
        assert client.produce(PLAIN, sent[:3]) == [(0, len(sent) + number) for number in range(3)]
        assert broker.stop() == 0
        broker.settings["log.cleaner.enable"] = "true"
        broker.start()
        wait_for(lambda: broker.bytes_of(COMPACTED) < 20_000, "the cleaning of the compacted topic", 180)
        end = client.offsets(COMPACTED, 0)[1]
        last = {record.key: record.offset for record in client.read(COMPACTED, 0, 0, end)}
        assert last == {
            b"%d" % (number % KEYS): number for number in range(2 * SEGMENTS - KEYS, 2 * SEGMENTS)
        }
        _check(client, PLAIN, sent)
        assert broker.open_files() < DESCRIPTORS
        assert "Too many open files" not in broker.log()
        assert "goes offline" not in broker.log()
        assert broker.stop() == 0
        assert verify_data_directory(broker.data) == []
    finally:
        broker.close()


def _check(client: Confluent, topic: str, sent: list[Sent]) -> None:
    found = client.read(topic, 0, 0, len(sent))
    assert [record.value for record in found] == [record.value for record in sent]
