"""Goal: what a client may do by which rule, and what it is told where it may not, are Apache Kafka's.

Method: both brokers get the same rules for one user, one set after the other; every API is asked by that
user, and all that the answers name must agree: errors, their words, topics, groups, ids, the operations
that clients are told they may do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from broker.api import apis
from broker.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, Resource
from broker.security.guards.call import OPEN
from protocol.errors import ErrorCode
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
)
from protocol.records import encode_batch
from protocol.schema import registry, schema_of
from tests.certificates import Certificates
from tests.kafka.authorization_questions import (
    DOOMED,
    GROUP,
    OTHER,
    OTHER_DOOMED,
    OTHER_GROUP,
    OTHER_TX,
    OWN,
    TX,
    every_question,
)
from tests.kafka.raw import Raw
from tests.kafka.tools import Tools
from tests.secured import PASSWORD, USER, SecuredBroker, SecuredKafka
from tests.waiting import wait_for

pytestmark = pytest.mark.java
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "auto.create.topics.enable": "false",
    "node.id": "1",
    # Records of these tests are old: on a slow machine one broker would have removed them, the other not yet.
    "log.retention.ms": "-1",
}
NAMES = (
    "name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "resource_type", "key",
    "partition_index", "index", "partition",
)  # fmt: skip
"""fields that say what a row is about"""
PLACES = (
    "base_offset", "log_append_time_ms", "log_start_offset", "offset", "timestamp", "leader_epoch",
    "end_offset", "low_watermark", "generation_id", "producer_id", "producer_epoch", "high_watermark",
    "last_stable_offset", "committed_offset",
)  # fmt: skip
"""fields that are there where something failed as well"""
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Rule(NamedTuple):
    """For User:alice, unless another one is named."""

    resource: Resource
    name: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern: Pattern = Pattern.LITERAL
    principal: str = f"User:{USER}"
    host: str = "*"


TOPIC, CLUSTER, TRANSACTIONAL_ID = Resource.TOPIC, Resource.CLUSTER, Resource.TRANSACTIONAL_ID
SETS: dict[str, list[Rule]] = {"nothing": []}
for operation in (
    Operation.ALL, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
    Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
):  # fmt: skip
    SETS[f"topic {operation.name}"] = [Rule(TOPIC, OWN, operation, pattern=Pattern.PREFIXED)]
for operation in (
    Operation.ALL, Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
):  # fmt: skip
    SETS[f"cluster {operation.name}"] = [Rule(CLUSTER, CLUSTER_NAME, operation)]
for operation in (Operation.ALL, Operation.READ, Operation.DELETE, Operation.DESCRIBE):
    SETS[f"group {operation.name}"] = [Rule(Resource.GROUP, GROUP, operation)]
for operation in (Operation.WRITE, Operation.DESCRIBE):
    SETS[f"transactional id {operation.name}"] = [Rule(TRANSACTIONAL_ID, TX, operation)]
SETS |= {
    "a consumer": [Rule(TOPIC, OWN, Operation.READ), Rule(Resource.GROUP, GROUP, Operation.READ)],
    "a producer": [Rule(TOPIC, OWN, Operation.WRITE), Rule(TRANSACTIONAL_ID, "*", Operation.WRITE)],
    "exactly once": [
        Rule(TOPIC, "*", Operation.ALL), Rule(Resource.GROUP, "*", Operation.READ),
        Rule(TRANSACTIONAL_ID, TX, Operation.ALL),
    ],
    "everything": [
        Rule(kind, CLUSTER_NAME if kind is CLUSTER else "*", Operation.ALL)
        for kind in (TOPIC, Resource.GROUP, CLUSTER, TRANSACTIONAL_ID)
    ],
    "all but one": [
        Rule(TOPIC, "*", Operation.ALL), Rule(TOPIC, OTHER, Operation.READ, Permission.DENY),
        Rule(Resource.GROUP, "*", Operation.ALL), Rule(Resource.GROUP, GROUP, Operation.ALL, Permission.DENY),
    ],
    "denied before it is allowed": [
        Rule(TOPIC, OWN, Operation.ALL), Rule(TOPIC, "o", Operation.WRITE, Permission.DENY, Pattern.PREFIXED),
    ],
    "to describe denied": [
        Rule(TOPIC, OWN, Operation.READ), Rule(TOPIC, OWN, Operation.DESCRIBE, Permission.DENY),
    ],
    "anybody": [Rule(TOPIC, "*", Operation.READ, principal="User:*")],
    "somebody else": [Rule(TOPIC, "*", Operation.ALL, principal="User:bob")],
    "from here": [Rule(TOPIC, OWN, Operation.ALL, host="127.0.0.1")],
    "from elsewhere": [Rule(TOPIC, OWN, Operation.ALL, host="10.0.0.1")],
    "tokens for another": [Rule(Resource.USER, "User:other", Operation.CREATE_TOKENS)],
    "to write into all that is not denied": [
        Rule(TOPIC, "a", Operation.WRITE, pattern=Pattern.PREFIXED),
        Rule(TOPIC, "a", Operation.ALL, Permission.DENY, Pattern.PREFIXED),
    ],
}  # fmt: skip

DESCRIBING = (Operation.ALL, Operation.ALTER, Operation.DESCRIBE)
LIMIT_SECONDS = 10.0
"""for an answer: where there is none, each set of rules waits for it"""
MISSING_INTERNAL_TOPICS = 3
UNANSWERED = "DescribeUserScramCredentials"
"""Kafka does not answer who may not ask it, kompakt says so"""


def facts(answer: Any) -> Any:
    """What an answer names, rows in an order of their own."""
    found: list[Any] = []
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if dataclasses.is_dataclass(value):
            found.append(facts(value))
        elif isinstance(value, list) and field.name != "configs":
            rows = [facts(one) for one in value if dataclasses.is_dataclass(one)]
            found += sorted((row for row in rows if row and not _is_internal(row)), key=repr)
        elif (
            field.name.endswith(("error_code", "authorized_operations"))
            or field.name in NAMES
            or (field.name in PLACES and getattr(answer, "error_code", 0))
        ):
            found.append((field.name, value))
    return found


def _is_internal(row: list[Any]) -> bool:
    """Of a topic of the broker's own, which are other ones."""
    return any(isinstance(one, tuple) and str(one[1]).startswith("__") for one in row)


