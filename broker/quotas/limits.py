"""Which quota holds for a client, of all that were set of one kind. Pure.

The most exact one comes first: those of its user and client id, then of its user, then of all users, then of
its client id, then of all client ids. Who has the same quota of a user shares it, whatever the client ids;
one of all users or of all client ids is for each of them. Mirrors Kafka's `ClientQuotaManager`.
"""

from __future__ import annotations

NOT_SAID = ""
"""in place of a user or of a client id: the quota does not look at it"""
Entity = tuple[str | None, str | None]
"""whose quota it is: the user and the client id; None is the default, for each that has no own one"""
Place = tuple[str, str]
"""whose traffic is counted together: the user and the client id, NOT_SAID for all of them"""


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

    def find(self, user: str, client_id: str) -> tuple[Place, float] | None:
        """Where a client's traffic is counted, and how much it may be a second; None: as much as it likes.
        Who has said no client id has an empty one.
        """
        place = self._place(user, client_id)
        limit = self._limit(*place)
        return None if limit is None else (place, limit)

    def _place(self, user: str, client_id: str) -> Place:
        of_users = any(name == NOT_SAID for _, name in self._limits)
        of_clients = any(name == NOT_SAID for name, _ in self._limits)
        of_both = any(NOT_SAID not in entity for entity in self._limits)
        if of_users + of_clients + of_both == 1:
            return NOT_SAID if of_clients else user, NOT_SAID if of_users else client_id
        both, alone = (user, client_id), (user, NOT_SAID)
        by_rank: tuple[tuple[Entity, Place], ...] = (
            ((user, client_id), both),
            ((user, None), both),
            ((user, NOT_SAID), alone),
            ((None, client_id), both),
            ((None, None), both),
            ((None, NOT_SAID), alone),
        )
        return next((place for entity, place in by_rank if entity in self._limits), (NOT_SAID, client_id))

    def _limit(self, user: str, client_id: str) -> float | None:
        by_rank: list[Entity] = []
        if user != NOT_SAID and client_id != NOT_SAID:
            by_rank = [(user, client_id), (user, None), (None, client_id), (None, None)]
        elif user != NOT_SAID:
            by_rank = [(user, NOT_SAID), (None, NOT_SAID)]
        elif client_id != NOT_SAID:
            by_rank = [(NOT_SAID, client_id), (NOT_SAID, None)]
        return next((self._limits[entity] for entity in by_rank if entity in self._limits), None)
