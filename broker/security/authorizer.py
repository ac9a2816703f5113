"""The rules that hold, and the answer to "may this client do that?"; as records of `__kompakt_metadata`:

    {"name": "[2,\"prices\",3,\"User:alice\",\"*\",3,3]", "type": "acl"}  {}

The name is the whole rule, in Kafka's numbers. Without `authorizer.class.name` there is no `Authorizer`, and
nobody is kept from anything. Mirrors Kafka's `StandardAuthorizer` and `AclControlManager`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from broker.metadata_log import MetadataLog, State
from broker.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    Asker,
    Filter,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from broker.security.denials import Denials
from broker.security.rules import EVERY_NAME, Names, Rules, Ruling
from broker.topic import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.context import RequestContext
    from config.broker import BrokerConfig
    from protocol.messages.produce import ProduceRequest

ACL = "acl"
LISTING = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
"""what is asked of everything where all topics or groups are listed"""
OWN = Names([METADATA_TOPIC])
MOST_RULINGS = 10_000
"""that are remembered; then they are made anew"""


def parse_super_users(text: str) -> frozenset[str]:
    """`User:alice;User:bob`."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


class Authorizer:
    """Owned by: event loop; `restore` comes before the broker listens."""

    def __init__(self, config: BrokerConfig, metadata: MetadataLog, passed_ms: Callable[[], int]) -> None:
        self._metadata = metadata
        self.on_changed: Callable[[], None] = lambda: None
        self._super_users = parse_super_users(config.super_users)
        self._default = config.allow_everyone_if_no_acl_found
        self._rules: defaultdict[Resource, Rules] = defaultdict(Rules)
        self.version = 0
        """another one whenever rules change"""
        self._rulings: dict[tuple[Asker, Operation, Resource, bool], Ruling] = {}
        self._denials = Denials(passed_ms)

    def restore(self, state: State) -> None:
        """As `__kompakt_metadata` has them."""
        for kind, name in state:
            if kind == ACL:
                acl = _read(name)
                self._rules[acl.resource].add(acl)

    def allows(
        self,
        asker: Asker,
        operation: Operation,
        resource: Resource,
        name: str,
        *,
        by_rules_alone: bool = False,
    ) -> bool:
        """Whether the client may do it; of what is not there as well. A denial is told in the log, once until
        rules change. `by_rules_alone`: be the client a super user or not, and nothing is allowed by default.
        """
        if self._ruling(asker, operation, resource, by_rules_alone).allows(name):
            return True
        if operation not in LISTING:
            self._denials.tell(asker, operation, resource, name)
        return False

    def _ruling(
        self, asker: Asker, operation: Operation, resource: Resource, by_rules_alone: bool = False
    ) -> Ruling:
        key = (asker, operation, resource, by_rules_alone)
        ruling = self._rulings.get(key)
        if ruling is None:
            if len(self._rulings) >= MOST_RULINGS:
                self._rulings.clear()
            ruling = self._rulings[key] = self._make_ruling(*key)
        return ruling

    def _make_ruling(
        self, asker: Asker, operation: Operation, resource: Resource, by_rules_alone: bool
    ) -> Ruling:
        if asker.principal in self._super_users and not by_rules_alone:
            return Ruling([], [EVERY_NAME])
        default = self._default and not by_rules_alone
        ruling = self._rules[resource].ruling(asker, operation, default=default)
        if resource is not Resource.TOPIC:
            return ruling
        # Rules about every topic are not meant for that with the rules, and what proves passwords: it is for
        # who may change them. Kafka's clients do not see `__cluster_metadata` at all.
        of_cluster = self._ruling(asker, Operation.ALTER, Resource.CLUSTER, by_rules_alone)
        may_alter = of_cluster.allows(CLUSTER_NAME)
        return ruling if may_alter else ruling.without(OWN)

    def allows_somewhere(self, asker: Asker, operation: Operation, resource: Resource) -> bool:
        """Whether there is a name for which the client may do it, be there a resource of that name or not."""
        if self._default and self.allows(asker, operation, resource, "hardcode"):  # Kafka's name for any
            return True
        return self._ruling(asker, operation, resource).allows_somewhere

    def reader(self, context: RequestContext) -> Callable[[str], bool]:
        """Which topics the client may read."""
        asker = Asker(context.principal, context.client_host)
        return lambda topic: self.allows(asker, Operation.READ, Resource.TOPIC, topic)

    def knower(self, context: RequestContext) -> Callable[[str], bool]:
        """Which topics the client may describe."""
        asker = Asker(context.principal, context.client_host)
        return lambda topic: self.allows(asker, Operation.DESCRIBE, Resource.TOPIC, topic)

    def may_repeat(self, context: RequestContext, request: ProduceRequest) -> bool:
        """Whether a Produce like this one needs no guard (`produce_template.py`), until rules change."""
        asker = Asker(context.principal, context.client_host)
        topics = (data.name for data in request.topic_data)
        return all(self.allows(asker, Operation.WRITE, Resource.TOPIC, topic) for topic in topics)

    def operations(self, asker: Asker, resource: Resource, name: str) -> int:
        """What the client may do, as bits by Kafka's numbers."""
        return sum(1 << one for one in OPERATIONS[resource] if self.allows(asker, one, resource, name))

    def find(self, wanted: Filter) -> list[Acl]:
        """The rules that a filter takes, in order."""
        return sorted(acl for rules in self._rules.values() for acl in rules if wanted.takes(acl))

    def add(self, acls: Iterable[Acl]) -> None:
        """Durable when `metadata.flushed()` returns; they hold at once. KafkaError: one cannot be written."""
        for acl in acls:
            if acl not in self._rules[acl.resource]:
                write_rule(self._metadata, acl, {})
                self._rules[acl.resource].add(acl)
                self._forget_rulings()

    def remove(self, acls: Iterable[Acl]) -> None:
        """As `add`."""
        for acl in acls:
            if acl in self._rules[acl.resource]:
                write_rule(self._metadata, acl, None)
                self._rules[acl.resource].remove(acl)
                self._forget_rulings()

    def _forget_rulings(self) -> None:
        self.version += 1
        self._rulings.clear()
        self._denials.forget()
        self.on_changed()


def topics_to_read(authorizer: Authorizer | None, context: RequestContext) -> Callable[[str], bool] | None:
    """Which topics the client may read; None: all. Without rules who has to give a name may not read what
    proves the passwords of others.
    """
    if authorizer is not None:
        return authorizer.reader(context)
    return _is_not_own if context.listener.security.uses_sasl else None


def _is_not_own(topic: str) -> bool:
    return topic != METADATA_TOPIC


def write_rule(metadata: MetadataLog, acl: Acl, value: Mapping[str, Any] | None) -> None:
    """That there is a rule, or with None that there is not. KafkaError."""
    name = json.dumps(acl, separators=(",", ":"), ensure_ascii=False)
    metadata.append(ACL, name, value)


def _read(name: str) -> Acl:
    resource, own_name, pattern, principal, host, operation, permission = json.loads(name)
    return Acl(
        Resource(resource),
        own_name,
        Pattern(pattern),
        principal,
        host,
        Operation(operation),
        Permission(permission),
    )
