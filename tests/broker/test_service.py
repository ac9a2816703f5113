"""Goal: systemd learns that the broker is ready when it is, and that it stops.

Method: a datagram socket in the manager's place, and real processes.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import BrokerProcess

LIMIT_SECONDS = 120


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.settimeout(LIMIT_SECONDS)
        yield made


@pytest.mark.parametrize("is_file", [True, False])
def test_a_service_manager_is_told(
    tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    if is_file:
        manager.bind(address := str(tmp_path / "notify"))
    else:
        manager.bind("")  # Linux chooses a name of no file
        address = "@" + manager.getsockname()[1:].decode()
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    broker = BrokerProcess(tmp_path / "data")
    broker.process = broker.launch()
    try:
        ready, status = manager.recv(4096).decode().split("\n")
        assert ready == "READY=1"
        assert status.startswith(f"STATUS=kompakt is ready: Kafka on 127.0.0.1:{broker.port}, ")
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/healthz", timeout=60) as answer:
            assert answer.status == 200
        assert broker.stop() == 0
        assert manager.recv(4096) == b"STOPPING=1\nSTATUS=stopping"
    finally:
        broker.close()


def test_a_broker_serves_though_the_manager_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nowhere"))
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        broker.wait_until_ready()
        assert broker.stop() == 0
        assert "nowhere cannot be told READY=1: " in broker.log()
    finally:
        broker.close()
