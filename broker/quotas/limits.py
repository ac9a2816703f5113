"""Which quota holds for a client, of all that were set of one kind. Pure.

The most exact one comes first: those of its user and client id, then of its user, then of all users, then of
its client id, then of all client ids. Who has the same quota of a user shares it, whatever the client ids;
one of all users or of all client ids is for each of them. Mirrors Kafka's `ClientQuotaManager`.
"""

from __future__ import annotations

from typing import NamedTuple

NOT_SAID = ""
"""in place of a user or of a client id: the quota does not look at it"""
Entity = tuple[str | None, str | None]
"""whose quota it is: the user and the client id; None is the default, for each that has no own one"""
Place = tuple[str, str]
"""whose traffic is counted together: the user and the client id, NOT_SAID for all of them"""


class Found(NamedTuple):
    """The quota that holds for a client."""

    place: Place
    """where the client's traffic is counted"""
    limit: float
    """how much that may be a second"""


def by_rank(user: str, client_id: str) -> tuple[Entity, ...]:
    """Whose quotas are for a client, the one that holds before the others. Who has said no client id has an
    empty one, and no quota of client ids.
    """
    if client_id == NOT_SAID:
        return (user, NOT_SAID), (None, NOT_SAID)
    return (
        (user, client_id), (user, None), (user, NOT_SAID), (None, client_id), (None, None), (None, NOT_SAID),
        (NOT_SAID, client_id), (NOT_SAID, None),
    )  # fmt: skip


class Limits:
    """Owned by: event loop."""

    def __init__(self) -> None:
        self._limits: dict[Entity, float] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def set(self, entity: Entity, limit: float | None) -> None:
        """Another one, or none."""
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit

    def find(self, user: str, client_id: str) -> Found | None:
        """What holds for a client; None: it may as much as it likes."""
        for entity in by_rank(user, client_id):
            if entity in self._limits:
                place = (
                    NOT_SAID if entity[0] == NOT_SAID else user,
                    NOT_SAID if entity[1] == NOT_SAID else client_id,
                )
                return Found(place, self._limits[entity])
        return None
