"""The rules about one kind of resource, so kept that a decision asks for a name and not for all rules. Pure.

Whoever asks is held against at most four bundles of rules (its own name or any, its own address or any), and
a name against a bundle by one look into a set and one into a sorted list: who has no right at all may ask for
a hundred thousand names in one request, while thousands of rules are about others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import product

from broker.quotas.addresses import address_or_text
from broker.security.acls import ANY_NAME, ANYBODY, ANYWHERE, Acl, Asker, Operation, Pattern, Permission


class Names:
    """Those that rules are about: single ones, all that begin with something, or every one. Immutable."""

    def __init__(self, single: Iterable[str], prefixes: Iterable[str] = ()) -> None:
        self.single = frozenset(single)
        self.is_every = ANY_NAME in self.single
        self.prefixes: list[str] = []
        """in order, none of which begins with another one"""
        for prefix in sorted(prefixes):
            if not self.prefixes or not prefix.startswith(self.prefixes[-1]):
                self.prefixes.append(prefix)

    def __bool__(self) -> bool:
        return bool(self.single or self.prefixes)

    def __contains__(self, name: str) -> bool:
        return self.is_every or name in self.single or self.has_all_from(name)

    def has_all_from(self, prefix: str) -> bool:
        """Whether all that begin so are among them, by a rule about what begins with something."""
        # Between a name and what it begins with, only what begins so as well comes in order: of those that
        # are kept, none.
        at = bisect_right(self.prefixes, prefix)
        return at > 0 and prefix.startswith(self.prefixes[at - 1])


EVERY_NAME = Names([ANY_NAME])


def names_in(acls: Iterable[Acl]) -> Names:
    """What the rules are about."""
    single, prefixes = set[str](), set[str]()
    for acl in acls:
        (prefixes if acl.pattern is Pattern.PREFIXED else single).add(acl.name)
    return Names(single, prefixes)


class Ruling:
    """What the rules come to for one who asks and one operation, until they change. As in Kafka a rule that
    denies comes before all that allow. Immutable.
    """

    def __init__(self, denied: Iterable[Names], allowed: Iterable[Names], ruled: Names = EVERY_NAME) -> None:
        """What is neither denied nor allowed may be done if it is not in `ruled`."""
        self._denied = tuple(filter(None, denied))
        self._allowed = tuple(filter(None, allowed))
        self._ruled = ruled

    def without(self, names: Names) -> Ruling:
        """The same, but that these are denied."""
        return Ruling((*self._denied, names), self._allowed, self._ruled)

    def allows(self, name: str) -> bool:
        """Whether it may be done with the one of this name, be there one or not."""
        for names in self._denied:
            if name in names:
                return False
        for names in self._allowed:
            if name in names:
                return True
        return name not in self._ruled

    @cached_property
    def allows_somewhere(self) -> bool:
        """Whether a rule allows it for some name, be there a resource of that name or not."""
        denied = self._denied
        if any(names.is_every for names in denied):
            return False
        return any(
            names.is_every
            or any(all(name not in others for others in denied) for name in names.single)
            or any(not any(others.has_all_from(prefix) for others in denied) for prefix in names.prefixes)
            for names in self._allowed
        )


class Rules:
    """Owned by: event loop."""

    def __init__(self) -> None:
        self._bundles: defaultdict[tuple[str, str], dict[Acl, None]] = defaultdict(dict)
        """by principal and host, which Java spells otherwise where it is an address of IPv6"""
        self._names: dict[tuple[str, str], dict[tuple[Operation, Permission], Names]] = {}
        """of a bundle, what its rules of a permission that cover an operation are about; made when asked"""
        self._ruled: Names | None = None

    def __iter__(self) -> Iterator[Acl]:
        for bundle in self._bundles.values():
            yield from bundle

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._bundles.get(_whose(acl), ())

    def add(self, acl: Acl) -> None:
        whose = _whose(acl)
        self._bundles[whose][acl] = None
        self._forget(whose)

    def remove(self, acl: Acl) -> None:
        """KeyError: it is not there."""
        whose = _whose(acl)
        del self._bundles[whose][acl]
        if not self._bundles[whose]:
            del self._bundles[whose]
        self._forget(whose)

    def _forget(self, whose: tuple[str, str]) -> None:
        self._names.pop(whose, None)
        self._ruled = None

    def ruling(self, asker: Asker, operation: Operation, *, default: bool) -> Ruling:
        """What holds until rules change; `default`: whether all may do what no rule at all is about."""
        who = dict.fromkeys(product((asker.principal, ANYBODY), (address_or_text(asker.host), ANYWHERE)))
        bundles = [bundle for bundle in who if bundle in self._bundles]
        denied = [self._names_of(bundle, operation, Permission.DENY) for bundle in bundles]
        allowed = [self._names_of(bundle, operation, Permission.ALLOW) for bundle in bundles]
        if not default:
            return Ruling(denied, allowed)
        if self._ruled is None:
            self._ruled = names_in(self)
        return Ruling(denied, allowed, self._ruled)

    def _names_of(self, bundle: tuple[str, str], operation: Operation, permission: Permission) -> Names:
        known = self._names.setdefault(bundle, {})
        names = known.get((operation, permission))
        if names is None:
            acls = self._bundles[bundle]
            names = known[operation, permission] = names_in(
                acl for acl in acls if acl.permission is permission and acl.covers(operation)
            )
        return names


def _whose(acl: Acl) -> tuple[str, str]:
    return acl.principal, address_or_text(acl.host)
