"""Settings of the broker that were changed while it ran, as a later start finds them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from config.broker import BrokerConfig
from config.definition import ConfigError


def with_what_is_understood(
    config: BrokerConfig, defaults: Mapping[str, str], own: Mapping[str, str]
) -> tuple[BrokerConfig, list[str]]:
    """`config` with the stored settings, and what is wrong with those that are left out.

    A setting is left out by itself: a topic that is kept by one of the others must not be deleted for it.
    """
    good: tuple[dict[str, str], dict[str, str]] = ({}, {})
    left = [
        (place, key, text) for place, stored in enumerate((defaults, own)) for key, text in stored.items()
    ]
    problems: list[str] = []
    while left:
        tried, left, problems = left, [], []
        for place, key, text in tried:
            wanted = (dict(good[0]), dict(good[1]))
            wanted[place][key] = text
            try:
                config = config.with_dynamic(*wanted)
            except ConfigError as error:
                left.append((place, key, text))  # it may be good beside a later one
                problems.append(error.message)
            else:
                good = wanted
        if len(left) == len(tried):
            break
    return config, problems
