"""Who stands before the handlers where there is an authorizer: one guard for each API.

A guard looks what a request is about, lets the handler answer what the client may do, and answers the rest
itself, so that handlers know nothing of rules. Importing this package registers every guard; an API without
one, that is not among those open to all, is not served (`call.guarded`). Which operation on which resource an
API needs is Kafka's (`KafkaApis`, `ControllerApis`).
"""

from broker.security.guards import (
    cluster,
    configs,
    groups,
    offsets,
    records,
    share_groups,
    streams_groups,
    topics,
    transactions,
)

__all__ = [
    "cluster",
    "configs",
    "groups",
    "offsets",
    "records",
    "share_groups",
    "streams_groups",
    "topics",
    "transactions",
]
