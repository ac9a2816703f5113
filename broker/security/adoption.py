"""The users of an Apache Kafka, and the rules and quotas for them, are taken over from its quorum log, and so
is how far it has given producer ids, once: at the first start that finds it. Where passwords are asked for
or rules looked at, a log that cannot be read ends the start: without its rules all might be open. A record
of `__kompakt_metadata` says that it was done:

    {"name": "", "type": "kafkas-security"}  {}
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.adoption import AdoptionError
from broker.quorum_log import NAME, home_of, read_security
from broker.quotas.settings import Entity, entity_of
from broker.security.acls import Acl, Operation, Pattern, Permission, Resource
from broker.security.authorizer import write_rule
from broker.security.users import ADOPTED
from protocol.errors import KafkaError
from protocol.messages.quorum import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    UserScramCredentialRecord,
)
from protocol.scram import NUMBERS, Credential

if TYPE_CHECKING:
    from broker.broker import Broker

logger = logging.getLogger(__name__)

MECHANISMS = {number: name for name, number in NUMBERS.items()}


class Taken(NamedTuple):
    """What is to be taken over, as it is known here."""

    credentials: list[tuple[str, str, Credential]]
    """mechanism, user, what is known of the password"""
    rules: list[Acl]
    quotas: list[tuple[Entity, str, float]]
    next_producer_id: int


async def find_security(broker: Broker) -> Taken | None:
    """Before anything is taken over: what there is to be. AdoptionError where it cannot be read and clients
    would be let in, or may do things, by it; else that is told, and tried again next time.
    """
    if broker.users.has_adopted:
        return None
    try:
        return await broker.run_blocking(_read, broker)
    except (OSError, ValueError, KafkaError) as error:
        problem = f"the users, rules and quotas of Apache Kafka are not taken over: {error}"
        if _matters(broker):
            unset = ", take metadata.log.dir out of the configuration" * bool(broker.config.metadata_log_dir)
            raise AdoptionError(
                f"{problem}. Put a good copy of {NAME} in its place, or remove with Apache Kafka what is not "
                f"known here. To start without users, rules and quotas, move {NAME} away{unset}"
            ) from error
        logger.error(problem)
        return None


def _matters(broker: Broker) -> bool:
    """Whether anybody is asked for a password, or held to rules."""
    return broker.authorizer is not None or any(one.security.uses_sasl for one in broker.listeners)


async def adopt_security(broker: Broker, found: Taken | None) -> None:
    """Before clients are served. AdoptionError where it cannot be written; else as `find_security`."""
    if found is None:
        return
    try:
        _store(broker, found)
        broker.metadata.append(ADOPTED, "", {})
        await broker.metadata.flushed()
    except KafkaError as error:
        problem = f"the users, rules and quotas of Apache Kafka are not taken over: {error}"
        if _matters(broker):
            raise AdoptionError(problem) from error
        logger.error(problem)
        return
    if found.credentials or found.rules or found.quotas:
        text = "took over %d passwords, %d rules and %d quotas from Apache Kafka"
        logger.info(text, len(found.credentials), len(found.rules), len(found.quotas))


def _read(broker: Broker) -> Taken | None:
    """OSError, KafkaError, ValueError."""
    home = home_of(broker)
    found = None if home is None else read_security(home)
    if found is None:
        return None
    try:
        return Taken(
            [(_mechanism(one), one.name, _credential(one)) for one in found.credentials],
            [_rule(one) for one in found.rules],
            [(_entity(one), one.key, one.value) for one in found.quotas],
            found.next_producer_id,
        )
    except ValueError as error:
        raise ValueError(f"{home}/{NAME}: {error}") from error


def _store(broker: Broker, found: Taken) -> None:
    broker.producer_ids.keep_away(found.next_producer_id)  # producers that stay may not have written yet
    for credential in found.credentials:
        broker.users.set(*credential)
    settings = broker.quotas.settings
    for entity, key, value in found.quotas:
        settings.set(entity, {**settings.values.get(entity, {}), key: value})
    if broker.authorizer is not None:
        broker.authorizer.add(found.rules)
        return
    for rule in found.rules:  # for when there is one
        write_rule(broker.metadata, rule, {})


def _mechanism(record: UserScramCredentialRecord) -> str:
    """ValueError for what only a later Kafka knows."""
    if record.mechanism not in MECHANISMS:
        raise ValueError(f"the password of {record.name} is of mechanism {record.mechanism}, unknown here")
    return MECHANISMS[record.mechanism]


def _credential(record: UserScramCredentialRecord) -> Credential:
    return Credential(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )


def _entity(record: ClientQuotaRecord) -> Entity:
    return entity_of((part.entity_type, part.entity_name) for part in record.entity)


def _rule(record: AccessControlEntryRecord) -> Acl:
    """ValueError for what only a later Kafka knows."""
    try:
        return Acl(
            Resource(record.resource_type),
            record.resource_name,
            Pattern(record.pattern_type),
            record.principal,
            record.host,
            Operation(record.operation),
            Permission(record.permission_type),
        )
    except ValueError as error:
        raise ValueError(f"a rule for {record.principal} on {record.resource_name}: {error}") from None
