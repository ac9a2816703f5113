"""What holds for all tests: they run on the broker's event loop (asyncio's own pauses nobody who writes too
much in Python 3.12), data files that a module has left open are closed behind it, sockets that kafka-python
leaves are closed, and brokers that a failed test left running end with the session.
With `--switch-interval 1e-5` threads take turns at almost every step, which finds what one sees of another.

Logs that end by a crash let go of nothing, and thousands of descriptors in one process break what still uses
`select`: PySpark's callback server ends, and waits for it never do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from storage.file import POOL
from tests import schedule
from tests.certificates import Certificates, make_certificates, openssl
from tests.clients.left_sockets import close_what_kafka_python_leaves
from tests.process import end_what_was_left

# How long an example takes says nothing on a machine that others use as well.
settings.register_profile("kompakt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kompakt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--switch-interval", type=float, help="so many seconds a thread goes on beside others")


@pytest.fixture(autouse=True, scope="session")
def switch_interval(request: pytest.FixtureRequest) -> None:
    """Of the tests' own process; Python's is 5 ms."""
    seconds = request.config.getoption("--switch-interval")
    if seconds is not None:
        sys.setswitchinterval(seconds)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: schedule.rank(str(item.path)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return schedule.Schedule(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    close_what_kafka_python_leaves()


def pytest_sessionfinish() -> None:
    end_what_was_left()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if openssl() is None:
        pytest.skip("there is no `openssl` to make certificates with")
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def told_path(tmp_path: Path) -> Path:
    """A directory of whose files Linux tells since 6.5 which pages are cached, or a skipped test."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    kinds = {Path(place): kind for place, kind in mounts}
    kind = next(kinds[one] for one in (tmp_path, *tmp_path.parents) if one in kinds)
    if kind in ("overlay", "zfs"):
        pytest.skip(f"of {kind} Linux does not tell what is cached: say --basetemp")
    return tmp_path


@pytest.fixture(autouse=True, scope="module")
def no_files_left_open() -> Iterator[None]:
    yield
    POOL.shed()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], uvloop.Loop]]:
    """The loop that the broker runs on."""
    return {"uvloop": uvloop.new_event_loop}
