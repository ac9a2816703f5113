"""`kompakt version`: which kompakt this is."""

from __future__ import annotations

import platform

import click

from broker.build import installed_version


@click.command()
def version() -> None:
    """Print the versions of kompakt and of Python."""
    print(f"kompakt {installed_version()} (Python {platform.python_version()})")


def print_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """The same for `kompakt --version`, as most programs have it."""
    if is_asked and not ctx.resilient_parsing:
        ctx.invoke(version)
        ctx.exit()
