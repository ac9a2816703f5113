"""Rules (ACLs): who may do what with which resource, from where. Pure; what they come to is in `rules.py`.

Mirrors Kafka's `AclBinding` and `AclBindingFilter`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"
ANYBODY, ANYWHERE, ANY_NAME = "User:*", "*", "*"


class Resource(IntEnum):
    """Kafka's `ResourceType`."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    """Kafka's `AclOperation`."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Kafka's `AclPermissionType`."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(IntEnum):
    """Kafka's `PatternType`."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
"""what may be done by who is allowed one of these; to deny these denies nothing else"""
OPERATIONS = {
    Resource.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip
"""those that there are for a resource, as clients are told of them"""


class Asker(NamedTuple):
    """Who asks, and from which address."""

    principal: str
    host: str


class Acl(NamedTuple):
    """One rule."""

    resource: Resource
    name: str
    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def is_about(self, name: str) -> bool:
        """Whether it holds for the resource of this name."""
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)

    def covers(self, operation: Operation) -> bool:
        """Whether what it allows or denies contains the operation."""
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission is Permission.ALLOW and self.operation in IMPLIED.get(operation, ())


class Filter(NamedTuple):
    """Which rules are meant: None, and ANY, are all."""

    resource: Resource
    name: str | None
    pattern: Pattern
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def takes(self, acl: Acl) -> bool:
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self._takes_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _takes_name(self, acl: Acl) -> bool:
        if self.pattern in (Pattern.LITERAL, Pattern.PREFIXED) and self.pattern is not acl.pattern:
            return False
        if self.name is None:
            return True
        return acl.is_about(self.name) if self.pattern is Pattern.MATCH else acl.name == self.name
