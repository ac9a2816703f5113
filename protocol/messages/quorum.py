"""Records of Apache Kafka's quorum log that say what topics there are, with which settings, who its users
are, which rules and quotas there are for them, and which producer ids were given (KIP-631). They are only
read, where a directory of Kafka's is adopted.
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import (
    array,
    binary,
    boolean,
    data,
    float64,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)


@data(versions="0", flexible="0+")
class TopicRecord:
    """There is a topic."""

    name: str = string()
    topic_id: UUID = uuid()


@data(versions="0", flexible="0+")
class RemoveTopicRecord:
    """There is none any more, nor its settings."""

    topic_id: UUID = uuid()


@data(versions="0", flexible="0+")
class ConfigRecord:
    """A setting of a topic, or of something else; null takes it away."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


@data(versions="0", flexible="0+")
class UserScramCredentialRecord:
    """What is kept of a user's password."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


@data(versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """It is not any more."""

    name: str = string()
    mechanism: int = int8()


@data(versions="0", flexible="0+")
class AccessControlEntryRecord:
    """There is a rule."""

    id: UUID = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@data(versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """It is not any more."""

    id: UUID = uuid()


@data(versions="0", flexible="0+")
class ClientQuotaRecord:
    """A quota of users, client ids or addresses, or that it is not any more."""

    @struct
    class EntityData:
        entity_type: str = string()
        entity_name: str | None = string(nullable="0+")

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@data(versions="0", flexible="0+")
class ProducerIdsRecord:
    """A broker has got a block of producer ids."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    next_producer_id: int = int64()
    """the first that is in no block yet"""
