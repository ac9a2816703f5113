"""DescribeClientQuotas, AlterClientQuotas: how much users, client ids and addresses may do.

v1 of both: flexible.
"""

from __future__ import annotations

from protocol.schema import (
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    request,
    response,
    string,
    struct,
)


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Ask for the quotas of the entities that match every component."""

    @struct
    class ComponentData:
        entity_type: str = string()
        match_type: int = int8()
        match: str | None = string(nullable="0+")

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@response(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas by entity; null where there was an error."""

    @struct
    class EntryData:
        @struct
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        @struct
        class ValueData:
            key: str = string()
            value: float = float64()

        entity: list[EntityData] = array(EntityData)
        values: list[ValueData] = array(ValueData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Set and remove quotas of entities; a name that is null is the default of its type."""

    @struct
    class EntryData:
        @struct
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        @struct
        class OpData:
            key: str = string()
            value: float = float64()
            remove: bool = boolean()

        entity: list[EntityData] = array(EntityData)
        ops: list[OpData] = array(OpData)

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@response(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """What became of each entity."""

    @struct
    class EntryData:
        @struct
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        entity: list[EntityData] = array(EntityData)

    throttle_time_ms: int = int32()
    entries: list[EntryData] = array(EntryData)