def words(answer: Any) -> set[str]:
    """What an answer says of authorization, but for where Kafka prints its own objects."""
    found: set[str] = set()
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        for one in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(one):
                found |= words(one)
        if field.name == "error_message" and value and "authoriz" in value and "Request(" not in value:
            found.add(value)
    return found


class Side:
    """One of the two brokers: the administrator's connection and the user's."""

    def __init__(self, broker: SecuredKafka | SecuredBroker, *, is_new: bool = True) -> None:
        self.admin = Raw(int(broker.bootstrap.rpartition(":")[2]))
        self._user_port = int(broker.address["SASLPLAIN"].rpartition(":")[2])
        for topic in (OWN, OTHER) if is_new else ():
            self.admin.create(topic, {}, partitions=2)
            assert self.admin.produce(topic, encode_batch([(1, b"k", b"v", ())])).error_code == 0
        self._make_doomed()
        for kind, keys in ((0, [GROUP, OTHER_GROUP]), (1, [TX, OTHER_TX])):
            self._ready(FindCoordinatorRequest(key_type=kind, coordinator_keys=keys), 4)
        for name, (request, version) in every_question(self.ids).items():  # groups and ids are loaded
            if name in ("OffsetCommit", "OffsetCommit of another", "InitProducerId of an id", "EndTxn"):
                self._ready(request, version)

    def _ready(self, request: Any, version: int) -> None:
        def is_ready() -> bool:
            return not NOT_YET & {code for _, code in _codes(facts(self.admin.ask(request, version)))}

        wait_for(is_ready, f"an answer to {type(request).__name__}")

    def rule(self, rules: list[Rule]) -> None:
        """These and no others."""
        every = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        self.admin.ask(DeleteAclsRequest(filters=[every]), 3)
        wait_for(lambda: not self.rules(), "no rule to hold")
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=rule.resource, resource_name=rule.name, resource_pattern_type=rule.pattern,
                principal=rule.principal, host=rule.host, operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in rules
        ]  # fmt: skip
        answer = self.admin.ask(CreateAclsRequest(creations=creations), 3)
        assert not any(row.error_code for row in answer.results)
        wait_for(lambda: len(self.rules()) == len(rules), "the rules to hold")

    def rules(self) -> list[Any]:
        answer = self.admin.ask(
            DescribeAclsRequest(
                resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
                principal_filter=None, host_filter=None, operation=1, permission_type=1,
            ),
            3,
        )  # fmt: skip
        return [(row.resource_name, acl) for row in answer.resources for acl in row.acls]

    def answers(self, *, is_answered: bool) -> Iterator[tuple[str, tuple[Any, set[str]]]]:
        """Of every API, to the user: what is named, and the words."""
        self._make_doomed()
        user = self._enter()
        for name, (request, version) in every_question(self.ids).items():
            if name == UNANSWERED and not is_answered:
                continue
            try:
                answer = user.ask(request, version)
                said = facts(answer), words(answer)
            except (AssertionError, OSError) as problem:
                said = f"no answer: {problem}", set()
                user.close()
                user = self._enter()
            yield name, said
        user.close()

    def found_by(self, regex: str, group: str) -> set[str]:
        """The topics that a member of a new group gets, the user, who subscribes to the expression."""
        user = self._enter()
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id="m", member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[],
            subscribed_topic_regex=regex,
        )  # fmt: skip
        names = {topic_id: name for name, topic_id in self._ids().items()}

        def topics() -> set[str]:
            answer = user.ask(request, 1)
            assert not answer.error_code
            request.member_epoch = answer.member_epoch
            rows = () if answer.assignment is None else answer.assignment.topic_partitions
            return {names[row.topic_id] for row in rows}

        found = wait_for(topics, f"topics for {regex}")
        user.close()
        return found

    def joined_streams(self, group: str, changelog: str) -> Any:
        """What the user is told who joins a streams group with a changelog: error, what is missing."""
        topology = StreamsGroupHeartbeatRequest.Topology
        subtopology = Subtopology(
            subtopology_id="0", source_topics=[OWN], state_changelog_topics=[TopicInfo(name=changelog)]
        )
        request = StreamsGroupHeartbeatRequest(
            group_id=group, member_id="m", rebalance_timeout_ms=60_000, process_id="p", active_tasks=[],
            standby_tasks=[], warmup_tasks=[], topology=topology(subtopologies=[subtopology]),
        )  # fmt: skip
        user = self._enter()
        answer = user.ask(request, 0)
        user.close()
        told = [(one.status_code, one.status_detail) for one in answer.status or ()]
        return answer.error_code, [one for one in told if one[0] == MISSING_INTERNAL_TOPICS]

    def described_streams(self, group: str) -> Any:
        """What the user is told of a streams group."""
        user = self._enter()
        request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
        (row,) = user.ask(request, 0).groups
        user.close()
        return row.error_code, row.error_message, row.topology is None, row.authorized_operations

    def _enter(self) -> Raw:
        """As the user."""
        user = Raw(self._user_port, LIMIT_SECONDS)
        assert user.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = f"\0{USER}\0{PASSWORD}".encode()
        assert user.ask(SaslAuthenticateRequest(auth_bytes=token), 1).error_code == 0
        return user

    def _make_doomed(self) -> None:
        """The topics that are deleted by who may."""
        for topic in {DOOMED, OTHER_DOOMED} - self._ids().keys():
            self.admin.create(topic, {})
        self.ids = self._ids()

    def _ids(self) -> dict[str, UUID]:
        """Those of all topics."""
        answer = self.admin.ask(MetadataRequest(topics=None), 12)
        return {row.name: row.topic_id for row in answer.topics}


