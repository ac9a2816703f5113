"""Which kompakt this is."""

from __future__ import annotations

import functools


@functools.cache
def installed_version() -> str:
    """The version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError, version  # here: a start has no use for it

    try:
        return version("kompakt")
    except PackageNotFoundError:
        return "unknown"
