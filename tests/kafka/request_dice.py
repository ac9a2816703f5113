"""Requests that dice fill in: every field of a declared message gets a value that is likely to matter, right
or wrong: topics, groups, users and settings that exist or nearly do.

The same seed makes the same request for two brokers, but for topic ids, which each gives its own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from broker.api import Api
from protocol.schema import Field, Schema, schema_of
from tests.kafka.setting_dice import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS

TOPIC, BROKER, GROUP = 2, 4, 32  # resource types
INTERNAL = ("__consumer_offsets", "__transaction_state")
GROUPS = ("g", "h", "i", "none", "")
NO_ID = UUID(int=0)


class Odds(NamedTuple):
    """Values, and how likely each is."""

    values: Sequence[Any]
    weights: Sequence[float] | None = None


TOPICS = Odds(
    ("a", "b", "c", "new0", "new1", "new.2", "new_2", "none", "", ".", "x" * 249, "x" * 250, "a b", "\u00e9",
     *INTERNAL),
    (8, 6, 6, 8, 8, 3, 3, 3, 0.5, 0.5, 0.3, 0.3, 0.5, 0.3, 1, 0.5),
)  # fmt: skip
OF_GROUPS = Odds(GROUPS, (6, 4, 4, 1, 0.5))
PARTITIONS = Odds((0, 1, 2, 3, -1, 7), (8, 4, 3, 1, 0.5, 0.5))
BY_NAME: dict[str, Odds] = {
    **dict.fromkeys(("name", "topic", "topic_name", "topics", "topic_names"), TOPICS),
    **dict.fromkeys(("group_id", "groups", "group_ids", "groups_names"), OF_GROUPS),
    **dict.fromkeys(
        ("partition_index", "partition", "partition_indexes", "partitions", "partition_id"), PARTITIONS
    ),
    **dict.fromkeys(
        ("transactional_id", "transactional_ids", "v3_and_below_transactional_id"),
        Odds(("t", "u", "", "none"), (5, 4, 0.5, 1)),
    ),
    **dict.fromkeys(("broker_ids", "replicas"), Odds((1, 2, -1, 0), (10, 1, 0.5, 0.5))),
    **dict.fromkeys(("committed_offset", "offset"), Odds((0, 1, 5, 100, -1, -2), (3, 3, 3, 2, 0.5, 0.3))),
    **dict.fromkeys(
        ("committed_leader_epoch", "leader_epoch", "current_leader_epoch"), Odds((-1, 0, 1, 7), (8, 6, 1, 1))
    ),
    **dict.fromkeys(
        ("generation_id", "generation_id_or_member_epoch", "member_epoch"), Odds((-1, 0, 1, 5), (12, 1, 1, 1))
    ),
    "timeout_ms": Odds((60_000,)),
    "num_partitions": Odds((1, 3, -1, 0, 2, -2, 10_001), (8, 4, 4, 1, 2, 1, 0.2)),
    "count": Odds((1, 2, 3, 4, 5, 0, -1), (1, 2, 3, 3, 1, 0.5, 0.5)),
    "replication_factor": Odds((1, -1, 0, 2, 3, -2), (10, 8, 1, 1, 1, 0.5)),
    "config_operation": Odds((0, 1, 2, 3), (10, 4, 3, 3)),
    "key_type": Odds((0, 1, 2, 3), (6, 4, 1, 0.3)),
    "election_type": Odds((0, 1, 2), (6, 4, 0.5)),
    "endpoint_type": Odds((1, 2, 0, 3), (8, 1, 0.5, 0.5)),
    "retention_time_ms": Odds((-1,)),
    "replica_id": Odds((-1,)),
    "timestamp": Odds((-1, -2, -3, 1_700_000_000_001, 0, 5)),
    "isolation_level": Odds((0, 1)),
    "transaction_timeout_ms": Odds((60_000, 1, 0, -1, 900_000, 900_001), (9, 1, 1, 1, 1, 1)),
    **dict.fromkeys(("producer_id", "v3_and_below_producer_id"), Odds((-1, 0, 1, 5), (6, 1, 1, 1))),
    **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch"), Odds((-1, 0, 1), (6, 2, 1))),
    "producer_id_filters": Odds((0, 1, 5)),
    "duration_filter": Odds((-1, 0, 1_000_000)),
    "response_partition_limit": Odds((2000, 1, 2, 0, -1), (5, 3, 3, 0.5, 0.5)),
    "start_offset": Odds((0, 1, 2)),
    "member_id": Odds(("", "m", "x"), (9, 1, 1)),
    "group_instance_id": Odds(("i", ""), (1, 0.1)),
    "committed_metadata": Odds(("", "m", "\u00e9")),
    "states_filter": Odds(("Empty", "Stable", "empty", "Dead", "junk", "")),
    "state_filters": Odds(("Empty", "Ongoing", "junk", "")),
    "types_filter": Odds(("classic", "consumer", "Classic", "share", "junk", "streams")),
    "validate_only": Odds((False, True), (6, 1)),
    **dict.fromkeys(("key", "coordinator_keys"), Odds(("g", "h", "t", "", "a:b:0"))),
}
ANY = {
    "bool": (False, True),
    "string": ("", "x", "a"),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), (0, 1, -1, 2, 100)),
}
USERS = {
    "name": Odds(("alice", "bob", "none", ""), (5, 5, 1, 0.5)),
    "mechanism": Odds((0, 1, 2, 3), (0.5, 5, 5, 0.5)),
    "iterations": Odds((4096, 8192, 4095, 16_384, 16_385, 0, -1), (6, 4, 1, 1, 1, 0.3, 0.3)),
}
RULES = {
    "resource_type": Odds((2, 3, 4, 5, 6), (6, 4, 2, 2, 0.5)),
    "resource_type_filter": Odds((1, 2, 3, 4, 5, 6), (3, 6, 4, 2, 2, 0.5)),
    "resource_pattern_type": Odds((3, 4), (8, 5)),
    "pattern_type_filter": Odds((1, 2, 3, 4), (3, 3, 8, 5)),
    "operation": Odds(range(2, 15)),
    "permission_type": Odds((2, 3), (4, 6)),
    "principal": Odds(("User:alice", "User:bob", "User:*", "Group:x", "User:"), (5, 5, 3, 1, 0.3)),
    "host": Odds(("*", "127.0.0.1", "", "10.0.0.0/8", "localhost"), (6, 4, 0.3, 0.3, 0.3)),
    "resource_name": Odds(("a", "b", "new", "*", "kafka-cluster", "1", "g", ""), (4, 3, 3, 3, 3, 1, 3, 0.5)),
}
RULES |= {f"{name}_filter": RULES[name] for name in ("principal", "host", "resource_name")}
QUOTAS = {
    "entity_type": Odds(("user", "client-id", "ip", "group", ""), (6, 6, 3, 0.3, 0.3)),
    "key": Odds(
        ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
         "connection_creation_rate", "junk", ""),
        (5, 5, 3, 2, 3, 0.5, 0.2),
    ),
    "value": Odds((1000.0, 0.0, -1.0, 5e6, 1.5, 0.5, 1e18)),
    "match_type": Odds((0, 1, 2, 3), (5, 3, 4, 0.3)),
}  # fmt: skip
OF_IP = Odds(("127.0.0.1", "10.0.0.1", "junk", "::1"))
OF_CLIENT = Odds(("alice", "bob", "c1", "a b/\u00e9"))
FAMILIES = {"Acls": RULES, "Quotas": QUOTAS, "ScramCredentials": USERS}
SETTINGS = {TOPIC: TOPIC_SETTINGS, BROKER: BROKER_SETTINGS, GROUP: GROUP_SETTINGS}
OWNERS = {TOPIC: TOPICS, BROKER: Odds(("1", "", "2", "x"), (5, 5, 1, 0.5)), GROUP: OF_GROUPS}
NOT_OF_INTERNAL = {
    "DeleteTopics", "CreatePartitions", "ListOffsets", "DeleteRecords", "AddPartitionsToTxn",
    "DescribeConfigs", "IncrementalAlterConfigs", "AlterConfigs", "OffsetForLeaderEpoch",
}  # fmt: skip
"""Kafka lets clients delete internal topics; their settings and what they hold are each broker's own"""
OFTEN_EMPTY = {"assignments", "configs"}
NEVER_EMPTY = {"transactions"}
"""of none Kafka never answers"""
KEYS = (
    "resource_type", "resource_name", "name", "topic", "topic_name", "topic_id", "partition_index",
    "partition", "group_id", "transactional_id", "entity_type", "key",
)  # fmt: skip
"""what tells rows of a list apart"""