def _codes(found: list[Any]) -> Iterator[tuple[str, Any]]:
    for one in found:
        if isinstance(one, list):
            yield from _codes(one)
        elif one[0].endswith("error_code"):
            yield one


@pytest.fixture(scope="module")
def sides(
    kafka_tools: Tools, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Side]]:
    directory = tmp_path_factory.mktemp("authorization")
    (directory / "kafka").mkdir()
    started: list[SecuredKafka | SecuredBroker] = [
        SecuredKafka(directory / "kafka", kafka_tools, certificates, SETTINGS),
        SecuredBroker(directory / "data", certificates, SETTINGS),
    ]
    try:
        for broker in started:
            broker.start()
        made = [Side(broker) for broker in started]
        yield made
        for side in made:
            side.admin.close()
    finally:
        for broker in started:
            broker.close()


def test_every_api_is_asked() -> None:
    questions = every_question(dict.fromkeys((OWN, OTHER, OTHER_DOOMED), UUID(int=1)))
    asked = {registry[schema_of(request).key].name for request, _ in questions.values()}
    assert asked == {api.name for api in apis.values()} - OPEN


@pytest.mark.parametrize("name", SETS)
def test_what_rules_allow_is_kafkas(sides: list[Side], name: str) -> None:
    for side in sides:
        side.rule(SETS[name])
    is_answered = any(rule.resource is CLUSTER and rule.operation in DESCRIBING for rule in SETS[name])
    kafkas, own = (dict(side.answers(is_answered=is_answered)) for side in sides)
    different = {
        question: (kafkas[question], own[question])
        for question, (found, said) in kafkas.items()
        if found != own[question][0] or said - own[question][1]
    }
    assert not different, "\n".join(
        f"{question}\n  Kafka   {one}\n  kompakt {other}" for question, (one, other) in different.items()
    )


