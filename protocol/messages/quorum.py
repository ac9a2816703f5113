"""Records of Apache Kafka's quorum log that say what topics there are, with which settings (KIP-631). They
are only read, where a directory of Kafka's is adopted.
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import data, int8, string, uuid


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
