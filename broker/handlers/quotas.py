"""DescribeClientQuotas (key 48) v0-v1, AlterClientQuotas (49) v0-v1.

What users, client ids and addresses may do, as Kafka keeps it: changes are durable in `__kompakt_metadata`
when they are answered, and hold at once. Each entity succeeds or fails for itself. A filter finds the
entities that match all of its components: by name, the default, or any; a strict one those that have no
other part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from broker.quotas.settings import (
    CLIENT_ID,
    IP,
    KINDS,
    USER,
    Entity,
    check_entity,
    check_value,
    entity_of,
    invalid,
    shown,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

Component = DescribeClientQuotasRequest.ComponentData
Described = DescribeClientQuotasResponse.EntryData
Alteration = AlterClientQuotasRequest.EntryData
Altered = AlterClientQuotasResponse.EntryData
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""how a component of a filter matches"""


@handles(DescribeClientQuotasRequest)
def describe_client_quotas(
    broker: Broker, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        exact, specified = _wanted(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        _described(entity, values)
        for entity, values in broker.quotas.settings.values.items()
        if _is_meant(dict(entity), exact, specified, is_strict=request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _wanted(components: Sequence[Component]) -> tuple[dict[str, str | None], set[str]]:
    """The names of the kinds that have to have one, and the kinds that may have any. KafkaError for a filter
    that Apache Kafka does not take, in its words.
    """
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in components:
        kind, how, name = component.entity_type, component.match_type, component.match
        if not kind:
            raise invalid("Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in KINDS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if how not in (EXACT, DEFAULT, SPECIFIED):
            raise invalid(f"Unknown match type {how}")
        if how == EXACT and name is None:
            raise invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if how != EXACT and name is not None:
            spelled = "DEFAULT" if how == DEFAULT else "SPECIFIED"
            raise invalid(f"Request specified MATCH_TYPE_{spelled}, but also specified a match string.")
        if how == SPECIFIED:
            specified.add(kind)
        else:
            exact[kind] = name
    kinds = specified | set(exact)
    if IP in kinds and kinds & {USER, CLIENT_ID}:
        raise invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )
    return exact, specified


def _is_meant(
    names: Mapping[str, str | None], exact: Mapping[str, str | None], specified: set[str], *, is_strict: bool
) -> bool:
    if is_strict and len(names) != len(exact) + len(specified):
        return False
    return specified <= names.keys() and exact.items() <= names.items()


def _described(entity: Entity, values: Mapping[str, float]) -> Described:
    return Described(
        entity=[Described.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[Described.ValueData(key=key, value=value) for key, value in sorted(values.items())],
    )


@handles(AlterClientQuotasRequest)
async def alter_client_quotas(
    broker: Broker, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    entities = [
        entity_of((part.entity_type, part.entity_name) for part in entry.entity) for entry in request.entries
    ]
    hosts = {name for entity in entities for kind, name in entity if kind == IP and name}
    addresses = await broker.quotas.resolve(hosts)
    wanted: dict[Entity, dict[str, float]] = {}
    told: dict[Entity, KafkaError | None] = {}
    for entity, entry in zip(entities, request.entries, strict=True):
        try:
            if entity in told or _names_twice(entry):
                raise invalid(f"Ignoring duplicate entity {shown(entity)}")
            check_entity(entity, addresses.__contains__)
            wanted[entity] = _changed(broker, entity, entry)
            told[entity] = None
        except KafkaError as error:
            told[entity] = error
    if not request.validate_only:
        known = broker.quotas.settings.values
        for entity, values in wanted.items():
            if values != known.get(entity, {}):
                broker.quotas.settings.set(entity, values)
        await broker.metadata.flushed()
    return AlterClientQuotasResponse(entries=[_altered(entity, error) for entity, error in told.items()])


def _names_twice(entry: Alteration) -> bool:
    """Whether a key is there twice, of which Kafka speaks as of an entity that is."""
    return len({change.key for change in entry.ops}) < len(entry.ops)


def _changed(broker: Broker, entity: Entity, entry: Alteration) -> dict[str, float]:
    """All quotas that the entity shall have. KafkaError."""
    values = dict(broker.quotas.settings.values.get(entity, {}))
    for change in entry.ops:
        if change.remove:
            values.pop(change.key, None)
            continue
        check_value(entity, change.key, change.value)
        values[change.key] = change.value
    return values


def _altered(entity: Entity, error: KafkaError | None) -> Altered:
    parts = [Altered.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    if error is None:
        return Altered(error_message=None, entity=parts)
    return Altered(error_code=error.code, error_message=error.message, entity=parts)