# What a regular expression finds

KNOWABLE = {
    "what it may read": [Rule(TOPIC, OWN, Operation.READ)],
    "what it may only describe": [Rule(TOPIC, OWN, Operation.DESCRIBE), Rule(TOPIC, OTHER, Operation.CREATE)],
    "all but what it may not": [
        Rule(TOPIC, "*", Operation.READ), Rule(TOPIC, OTHER, Operation.DESCRIBE, Permission.DENY),
    ],
    "all": [Rule(TOPIC, "*", Operation.ALL)],
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWABLE)
def test_a_regular_expression_finds_what_the_member_may_know(sides: list[Side], name: str) -> None:
    for side in sides:
        side.rule([Rule(Resource.GROUP, "*", Operation.READ), *KNOWABLE[name]])
    kafkas, own = (side.found_by(f"[ao].*|{OWN}|{OTHER}", f"found {name}") for side in sides)
    assert own == kafkas
    assert OWN in own
    assert (OTHER in own) == (name == "all")


# Topics of an application of Kafka Streams

MAKING = {
    "nobody": [Rule(TOPIC, "app-", Operation.DESCRIBE, pattern=Pattern.PREFIXED)],
    "by a topic": [
        Rule(TOPIC, "app-", Operation.DESCRIBE, pattern=Pattern.PREFIXED),
        Rule(TOPIC, "app-", Operation.CREATE, pattern=Pattern.PREFIXED),
    ],
    "by the cluster": [
        Rule(TOPIC, "app-", Operation.DESCRIBE, pattern=Pattern.PREFIXED),
        Rule(CLUSTER, CLUSTER_NAME, Operation.CREATE),
    ],
}


@pytest.mark.parametrize("name", MAKING)
def test_internal_topics_of_streams_are_made_by_the_rights_of_who_joins(sides: list[Side], name: str) -> None:
    group = f"app {name}"
    rules = [
        Rule(TOPIC, OWN, Operation.READ),
        Rule(Resource.GROUP, group, Operation.READ),
        *MAKING[name],
    ]
    changelog = f"app-{name.replace(' ', '-')}-store"
    found = []
    for side in sides:
        side.rule(rules)
        found.append([side.joined_streams(group, changelog), side.described_streams(group)])
        if name != "nobody":
            wait_for(lambda: changelog in side._ids(), f"{changelog} to be made")  # noqa: B023
        side.rule([Rule(Resource.GROUP, group, Operation.READ)])
        found[-1].append(side.described_streams(group))
        assert (changelog in side._ids()) == (name != "nobody")
    assert found[0] == found[1]
    assert ("Unauthorized" in found[1][0][1][0][1]) == (name == "nobody"), found[1]


# The calls about rules themselves

