"""`kompakt version`: which kompakt this is."""

from __future__ import annotations

import platform

import click


@click.command()
def version() -> None:
    """Print the versions of kompakt and of Python."""
    print(f"kompakt {installed_version()} (Python {platform.python_version()})")


def installed_version() -> str:
    """The version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError  # here, because `serve` has no use for it
    from importlib.metadata import version as distribution_version

    try:
        return distribution_version("kompakt")
    except PackageNotFoundError:
        return "not installed"
