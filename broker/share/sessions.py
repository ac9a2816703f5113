"""Share sessions (KIP-932): the broker remembers which partitions a member of a share group fetches.

Epoch 0 begins a session with the partitions that it names, each later one adds to them, forgets others, and
counts up; -1 ends it, and so does the end of its connection: what the member has is for others then. Answers
behind the first leave out partitions without news. Mirrors Kafka's ShareSession, ShareSessionCache and
ShareSessionContext.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from broker.node import Node
from broker.share.coordinator import ShareCoordinator
from broker.share.partition import ShareKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_fetch import ShareFetchResponse

if TYPE_CHECKING:
    from broker.context import Client

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1

Place = tuple[UUID, int]
PartitionAnswer = ShareFetchResponse.ShareFetchableTopicResponse.PartitionData


class Member(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions that a member fetches, in the order of their turns. Owned by: event loop."""

    __slots__ = ("_is_due", "connection", "epoch", "places")

    def __init__(self, places: Iterable[Place], connection: Client | None) -> None:
        self.epoch = INITIAL_EPOCH + 1
        self.places: dict[Place, None] = dict.fromkeys(places)
        self.connection = connection
        self._is_due: set[Place] = set()

    def apply(self, places: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Take over what a later fetch adds and forgets."""
        for place in places:
            if place not in self.places:
                self.places[place] = None
                self._is_due.add(place)
        for place in forgotten:
            self.places.pop(place, None)
        self.epoch = self.epoch + 1 if self.epoch < MAX_EPOCH else INITIAL_EPOCH + 1

    def has_news(self, place: Place, answer: PartitionAnswer) -> bool:
        """Whether a later answer must carry this partition; remembers what it carries."""
        has_news = bool(answer.records) or place in self._is_due
        self._is_due.discard(place)
        if answer.error_code:
            self._is_due.add(place)  # the recovery from an error is news
            has_news = True
        if answer.records and place in self.places:  # others have their turn
            self.places[place] = self.places.pop(place)
        return has_news


class ShareSessions:
    """All of them. Owned by: event loop."""

    def __init__(self, node: Node, shares: ShareCoordinator) -> None:
        self._node = node
        self._shares = shares
        self.sessions: dict[Member, ShareSession] = {}
        self._members: dict[Client, set[Member]] = {}
        """who began a session over which connection"""

    def begin(self, member: Member, places: Iterable[Place], connection: Client | None) -> ShareSession:
        """A session in place of what the member had. SHARE_SESSION_LIMIT_REACHED: there are too many."""
        before = self.sessions.pop(member, None)
        if before is not None:
            self._leave(member, before)
        if len(self.sessions) >= self._node.config.group_share_max_share_sessions:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, "The limit of share sessions has been reached."
            )
        session = self.sessions[member] = ShareSession(places, connection)
        if connection is not None:
            self._members.setdefault(connection, set()).add(member)
        return session

    def find(self, member: Member, epoch: int) -> ShareSession:
        """The session of a later fetch or acknowledgement; KafkaError if there is none, or not of this
        epoch.
        """
        session = self.sessions.get(member)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session was not found.")
        if epoch not in (session.epoch, FINAL_EPOCH):
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The share session epoch is invalid.")
        return session

    def end(self, member: Member) -> None:
        """The member fetches no more: what it has is for others."""
        session = self.sessions.pop(member, None)
        if session is not None:
            self._leave(member, session)
            for topic_id, index in session.places:
                self._shares.release(ShareKey(member.group_id, topic_id, index), member.member_id)

    def _leave(self, member: Member, session: ShareSession) -> None:
        """The session is its connection's no more: a connection may outlive any number of them."""
        if session.connection is not None:
            members = self._members.get(session.connection)
            if members is not None:
                members.discard(member)
                if not members:
                    del self._members[session.connection]

    def on_disconnect(self, connection: Client) -> None:
        """Sessions go with their connection."""
        for member in self._members.pop(connection, ()):
            session = self.sessions.get(member)
            if session is not None and session.connection is connection:
                self.end(member)
