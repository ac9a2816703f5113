"""`kompakt version`: which kompakt this is."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version


def version() -> None:
    """Print the versions of kompakt and of Python."""
    print(f"kompakt {installed_version()} (Python {platform.python_version()})")


def installed_version() -> str:
    """The version of the installed distribution."""
    try:
        return distribution_version("kompakt")
    except PackageNotFoundError:
        return "not installed"
