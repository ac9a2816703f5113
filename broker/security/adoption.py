"""The users of an Apache Kafka, and the rules and quotas for them, are taken over from its quorum log, and so
is how far it has given producer ids, once: at the first start that finds it in a data directory. A record of
`__kompakt_metadata` says that it was done:

    {"name": "", "type": "kafkas-security"}  {}
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.quorum_log import KafkasSecurity, home_of, read_security
from broker.quotas.settings import entity_of
from broker.security.acls import Acl, Operation, Pattern, Permission, Resource
from broker.security.authorizer import write_rule
from broker.security.users import ADOPTED
from protocol.errors import KafkaError
from protocol.messages.quorum import AccessControlEntryRecord
from protocol.scram import NUMBERS, Credential

if TYPE_CHECKING:
    from broker.broker import Broker

logger = logging.getLogger(__name__)

MECHANISMS = {number: name for name, number in NUMBERS.items()}


async def adopt_security(broker: Broker) -> None:
    """Before clients are served. What cannot be read or written is told, and tried again next time."""
    if broker.users.has_adopted:
        return
    try:
        found = await broker.run_blocking(_read, broker)
        if found is None:
            return
        _store(broker, found)
        broker.metadata.append(ADOPTED, "", {})
        await broker.metadata.flushed()
    except (OSError, LookupError, ValueError, KafkaError) as error:
        logger.error("the users, rules and quotas of Apache Kafka are not taken over: %s", error)
        return
    if found.credentials or found.rules or found.quotas:
        text = "took over %d passwords, %d rules and %d quotas from Apache Kafka"
        logger.info(text, len(found.credentials), len(found.rules), len(found.quotas))


def _read(broker: Broker) -> KafkasSecurity | None:
    home = home_of(broker)
    return None if home is None else read_security(home)


def _store(broker: Broker, found: KafkasSecurity) -> None:
    broker.producer_ids.keep_away(found.next_producer_id)  # producers that stay may not have written yet
    for record in found.credentials:
        kept = Credential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        broker.users.set(MECHANISMS[record.mechanism], record.name, kept)
    settings = broker.quotas.settings
    for quota in found.quotas:
        entity = entity_of((part.entity_type, part.entity_name) for part in quota.entity)
        settings.set(entity, {**settings.values.get(entity, {}), quota.key: quota.value})
    rules = [_rule(record) for record in found.rules]
    if broker.authorizer is not None:
        broker.authorizer.add(rules)
        return
    for rule in rules:  # for when there is one
        write_rule(broker.metadata, rule, {})


def _rule(record: AccessControlEntryRecord) -> Acl:
    """ValueError for what only a later Kafka knows."""
    return Acl(
        Resource(record.resource_type),
        record.resource_name,
        Pattern(record.pattern_type),
        record.principal,
        record.host,
        Operation(record.operation),
        Permission(record.permission_type),
    )
