"""Every message kompakt speaks, a module an API family; importing this package fills the registry."""

from protocol.messages import (
    admin,
    configs,
    fetch,
    group_offsets,
    groups,
    internal,
    metadata,
    offsets,
    produce,
    security,
    topics,
    transactions,
)

ALL = (
    admin,
    configs,
    fetch,
    group_offsets,
    groups,
    internal,
    metadata,
    offsets,
    produce,
    security,
    topics,
    transactions,
)
