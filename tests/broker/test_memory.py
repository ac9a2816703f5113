"""Goal: buffers that nobody has set a size of fit into the memory that the process may take.

Method: files as the kernel has them in containers of both kinds of control groups; settings with and without
sizes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from broker.memory import MIB, SHARES, fitted, memory_limit_bytes
from config.broker import BrokerConfig, broker_rows

MACHINE_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
SMALL = 64 * MIB


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "67108864\n"}, SMALL),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"a/memory.max": "67108864\n", "a/b/memory.max": "max\n"}, SMALL),
        ("0::/a/b\n", {"a/memory.max": "max", "a/b/memory.max": "67108864", "memory.max": "68000000"}, SMALL),
        ("5:cpu:/\n4:memory:/docker/x\n0::/\n", {"memory/memory.limit_in_bytes": "67108864"}, SMALL),
        ("4:cpu,memory:/d/x\n", {"memory/d/x/memory.limit_in_bytes": "67108864"}, SMALL),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("4:cpu:/\n", {"memory/memory.limit_in_bytes": "67108864"}, None),
        (None, {"memory.max": "67108864\n"}, None),
    ],
)
def test_the_limit_of_the_groups_we_are_in(
    tmp_path: Path, own: str | None, files: dict[str, str], limit: int | None
) -> None:
    groups = tmp_path / "groups"
    for name, text in files.items():
        path = groups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if own is not None:
        (tmp_path / "own").write_text(own)
    assert memory_limit_bytes(groups, tmp_path / "own") == (limit or MACHINE_BYTES)


def test_what_was_not_set_fits() -> None:
    config, smaller = fitted(BrokerConfig.parse({}), 256 * MIB)
    assert config.log_cleaner_dedupe_buffer_size == 32 * MIB
    assert config.log_cleaner_key_hashes_bytes == 8 * MIB
    assert config.fetch_max_unread_bytes == config.queued_max_request_bytes == 32 * MIB
    assert config.max_decompressed_batch_bytes == 32 * MIB
    assert "fetch.max.unread.bytes=33554432" in smaller
    assert len(smaller) == len(SHARES)
    assert sum(256 * MIB // share for share in SHARES.values()) <= 256 * MIB * 0.54, "the rest has as much"


def test_what_was_set_stays() -> None:
    asked = {
        "log.cleaner.dedupe.buffer.size": str(200 * MIB),
        "log.dirs": "somewhere",
        "queued.max.request.bytes": "-1",
    }
    config, smaller = fitted(BrokerConfig.parse(asked), 256 * MIB)
    assert config.log_cleaner_dedupe_buffer_size == 200 * MIB
    assert config.queued_max_request_bytes == -1
    assert config.log_dirs == ("somewhere",)
    assert config.fetch_max_unread_bytes == 32 * MIB
    assert len(smaller) == 3


def test_what_fits_stays_as_it_is() -> None:
    config = BrokerConfig.parse({})
    assert fitted(config, 2048 * MIB) == (config, [])
    assert all(broker_rows()[name].default for name in SHARES)


def test_it_stays_so_when_a_client_sets_something_else() -> None:
    config, _ = fitted(BrokerConfig.parse({}), 256 * MIB)
    changed = config.with_dynamic({}, {"log.cleaner.dedupe.buffer.size": str(MIB)})
    assert changed.log_cleaner_dedupe_buffer_size == MIB
    assert changed.with_dynamic({}, {}).log_cleaner_dedupe_buffer_size == 32 * MIB


def test_the_readme_names_each_of_them() -> None:
    """Who has little memory must know which limits are lower there than REFERENCE.md says."""
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    (told,) = re.findall(r"has less than 2 GiB, (.*?; a line of the log says so)", readme, re.DOTALL)
    assert set(re.findall(r"`([\w.]+)`", told)) == set(SHARES)
