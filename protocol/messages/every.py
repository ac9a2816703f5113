"""All messages at once: who reads requests of any API imports this, and the registry knows them."""

from protocol.messages import (  # noqa: F401  # to be there is all they are for
    acls,
    admin,
    configs,
    consumer_groups,
    fetch,
    group_offsets,
    groups,
    internal,
    internal_consumer_groups,
    internal_share_groups,
    metadata,
    offsets,
    produce,
    security,
    share_fetch,
    share_groups,
    topics,
    transactions,
    users,
)