CREATIONS = {
    "literal": {},
    "prefixed": {"resource_pattern_type": Pattern.PREFIXED},
    "any name": {"resource_name": "*"},
    "of another": {"principal": "User:bob", "host": "10.0.0.1", "permission_type": Permission.DENY},
    "of a group": {"resource_type": Resource.GROUP},
    "of the cluster": {"resource_type": Resource.CLUSTER, "resource_name": CLUSTER_NAME},
    "of another cluster": {"resource_type": Resource.CLUSTER, "resource_name": "mine"},
    "no name": {"resource_name": ""},
    "any pattern": {"resource_pattern_type": Pattern.ANY},
    "matching pattern": {"resource_pattern_type": Pattern.MATCH},
    "any operation": {"operation": Operation.ANY},
    "any permission": {"permission_type": Permission.ANY},
    "any kind": {"resource_type": Resource.ANY},
    "an operation that does not fit": {"operation": Operation.IDEMPOTENT_WRITE},
}
FILTERS = {
    "all": {},
    "of a topic": {"resource_type_filter": Resource.TOPIC},
    "of a name": {"resource_name_filter": "n"},
    "literal": {"pattern_type_filter": Pattern.LITERAL},
    "prefixed": {"pattern_type_filter": Pattern.PREFIXED, "resource_name_filter": "n"},
    "that match a name": {"pattern_type_filter": Pattern.MATCH, "resource_name_filter": "name"},
    "that match any name": {"pattern_type_filter": Pattern.MATCH, "resource_name_filter": "*"},
    "that match": {"pattern_type_filter": Pattern.MATCH},
    "of somebody": {"principal_filter": "User:bob"},
    "of nobody": {"principal_filter": "User:*"},
    "from somewhere": {"host_filter": "10.0.0.1"},
    "that deny": {"permission_type": Permission.DENY},
    "to read": {"operation": Operation.READ},
    "of all operations": {"operation": Operation.ALL},
}


def creation(**changes: Any) -> CreateAclsRequest.AclCreation:
    values = {
        "resource_type": TOPIC, "resource_name": "n", "resource_pattern_type": Pattern.LITERAL,
        "principal": "User:alice", "host": "*", "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }  # fmt: skip
    return CreateAclsRequest.AclCreation(**{**values, **changes})


def wanted(**changes: Any) -> dict[str, Any]:
    values = {
        "resource_type_filter": Resource.ANY, "resource_name_filter": None,
        "pattern_type_filter": Pattern.ANY, "principal_filter": None, "host_filter": None,
        "operation": Operation.ANY, "permission_type": Permission.ANY,
    }  # fmt: skip
    return {**values, **changes}


def test_rules_are_made_found_and_removed_as_in_kafka(sides: list[Side]) -> None:
    answers = []
    for side in sides:
        side.rule([])
        asked = [CreateAclsRequest(creations=[creation(**changes)]) for changes in CREATIONS.values()]
        made = [side.admin.ask(request, 3).results[0] for request in asked]
        found: list[Any] = [(row.error_code, row.error_message) for row in made]
        count = sum(not row.error_code for row in made)
        wait_for(lambda: len(side.rules()) == count, "the rules to hold")  # noqa: B023
        for changes in FILTERS.values():
            answer = side.admin.ask(DescribeAclsRequest(**wanted(**changes)), 3)
            found.append(sorted(_told(answer)))
        filters = [DeleteAclsRequest.DeleteAclsFilter(**wanted(**one)) for one in list(FILTERS.values())[1:]]
        removed = side.admin.ask(DeleteAclsRequest(filters=filters), 3).filter_results
        found += [sorted(map(repr, row.matching_acls)) for row in removed]
        answers.append(found)
    for kafkas, own in zip(*answers, strict=True):
        if kafkas == (ErrorCode.UNKNOWN_SERVER_ERROR, None):  # it fails where a rule would be about ANY
            assert own[0] == ErrorCode.INVALID_REQUEST
        else:
            assert own == kafkas


def _told(answer: Any) -> Iterator[tuple[Any, ...]]:
    assert not answer.error_code
    for row in answer.resources:
        for acl in row.acls:
            yield (
                row.resource_type, row.resource_name, row.pattern_type, acl.principal, acl.host,
                acl.operation, acl.permission_type,
            )  # fmt: skip
