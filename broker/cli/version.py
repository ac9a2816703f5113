"""`kompakt version`: which kompakt this is."""

from __future__ import annotations

import platform

import click

from broker.build import installed_version


@click.command()
def version() -> None:
    """Print the versions of kompakt and of Python."""
    print(f"kompakt {installed_version()} (Python {platform.python_version()})")
