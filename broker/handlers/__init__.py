"""One module an API family; importing this package registers every handler (`broker.api.handles`)."""

from broker.handlers import (
    acls,
    admin,
    authentication,
    configs,
    consumer_groups,
    fetch,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    topics,
    transaction_admin,
    transactions,
    users,
    versions,
)

__all__ = [
    "acls",
    "admin",
    "authentication",
    "configs",
    "consumer_groups",
    "fetch",
    "group_offsets",
    "groups",
    "metadata",
    "offsets",
    "produce",
    "topics",
    "transaction_admin",
    "transactions",
    "users",
    "versions",
]
