"""What rules come to, by a plain walk over all of them: what the broker's own way is compared with."""

from __future__ import annotations

from collections.abc import Iterable

from broker.security.acls import ANY_NAME, ANYBODY, ANYWHERE, Acl, Asker, Operation, Pattern, Permission

SPELLINGS = (
    ("::1", "0:0:0:0:0:0:0:1", "0000:0:0::0001"),
    ("10.0.0.1", "::ffff:10.0.0.1", "::FFFF:a00:1"),
    ("fe80::ab", "fe80:0:0:0:0:0:0:ab%eth0", "FE80::AB%2"),
)
"""of one address each: as Python has it, and as Java or a person might"""


def verdict(acls: Iterable[Acl], asker: Asker, operation: Operation, name: str) -> bool | None:
    """What rules of one kind of resource say; None when none of them is about the one of this name."""
    is_ruled = is_allowed = False
    for acl in acls:
        if not acl.is_about(name):
            continue
        is_ruled = True
        if _is_for(acl, asker) and acl.covers(operation):
            if acl.permission is Permission.DENY:
                return False
            is_allowed = True
    return is_allowed if is_ruled else None


def may_somewhere(acls: Iterable[Acl], asker: Asker, operation: Operation) -> bool:
    """Whether rules of one kind of resource allow the operation for some name, be there one or not."""
    rules = [acl for acl in acls if _is_for(acl, asker) and acl.covers(operation)]
    denied = [acl for acl in rules if acl.permission is Permission.DENY]
    return any(
        acl.permission is Permission.ALLOW and not any(_is_within(acl, other) for other in denied)
        for acl in rules
    )


def _is_for(acl: Acl, asker: Asker) -> bool:
    return acl.principal in (asker.principal, ANYBODY) and _is_from(acl.host, asker.host)


def _is_from(host: str, other: str) -> bool:
    return host in (other, ANYWHERE) or any(host in one and other in one for one in SPELLINGS)


def _is_within(acl: Acl, other: Acl) -> bool:
    """Whether all names that the one is about are names that the other is about."""
    if other.pattern is Pattern.LITERAL:
        if other.name == ANY_NAME:
            return True
        return acl.pattern is Pattern.LITERAL and acl.name == other.name
    is_every = acl.pattern is Pattern.LITERAL and acl.name == ANY_NAME
    return not is_every and acl.name.startswith(other.name)
