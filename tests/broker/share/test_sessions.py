"""Goal: a share session remembers what its member fetches, and ends with the connection it was begun over.

Method: sessions by themselves, with a coordinator that notes what is released.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest

from broker.share.partition import ShareKey
from broker.share.sessions import (
    FINAL_EPOCH,
    MAX_EPOCH,
    Member,
    PartitionAnswer,
    Place,
    ShareSession,
    ShareSessions,
)
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.world import refused

if TYPE_CHECKING:
    from broker.context import Client
    from broker.node import Node
    from broker.share.coordinator import ShareCoordinator

TOPIC = UUID(int=1)
FIRST, SECOND, THIRD = ((TOPIC, index) for index in range(3))
MEMBER, OTHER = Member("g", "m"), Member("g", "n")


class Sessions(ShareSessions):
    """For two members; notes what is released."""

    def __init__(self) -> None:
        self.released: list[tuple[ShareKey, str]] = []
        shares = SimpleNamespace(release=lambda key, member_id: self.released.append((key, member_id)))
        node = SimpleNamespace(config=SimpleNamespace(group_share_max_share_sessions=2))
        super().__init__(cast("Node", node), cast("ShareCoordinator", shares))


def connection() -> Client:
    return cast("Client", object())


def answer(**said: object) -> PartitionAnswer:
    return PartitionAnswer(partition_index=0, **said)  # type: ignore[arg-type]


def test_a_partition_that_gave_records_has_its_turn_behind_the_others() -> None:
    session = ShareSession([FIRST, SECOND, THIRD], None)
    assert session.has_news(FIRST, answer(records=b"records"))
    assert list(session.places) == [SECOND, THIRD, FIRST]
    assert not session.has_news(SECOND, answer())
    assert list(session.places) == [SECOND, THIRD, FIRST]
    session.apply([], [THIRD])
    assert session.has_news(THIRD, answer(records=b"records"))
    assert list(session.places) == [SECOND, FIRST], "what is forgotten stays so"


def test_a_partition_is_told_when_it_comes_and_when_an_error_comes_or_goes() -> None:
    session = ShareSession([FIRST], None)
    session.apply([FIRST, SECOND], [])
    said: list[tuple[Place, PartitionAnswer]] = [
        (FIRST, answer()),
        (SECOND, answer()),
        (SECOND, answer()),
        (FIRST, answer(error_code=ErrorCode.UNKNOWN_TOPIC_ID)),
        (FIRST, answer(error_code=ErrorCode.UNKNOWN_TOPIC_ID)),
        (FIRST, answer()),
        (FIRST, answer()),
    ]
    assert [session.has_news(*one) for one in said] == [False, True, False, True, True, True, False]


def test_the_epoch_behind_the_last_is_the_first() -> None:
    """Not 0, which begins a session (Kafka's `ShareRequestMetadata.nextEpoch`)."""
    session = ShareSession([], None)
    assert session.epoch == 1
    session.apply([], [])
    assert session.epoch == 2
    session.epoch = MAX_EPOCH
    session.apply([], [])
    assert session.epoch == 1


def test_a_session_is_found_by_its_epoch() -> None:
    sessions = Sessions()
    session = sessions.begin(MEMBER, [FIRST], None)
    assert sessions.find(MEMBER, 1) is sessions.find(MEMBER, FINAL_EPOCH) is session
    assert refused(lambda: sessions.find(MEMBER, 2)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert refused(lambda: sessions.find(OTHER, 1)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_ends_with_its_own_connection() -> None:
    """A member that came back over another one keeps what it has when the first is found to be gone."""
    sessions = Sessions()
    before, now = connection(), connection()
    sessions.begin(MEMBER, [FIRST], before)
    sessions.begin(OTHER, [SECOND], before)
    session = sessions.begin(MEMBER, [FIRST, THIRD], now)
    sessions.on_disconnect(before)
    assert sessions.sessions == {MEMBER: session}
    assert sessions.released == [(ShareKey("g", *SECOND), "n")]
    sessions.on_disconnect(connection())
    sessions.on_disconnect(now)
    assert sessions.sessions == {}
    assert sessions.released[1:] == [(ShareKey("g", *place), "m") for place in (FIRST, THIRD)]


def test_a_session_begun_anew_takes_no_other_ones_room() -> None:
    sessions = Sessions()
    here = connection()
    for _ in range(3):
        sessions.begin(MEMBER, [FIRST], here)
        sessions.begin(OTHER, [FIRST], here)
    with pytest.raises(KafkaError) as caught:
        sessions.begin(Member("g", "o"), [FIRST], here)
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.released == [], "who begins anew keeps what it has"
    sessions.end(MEMBER)
    sessions.end(MEMBER)
    sessions.begin(Member("g", "o"), [FIRST], here)
    assert len(sessions.sessions) == 2