class Draw:
    """One request."""

    def __init__(self, seed: int, topic_ids: Mapping[str, UUID]) -> None:
        self._dice = random.Random(seed)
        self._topic_ids = topic_ids
        self._api = self._struct = ""
        self._family: Mapping[str, Odds] = {}
        self._resource_type = TOPIC
        self._last = ""
        """the setting or the kind of entity that the next value is for"""

    def request(self, api: Api, version: int) -> Any:
        self._api = api.name
        self._family = next((odds for name, odds in FAMILIES.items() if name in api.name), {})
        request = self._filled(schema_of(api.request), api.request, version, depth=0)
        if getattr(request, "deletions", None):
            # A Kafka loses the new ones when the last user of a mechanism goes with the same request.
            request.upsertions = []
        return request

    def _filled(self, schema: Schema, cls: type[Any], version: int, depth: int) -> Any:
        outer, self._struct = self._struct, cls.__name__
        fields = [field for field in schema.fields if field.versions.has(version)]
        made = cls(**{field.name: self._value(field, version, depth) for field in fields})
        self._struct = outer
        return made

    def _value(self, field: Field, version: int, depth: int) -> Any:
        if field.nullable.has(version) and self._dice.random() < (0.4 if "filter" in field.name else 0.15):
            is_huge = field.name == "configuration_keys" and self._resource_type == BROKER
            if not is_huge:
                return None
        if field.kind == "array":
            return self._rows(field, version, depth)
        if field.kind == "struct":
            assert field.struct is not None
            return self._filled(schema_of(field.struct), field.struct, version, depth + 1)
        return self._scalar(field.kind, field.name)

    def _rows(self, field: Field, version: int, depth: int) -> list[Any]:
        """Of those that are about the same one stays: what twice means is no client's question."""
        element = field.element
        assert element is not None
        is_never_empty = depth > 0 or field.name in NEVER_EMPTY
        weights = (5, 5, 2, 1) if field.name in OFTEN_EMPTY else (0 if is_never_empty else 1, 10, 3, 1)
        found: dict[Any, Any] = {}
        for _ in range(self._dice.choices(range(4), weights)[0]):
            if element.kind == "struct":
                assert element.struct is not None
                row = self._filled(schema_of(element.struct), element.struct, version, depth + 1)
                found[tuple(repr(getattr(row, key, None)) for key in KEYS)] = row
            else:
                row = self._scalar(element.kind, field.name)
                found[row] = row
        rows = list(found.values())
        by_id = {row.topic_id: row for row in rows if getattr(row, "topic_id", NO_ID) != NO_ID}
        return list(by_id.values()) or rows  # names beside ids are not looked at by Kafka

    def _scalar(self, kind: str, name: str) -> Any:
        if kind == "uuid":
            return self._topic_id()
        if kind == "bytes":
            return self._dice.randbytes(self._dice.choice((4, 20, 32, 64)))
        if "Config" in self._api or "Config" in self._struct:
            return self._of_settings(kind, name)
        if name in ("entity_name", "match"):
            return self._drawn(OF_IP if self._last == "ip" else OF_CLIENT)
        odds = self._family.get(name) or BY_NAME.get(name)
        if odds is None:
            return self._dice.choice(ANY[kind])
        value = self._drawn(odds)
        if name == "entity_type":
            self._last = value
        return "a" if value in INTERNAL and self._api in NOT_OF_INTERNAL else value

    def _of_settings(self, kind: str, name: str) -> Any:
        dice = self._dice
        if name in ("resource_type", "resource_types"):
            strange = (0,) * 4 if self._api == "DescribeConfigs" else (0.2,) * 4
            self._resource_type = dice.choices((TOPIC, BROKER, GROUP, 0, 1, 3, 64), (14, 4, 5, *strange))[0]
            return self._resource_type
        settings = SETTINGS.get(self._resource_type, TOPIC_SETTINGS)
        if name == "resource_name":
            if self._resource_type == BROKER and self._api == "AlterConfigs":
                return "1"
            owner = self._drawn(OWNERS.get(self._resource_type, Odds(("1", "a", ""))))
            return "a" if owner in INTERNAL else owner
        if name == "value":
            return dice.choice(settings.get(self._last) or ("1",))
        if kind == "string":
            self._last = dice.choice(list(settings))
            return self._last
        return self._drawn(BY_NAME[name]) if name in BY_NAME else dice.random() < 0.5

    def _topic_id(self) -> UUID:
        name, strange = self._drawn(TOPICS), UUID(int=self._dice.getrandbits(128))
        known = self._topic_ids.get(name, UUID(int=7))
        return self._dice.choices((known, NO_ID, strange), (10, 1, 1))[0]

    def _drawn(self, odds: Odds) -> Any:
        return self._dice.choices(odds.values, odds.weights)[0]
