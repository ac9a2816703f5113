"""One module an API family; importing this package registers every handler (`broker.api.handles`)."""

from broker.handlers import (
    admin,
    configs,
    fetch,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    topics,
    transactions,
    versions,
)

__all__ = [
    "admin",
    "configs",
    "fetch",
    "group_offsets",
    "groups",
    "metadata",
    "offsets",
    "produce",
    "topics",
    "transactions",
    "versions",
]
