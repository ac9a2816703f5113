"""One module an API family; importing this package registers every handler (`broker.api.handles`)."""

from broker.handlers import (
    acls,
    admin,
    configs,
    fetch,
    group_offsets,
    groups,
    hanging_transactions,
    metadata,
    offsets,
    produce,
    topics,
    transactions,
    users,
    versions,
)

__all__ = [
    "acls",
    "admin",
    "configs",
    "fetch",
    "group_offsets",
    "groups",
    "hanging_transactions",
    "metadata",
    "offsets",
    "produce",
    "topics",
    "transactions",
    "users",
    "versions",
]
