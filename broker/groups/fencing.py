"""Members that do not do in time what they have to are fenced: they are members no more, and what they had is
for the others. Their next heartbeat finds that out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from broker.clock import Clock
from broker.groups.epoch_group import Deadline, EpochGroup
from protocol.errors import KafkaError

G = TypeVar("G", bound=EpochGroup[Any, Any])
logger = logging.getLogger(__name__)


class Fencing(Generic[G]):
    """Of the members of groups `G`. Owned by: event loop."""

    def __init__(
        self, clock: Clock, session_ms: Callable[[G], int], take_out: Callable[[G, str], object]
    ) -> None:
        self._clock = clock
        self._session_ms = session_ms
        """how long a member of a group may be silent"""
        self._take_out = take_out
        """ends a membership; KafkaError: that cannot be written down"""

    def expect_beat(self, group: G, member_id: str) -> None:
        """From now on the member may be silent for as long as its group's settings say."""
        self.expect(group, member_id, Deadline.SESSION, self._session_ms(group))

    def expect(self, group: G, member_id: str, deadline: Deadline, within_ms: int) -> None:
        """From now on the member has so long; what it had before does not count."""
        group.expect(
            member_id, deadline, self._clock.call_later(within_ms, self._fence, group, member_id, deadline)
        )

    def _fence(self, group: G, member_id: str, deadline: Deadline) -> None:
        what = f"{group.kind} group {group.group_id}: {member_id}"
        logger.info("%s fenced: %s", what, deadline.value)
        try:
            self._take_out(group, member_id)
        except KafkaError as error:
            # It stays a member until that can be written down.
            logger.warning("%s cannot be fenced now: %s", what, error)
            self.expect(group, member_id, deadline, self._session_ms(group))
