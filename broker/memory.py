"""How much memory this process may take, and settings that fit into it.

The kernel ends a process that takes more than its container may, without a word to it, and would again as
soon as the next start begins the same cleaning. So buffers whose size nobody has set are a part of what there
is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from config.broker import BrokerConfig, broker_rows

SHARES = {
    "log.cleaner.dedupe.buffer.size": 8,
    "max.decompressed.batch.bytes": 8,
    "fetch.max.unread.bytes": 8,
    "queued.max.request.bytes": 8,
    "log.cleaner.key.hashes.bytes": 32,
}
"""the part of the memory, one eighth and so on, that each of them may be"""
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
MIB = 1 << 20


def memory_limit_bytes(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """The least of what the machine has, and the groups of processes allow that we are in."""
    limit_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([limit_bytes, *_limits(cgroups, own)])


def _limits(cgroups: Path, own: Path) -> Iterator[int]:
    """Those of our groups and of the groups around them. A container may see its own as the outermost."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        for place in (group, *group.parents):
            try:
                text = (place / name).read_text().strip()
            except OSError:
                text = ""
            if text.isdecimal():
                yield int(text)
            if place == top:
                break


def fitted(config: BrokerConfig, limit_bytes: int) -> tuple[BrokerConfig, list[str]]:
    """The settings with what fits into so much memory, where it was not set; and those that became smaller,
    as KEY=VALUE.
    """
    rows = broker_rows()
    smaller = {
        name: str(limit_bytes // share)
        for name, share in SHARES.items()
        if name not in config.static and limit_bytes // share < rows[name].default
    }
    if not smaller:
        return config, []
    made = BrokerConfig.parse({**smaller, **config.static, **config.of_listeners})
    return made, [f"{name}={value}" for name, value in smaller.items()]
