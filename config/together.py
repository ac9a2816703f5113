"""Values of the broker that are good each for itself but not together. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.definition import ConfigError
from config.security import HTTP, LISTENER_PREFIX
from config.topic import HEADER, topic_rows

if TYPE_CHECKING:
    from config.broker import BrokerConfig

OFFSET_MAP_ENTRY_BYTES = 24
"""what a key takes of `log.cleaner.dedupe.buffer.size`"""


def problems_together(config: BrokerConfig) -> list[ConfigError]:
    """What cannot hold beside the other values; empty when all can."""
    problems = [problem for check in _CHECKS if (problem := check(config)) is not None]
    return problems + _problems_of_listeners(config)


def _problems_of_listeners(config: BrokerConfig) -> list[ConfigError]:
    """Where they are, what they speak, and the keys that are for one of them."""
    try:
        endpoints = config.endpoints
    except ConfigError as error:
        return [error]
    problems: list[ConfigError] = []
    for endpoint in endpoints:
        try:
            config.security_of(endpoint)
        except ConfigError as error:
            problems += error.parts
    names = [endpoint.name for endpoint in endpoints] + list(config.controller_listener_names)
    try:
        is_secured = config.http_security.is_secured
    except ConfigError as error:
        is_secured = True
        problems += error.parts
    names += [HTTP] if is_secured else []
    prefixes = tuple(f"{LISTENER_PREFIX}{name}.".lower() for name in names)
    return problems + [
        ConfigError(f"Configuration {name} is for a listener that is not among listeners", name)
        for name in (*config.of_listeners, *config.dynamic_defaults, *config.dynamic)
        if name.startswith(LISTENER_PREFIX) and not name.lower().startswith(prefixes)
    ]


def _problem_of_lags(config: BrokerConfig) -> ConfigError | None:
    if config.log_cleaner_min_compaction_lag_ms <= config.log_cleaner_max_compaction_lag_ms:
        return None
    return ConfigError.of_value(
        config.log_cleaner_max_compaction_lag_ms,
        "log.cleaner.max.compaction.lag.ms",
        "It must not be below log.cleaner.min.compaction.lag.ms "
        f"({config.log_cleaner_min_compaction_lag_ms})",
    )


def _problem_of_strategy(config: BrokerConfig) -> ConfigError | None:
    if config.log_cleaner_compaction_strategy != HEADER or config.log_cleaner_compaction_strategy_header:
        return None
    return ConfigError.of_value(
        HEADER,
        "log.cleaner.compaction.strategy",
        "It needs the name of a header in log.cleaner.compaction.strategy.header",
    )


def _problem_of_sessions(config: BrokerConfig) -> ConfigError | None:
    for kind in ("consumer", "share", "streams"):
        for key in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            problem = _problem_of_bounds(config, f"group.{kind}", key)
            if problem is not None:
                return problem
        interval_ms = getattr(config, f"group_{kind}_heartbeat_interval_ms")
        session_ms = getattr(config, f"group_{kind}_session_timeout_ms")
        if interval_ms >= session_ms:
            return ConfigError.of_value(
                interval_ms,
                f"group.{kind}.heartbeat.interval.ms",
                f"It must be below group.{kind}.session.timeout.ms ({session_ms})",
            )
    if config.group_min_session_timeout_ms <= config.group_max_session_timeout_ms:
        return None
    return ConfigError.of_value(
        config.group_min_session_timeout_ms,
        "group.min.session.timeout.ms",
        f"It must not be above group.max.session.timeout.ms ({config.group_max_session_timeout_ms})",
    )


def _problem_of_bounds(config: BrokerConfig, kind: str, key: str) -> ConfigError | None:
    """What groups have unless they say otherwise lies within what they may say."""
    value, least, most = (
        getattr(config, f"{kind}.{which}{key}".replace(".", "_")) for which in ("", "min.", "max.")
    )
    # Here intervals are shorter than in Kafka: what is its least, and only that, may well be set.
    is_ours = key.endswith(".interval.ms") and f"{kind}.{key}" not in config.static
    if least <= value <= most or (is_ours and value < least <= most):
        return None
    return ConfigError.of_value(
        value,
        f"{kind}.{key}",
        f"It must be between {kind}.min.{key} ({least}) and {kind}.max.{key} ({most})",
    )


def _problem_of_sharing(config: BrokerConfig) -> ConfigError | None:
    for key in ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks"):
        problem = _problem_of_bounds(config, "group.share", key)
        if problem is not None:
            return problem
    if config.group_share_max_share_sessions < config.group_share_max_size:
        return ConfigError.of_value(
            config.group_share_max_share_sessions,
            "group.share.max.share.sessions",
            f"It must not be below group.share.max.size ({config.group_share_max_size})",
        )
    return None


def _problem_of_standbys(config: BrokerConfig) -> ConfigError | None:
    most = config.group_streams_max_standby_replicas
    if config.group_streams_num_standby_replicas <= most:
        return None
    return ConfigError.of_value(
        config.group_streams_num_standby_replicas,
        "group.streams.num.standby.replicas",
        f"It must not be above group.streams.max.standby.replicas ({most})",
    )


def _problem_of_retention(config: BrokerConfig) -> ConfigError | None:
    """0 for all topics is no "no limit", which is what those who write it mean: all would be deleted."""
    for synonym in topic_rows()["retention.ms"].synonyms:
        value = getattr(config, synonym.name.replace(".", "_"))
        if value == 0:
            return ConfigError.of_value(
                0,
                synonym.name,
                "It must be at least 1, or -1, which is no limit; a single topic may have retention.ms=0",
            )
        if value is not None:
            return None
    return None


def _problem_of_offset_maps(config: BrokerConfig) -> ConfigError | None:
    """A map that holds no key cleans nothing (T30); the broker would not start again with it."""
    threads, factor = max(1, config.log_cleaner_threads), config.log_cleaner_io_buffer_load_factor
    slots = config.log_cleaner_dedupe_buffer_size // threads // OFFSET_MAP_ENTRY_BYTES
    if slots * factor > 1:
        return None
    return ConfigError.of_value(
        config.log_cleaner_dedupe_buffer_size,
        "log.cleaner.dedupe.buffer.size",
        f"It has room for no key in the offset map of each of {threads} "
        f"log.cleaner.threads at log.cleaner.io.buffer.load.factor {factor:g}",
    )


def _problem_of_partitions(config: BrokerConfig) -> ConfigError | None:
    if config.num_partitions <= config.max_partitions_per_topic:
        return None
    return ConfigError.of_value(
        config.num_partitions,
        "num.partitions",
        f"It must not be above max.partitions.per.topic ({config.max_partitions_per_topic})",
    )


def _problem_of_addresses(config: BrokerConfig) -> ConfigError | None:
    if config.max_connections_per_ip or config.max_connections_per_ip_overrides:
        return None
    return ConfigError.of_value(
        0,
        "max.connections.per.ip",
        "It may be 0 only where max.connections.per.ip.overrides says who may come",
    )


def check_threads(current: int, wanted: int) -> None:
    """A pool may be halved or doubled while it runs, not more (T27); from no thread at all, with which
    nothing is cleaned, it may go to one. Kafka holds on to twice nothing there, until it is restarted.
    """
    problem = None
    if wanted < 1:
        problem = "Value must be at least 1"
    elif wanted < current // 2:
        problem = f"Value must be at least half the current value {current}"
    elif not current and wanted > 1:
        problem = "Value must not be greater than 1 where there is no thread yet"
    elif current and wanted > current * 2:
        problem = f"Value must not be greater than double the current value {current}"
    if problem is not None:
        raise ConfigError.of_value(wanted, "log.cleaner.threads", problem)


_CHECKS = (
    _problem_of_lags,
    _problem_of_strategy,
    _problem_of_sessions,
    _problem_of_sharing,
    _problem_of_standbys,
    _problem_of_retention,
    _problem_of_offset_maps,
    _problem_of_partitions,
    _problem_of_addresses,
)
